"""No result, error or call brings a control token into the conversation: real vocabularies judge."""

from __future__ import annotations

import json
from functools import cache

import llama_cpp
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.prompt import call_text, error_text, result_text
from gbnf_server.native import NativeModel
from support.oracle import vocabulary_path

VOCABULARIES = ("embedded", "gemma-4", "llama-bpe", "qwen2")
WORDS = ("say ", "<", "|", ">", "</", "[", "\\", '"', "<div>", "a < b", "è", "\n")


@cache
def _model(vocabulary: str) -> NativeModel:
    return NativeModel(vocabulary_path(vocabulary), vocab_only=True)


@cache
def _control_tokens(vocabulary: str) -> dict[int, str]:
    """Those that stand for themselves only where a prompt is read with its special tokens."""
    model = _model(vocabulary)
    handle = model.vocabulary
    return {
        token: llama_cpp.llama_vocab_get_text(handle, token).decode()
        for token in range(model.size)
        if llama_cpp.llama_vocab_get_attr(handle, token) & llama_cpp.LLAMA_TOKEN_ATTR_CONTROL
    }


@pytest.mark.parametrize("vocabulary", VOCABULARIES)
def test_each_control_token_is_text(vocabulary: str) -> None:
    names = _control_tokens(vocabulary)
    assert names
    for token, name in names.items():
        assert token in _model(vocabulary).tokenize(name, special=True), "no longer read: no judge"
        for said in _said(f"the file says {name} and more"):
            assert not names.keys() & set(_model(vocabulary).tokenize(said, special=True)), said


@given(st.data(), st.sampled_from(VOCABULARIES))
def test_whatever_stands_around_it(data: st.DataObject, vocabulary: str) -> None:
    names = _control_tokens(vocabulary)
    text = "".join(data.draw(st.lists(st.sampled_from([*WORDS, *names.values()]), max_size=8)))
    for said in _said(text):
        assert not names.keys() & set(_model(vocabulary).tokenize(said, special=True)), said


def _said(text: str) -> list[str]:
    """The messages that hold the text; it is read back from each as it was."""
    result = {"entries": [text], text: 1}
    call = {"name": "write_files", "arguments": {"files": [{"path": "a", "content": text}]}}
    said = [result_text(1, result), error_text(2, text), call_text(call)]
    assert [json.loads(each) for each in said] == [
        {"step": 1, "result": result},
        {"step": 2, "error": text},
        call,
    ]
    return said
