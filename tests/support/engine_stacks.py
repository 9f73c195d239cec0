"""How many stacks llama.cpp's engine keeps: asked of functions that its C API does not have.

Only the libraries below export them with these signatures, and return the stacks as a `std::vector`.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import pytest

from gbnf import Grammar
from gbnf_server.llama.bindings import llama_cpp
from gbnf_server.llama.prebuilt import VERSION, PrebuiltBindings
from support.oracle import engine

_POINTER = ctypes.sizeof(ctypes.c_void_p)
_SIZE_OF_STACK = 3 * _POINTER  # a std::vector: where it begins, where it ends, and the end of its memory


def engine_stacks(grammar: Grammar | str, text: str) -> Iterator[int]:
    """Yield the number of stacks at the start and after each character of an ASCII text that is accepted."""
    init, accept, stacks, free = _functions()
    model = engine().model
    checked = engine()._parse(grammar)  # llama.cpp crashes on some texts
    handle = init(model.vocabulary, str(grammar).encode(), b"root", False, None, 0, None, 0)
    with checked as native:
        try:
            yield _size(stacks(handle))
            for char in text:
                tokens = model.speller.spell(char.encode())
                assert tokens is not None
                for token in tokens:
                    assert engine()._take(native, token), f"{char!r} of {text!r} is refused"
                    accept(handle, token)
                yield _size(stacks(handle))
        finally:
            free(handle)


def _size(vector: int) -> int:
    first, end = (ctypes.c_void_p.from_address(vector + place).value or 0 for place in (0, _POINTER))
    return (end - first) // _SIZE_OF_STACK


@cache
def _functions() -> tuple[Any, Any, Any, Any]:
    if isinstance(llama_cpp, PrebuiltBindings):
        library = llama_cpp._library  # of one version only
    elif _compiled_version() == "0.3.36":
        library = llama_cpp.llama_cpp._lib
    else:
        pytest.skip(f"knows the engines of llama-cpp-python 0.3.36 and xllamacpp {VERSION} only")
    init = library._Z23llama_grammar_init_implPK11llama_vocabPKcS3_bPS3_mPKim
    pointer, size, text = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p
    init.argtypes = [pointer, text, text, ctypes.c_bool, pointer, size, pointer, size]
    accept = library._Z25llama_grammar_accept_implR13llama_grammari
    accept.argtypes = [pointer, ctypes.c_int32]
    stacks = library._Z24llama_grammar_get_stacksP13llama_grammar
    free = library._Z23llama_grammar_free_implP13llama_grammar
    for function in (stacks, free):
        function.argtypes = [pointer]
    init.restype = stacks.restype = pointer
    accept.restype = free.restype = None
    return init, accept, stacks, free


def _compiled_version() -> str:
    try:
        return version("llama-cpp-python")
    except PackageNotFoundError:
        return ""
