"""How many stacks llama.cpp's engine keeps: read from its memory, where no function of its API tells it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from typing import Any

import llama_cpp
import pytest

from gbnf import Grammar
from support.oracle import engine

_GET_STACKS = "_Z24llama_grammar_get_stacksP13llama_grammar"
_POINTER = ctypes.sizeof(ctypes.c_void_p)
_SIZE_OF_VECTOR = 3 * _POINTER
#: In `llama_sampler_grammar`, behind the vocabulary and two strings.
_OFFSET_OF_GRAMMAR = _POINTER + 2 * 32


def engine_stacks(grammar: Grammar | str, text: str) -> Iterator[int]:
    """Yield the number of stacks at the start and after each character of an ASCII text that is accepted."""
    get_stacks = getattr(llama_cpp.llama_cpp._lib, _GET_STACKS, None)
    if get_stacks is None:
        pytest.skip("this llama.cpp doesn't export the function that returns the stacks")
    get_stacks.restype, get_stacks.argtypes = ctypes.c_void_p, [ctypes.c_void_p]
    checker = engine()
    with checker._parse(grammar) as native:
        yield _count(get_stacks, native._sampler)
        for char in text:
            tokens = checker.model.speller.spell(char.encode())
            assert tokens is not None
            for token in tokens:
                assert checker._take(native, token), f"{char!r} of {text!r} is refused"
            yield _count(get_stacks, native._sampler)


def _count(get_stacks: Any, sampler: Any) -> int:
    context = _pointer(ctypes.cast(sampler, ctypes.c_void_p).value, _POINTER)
    vector = get_stacks(_pointer(context, _OFFSET_OF_GRAMMAR))
    return (_pointer(vector, _POINTER) - _pointer(vector, 0)) // _SIZE_OF_VECTOR


def _pointer(address: int | None, offset: int) -> int:
    assert address is not None
    return ctypes.c_void_p.from_address(address + offset).value or 0
