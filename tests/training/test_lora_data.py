"""Laws of the adapter's training data: calls are valid, values are in the request, no benchmark is in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from functools import cache
from itertools import chain, pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gbnf_server.llama.native import NativeModel
from support.effort import scaled
from support.oracle import CHECKOUT, SHARED
from support.smollm2 import model_file, requires_smollm2
from training.lora.domains import Kind, domains, offer, request
from training.lora.samples import group
from training.lora.values import LISTS
from training.source import Source

pytestmark = pytest.mark.slow  # the domains are many
KINDS = [kind for several in domains().values() for kind in several]
SLOT = re.compile(r"\{(\w+)[\w.]*\}")
SOURCES = st.integers(0, 2**32).map(Source)


@given(SOURCES, st.sampled_from(KINDS), st.integers(1, 4))
def test_the_calls_of_a_request_are_valid(random: Source, kind: Kind, number: int) -> None:
    offered = offer(random, kind)
    text, calls = request(random, offered, number)
    judge = Draft202012Validator(
        offered.tool.model_args(), format_checker=Draft202012Validator.FORMAT_CHECKER
    )
    assert 1 <= len(calls) <= number
    for arguments in calls:
        assert not list(judge.iter_errors(arguments))
        for name, original in ((new, old) for old, new in offered.renamed.items()):
            if offered.kind.arguments[original]["kind"] == "text" and name in arguments:
                assert arguments[name] in text
    assert all(one != other for one, other in pairwise(calls))


def test_templates_have_the_required_arguments_always_and_the_others_in_clauses() -> None:
    for kind in KINDS:
        required = {name for name, each in kind.arguments.items() if not each.get("optional")}
        clauses: set[str] = set()
        for template in kind.requests:
            assert set(SLOT.findall(re.sub(r"<[^<>]*>", "", template))) == required, template
            for clause in re.findall(r"<[^<>]*>", template):
                clauses.update(SLOT.findall(clause))
        assert clauses == kind.arguments.keys() - required, kind.names


@cache
def vocabulary() -> NativeModel:
    path = model_file()
    assert path is not None
    return NativeModel(path, vocab_only=True)


@requires_smollm2
@settings(max_examples=scaled(40))
@given(SOURCES)
def test_a_group_teaches_calls_and_answers_alone(random: Source) -> None:
    model = vocabulary()
    rows = group(random, lambda text: model.tokenize(text, special=True))
    prefix = int((rows.parts == 0).sum())
    assert not rows.weights[rows.parts == 0].any()
    for part in range(1, rows.parts.max() + 1):
        members = np.flatnonzero(rows.parts == part)
        assert rows.places[members].tolist() == list(range(prefix, prefix + len(members)))
        text = b"".join(model.piece(token) for token in rows.tokens[members]).decode()
        trained = b"".join(
            model.piece(token) for token in rows.tokens[members][rows.weights[members] > 0]
        ).decode()
        said = re.findall(r"<\|im_start\|>assistant\n(.*?<\|im_end\|>)", text, re.DOTALL)
        assert trained == "".join(said)


WORDS = re.compile(r"\w+")
LONGEST_SHARED = 6  # words: "in the format YYYY-MM-DD" are six


def grams(text: str) -> set[tuple[str, ...]]:
    words = WORDS.findall(text.casefold())
    return {tuple(words[at : at + LONGEST_SHARED + 1]) for at in range(len(words) - LONGEST_SHARED)}


def texts_of(value: Any) -> Iterator[str]:
    match value:
        case str():
            yield value
        case dict():
            yield from chain.from_iterable(map(texts_of, value.values()))
        case list():
            yield from chain.from_iterable(map(texts_of, value))


def test_no_benchmark_is_in_it() -> None:
    questions = [
        json.loads(line)
        for folder in (CHECKOUT / "bench" / "unseen_tools", SHARED / "bfcl")  # the latter may be missing
        for file in folder.glob("BFCL*.json")
        for line in file.read_text("utf-8").splitlines()
    ]
    theirs = set(chain.from_iterable(map(grams, texts_of(questions))))
    assert theirs
    for text in chain.from_iterable(LISTS.values()):
        assert not grams(re.sub(r"\{\w+\}", " ", text)) & theirs, text
    for kind in KINDS:
        wordings = [re.sub(r"[<>]|\{[\w.]+\}", " ", template) for template in kind.requests]
        for text in (*wordings, *kind.about, *texts_of(dict(kind.arguments))):
            assert not grams(text) & theirs, text
