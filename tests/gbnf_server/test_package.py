"""What the package exports, and where it finds the bundled manifests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import gbnf_server
from gbnf import load_manifests
from gbnf_server.system import folders
from gbnf_server.system.errors import SetupError


@pytest.mark.parametrize("name", gbnf_server.__all__)
def test_every_name_is_there(name: str) -> None:
    assert getattr(gbnf_server, name).__name__ == name


def test_another_name_is_not() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Planer'"):
        _ = gbnf_server.Planer


def test_importing_it_imports_nothing_else() -> None:
    program = "import sys; import gbnf_server; print(*(n for n in sys.modules if n.startswith('gbnf')))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["gbnf_server"]


def test_the_bundled_manifests_are_found() -> None:
    assert len(load_manifests(folders.manifests_path())) >= 14


def test_installed_they_lie_inside_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    package = tmp_path / "site-packages" / "gbnf_server"
    for folder in (package / "manifests" / "a", tmp_path / "manifests" / "b"):
        folder.mkdir(parents=True)
        (folder / "manifest.toml").touch()
    monkeypatch.setattr(folders, "_PACKAGE", package)
    assert folders.manifests_path() == package / "manifests"
    (package / "manifests" / "a" / "manifest.toml").unlink()
    assert folders.manifests_path() == tmp_path / "manifests"
    (tmp_path / "manifests" / "b" / "manifest.toml").unlink()
    with pytest.raises(SetupError, match="Reinstall gbnf-toolkit"):
        folders.manifests_path()
