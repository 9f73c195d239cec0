"""Use the llama.cpp of the package xllamacpp, which is on PyPI compiled, with llama-cpp-python's bindings.

That spares compiling llama.cpp at the first install: the extra `prebuilt` installs both packages, with
llama-cpp-python's Python part only. Invariants:

- A llama.cpp that was compiled on this machine, or that `LLAMA_CPP_LIB_PATH` names, is always preferred.
- The structs that functions take and return by value must be the same on both sides: with one field more,
  llama.cpp writes beyond the memory that ctypes allocated, and reads settings from other fields. xllamacpp
  2026.10.11549 is such a release (`llama_context_params.moe_cache_size`). So both versions are exact, chosen
  because their `llama.h` differ only in functions that this package does not call; and before the first call,
  the defaults that llama.cpp returns, in a larger buffer, are compared with known values.
- xllamacpp is not imported: only its library is loaded.
"""

from __future__ import annotations

import ctypes
import sys
from collections.abc import Iterator, Mapping
from importlib import import_module
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from gbnf_server.system.errors import SetupError

VERSIONS = {"llama-cpp-python": "0.3.36", "xllamacpp": "2026.9.11063"}
"""The only versions that are used together: see `pyproject.toml`, extra `prebuilt`."""

_LOADER = "llama_cpp._ctypes_extensions"  # the module in which the bindings look for the library
_LIBRARY_VARIABLE = "LLAMA_CPP_LIB_PATH"  # of the bindings

_DEFAULTS: Mapping[str, Mapping[str, float]] = {
    "llama_context_default_params": {
        "n_ctx": 512,
        "n_batch": 2048,
        "n_ubatch": 512,
        "n_seq_max": 1,
        "n_outputs_max_per_seq": 1,
        "rope_scaling_type": -1,
        "pooling_type": -1,
        "attention_type": -1,
        "flash_attn_type": -1,
        "yarn_ext_factor": -1.0,
        "yarn_beta_slow": -1.0,
        "defrag_thold": -1.0,
        "type_k": 1,
        "type_v": 1,
        "embeddings": False,
        "offload_kqv": True,
        "no_perf": True,
        "op_offload": True,
        "swa_full": True,
        "kv_unified": False,
        "n_samplers": 0,
    },
    "llama_model_default_params": {
        "n_gpu_layers": -1,
        "split_mode": 1,
        "load_mode": -1,
        "lazy_mode": 1,
        "main_gpu": 0,
        "vocab_only": False,
        "check_tensors": False,
        "use_extra_bufts": True,
        "no_host": False,
        "no_alloc": False,
    },
}
"""What llama.cpp returns as defaults, for the fields before and after each pointer (src/llama-*.cpp)."""


class _Buffer(ctypes.Structure):
    """More memory than any struct that llama.cpp returns by value."""

    _fields_ = (("bytes", ctypes.c_ubyte * 4096),)


class _Library(ctypes.CDLL):
    """A library in which functions may be absent. Calling one of those raises SetupError."""

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            if not name.startswith("llama_"):
                raise

            def absent(*_: Any) -> Any:
                raise SetupError(f"the prebuilt llama.cpp of xllamacpp has no function {name}")

            return absent


def load_bindings(environment: Mapping[str, str]) -> ModuleType:
    """Import `llama_cpp`: with its own library if it has one, else with that of xllamacpp.

    Raises SetupError if the library of xllamacpp does not fit, and what importing `llama_cpp` raises.
    """
    path = None if "llama_cpp" in sys.modules else prebuilt_library(environment)
    if path is None:
        return import_module("llama_cpp")
    _check_versions()
    library = _Library(str(path))
    sys.modules[_LOADER] = _loader(library)
    bindings = import_module("llama_cpp")
    if found := [*struct_differences(bindings, library)]:
        for name in [name for name in sys.modules if name.partition(".")[0] == "llama_cpp"]:
            del sys.modules[name]  # another import must not get it
        raise SetupError(
            f"the llama.cpp of xllamacpp does not fit llama-cpp-python: {'; '.join(found[:3])}. "
            "Install both again as documented in docs/reference/machines.md."
        )
    return bindings


def prebuilt_library(environment: Mapping[str, str]) -> Path | None:
    """Return xllamacpp's library if the bindings are to use it: they have none, and none is chosen.

    Raises SetupError if they have none and xllamacpp is not installed.
    """
    bindings = find_spec("llama_cpp")
    if bindings is None or bindings.origin is None or environment.get(_LIBRARY_VARIABLE):
        return None
    package = Path(bindings.origin).parent
    if (package / "lib").is_dir() or not (package / "llama_cpp.py").is_file():
        return None
    spec = find_spec("xllamacpp")
    if spec is None or spec.origin is None:
        raise SetupError(
            "llama-cpp-python was installed without its library, and xllamacpp is not installed. Compile it: "
            "pip install --force-reinstall --no-cache-dir --no-binary llama-cpp-python llama-cpp-python"
        )
    try:
        return next(Path(spec.origin).parent.glob("xllamacpp.*.so"))
    except StopIteration:
        raise SetupError(f"xllamacpp in {Path(spec.origin).parent} has no library") from None


def struct_differences(bindings: Any, library: Any) -> Iterator[str]:
    """Yield how the structs that the library returns differ from those of the bindings."""
    for name, expected in _DEFAULTS.items():
        struct = _returned(bindings, library, name)
        for field, value in expected.items():
            if (found := getattr(struct, field, None)) != value:
                yield f"{name}().{field} is {found}, not {value}"
    tokens = (ctypes.c_int32 * 3)()
    batch = _returned(bindings, library, "llama_batch_get_one", tokens, ctypes.c_int32(3))
    pointers = ("embd", "pos", "n_seq_id", "seq_id", "logits")
    if batch.n_tokens != 3 or ctypes.addressof(batch.token.contents) != ctypes.addressof(tokens):
        yield "llama_batch_get_one() returns other tokens"
    elif any(getattr(batch, field) for field in pointers):
        yield "llama_batch_get_one() returns other fields"


def _returned(bindings: Any, library: Any, name: str, *arguments: Any) -> Any:
    """Call a function that returns a struct; read the result as the bindings do."""
    function = library[name]  # an object of its own: the bindings' has their types
    function.restype = _Buffer
    return getattr(bindings, name).restype.from_buffer(function(*arguments))


def _loader(library: ctypes.CDLL) -> ModuleType:
    """Return the bindings' own module that loads libraries, except that it returns this one."""
    bindings = find_spec("llama_cpp")
    assert bindings is not None
    assert bindings.origin is not None
    spec = spec_from_file_location(_LOADER, Path(bindings.origin).with_name("_ctypes_extensions.py"))
    assert spec is not None
    assert spec.loader is not None
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    module.load_shared_library = lambda _name, _folder: library  # type: ignore[attr-defined]
    return module


def _check_versions() -> None:
    from importlib.metadata import version  # noqa: PLC0415 - slow to import, and rarely needed

    if (found := {name: version(name) for name in VERSIONS}) != VERSIONS:
        raise SetupError(
            f"llama-cpp-python has no library of its own, and works with that of xllamacpp only in these "
            f"versions: {_listed(VERSIONS)}. Found: {_listed(found)}."
        )


def _listed(versions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} {number}" for name, number in versions.items())
