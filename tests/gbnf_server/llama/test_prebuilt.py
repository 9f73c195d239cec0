"""The prebuilt llama.cpp: declared as it is, used where there is no other one, and what it cannot do."""

from __future__ import annotations

import ctypes
import importlib.metadata
import os
import subprocess
import sys
from collections.abc import Mapping
from importlib.machinery import ModuleSpec
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from gbnf_server.llama import prebuilt, server_build
from gbnf_server.llama.demo_model import model_path
from gbnf_server.system.errors import SetupError

pytestmark = pytest.mark.skipif(find_spec("xllamacpp") is None, reason="needs xllamacpp: Linux x86-64 only")

DEFAULTS: Mapping[str, Mapping[str, float]] = {  # src/llama-context.cpp, src/llama-model.cpp
    "llama_context_default_params": {
        "n_ctx": 512,
        "n_batch": 2048,
        "n_ubatch": 512,
        "n_seq_max": 1,
        "n_rs_seq": 0,
        "n_outputs_max": 0,
        "n_outputs_max_per_seq": 1,
        "n_threads": 4,
        "n_threads_batch": 4,
        "ctx_type": 0,
        "rope_scaling_type": -1,
        "pooling_type": -1,
        "attention_type": -1,
        "flash_attn_type": -1,
        "rope_freq_base": 0.0,
        "rope_freq_scale": 0.0,
        "yarn_ext_factor": -1.0,
        "yarn_attn_factor": -1.0,
        "yarn_beta_fast": -1.0,
        "yarn_beta_slow": -1.0,
        "yarn_orig_ctx": 0,
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
        "load_mtp": False,
    },
}


@pytest.fixture(scope="module")
def bindings() -> Any:
    spec = find_spec("xllamacpp")
    assert spec is not None
    assert spec.origin is not None
    return prebuilt.PrebuiltBindings(next(Path(spec.origin).parent.glob("xllamacpp.*.so")))


# Declarations: one field more or less would corrupt memory.


@pytest.mark.parametrize("name", DEFAULTS)
def test_the_library_returns_its_defaults_in_the_declared_fields(bindings: Any, name: str) -> None:
    class Buffer(ctypes.Structure):
        _fields_ = (("bytes", ctypes.c_ubyte * 4096),)  # more than any struct that llama.cpp returns

    returned = bindings._library[name]  # an object of its own, without the declared types
    returned.restype = Buffer
    params = prebuilt.FUNCTIONS[name][0].from_buffer(returned())
    assert {field: getattr(params, field) for field in DEFAULTS[name]} == DEFAULTS[name]


def test_the_library_returns_a_batch_in_the_declared_fields(bindings: Any) -> None:
    tokens = (ctypes.c_int32 * 3)()
    batch = bindings.llama_batch_get_one(tokens, 3)
    assert batch.n_tokens == 3
    assert ctypes.addressof(batch.token.contents) == ctypes.addressof(tokens)
    assert not any(getattr(batch, name) for name in ("embd", "pos", "n_seq_id", "seq_id", "logits"))


def layout(kind: Any) -> object:
    """How a type is passed: all pointers alike, an integer by its size and sign, a struct by its fields."""
    if isinstance(kind, type) and issubclass(kind, ctypes.Structure):
        return [(name, layout(field), getattr(kind, name).offset) for name, field, *_ in kind._fields_]
    code = getattr(kind, "_type_", "P")
    is_number = isinstance(code, str) and code not in "PzZO"
    return (ctypes.sizeof(kind), code) if is_number else "pointer" if kind is not None else None


@pytest.mark.parametrize("name", prebuilt.FUNCTIONS)
def test_functions_are_declared_as_those_of_llama_cpp_python(name: str) -> None:
    llama_cpp = pytest.importorskip("llama_cpp", reason="needs llama-cpp-python")
    function = getattr(llama_cpp, name)
    result, *arguments = prebuilt.FUNCTIONS[name]
    assert layout(result) == layout(function.restype)
    assert [*map(layout, arguments)] == [*map(layout, function.argtypes)]


def test_constants_are_those_of_llama_cpp_python() -> None:
    llama_cpp = pytest.importorskip("llama_cpp", reason="needs llama-cpp-python")
    for name, value in prebuilt.CONSTANTS.items():
        other = getattr(llama_cpp, name)
        assert value == other if isinstance(value, int) else layout(value) == layout(other), name


# Which library is used.


def packages(monkeypatch: pytest.MonkeyPatch, **folders: Path | None) -> None:
    """Let only these packages be installed."""
    specs = {
        name: ModuleSpec(name, None, origin=str(folder / "__init__.py"))
        for name, folder in folders.items()
        if folder is not None
    }
    monkeypatch.setattr(prebuilt, "find_spec", specs.get)


def test_a_compiled_or_chosen_library_is_preferred(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    library = tmp_path / "xllamacpp.abi3.so"
    library.touch()
    packages(monkeypatch, llama_cpp=None, xllamacpp=tmp_path)
    assert prebuilt.prebuilt_library({}) == library
    assert prebuilt.prebuilt_library({"LLAMA_CPP_LIB_PATH": "/opt"}) is None
    packages(monkeypatch, llama_cpp=tmp_path, xllamacpp=tmp_path)
    assert prebuilt.prebuilt_library({}) == library
    (tmp_path / "lib").mkdir()
    assert prebuilt.prebuilt_library({}) is None


def test_no_library_is_an_error_that_names_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    packages(monkeypatch)
    assert prebuilt.prebuilt_library({}) is None  # importing llama_cpp names the extra
    packages(monkeypatch, llama_cpp=tmp_path)
    with pytest.raises(SetupError, match="xllamacpp is not installed"):
        prebuilt.prebuilt_library({})
    packages(monkeypatch, xllamacpp=tmp_path)
    with pytest.raises(SetupError, match="has no library"):
        prebuilt.prebuilt_library({})


def test_another_version_is_not_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(prebuilt, "prebuilt_library", lambda _environment: Path("/x.so"))
    monkeypatch.setattr(prebuilt, "version", lambda _name: "2026.10.11549")
    with pytest.raises(SetupError, match=rf"xllamacpp 2026.10.11549 .* xllamacpp=={prebuilt.VERSION}"):
        prebuilt.load_bindings({})


def test_the_extra_installs_the_version_that_is_declared() -> None:
    requirements = importlib.metadata.requires("gbnf-toolkit") or []
    assert any(one.startswith(f"xllamacpp=={prebuilt.VERSION};") for one in requirements)


# What it cannot do: each says so.


def test_it_cannot_quantize_nor_use_a_gpu(bindings: Any) -> None:
    for name in ("llama_model_quantize", "llama_model_quantize_default_params"):
        with pytest.raises(SetupError, match=f"the prebuilt llama.cpp of xllamacpp has no function {name}"):
            getattr(bindings, name)
    assert not hasattr(bindings, "another")
    assert not bindings.llama_supports_gpu_offload()


@pytest.mark.slow
@pytest.mark.parametrize("option", ["--nonsense", "--draft-max 3", "--ssl-key-file x"])
def test_its_server_refuses_other_options(option: str) -> None:
    program = Path(server_build.__file__).with_name("prebuilt_server.py")
    command = [sys.executable, str(program), "--model", str(model_path()), *option.split()]
    done = subprocess.run(command, capture_output=True, text=True, check=False, env=os.environ)
    assert done.returncode == 1
    assert f"invalid argument: {option.split(maxsplit=1)[0]}" in done.stderr
    assert "gbnf server install" in done.stderr
