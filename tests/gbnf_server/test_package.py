"""What the package exports, and where it finds the bundled manifests."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

import gbnf
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
    assert sorted(done.stdout.split()) == ["gbnf", "gbnf.lazy_names", "gbnf_server"]


@pytest.mark.parametrize("content", ["__all__ = ['GBNF']", "", None])
@pytest.mark.parametrize("program", ["import gbnf_server.planner", "from gbnf_server.cli import main"])
def test_an_unrelated_package_that_replaces_gbnf_is_named(
    tmp_path: Path, content: str | None, program: str
) -> None:
    ours = Path(gbnf.__file__).parent
    for path in ours.iterdir():
        place = tmp_path / "gbnf" / path.name
        place.parent.mkdir(exist_ok=True)
        if path.name != "__init__.py":
            place.symlink_to(path)
        elif content is not None:
            place.write_text(content)
    found = f"import sys; sys.path[:0] = [{str(tmp_path)!r}, {str(ours.parent / 'server')!r}]; {program}"
    done = subprocess.run([sys.executable, "-IS", "-c", found], capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1].startswith(
        "ImportError: the package gbnf is not that of gbnf-toolkit"
    )


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
