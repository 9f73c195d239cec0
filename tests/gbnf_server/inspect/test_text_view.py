"""What is said of a text: the engine's verdict, the place in the JSON, and the words of the schema."""

from __future__ import annotations

import json
import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf import SchemaError, load_manifests
from gbnf.tools import Tool
from gbnf_server.inspect.partial_json import locate
from gbnf_server.inspect.schema_words import words, words_at
from gbnf_server.inspect.text_view import MOST_CHARACTERS, TextChecker
from support.oracle import CHECKOUT, engine
from support.random_texts import generate
from support.schemas import SCHEMAS

BUNDLED = load_manifests(CHECKOUT / "manifests")
CHECKER = TextChecker(BUNDLED)
SCHEMA = {
    "type": "object",
    "required": ["count"],
    "additionalProperties": False,
    "properties": {
        "count": {"type": "integer", "minimum": 5},
        "kind": {"enum": ["a", "b"]},
        "list": {"type": "array", "items": {"$ref": "#/properties/kind"}, "maxItems": 2},
    },
}
CALL = '{"name": "create_events", "arguments": {"title": "Lunch", "starts": ["2026-01-01"], '
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)


def written(value: Any, path: tuple[str | int, ...], starts: list[tuple[int, Any]], at: int) -> str:
    """JSON, with the position and the path of each value."""
    starts.append((at, path))
    if isinstance(value, dict | list):
        opening, closing = "{}" if isinstance(value, dict) else "[]"
        text = opening
        for number, (key, member) in enumerate(
            value.items() if isinstance(value, dict) else enumerate(value)
        ):
            text += ", " if number else " "
            text += f"{json.dumps(key)} : " if isinstance(value, dict) else ""
            text += written(member, (*path, key), starts, at + len(text))
        return text + closing
    return json.dumps(value)


@given(VALUES)
def test_the_place_before_each_value_is_found(value: Any) -> None:
    starts: list[tuple[int, Any]] = []
    text = written(value, (), starts, 0)
    assert json.loads(text) == value
    for position, path in starts:
        found = locate(text[:position])
        assert (found.path, found.where) == (path, "value")
    assert locate(text + " ").where == "end"


@given(st.text(alphabet='{}[]":,\\ a1', max_size=30))
def test_any_text_has_a_place(text: str) -> None:
    assert locate(text).start <= len(text)


@given(st.data())
def test_the_engine_agrees_on_what_is_accepted(data: st.DataObject) -> None:
    call = CALL + '"duration_minutes": 30}}'
    position = data.draw(st.integers(0, len(call)))
    text = call[:position] + data.draw(st.sampled_from(["", "x", '"', "}", "3"])) + call[position:]
    view = CHECKER.view(text)
    assert view.accepted + view.refused == text
    assert view.is_complete == engine().match(CHECKER.grammar, text).complete
    assert not view.is_complete or view.validation == ()


@given(SCHEMAS, st.integers(0, 2**32), st.floats(0, 1), st.sampled_from(["", "!", '"', "0", "]", "}"]))
def test_any_text_of_any_schema_has_a_view(schema: Any, seed: int, part: float, more: str) -> None:
    checker = TextChecker((), schema)
    try:
        grammar = checker.grammar
    except SchemaError:
        return
    whole = generate(grammar.rules, random.Random(seed))
    assert checker.view(whole).is_complete
    begun = whole[: int(part * len(whole))]
    assert checker.view(begun).refused == ""
    view = checker.view(begun + more)
    assert view.accepted.startswith(begun)
    assert view.following
    assert bool(view.problem) != view.is_complete


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a call, that is an object"),
        ('{"nam', 'the property "name" at the top level'),
        ('{"name": "create_', 'the name of a tool: "create_dirs" or "create_events" at /name'),
        ('{"name": "get_now"', 'a comma and the property "arguments" at the top level'),
        ('{"name": "get_now", "arguments": {"x', 'the property "timezone" or } at /arguments'),
        (CALL + '"duration_minutes": 3}}', "an integer ≥ 5 and ≤ 1440 at /arguments/duration_minutes"),
        (CALL[:-2], '"duration_minutes" or "location" or } at /arguments'),
        ('{"name": "create_events", "arguments": {"title": 3', "/arguments/title"),
        ('{"name": "write_files", "arguments": {"files": [{"path": 3', "a string at /arguments/files/0/path"),
    ],
)
def test_what_may_come_next_in_a_call(text: str, said: str) -> None:
    view = CHECKER.view(text)
    assert said in view.following
    assert view.is_complete or view.following in view.problem


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"count": 3', "an integer ≥ 5 at /count"),
        ('{"kind": "a"}', 'the property "count" at the top level'),
        ('{"count": 7, "kind": "c"', 'one of "a", "b" at /kind'),
        ('{"count": 7, "list": ["a", "b", ', "/list"),
        ('{"count": 7, "list": ["c', 'one of "a", "b" at /list/0'),
        ('{"count": 7} ', "end of text"),
        ('{"count": 7', "/count"),
    ],
)
def test_what_may_come_next_in_a_value(text: str, said: str) -> None:
    assert said in TextChecker((), SCHEMA).view(text).following


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ('{"count": 7, "list": [], "kind": "a"}', ': "kind" comes earlier'),
        ('{"count": 7, "count": 7}', ': "count" is given already'),
        ('{"count": 7, "other": 7}', ""),
    ],
)
def test_why_a_key_is_refused(text: str, why: str) -> None:
    problem = TextChecker((), SCHEMA).view(text).problem
    assert why in problem
    assert ("comes earlier" in problem) + ("given already" in problem) == bool(why)


