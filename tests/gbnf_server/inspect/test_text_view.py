"""What is said of a text: the engine's verdict, the place in the JSON, what may come next, and why not."""

from __future__ import annotations

import random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf import Grammar, SchemaError
from gbnf.schema.document import Document
from gbnf.schema.drafts import as_2020_12
from gbnf.tools import Tool
from gbnf_server.inspect.declarations import declared_at
from gbnf_server.inspect.grammar_choice import GrammarChoice
from gbnf_server.inspect.text_view import MOST_CHARACTERS, TextChecker, TextView
from support.oracle import engine
from support.pools import BUNDLED
from support.random_texts import generate
from support.schemas import SCHEMAS

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
DECLARED = GrammarChoice(property_order="declared")
CALL = '{"name": "create_events", "arguments": {"title": "Lunch", "starts": ["2026-01-01"], '


@given(st.data())
def test_the_engine_agrees_on_what_is_accepted(data: st.DataObject) -> None:
    call = CALL + '"duration_minutes": 30}}'
    position = data.draw(st.integers(0, len(call)))
    text = call[:position] + data.draw(st.sampled_from(["", "x", '"', "}", "3"])) + call[position:]
    view = CHECKER.view(text)
    assert view.accepted + view.refused == text
    assert view.is_complete == engine().match(CHECKER.grammar, text).complete
    assert not view.is_complete or view.judgement.validation == ()


ENDINGS = ["", "!", '"', "0", "]", "}", ",", " ", "\\", "\n"]
WHITESPACES = st.sampled_from(["default", "compact", "spaced", "free"])
ORDERS = st.sampled_from(["declared", "any"])


@given(SCHEMAS, st.integers(0, 2**32), st.floats(0, 1), st.sampled_from(ENDINGS), WHITESPACES, ORDERS)
def test_what_is_said_of_any_text_of_any_schema(
    schema: Any, seed: int, part: float, more: str, whitespace: Any, order: Any
) -> None:
    checker = TextChecker((), schema, GrammarChoice(whitespace, order))
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
    assert bool(view.problem) != view.is_complete
    check_continuations(grammar, view)
    found = engine().match(grammar, begun + more)
    assert (found.position, found.complete) == (len(view.accepted), view.is_complete)


def check_continuations(grammar: Grammar, view: TextView) -> None:
    """Something is expected, and llama.cpp's engine accepts each text that is offered."""
    assert view.following
    assert view.is_complete or not view.following.startswith("nothing")
    offered = [view.accepted + option.text for option in view.options]
    assert all(option.text and option.label and option.words for option in view.options)
    assert all(found.accepted for found in engine().match_many(grammar, offered))


@given(SCHEMAS, st.integers(0, 2**32), st.integers(0, 25))
def test_a_value_is_built_by_its_continuations(schema: Any, seed: int, steps: int) -> None:
    """Where the grammar wants a name, a bracket or a listed value, some continuation is offered."""
    checker = TextChecker((), schema)
    try:
        grammar = checker.grammar
    except SchemaError:
        return
    random_choice = random.Random(seed)
    text = ""
    for _ in range(steps):
        view = checker.view(text)
        assert view.refused == ""
        if not view.options:
            state = grammar.matcher.start().advance(text)
            assert state is not None
            assert state.can_end or not state.forced()
            return
        text += random_choice.choice(view.options).text


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "an object at the top level"),
        ('{"nam', 'the property "name" at the top level'),
        ('{"name": "create_', 'the rest of "create_dirs" or the rest of "create_events" at /name'),
        (
            '{"name": "get_now", "arguments": {',
            'the property "timezone" or the end of the object at /arguments',
        ),
        (CALL + '"duration_minutes": 3', "a digit at /arguments/duration_minutes (integer, ≥ 5, ≤ 1440)"),
        (CALL[:-2], '"duration_minutes" or "location" or the end of the object at /arguments'),
        (
            '{"name": "create_events", "arguments": {"title": 3',
            "a string at /arguments/title (string, ≥ 1 ch",
        ),
    ],
)
def test_what_may_come_next_in_a_call(text: str, said: str) -> None:
    assert said in CHECKER.view(text).following


