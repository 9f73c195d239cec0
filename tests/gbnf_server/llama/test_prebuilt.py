"""The bindings with a library of another package: the same structs, or an error before the first call."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import llama_cpp
import pytest

from gbnf_server.llama import prebuilt
from gbnf_server.llama.demo_model import model_path
from gbnf_server.system.errors import SetupError

BINDINGS = Path(llama_cpp.__file__).parent
LIBRARY: Any = llama_cpp.llama_cpp._lib
CONTEXT_FIELDS: Any = llama_cpp.llama_context_params._fields_
BEFORE_THE_LAST_FLAG = [name for name, _ in CONTEXT_FIELDS].index("kv_unified") + 1


def bindings_with(fields: Any) -> Any:
    """The bindings, with other context parameters."""
    changed = type("llama_context_params", (ctypes.Structure,), {"_fields_": fields})
    function = SimpleNamespace(restype=changed)
    names = ("llama_model_default_params", "llama_batch_get_one")
    others = {name: getattr(llama_cpp, name) for name in names}
    return SimpleNamespace(llama_context_default_params=function, **others)


def test_the_known_defaults_are_those_of_the_bindings_own_release() -> None:
    assert [*prebuilt.struct_differences(llama_cpp, LIBRARY)] == []


@pytest.mark.parametrize("place", range(BEFORE_THE_LAST_FLAG))
@pytest.mark.parametrize("change", ["inserted", "removed"])
def test_fields_that_move_are_noticed(place: int, change: str) -> None:
    fields = [*CONTEXT_FIELDS]
    if change == "inserted":
        fields.insert(place, ("other", ctypes.c_size_t))
    else:
        del fields[place]
    bindings = bindings_with(fields)
    kept = {name for name, _ in fields} & {name for name, _ in CONTEXT_FIELDS}
    struct = bindings.llama_context_default_params.restype
    moved = [
        name
        for name in kept
        if getattr(struct, name).offset != getattr(llama_cpp.llama_context_params, name).offset
    ]
    compared = {*prebuilt._DEFAULTS["llama_context_default_params"]}
    found = [*prebuilt.struct_differences(bindings, LIBRARY)]
    assert bool(found) == bool(moved or compared - kept)


def test_functions_that_the_library_lacks_fail_when_they_are_called() -> None:
    library = prebuilt._Library(None)
    function = library.llama_unknown
    function.argtypes = []
    with pytest.raises(SetupError, match="llama_unknown"):
        function()
    with pytest.raises(AttributeError):
        _ = library.another


# Whole packages: the bindings' Python part, and a package that brings the library.


needs_a_compiled_library = pytest.mark.skipif(
    not (BINDINGS / "lib").is_dir(), reason="llama-cpp-python was installed without its library"
)


def packages(folder: Path, *, version: str | None) -> dict[str, str]:
    """Lay out llama_cpp without a library, and xllamacpp with one; return the environment."""
    bindings = folder / "llama_cpp"
    bindings.mkdir()
    for file in BINDINGS.glob("*.py"):
        (bindings / file.name).write_bytes(file.read_bytes())
    if version is not None:
        other = folder / "xllamacpp"
        other.mkdir()
        (other / "__init__.py").touch()
        library = Path(LIBRARY._name)
        for file in library.parent.iterdir():
            (other / file.name).symlink_to(file)
        (other / "xllamacpp.abi3.so").symlink_to(library)
        metadata = folder / f"xllamacpp-{version}.dist-info" / "METADATA"
        metadata.parent.mkdir()
        metadata.write_text(f"Metadata-Version: 2.1\nName: xllamacpp\nVersion: {version}\n")
    path = os.pathsep.join([str(folder), *sys.path])
    return {**os.environ, "PYTHONPATH": path, "GBNF_CACHE": str(folder / "cache")}


def run(environment: dict[str, str], program: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", f"import sys\n{program}", str(model_path())]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


LOAD = "from gbnf_server.llama.bindings import llama_cpp"


@pytest.mark.slow
@needs_a_compiled_library
def test_a_model_runs_with_the_library_of_the_other_package(tmp_path: Path) -> None:
    environment = packages(tmp_path, version=prebuilt.VERSIONS["xllamacpp"])
    done = run(
        environment,
        "from gbnf import Grammar\nfrom gbnf_server import InProcess, Request\n"
        "model = InProcess(sys.argv[1])\n"
        "grammar = Grammar.parse('root ::= \"yes\"')\n"
        "said = model.complete(Request([{'role': 'user', 'content': 'hello'}], grammar=grammar))\n"
        f"{LOAD}\nprint(said.text, llama_cpp.__file__, llama_cpp.llama_cpp._lib._name)",
    )
    text, *files = done.stdout.split() or [done.stderr]
    assert text == "yes"
    assert files == [str(tmp_path / "llama_cpp/__init__.py"), str(tmp_path / "xllamacpp/xllamacpp.abi3.so")]


@needs_a_compiled_library
@pytest.mark.parametrize(
    ("version", "words"),
    [
        (None, "xllamacpp is not installed"),
        ("2026.10.11549", f"xllamacpp {prebuilt.VERSIONS['xllamacpp']}. Found: "),
    ],
)
def test_other_versions_are_not_used(tmp_path: Path, version: str | None, words: str) -> None:
    done = run(packages(tmp_path, version=version), LOAD)
    assert done.returncode == 1
    assert words in done.stderr


@pytest.mark.slow
@needs_a_compiled_library
def test_a_library_with_other_structs_is_not_used_however_often_it_is_imported(tmp_path: Path) -> None:
    environment = packages(tmp_path, version=prebuilt.VERSIONS["xllamacpp"])
    file = tmp_path / "llama_cpp" / "llama_cpp.py"
    changed = file.read_text().replace('        ("type_k", ctypes.c_int),\n', "")
    assert changed != file.read_text()
    file.write_text(changed)
    done = run(
        environment,
        f"from gbnf_server.system.errors import SetupError\nfor _ in range(2):\n    try:\n        {LOAD}\n"
        "    except SetupError as error:\n        print(error)",
    )
    assert done.stdout.count("does not fit llama-cpp-python") == 2


@pytest.mark.slow
@needs_a_compiled_library
def test_a_chosen_library_is_used_as_it_is(tmp_path: Path) -> None:
    environment = packages(tmp_path, version=None)
    environment["LLAMA_CPP_LIB_PATH"] = str(Path(LIBRARY._name).parent)
    done = run(environment, f"{LOAD}\nprint(llama_cpp.llama_cpp._lib._name)")
    assert done.stdout.strip() == LIBRARY._name or done.stderr == ""