def test_other_properties_are_named_where_they_are_allowed() -> None:
    schema = {"properties": {"a": {"type": "null"}}}
    assert TextChecker((), schema).view("{").following == (
        'the property "a" or any other property or } at the top level'
    )


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        (True, "any JSON value"),
        (False, "nothing"),
        ({"type": ["integer", "null"], "minimum": 5}, "an integer ≥ 5 or null"),
        ({"const": "x"}, '"x"'),
        ({"enum": list(range(20))}, "one of 0, 1, 2, 3, 4, 5, 6, 7, 12 more"),
        ({"type": "string", "minLength": 1, "pattern": "^a"},
         "a string of at least 1 character that matches ^a"),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 2},
         "an array of at most 2 items, each item a string"),
        ({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "boolean"}}},
         "null or true or false"),
        ({"$ref": "#"}, "any JSON value"),
        ({"allOf": [{"$ref": "#"}] * 3}, "any JSON value"),
        ({"type": "object", "minProperties": 1}, "an object of at least 1 property"),
    ],
)  # fmt: skip
def test_the_words_for_a_schema(schema: Any, said: str) -> None:
    assert words(schema, schema) == said


def test_the_words_at_a_path_combine_all_that_judge_it() -> None:
    other = {"properties": {"a": {"maximum": 9, "type": "number"}}}
    schema = {"properties": {"a": {"minimum": 2, "type": "integer"}}, "allOf": [other]}
    assert words_at(schema, ("a",)) == "an integer ≥ 2 and a number ≤ 9"
    assert words_at(schema, ("b",)) == "any JSON value"


def test_the_words_at_a_path_name_the_choices() -> None:
    forms = [{"properties": {"a": {"type": "null"}}}, {"properties": {"a": {"type": "string"}}}]
    assert words_at({"anyOf": forms}, ("a",)) == "null or a string"
    assert words_at({"anyOf": forms, "properties": {"a": {"minLength": 3}}}, ("a",)) == (
        "a string of at least 3 characters"
    )


@pytest.mark.parametrize(
    ("text", "validation", "repaired"),
    [
        ('{"name": "get_now", "arguments": {}}', (), ""),
        ('{"name": "get_now", "arguments": {"x": 1}}', "unknown argument 'x'", '"arguments": {}'),
        ("{'name': 'get_now', 'arguments': {}}", None, '"get_now"'),
        ('{"name": "get_now", "arg', None, ""),
        ('{"name": "get_now", "arguments": {}} ...', None, '"get_now"'),
        ("[" * 5000, None, ""),
    ],
)
def test_what_validation_and_repair_say(text: str, validation: Any, repaired: str) -> None:
    view = CHECKER.view(text)
    if isinstance(validation, str):
        assert view.validation is not None
        assert validation in view.validation[0]
    else:
        assert view.validation == validation
    assert repaired in view.repaired


def test_a_value_is_judged_by_its_schema() -> None:
    assert TextChecker((), SCHEMA).view('{"count": 1}').validation == (
        "/count: 1 is less than the minimum of 5",
    )


def test_a_long_text_is_cut() -> None:
    view = CHECKER.view('{"name": "' + "x" * 2 * MOST_CHARACTERS)
    assert len(view.accepted + view.refused) == MOST_CHARACTERS


def test_a_pool_without_a_grammar_says_so() -> None:
    tool = Tool(name="a", args={"type": "object", "required": ["b"], "properties": {"b": False}})
    assert "no arguments satisfy" in TextChecker((tool,)).view("{").problem
