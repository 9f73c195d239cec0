"""A program that computes with each kind of weights that llama.cpp repacks when it loads a model.

    python cpu_probe.py MODEL.gguf FOLDER

It quantizes the model into the folder, once per quantization, and evaluates some tokens: first without
repacking, then with it. Before each computation it prints a line such as "Q4_0 repacked", which shows the
parent process what it crashed in. It exits with status 0 if all results agree, with `DIFFERS` if repacked
weights of the last printed line give different results, with `CANNOT_QUANTIZE` if this library cannot
quantize and the model itself can be computed.

It is run as a file, in its own process; of this package it imports only the bindings (see `cpu_support`).
"""

from __future__ import annotations

import ctypes
import os
import resource
import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from gbnf_server.llama.bindings import llama_cpp
from gbnf_server.system.errors import SetupError

DIFFERS = 9
"""Exit status: a computation finished with wrong results."""

CANNOT_QUANTIZE = 10
"""Exit status: the model itself can be computed without repacking; nothing else was tried."""

QUANTIZATIONS = ("Q8_0", "Q4_0", "Q4_1", "Q4_K_S", "Q5_K_S", "Q6_K", "Q2_K", "IQ4_XS", "IQ4_NL")
"""Quantizations of dense models with repacked kernels (ggml/src/ggml-cpu: repack.cpp, amx/common.h)."""

_TOKENS = 33  # more than a tile of 32 rows
_ALIKE = 0.98  # cosine similarity; kernels may differ only in the order of summation


def main(model: Path, folder: Path) -> int:
    """Run the probe; return the exit status."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # a crash is expected and needs no core dump
    llama_cpp.llama_backend_init()
    silent = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(silent, ctypes.c_void_p(0))
    try:
        files = {name: _quantized(model, name, folder) for name in QUANTIZATIONS}
    except SetupError:  # see `prebuilt`
        _announce("unchanged plain")
        _logits(model, repack=False)
        return CANNOT_QUANTIZE
    plain = {}
    for name, file in files.items():
        _announce(f"{name} plain")
        plain[name] = _logits(file, repack=False)
    for name, file in files.items():
        _announce(f"{name} repacked")
        if not _alike(_logits(file, repack=True), plain[name]):
            return DIFFERS
    return 0


def _announce(step: str) -> None:
    sys.stdout.write(step + "\n")
    sys.stdout.flush()


def _quantized(model: Path, name: str, folder: Path) -> Path:
    file = folder / f"{name}.gguf"
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype = getattr(llama_cpp, f"LLAMA_FTYPE_MOSTLY_{name}")
    params.allow_requantize, params.pure = True, True
    params.nthread = os.cpu_count() or 1
    if llama_cpp.llama_model_quantize(os.fsencode(model), os.fsencode(file), ctypes.byref(params)):
        raise SystemExit(f"{model} cannot be quantized to {name}")
    return file


def _logits(file: Path, *, repack: bool) -> npt.NDArray[np.float32]:
    """Evaluate a prompt in one batch, then one more token. Return the logits after both, concatenated."""
    model_params = llama_cpp.llama_model_default_params()
    model_params.use_extra_bufts, model_params.n_gpu_layers = repack, 0
    model = llama_cpp.llama_model_load_from_file(os.fsencode(file), model_params)
    context_params = llama_cpp.llama_context_default_params()
    context_params.n_ctx = context_params.n_batch = 64
    context_params.n_threads = context_params.n_threads_batch = 1
    context = llama_cpp.llama_init_from_model(model, context_params)
    if not context:
        raise SystemExit(f"{file.name} cannot be loaded")
    size = llama_cpp.llama_vocab_n_tokens(llama_cpp.llama_model_get_vocab(model))
    tokens = (llama_cpp.llama_token * _TOKENS)(*range(100, 100 + _TOKENS))
    ends: list[Any] = []
    for count in (_TOKENS, 1):
        if llama_cpp.llama_decode(context, llama_cpp.llama_batch_get_one(tokens, count)):
            raise SystemExit(f"{file.name} cannot be evaluated")
        logits = llama_cpp.llama_get_logits_ith(context, -1)
        ends.append(np.ctypeslib.as_array(logits, shape=(size,)).copy())
    llama_cpp.llama_free(context)
    llama_cpp.llama_model_free(model)
    return np.concatenate(ends)


def _alike(left: npt.NDArray[np.float32], right: npt.NDArray[np.float32]) -> bool:
    cosine = float(left @ right) / float(np.linalg.norm(left) * np.linalg.norm(right))
    return cosine >= _ALIKE  # False for NaN


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), Path(sys.argv[2])))
