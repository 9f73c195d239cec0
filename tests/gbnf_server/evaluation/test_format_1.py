"""Results in format 1: their patterns judge as they did, and their runs are scored again."""

from __future__ import annotations

from typing import Any

import pytest

from gbnf_server.evaluation.cases import read_case
from gbnf_server.evaluation.format_1 import convert_case
from gbnf_server.evaluation.snapshots import Snapshot
from gbnf_server.evaluation.state_checks import faults

MISSING = object()
TABLE: list[tuple[Any, Any, bool]] = [
    ({"contains": "train"}, "The TRAIN is late", True),
    ({"contains": ["train", "late"]}, "the train is late", True),
    ({"contains": ["train", "early"]}, "the train is late", False),
    ({"contains": "a"}, ["b", "a"], True),
    ({"contains": "a"}, ["ba"], False),
    ({"contains": [{"matches": "^a"}]}, ["b", "ab"], True),
    ({"contains": "1"}, 1, False),
    ({"contains": "(a)"}, "x(A)x", True),
    ({"matches": "^a.c$"}, "abc", True),
    ({"matches": "^b"}, "abc", False),
    ({"matches": "1"}, 1, False),
    ({"a": 1}, {"a": 1, "b": 2}, False),
    ({"a": 1, "b": {"optional": 2}}, {"a": 1}, True),
    ({"a": 1, "b": {"optional": 2}}, {"a": 1, "b": 3}, False),
    ({"equals": {"any": True}}, {"any": True}, True),
    ({"equals": {"any": True}}, {}, False),
    ([1, {"any": True}], [1, "x"], True),
    ([1, {"any": True}], [1], False),
    ([1], [1, 2], False),
    ([{"path": "a", "content": {"contains": "b"}}], [{"path": "a", "content": "ABC"}], True),
    ([{"path": "a", "content": {"contains": "b"}}], [{"path": "a"}], False),
    ({"one_of": ["a", ["b"]]}, ["b"], True),
    ({"one_of": ["a", {"matches": "^b"}]}, "bc", True),
    ({"one_of": ["a", {"matches": "^b"}]}, "c", False),
    ({"unordered": ["a", "b", "a"]}, ["a", "a", "b"], True),
    ({"unordered": ["a", "b", "a"]}, ["a", "b", "b"], False),
    ({"any": True}, MISSING, True),
    ({"optional": {"contains": "a"}}, MISSING, True),
    ({"optional": {"contains": "a"}}, "b", False),
    ({"one_of": ["a", {"optional": "b"}]}, MISSING, True),
    ({"matches": ""}, MISSING, False),
    (1, True, False),
    (2, 2.0, True),
]


@pytest.mark.parametrize(("pattern", "value", "fits"), TABLE)
def test_a_pattern_judges_as_it_did(pattern: Any, value: Any, fits: bool) -> None:
    call = {"name": "f", "arguments": {"x": pattern}}
    [[expected]] = read_case(convert_case({"id": "c", "query": "q", "calls": [call]})).plans
    assert expected.accepts({} if value is MISSING else {"x": value}) is fits
    assert not expected.accepts({"y": 1} if value is MISSING else {"x": value, "y": 1})


@pytest.mark.parametrize(
    ("after", "files", "right"),
    [
        ({"files": {"a": {"optional": "x"}}}, {}, True),
        ({"files": {"a": {"optional": "x"}}}, {"a": "x"}, True),
        ({"files": {"a": {"optional": "x"}}}, {"a": "y"}, False),
        ({"files": {"a": {"any": True}, "b": {"contains": "x"}}}, {"b": "X"}, True),
        ({"files": {"a": {"any": True}, "b": {"contains": "x"}}}, {"a": "", "b": "y"}, False),
        ([{"files": {"*": {"any": True}}}, {"folders": ["d"]}], {}, False),
        ([{"files": {"*": {"any": True}}}, {"folders": ["d"]}], {"a": ""}, True),
    ],
)
def test_a_state_judges_as_it_did(after: Any, files: dict[str, str], right: bool) -> None:
    table = {"id": "c", "query": "q", "first": ["f"], "steps": 2, "after": after}
    case = read_case(convert_case(table))
    assert (faults(case.after, Snapshot(), Snapshot(files=files)) == ()) is right


def test_answers_are_converted_and_conversion_keeps_the_rest() -> None:
    table = {"id": "c", "query": "q", "first": ["f"], "steps": 2, "answer": {"contains": ["a.b", "1"]}}
    converted = convert_case(table)
    assert converted == {**table, "answer": {"allOf": [{"pattern": r"(?i)a\.b"}, {"pattern": "1"}]}}
    plans = {"plans": [[{"name": "f"}], [{"name": "g", "arguments": {"x": 1}, "optional": True}]]}
    assert convert_case(plans) == plans