@pytest.mark.parametrize(
    ("schema", "text", "said", "offered"),
    [
        (SCHEMA, '{"kind": "a"}', 'the property "count" at the top level', ['count": ']),
        (SCHEMA, '{"count": 7, "kind": ', '"a" or "b" at /kind', ['"a"', '"b"']),
        (SCHEMA, '{"count": 7, "list": [', '"a", "b" or the end of the array at /list', ['"a"', '"b"', "]}"]),
        (SCHEMA, '{"count": 7, "list": ["a"', "another item or the end of the array at /l", [', "', "]}"]),
        (SCHEMA, '{"count": 7} ', "the end of the text", []),
        (SCHEMA, '{"count": 7', '(integer, ≥ 5), or the property "kind" or "list" or the end of the object',
         [', "kind": "', "}"]),
        (SCHEMA, '{"count"', "the colon at the top level", [": "]),
        (True, "", "a number, true, false, null, a string, an object or an array at the top level",
         ["true", "false", "null", "{", "[", '"']),
        (True, "tr", "the rest of true at the top level", ["ue"]),
        ({"type": "string", "minLength": 4}, '"ab', "more characters at the top level (string, ≥ 4", None),
        ({"type": "string", "maxLength": 4}, '"ab', "more characters or the closing quote", ['"']),
        ({"type": "string", "pattern": "^[0-9]{4}$"}, '"20', "a digit at the top level (string, /", None),
        ({"type": "string"}, '"\\u00', "a hexadecimal digit", None),
        ({"type": "string"}, '"\\', '"b", "f", "n"', None),
        ({"enum": ["calendar", 7, None]}, "", '"calendar", 7 or null', ['"calendar"', "7", "null"]),
        ({"enum": ["calendar", "cat"]}, '"cal', 'the rest of "calendar"', ['endar"']),
        ({"anyOf": [{"const": "auto"}, {"type": "string", "pattern": "^#"}]}, "",
         '"auto" or a string at the top level ("auto"; string, /^#/)', ['"auto"', '"']),
        ({"prefixItems": [{"const": 1}, {"type": "null"}], "items": False, "minItems": 2}, "[1",
         "another item at the top level", [", null]"]),
        ({"type": "object", "patternProperties": {"^x": True}, "additionalProperties": False}, "{",
         "another property or the end of the object", None),
        ({"properties": {"a": True, "b": True}, "dependentRequired": {"a": ["b"]}, "type": "object",
          "additionalProperties": True},
         '{"a": 1', 'the property "b" or another property', None),
        ({"type": "integer", "enum": [10, 20, 30]}, "2", "the rest of 20", ["0"]),
        ({"enum": [{"a": 1}, {"b": 2}]}, '{"', 'or "b', ['a": 1}']),
        ({"type": "array", "items": {"type": "string"}, "minItems": 1}, "", "(string[], ≥ 1 items)", ['["']),
    ],
)  # fmt: skip
def test_what_may_come_next_in_a_value(schema: Any, text: str, said: str, offered: list[str] | None) -> None:
    checker = TextChecker((), schema, DECLARED)
    view = checker.view(text)
    assert said in view.following
    check_continuations(checker.grammar, view)
    if offered is not None:
        assert set(offered) <= {option.text for option in view.options}, view.options


@pytest.mark.parametrize(
    ("schema", "text", "problem"),
    [
        (SCHEMA, '{"count": 3}', 'a number at /count (integer, ≥ 5), but found "3}"'),
        (SCHEMA, '{"count": 7 ,', "only the whitespace is refused, which --whitespace free allows"),
        (SCHEMA, '{"count": 7, "kind": "A"}', '"a" or "b" at /kind, but found "\\"A\\"}": did you mean "a"?'),
        (SCHEMA, '{"Count": 7}', 'did you mean "count"?'),
        (SCHEMA, '{"count": 7, "list": [], "kind": "a"}', ': "kind" is declared, but cannot come here'),
        (SCHEMA, '{"count": 7, "count": 7}', ': "count" is given already'),
        (SCHEMA, "{'count': 7}", "in JSON: Expecting property name enclosed in double quotes"),
        (SCHEMA, '{"count": 7}{"count": 8}', "expected the end of the text, but found"),
        (SCHEMA, "```json\n{}", "in JSON: Expecting value"),
        ({"type": ["boolean", "null"]}, "None", "true, false or null at the top level (boolean|null)"),
        ({"type": "string"}, '"a\nb"', "in JSON: Invalid control character"),
        ({"type": "string", "maxLength": 2}, '"abc"', "a string at the top level (string, ≤ 2 chars), but"),
    ],
)  # fmt: skip
def test_where_and_why_a_text_is_refused(schema: Any, text: str, problem: str) -> None:
    checker = TextChecker((), schema, DECLARED)
    view = checker.view(text)
    assert problem in view.problem
    assert len(view.accepted) == engine().match(checker.grammar, text).position


@pytest.mark.parametrize(
    ("schema", "path", "types"),
    [
        (True, (), ""),
        ({"type": ["integer", "null"], "minimum": 5}, (), "integer|null, ≥ 5"),
        ({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "boolean"}}}, (),
         "null; boolean"),
        ({"allOf": [{"$ref": "#"}] * 3}, (), ""),
        ({"properties": {"a": {"minimum": 2}}, "allOf": [{"properties": {"a": {"type": "number"}}}]}, ("a",),
         "≥ 2; number"),
        ({"$defs": {"n": {"$anchor": "n", "type": "null"}}, "items": {"$ref": "#n"}}, (0,), "null"),
        ({"prefixItems": [{"const": 3}], "items": {"const": 4}}, (1,), "4"),
        ({"patternProperties": {"^a": {"const": 1}}, "additionalProperties": {"const": 2}}, ("ab",), "1"),
        ({"patternProperties": {"^a": {"const": 1}}, "additionalProperties": {"const": 2}}, ("b",), "2"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "items": [{"const": 3}]}, (0,), "3"),
    ],
)  # fmt: skip
def test_what_a_schema_declares_at_a_path(schema: Any, path: tuple[str | int, ...], types: str) -> None:
    assert declared_at(Document(as_2020_12(schema)), path).types == types


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
        assert view.judgement.validation is not None
        assert validation in view.judgement.validation[0]
    else:
        assert view.judgement.validation == validation
    assert repaired in view.judgement.repaired


def test_a_value_is_judged_by_its_schema() -> None:
    assert TextChecker((), SCHEMA).view('{"count": 1}').judgement.validation == (
        "/count: 1 is less than the minimum of 5",
    )


def test_a_long_text_is_cut() -> None:
    view = CHECKER.view('{"name": "' + "x" * 2 * MOST_CHARACTERS)
    assert len(view.accepted + view.refused) == MOST_CHARACTERS


def test_a_pool_without_a_grammar_says_so() -> None:
    tool = Tool(name="a", args={"type": "object", "required": ["b"], "properties": {"b": False}})
    assert "no arguments satisfy" in TextChecker((tool,)).view("{").problem
