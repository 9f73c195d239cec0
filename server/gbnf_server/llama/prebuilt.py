"""Use the llama.cpp of the package xllamacpp, which is on PyPI compiled.

The extra `local` installs it on Linux x86-64, where compiling llama.cpp would take minutes. Invariants:

- A llama.cpp that was compiled on this machine, or that `LLAMA_CPP_LIB_PATH` names, is always preferred.
- Structs are passed by value: with one field more, llama.cpp would write beyond the memory that ctypes
  allocated, and read settings from other fields. xllamacpp 2026.10.11549 is such a release
  (`llama_context_params.moe_cache_size`). So the version is exact, and the declarations below are those of
  its `llama.h`; a test compares them with llama-cpp-python's, and with what the library returns.
- xllamacpp is not imported: only its library is loaded.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from ctypes import POINTER, c_bool, c_char_p, c_float, c_int, c_int32, c_size_t, c_uint32, c_void_p
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from gbnf_server.system.errors import SetupError

VERSION = "2026.9.11063"
"""The only version of xllamacpp that is used: see `pyproject.toml`, extra `local`."""

_LIBRARY_VARIABLE = "LLAMA_CPP_LIB_PATH"  # of llama-cpp-python


def _fields(kind: Any, names: str) -> list[tuple[str, Any]]:
    return [(name, kind) for name in names.split()]


_LogCallback = ctypes.CFUNCTYPE(None, c_int, c_char_p, c_void_p)
_AbortCallback = ctypes.CFUNCTYPE(c_bool, c_void_p)


class _ModelParams(ctypes.Structure):
    _fields_ = (
        *_fields(c_void_p, "devices tensor_buft_overrides"),
        *_fields(c_int, "n_gpu_layers split_mode load_mode lazy_mode main_gpu"),
        *_fields(c_void_p, "tensor_split progress_callback progress_callback_user_data kv_overrides"),
        *_fields(c_bool, "vocab_only check_tensors use_extra_bufts no_host no_alloc load_mtp"),
    )


class _ContextParams(ctypes.Structure):
    _fields_ = (
        *_fields(c_uint32, "n_ctx n_batch n_ubatch n_seq_max n_rs_seq n_outputs_max n_outputs_max_per_seq"),
        *_fields(c_int, "n_threads n_threads_batch ctx_type rope_scaling_type pooling_type attention_type"),
        ("flash_attn_type", c_int),
        *_fields(c_float, "rope_freq_base rope_freq_scale yarn_ext_factor yarn_attn_factor yarn_beta_fast"),
        ("yarn_beta_slow", c_float),
        ("yarn_orig_ctx", c_uint32),
        ("defrag_thold", c_float),
        *_fields(c_void_p, "cb_eval cb_eval_user_data"),
        *_fields(c_int, "type_k type_v"),
        ("abort_callback", _AbortCallback),
        ("abort_callback_data", c_void_p),
        *_fields(c_bool, "embeddings offload_kqv no_perf op_offload swa_full kv_unified"),
        ("samplers", c_void_p),
        ("n_samplers", c_size_t),
        ("ctx_other", c_void_p),
    )


class _Batch(ctypes.Structure):
    _fields_ = (
        ("n_tokens", c_int32),
        ("token", POINTER(c_int32)),
        ("embd", POINTER(c_float)),
        ("pos", POINTER(c_int32)),
        ("n_seq_id", POINTER(c_int32)),
        ("seq_id", POINTER(POINTER(c_int32))),
        ("logits", POINTER(ctypes.c_int8)),
    )


class _TokenData(ctypes.Structure):
    _fields_ = (("id", c_int32), ("logit", c_float), ("p", c_float))


class _TokenDataArray(ctypes.Structure):
    _fields_ = (
        ("data", POINTER(_TokenData)),
        ("size", c_size_t),
        ("selected", ctypes.c_int64),
        ("sorted", c_bool),
    )


CONSTANTS: Mapping[str, Any] = {  # the names of llama-cpp-python, for what is no function
    "LLAMA_TOKEN_ATTR_BYTE": 32,
    "LLAMA_TOKEN_ATTR_CONTROL": 8,
    "LLAMA_TOKEN_ATTR_NORMAL": 4,
    "LLAMA_TOKEN_ATTR_UNKNOWN": 1,
    "LLAMA_TOKEN_ATTR_USER_DEFINED": 16,
    "LLAMA_VOCAB_TYPE_BPE": 2,
    "ggml_abort_callback": _AbortCallback,
    "llama_adapter_lora_p_ctypes": c_void_p,
    "llama_log_callback": _LogCallback,
    "llama_token": c_int32,
    "llama_token_data": _TokenData,
    "llama_token_data_array": _TokenDataArray,
}

FUNCTIONS: Mapping[str, tuple[Any, ...]] = {
    "llama_adapter_lora_init": (c_void_p, c_void_p, c_char_p),
    "llama_backend_init": (None,),
    "llama_batch_free": (None, _Batch),
    "llama_batch_get_one": (_Batch, POINTER(c_int32), c_int32),
    "llama_batch_init": (_Batch, c_int32, c_int32, c_int32),
    "llama_context_default_params": (_ContextParams,),
    "llama_decode": (c_int32, c_void_p, _Batch),
    "llama_free": (None, c_void_p),
    "llama_get_embeddings_seq": (POINTER(c_float), c_void_p, c_int32),
    "llama_get_logits_ith": (POINTER(c_float), c_void_p, c_int32),
    "llama_get_memory": (c_void_p, c_void_p),
    "llama_init_from_model": (c_void_p, c_void_p, _ContextParams),
    "llama_log_set": (None, _LogCallback, c_void_p),
    "llama_memory_clear": (None, c_void_p, c_bool),
    "llama_memory_seq_cp": (None, c_void_p, c_int32, c_int32, c_int32, c_int32),
    "llama_memory_seq_rm": (c_bool, c_void_p, c_int32, c_int32, c_int32),
    "llama_model_default_params": (_ModelParams,),
    "llama_model_free": (None, c_void_p),
    "llama_model_get_vocab": (c_void_p, c_void_p),
    "llama_model_is_hybrid": (c_bool, c_void_p),
    "llama_model_is_recurrent": (c_bool, c_void_p),
    "llama_model_load_from_file": (c_void_p, c_char_p, _ModelParams),
    "llama_model_meta_count": (c_int32, c_void_p),
    "llama_model_meta_key_by_index": (c_int32, c_void_p, c_int32, c_char_p, c_size_t),
    "llama_model_meta_val_str_by_index": (c_int32, c_void_p, c_int32, c_char_p, c_size_t),
    "llama_model_n_embd": (c_int32, c_void_p),
    "llama_model_n_params": (ctypes.c_uint64, c_void_p),
    "llama_pooling_type": (c_int, c_void_p),
    "llama_print_system_info": (c_char_p,),
    "llama_sampler_accept": (None, c_void_p, c_int32),
    "llama_sampler_apply": (None, c_void_p, POINTER(_TokenDataArray)),
    "llama_sampler_clone": (c_void_p, c_void_p),
    "llama_sampler_free": (None, c_void_p),
    "llama_sampler_init_grammar": (c_void_p, c_void_p, c_char_p, c_char_p),
    "llama_set_adapters_lora": (c_int32, c_void_p, POINTER(c_void_p), c_size_t, POINTER(c_float)),
    "llama_supports_gpu_offload": (c_bool,),
    "llama_token_to_piece": (c_int32, c_void_p, c_int32, c_char_p, c_int32, c_int32, c_bool),
    "llama_tokenize": (c_int32, c_void_p, c_char_p, c_int32, POINTER(c_int32), c_int32, c_bool, c_bool),
    "llama_vocab_bos": (c_int32, c_void_p),
    "llama_vocab_eos": (c_int32, c_void_p),
    "llama_vocab_get_add_bos": (c_bool, c_void_p),
    "llama_vocab_get_attr": (c_int, c_void_p, c_int32),
    "llama_vocab_get_text": (c_char_p, c_void_p, c_int32),
    "llama_vocab_is_eog": (c_bool, c_void_p, c_int32),
    "llama_vocab_n_tokens": (c_int32, c_void_p),
    "llama_vocab_type": (c_int, c_void_p),
}
"""The functions that this package calls: the type of the result, and those of the arguments."""


class PrebuiltBindings:
    """The functions of a library, under the names of llama-cpp-python. An absent one raises SetupError."""

    def __init__(self, library: Path) -> None:
        """Load it. Raises OSError if that fails."""
        self._library = ctypes.CDLL(str(library))
        vars(self).update(CONSTANTS)
        for name, (result, *arguments) in FUNCTIONS.items():
            function = self._library[name]
            function.restype, function.argtypes = result, arguments
            setattr(self, name, function)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("llama_"):
            raise SetupError(f"the prebuilt llama.cpp of xllamacpp has no function {name}")
        raise AttributeError(name)


def load_bindings(environment: Mapping[str, str]) -> Any:
    """Return `llama_cpp` if it has a library, else the prebuilt library under the same names.

    Raises SetupError if there is only another version of xllamacpp, and what importing `llama_cpp` raises.
    """
    path = prebuilt_library(environment)
    if path is None:
        import llama_cpp  # noqa: PLC0415  # optional

        return llama_cpp
    if (installed := version("xllamacpp")) != VERSION:
        raise SetupError(
            f"xllamacpp {installed} is installed, and only {VERSION} is used, whose structs are known. "
            f"Install it: pip install xllamacpp=={VERSION}"
        )
    return PrebuiltBindings(path)


def prebuilt_library(environment: Mapping[str, str]) -> Path | None:
    """Return xllamacpp's library if it is to be used: there is no other one, and none is chosen.

    Raises SetupError if llama-cpp-python has no library, and xllamacpp is not installed.
    """
    if environment.get(_LIBRARY_VARIABLE):
        return None
    bindings, package = find_spec("llama_cpp"), find_spec("xllamacpp")
    is_complete = bindings is not None and (Path(bindings.origin or "").parent / "lib").is_dir()
    if is_complete or (bindings is None and package is None):
        return None
    if package is None or package.origin is None:
        raise SetupError(
            "llama-cpp-python was installed without its library, and xllamacpp is not installed. Compile it: "
            "pip install --force-reinstall --no-cache-dir --no-binary llama-cpp-python llama-cpp-python"
        )
    try:
        return next(Path(package.origin).parent.glob("xllamacpp.*.so"))
    except StopIteration:
        raise SetupError(f"xllamacpp in {Path(package.origin).parent} has no library") from None
