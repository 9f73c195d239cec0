"""Texts of any length are tokenized, whatever llama.cpp makes of long words."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.native import _RUN, NativeModel, _short_runs
from support.effort import scaled

UNITS = ["x", "é", "e\u0301", "1", " ", "\n", "\u3000", ".", "。", "_", "🙂", "\u0301", "字"]


@pytest.fixture(scope="module")
def model() -> NativeModel:
    return NativeModel(model_path(), vocab_only=True)


@settings(max_examples=scaled(40))
@given(st.lists(st.tuples(st.sampled_from([*UNITS, "<|x|>"]), st.integers(1, 3 * _RUN)), max_size=4))
def test_the_parts_are_the_text_and_only_long_runs_are_cut(runs: list[tuple[str, int]]) -> None:
    text = "".join(unit * count for unit, count in runs)
    parts = _short_runs(text)
    assert "".join(parts) == text
    if all(len(unit) * count < _RUN for unit, count in runs) and len(text) < 2 * _RUN:
        assert parts == [text]
    for part, following in pairwise(parts):
        assert len(part) >= _RUN
        assert len(following) >= _RUN


@pytest.mark.slow
@pytest.mark.parametrize("unit", UNITS)
def test_a_run_of_any_kind_is_tokenized(model: NativeModel, unit: str) -> None:
    """It ended the process."""
    text = unit * 60_000
    assert max(map(len, _short_runs(text))) < 2 * _RUN
    tokens = model.tokenize(text, special=True)
    assert b"".join(map(model.piece, tokens)) == text.encode()


def test_short_texts_are_tokenized_as_the_engine_does(model: NativeModel) -> None:
    text = "create a folder trips, " * 1000
    assert model.tokenize(text, special=True) == model._tokenize(text.encode(), special=True)
