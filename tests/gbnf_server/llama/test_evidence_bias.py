"""The bonus for evidence: where it is given, and that a sure model decides alone."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf import compile_pool
from gbnf.partial_json import JsonReader
from gbnf.requests.evidence import ArgumentEvidence, Evidence
from gbnf.tools import Tool
from gbnf_server.backends.base import Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.openai_compatible import OpenAICompatible
from gbnf_server.llama.evidence_bias import BONUS, CHOICE_BONUS, UNMOVED, CallPosition, EvidenceBias
from gbnf_server.llama.native import NativeModel
from gbnf_server.system.errors import RequestNotSupportedError

REQUEST = "weather in Tel Aviv"
EVIDENCE = Evidence(
    ("Tel Aviv", "Tel Aviv, Israel"),
    {
        "on": {
            "city": ArgumentEvidence(avoided=("My city",)),
            "now": ArgumentEvidence(is_affirmed=True),
            "unit": ArgumentEvidence(False, is_closed=True),
            "days": ArgumentEvidence(False, numbers=("12", "0.5")),
            "names": ArgumentEvidence(False, is_list=True),
            "sizes": ArgumentEvidence(False, is_list=True, numbers=("12", "0.5")),
            "city_code": ArgumentEvidence(False),
            "kinds": ArgumentEvidence(False, ("wind", "rain"), is_list=True, is_closed=True),
        }
    },
    entries=("Rome",),
    request=REQUEST,
)
STATED = Evidence(
    arguments={
        "on": {
            "city": ArgumentEvidence(),
            "now": ArgumentEvidence(is_affirmed=True, is_stated=True),
            "unit": ArgumentEvidence(choices=("K",), is_stated=True),
            "days": ArgumentEvidence(numbers=("3",), is_stated=True),
        }
    },
    request="3 days, now, in K",
)
CALL = '{"name": "on", "arguments": {'


@pytest.fixture(scope="module")
def model(tiny_model: Path) -> NativeModel:
    return NativeModel(tiny_model, vocab_only=True)


def changes(model: NativeModel, text: str) -> tuple[set[str], set[str]]:
    """The texts of the tokens that gain after a text, and of those that lose."""
    bias = EvidenceBias(model, EVIDENCE)
    bias.accept(text)
    found = {model.piece(token).decode(): bonus for token, bonus in bias.changes().items()}
    return {each for each in found if found[each] > 0}, {each for each in found if found[each] < 0}


PIECES = (
    CALL,
    '"city": "',
    '"',
    "\\\\",
    '\\"',
    "T",
    "Tel Aviv",
    ", ",
    '"kinds": ["',
    "wind",
    "]",
    "}",
    "{",
    "12",
    "a",
    "\n",
)


@given(st.lists(st.sampled_from(PIECES), max_size=12), st.sampled_from([CALL, "", "It is {}. "]))
def test_the_bonus_is_that_of_the_whole_text(model: NativeModel, pieces: list[str], begin: str) -> None:
    bias, text = EvidenceBias(model, EVIDENCE), ""
    for piece in (begin, *pieces):
        text += piece
        bias.accept(piece)
        whole = EvidenceBias(model, EVIDENCE)
        whole.accept(text)
        assert bias.changes() == whole.changes(), text


@pytest.mark.parametrize(
    "pieces",
    [
        ['"city": "', *["some text, \\n"] * 1000, '", "now": ', "true"],
        ['"sizes": [', *["12", ", "] * 1000],
        ['"names": [', *['"ab', '", '] * 1000],
        ['"x": [', *['{"a": ', '"b', '"}', ", "] * 500],
        ['"city": "', *['Rome"}}\n', CALL, '"city": "'] * 500],
    ],
)
def test_a_long_text_is_read_once(
    model: NativeModel, monkeypatch: pytest.MonkeyPatch, pieces: list[str]
) -> None:
    read = 0
    extend = JsonReader.extend

    def counted(reader: JsonReader, text: str) -> None:
        nonlocal read
        read += len(reader.unfinished + text)
        extend(reader, text)

    monkeypatch.setattr(JsonReader, "extend", counted)
    bias = EvidenceBias(model, EVIDENCE)
    for piece in [CALL, *pieces]:
        bias.accept(piece)
        bias.changes()
    assert len("".join(pieces)) <= read < 3 * len("".join(pieces))


@pytest.mark.parametrize(
    ("text", "gains", "loses"),
    [
        ("", "", ""),
        ('{"name": "', "", ""),
        (CALL + '"city": "', "TR", "M"),
        (CALL + '"city": "My', "", " "),
        (CALL + '"x": "', "TR", ""),
        (CALL + '"city": "Tel', " ", ""),
        (CALL + '"city": "Tel ', "A", ""),
        (CALL + '"city": "Tel Aviv', ",", ""),
        (CALL + '"city": "Tel Aviv, Israel', '"', ""),
        (CALL + '"city": "Oslo", "x": "', "TR", "O"),
        (CALL + '"city": "Rome", "x": "', "T", "R"),
        (CALL + '"city": "Rome", "x": ["', "T", "R"),
        (CALL + '"city": "en", "x": "', "TR", ""),
        (CALL + '"unit": "', "", ""),
        (CALL + '"kinds": ["', "wr", ""),
        (CALL + '"kinds": ["wind', '"', ""),
        (CALL + '"kinds": ["wind"', "", "]"),
        (CALL + '"kinds": ["wind", "', "r", ""),
        (CALL + '"kinds": ["wind", "rain"', "", ","),
        (CALL + '"x": "Oslo", "names": ["Bonn", "Tel", "Aviv"', "", ""),
        (CALL + '"x": "Oslo", "names": ["Bonn", "Tel", "Aviv', "", ""),
        (CALL + '"names": ["Bonn", "Aviv", "Lima"', "", ","),
        (CALL + '"sizes": [12, 0.5', "", "0123456789.,"),
        (CALL + '"sizes": [0.5, 1', "2", ""),
        (CALL + '"sizes": [12', "", "0123456789."),
        (CALL + '"now": ', "t", ""),
        (CALL + '"city": ', "", ""),
        (CALL + '"days": ', "0", ""),
        (CALL + '"days": 1', "2", ""),
        (CALL + '"days": 12', "", "0123456789."),
        (CALL + '"days": 12.5', "", ""),
        (CALL + '"city": 12, "days": 1', "", ""),
        (CALL + '"', "", "ukds"),
        (CALL + '"city', "", "_"),
        (CALL + '"now": true', "", ""),
        (CALL + '"now": true, "city": "Rome"', "", ""),
        (CALL + '"now": true, "city": "Rome and Tel Aviv, Israel"', "", ","),
        (CALL + '"now": true, "city": "Tel Aviv, Israel"', "", ","),
        (CALL + '"city": {"now": true', "", ""),
        (CALL + '"city": {"x": "', "TR", ""),
        (CALL + r'"city": "\"Tel', "", ""),
    ],
)
def test_what_gains_and_what_loses(model: NativeModel, text: str, gains: str, loses: str) -> None:
    gained, lost = changes(model, text)
    assert {each[0] for each in gained if each.strip() or gains == " "} == set(gains)
    assert {each[0] for each in lost if each.strip() or loses == " "} == set(loses)


@pytest.mark.parametrize(
    ("arguments", "loses"),
    [
        ('"city": "Rome"', True),
        ('"now": true', True),
        ('"now": true, "unit": "K"', True),
        ('"now": true, "city": "K", "days": 3', False),
        ('"now": true, "unit": "K", "city": 3', False),
        ('"now": true, "unit": "K", "days": 3', False),
    ],
)
def test_a_call_does_not_end_before_what_the_request_has_a_value_for(
    model: NativeModel, arguments: str, loses: bool
) -> None:
    bias = EvidenceBias(model, STATED)
    bias.accept(CALL + arguments)
    lost = {model.piece(token).decode() for token, bonus in bias.changes().items() if bonus < 0}
    assert any("}" in piece for piece in lost) == loses


def test_the_names_of_likely_tools_gain_and_of_others_lose(model: NativeModel) -> None:
    callable_ = ("final_answer", "search", "find_tools", "one", "on")
    names = replace(
        EVIDENCE, likely=("final_answer",), unlikely=("search", "find_tools", "one"), callable=callable_
    )
    bias = EvidenceBias(model, names)
    bias.accept('{"name": "')
    changes = {model.piece(token).decode(): change for token, change in bias.changes().items()}
    assert {each[0] for each in changes if changes[each] == CHOICE_BONUS} == {"f"}
    lost = {each for each in changes if changes[each] == -CHOICE_BONUS}
    assert {"s"} <= lost
    assert not any("on".startswith(each) or "final_answer".startswith(each) for each in lost)
    bias.accept("fi")
    assert {model.piece(token).decode()[0] for token in bias.changes()} == {"n"}
    bias = EvidenceBias(model, names)
    bias.accept('{"name": "')
    bias.accept("final_answer")
    assert {model.piece(token).decode()[0] for token in bias.changes()} == {'"'}


def test_another_call_takes_other_values(model: NativeModel) -> None:
    days = {"on": {"days": ArgumentEvidence(numbers=("12",)), "city": ArgumentEvidence()}}
    evidence = Evidence(("Oslo",), days, used={"on": frozenset({"Rome", "30", "a"})})
    for text, gains, loses in (('"city": "', "O", "Ra3"), ('"city": "R', "", "o"), ('"days": ', "1", "3")):
        bias = EvidenceBias(model, evidence)
        bias.accept(CALL + text)
        found = {model.piece(token).decode()[0]: change for token, change in bias.changes().items()}
        assert {each for each in found if found[each] == BONUS} == set(gains)
        assert {each for each in found if found[each] == -CHOICE_BONUS} == set(loses)


def test_each_call_of_an_answer_begins_anew(model: NativeModel) -> None:
    first = '{"name": "on", "arguments": {"city": "Tel Aviv, Israel"}}\n'
    for text in ('{"name": "', CALL + '"', CALL + '"city": "Tel'):
        assert changes(model, first + text) == changes(model, text)


@pytest.mark.parametrize(
    "syntax",
    [
        "<tool_call>\n{}",
        "```json\n{}",
        "```\n[{}",
        "[{}",
        "<tool_call>\n" + CALL + '"city": "Tel Aviv"}}\n</tool_call>\n<tool_call>\n{}',
    ],
)
@pytest.mark.parametrize("rest", ['"', '"city": "Tel', '"now": ', '"days": 1'])
def test_calls_in_the_syntaxes_of_templates_have_the_same(model: NativeModel, syntax: str, rest: str) -> None:
    assert changes(model, syntax.replace("{}", CALL + rest)) == changes(model, CALL + rest)


def test_a_path_copies_no_text_with_spaces(model: NativeModel) -> None:
    known = {"on": {"city": ArgumentEvidence(), "paths": ArgumentEvidence(is_path=True)}}
    found = {}
    for name in known["on"]:
        bias = EvidenceBias(model, replace(EVIDENCE, arguments=known, phrases=("Oslo", "a b"), entries=()))
        bias.accept(f'{CALL}"{name}": "')
        gaining = (token for token, change in bias.changes().items() if change > 0)
        found[name] = {model.piece(token).decode()[0] for token in gaining}
    assert found == {"city": {"O", "a"}, "paths": {"O"}}


@pytest.mark.parametrize(
    "text",
    [
        'Here is it:\n{"server": {"host": "',
        f'Here is it:\n{CALL}"city": "Tel',
        '{"title": 1, "on": {"city": "',
        '{"name": "x", "arguments": {"city": "',
    ],
)
def test_what_is_not_a_call_of_a_known_tool_is_the_models(model: NativeModel, text: str) -> None:
    assert changes(model, text) == (set(), set())


POSITIONS = [
    '"kinds": ["wind", "rain',
    '"',
    '"city": "T',
    '"now": true',
    '"days": 1',
    '"city": "Rome", "x": "',
]


@pytest.mark.parametrize("evidence", [EVIDENCE, STATED])
@given(st.integers(0, 2**32 - 1), st.floats(0.5, 20), st.sampled_from(POSITIONS))
def test_a_sure_model_decides_alone(
    model: NativeModel, evidence: Evidence, seed: int, scale: float, text: str
) -> None:
    logits = (np.random.default_rng(seed).normal(size=model.size) * scale).astype(np.float32)
    bias = EvidenceBias(model, evidence)
    bias.accept(CALL + text)
    weights = np.exp(logits.astype(np.float64) - logits.max())
    if weights.max() / weights.sum() > UNMOVED:
        assert bias.biased(logits).argmax() == logits.argmax()


@given(st.integers(0, 2**32 - 1), st.floats(0.5, 20))
def test_a_comma_takes_the_place_of_an_early_end(model: NativeModel, seed: int, scale: float) -> None:
    logits = (np.random.default_rng(seed).normal(size=model.size) * scale).astype(np.float32)
    bias = EvidenceBias(model, STATED)
    bias.accept(CALL + '"now": true')
    comma, end = (model.tokens_by_text[each] for each in ",}")
    changed = bias.biased(logits)
    assert changed[end] == pytest.approx(logits[end] - CHOICE_BONUS)
    assert changed[comma] == pytest.approx(max(logits[comma], min(logits[comma] + CHOICE_BONUS, logits[end])))
    assert set(np.flatnonzero(changed != logits)) <= {comma, end}


_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(st.text(max_size=4), _VALUES, max_size=4), st.text(max_size=8), st.booleans())
def test_a_position_after_a_whole_call(arguments: dict[str, Any], name: str, ascii_: bool) -> None:
    text = json.dumps({"name": name, "arguments": arguments}, ensure_ascii=ascii_)
    position = CallPosition(text[:-2])
    assert (position.kind, position.depth) == ("other", 2)
    assert position.tool == json.dumps(name, ensure_ascii=ascii_)[1:-1]
    assert position.keys == tuple(arguments)
    assert CallPosition(text).depth == 0


def test_a_trace_shows_the_bonus_and_a_server_refuses_evidence(tiny_model: Path) -> None:
    args = {"type": "object", "properties": {"now": {"const": True, "type": "boolean"}}, "required": ["now"]}
    tools = [Tool.from_mapping({"name": "get", "description": "Get it.", "args": args})]
    request = Request(
        [{"role": "user", "content": REQUEST}],
        grammar=compile_pool(tools, final_answer=False),
        max_tokens=200,
        evidence=Evidence((), {"get": {"now": ArgumentEvidence(is_affirmed=True)}}),
        trace=True,
    )
    with InProcess(tiny_model, threads=1, jump_forward=False) as backend:
        found, plain = backend.complete(request), backend.complete(replace(request, evidence=None))
    assert json.loads(found.text) == {"name": "get", "arguments": {"now": True}}
    assert [entry.bonus for entry in found.trace if entry.bonus] == [BONUS]
    assert not any(entry.bonus for entry in plain.trace)
    with OpenAICompatible("http://127.0.0.1:9", "plain") as server, pytest.raises(RequestNotSupportedError):
        server.complete(replace(request, trace=False))
