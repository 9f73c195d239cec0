"""What is said of a text: the engine's verdict, the place in the JSON, and the words of the schema."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf import Grammar, SchemaError, load_manifests
from gbnf.tools import Tool
from gbnf_server.inspect.inspected_grammar import GrammarChoice
from gbnf_server.inspect.partial_json import locate
from gbnf_server.inspect.schema_words import SchemaWords
from gbnf_server.inspect.text_view import MOST_CHARACTERS, TextChecker, TextView
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
DECLARED = GrammarChoice(property_order="declared")
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


NUMBERS_OF = {
    "≥": ("minimum",), ">": ("exclusiveMinimum",), "≤": ("maximum",), "<": ("exclusiveMaximum",),
    "multiple of": ("multipleOf",), "in the format": ("format",), "that matches": ("pattern",),
    "characters": ("minLength", "maxLength"), "items": ("minItems", "maxItems", "items"),
    "properties": ("minProperties", "maxProperties"), "duplicates": ("uniqueItems",),
    "with an item": ("contains",), "whose name matches": ("patternProperties",), "other than": ("not", "if"),
}  # fmt: skip


@given(SCHEMAS, st.integers(0, 2**32), st.floats(0, 1))
def test_the_words_name_only_keywords_of_the_schema(schema: Any, seed: int, part: float) -> None:
    checker = TextChecker((), schema)
    try:
        whole = generate(checker.grammar.rules, random.Random(seed))
    except SchemaError:
        return
    view = checker.view(whole[: int(part * len(whole))])
    said = re.sub(r'"(?:[^"\\]|\\.)*"|more characters| at /\S*', "", view.following)
    raw = json.dumps(schema)
    for word, keywords in NUMBERS_OF.items():
        if re.search(rf"(?<![-\w]){re.escape(word)}(?!\w)", said):
            assert any(f'"{keyword}":' in raw for keyword in keywords), (word, said)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "a call, that is an object"),
        ('{"nam', 'the property "name" at the top level'),
        ('{"name": "create_', 'the rest of "create_dirs" or "create_events" at /name'),
        ('{"name": "get_now"', 'a comma and the property "arguments" at the top level'),
        ('{"name": "get_now", "arguments": {', 'the property "timezone" or } at /arguments'),
        (CALL + '"duration_minutes": 3', "one or two more digits, in an integer ≥ 5 and ≤ 1440 at"),
        (CALL[:-2], '"duration_minutes" or "location" at /arguments'),
        ('{"name": "create_events", "arguments": {"title": 3', "a string of at least 1 character at"),
        ('{"name": "write_files", "arguments": {"files": [{"path": 3', "a string that matches ^"),
    ],
)
def test_what_may_come_next_in_a_call(text: str, said: str) -> None:
    assert said in CHECKER.view(text).following


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "text", "said", "offered"),
    [
        (SCHEMA, '{"count": 3', "an integer ≥ 5 at /count", []),
        (SCHEMA, '{"kind": "a"}', 'the property "count" at the top level', ['count": ']),
        (SCHEMA, '{"count": 7, "kind": ', 'one of "a", "b" at /kind', ['"a"', '"b"']),
        (SCHEMA, '{"count": 7, "kind": "', 'one of "a", "b" at /kind', ['a"', 'b"']),
        (SCHEMA, '{"count": 7, "list": [', 'one of "a", "b" at /list/0, or ]', ['"a"', '"b"', "]}"]),
        (SCHEMA, '{"count": 7, "list": ["a"', "] or a comma and another item at /list", [', "', "]}"]),
        (SCHEMA, '{"count": 7} ', "the end of the text", []),
        (SCHEMA, '{"count": 7', "more digits, or } or a comma and the property", [', "kind": "', "}"]),
        (SCHEMA, '{"count"', '":" after "count"', [": "]),
        (True, "", "any JSON value at the top level", ["true", "false", "null", "{", "[", '"']),
        (True, "tr", "the rest of true at the top level", ["ue"]),
        ({"type": "string", "minLength": 4}, '"ab', "at least two more characters, in a string of", None),
        ({"type": "string", "maxLength": 4}, '"ab', "at most two more characters or the closing", ['"']),
        ({"type": "string", "maxLength": 4}, '"abcd', "the closing quote, in a string of at most 4", ['"']),
        ({"type": "string", "pattern": "^[0-9]{4}$"}, '"20', "two more digits, in a string that", None),
        ({"type": "string", "format": "date"}, '"2026-1', "a digit from 0 to 2", None),
        ({"type": "string"}, '"\\u00', "two more hexadecimal digits", None),
        ({"type": "string"}, '"\\', "the rest of an escape: ", None),
        ({"type": "string"}, '"a', "more characters or the closing quote", ['"']),
        ({"const": {"a": [1, "x"]}}, "", "{", ['{"a": [1, "x"]}']),
        ({"enum": ["calendar", 7, None]}, "", 'one of "calendar", 7, null', ['"calendar"', "7", "null"]),
        ({"enum": ["calendar", "cat"]}, '"cal', 'the rest of "calendar"', ['endar"']),
        ({"anyOf": [{"const": "auto"}, {"type": "string", "pattern": "^#"}]}, "", '"auto" or a string that',
         ['"auto"', '"']),
        ({"prefixItems": [{"const": 1}, {"type": "null"}], "items": False, "minItems": 2}, "[1",
         "a comma and another item at the top level, to complete an array of at least 2 items", [", null]"]),
        ({"type": "array", "contains": {"const": 5}, "items": {"type": "integer"}}, "[4",
         "to complete an array with an item that is 5", None),
        ({"type": "object", "patternProperties": {"^x": True}, "additionalProperties": False}, "{",
         "a property whose name matches ^x or }", None),
        ({"type": "object", "properties": {"a": True, "b": True}, "dependentRequired": {"a": ["b"]}},
         '{"a": 1', 'a comma and the property "b"', None),
        ({"type": "integer", "enum": [10, 20, 30]}, "2", "the rest of 20", ["0"]),
        ({"properties": {"a": {"type": "null"}, "b": {"type": "null"}}}, '{"b": null, ', "any other property",
         None),
        ({"type": "string", "not": {"const": "a"}}, "", 'a string other than "a"', ['"']),
        ({"type": "array", "items": {"type": "string", "minLength": 2}, "minItems": 1}, "",
         "an array of at least 1 item whose items are each a string of at least 2 characters", ['["']),
    ],
)  # fmt: skip
def test_what_may_come_next_in_a_value(schema: Any, text: str, said: str, offered: list[str] | None) -> None:
    checker = TextChecker((), schema, DECLARED)
    view = checker.view(text)
    assert said in view.following
    check_continuations(checker.grammar, view)
    if offered is not None:
        assert set(offered) <= {option.text for option in view.options}, view.options


UNION = {
    "oneOf": [
        {
            "type": "object",
            "properties": {"kind": {"const": "circle"}, "size": {"type": "number", "minimum": 1}},
            "required": ["kind", "size"],
            "additionalProperties": False,
        },
        {
            "type": "object",
            "properties": {"kind": {"const": "label"}, "size": {"type": "integer", "maximum": 9}},
            "required": ["kind", "size"],
            "additionalProperties": False,
        },
    ]
}
CONDITION = {
    "type": "object",
    "properties": {"unit": {"enum": ["km", "mi"]}, "far": {"type": "integer"}},
    "required": ["unit", "far"],
    "additionalProperties": False,
    "if": {"properties": {"unit": {"const": "km"}}},
    "then": {"properties": {"far": {"maximum": 50}}},
    "else": {"properties": {"far": {"maximum": 30}}},
}


@pytest.mark.parametrize(
    ("schema", "text", "said"),
    [
        (UNION, '{"kind": "circle", "size": ', "a number ≥ 1 at /size"),
        (UNION, '{"kind": "label", "size": ', "an integer ≤ 9 at /size"),
        (CONDITION, '{"unit": "km", "far": ', "an integer ≤ 50 at /far"),
        (CONDITION, '{"unit": "mi", "far": ', "an integer ≤ 30 at /far"),
        ({"$defs": {"n": {"$anchor": "n", "type": "null"}}, "items": {"$ref": "#n"}, "type": "array"}, "[",
         "null at /0, or ]"),
        ({"$schema": "http://json-schema.org/draft-07/schema#", "type": "array", "items": [{"const": 3}]},
         "[", "3 at /0, or ]"),
    ],
)  # fmt: skip
def test_the_words_are_those_of_the_form_that_the_text_has(schema: Any, text: str, said: str) -> None:
    assert TextChecker((), schema).view(text).following == said


@pytest.mark.slow
@pytest.mark.parametrize(
    ("schema", "text", "problem"),
    [
        (SCHEMA, '{"count": 3}', 'an integer ≥ 5 at /count, but found "3}"'),
        (SCHEMA, '{"count": 7 ,', "only the whitespace is refused"),
        (SCHEMA, '{"count": 7x', 'expected } or a comma and the property "kind" or "list" at the'),
        (SCHEMA, '{"count": "7"}', '"7" is a string: leave out the quotes'),
        (SCHEMA, '{"count": 7, "kind": "A"}', 'one of "a", "b" at /kind, but found'),
        (SCHEMA, '{"Count": 7}', 'did you mean "count"?'),
        (SCHEMA, '{"count": 7, "kind": "A"}', 'did you mean "a"?'),
        (SCHEMA, '{"count": 7,}', "the comma before it is one too many"),
        (SCHEMA, '{"count": 7, "list": [],}', "this comma is one too many"),
        (SCHEMA, '{"count": 7, "list": [,', "nothing stands before the comma"),
        ({"type": "string"}, '"\\u00x', "JSON has four hexadecimal digits after \\u"),
        (SCHEMA, "{'count': 7}", "JSON strings are in double quotes"),
        (SCHEMA, "{\u201ccount\u201d: 7}", "typographic quotes"),
        (SCHEMA, "{count: 7}", "property names are in double quotes"),
        (SCHEMA, "```json\n{}", "a Markdown fence is no part of it"),
        (SCHEMA, 'Sure: {"count": 7}', "the text before the first { is no part of it"),
        (SCHEMA, '[{"count": 7}]', "leave out the brackets around it"),
        (SCHEMA, '<tool_call>{"count": 7}', "the text before the first { is no part of it"),
        ({"type": "string", "maxLength": 2}, '"abc', "a string of at most 2 characters"),
        (SCHEMA, '\ufeff{"count": 7}', "byte order mark"),
        (SCHEMA, '{"count": 7 /* seven */}', "JSON has no comments"),
        (SCHEMA, '{"count": 7 "kind": "a"}', "a comma is missing"),
        (SCHEMA, '{"count": 07}', "JSON has no such number"),
        (SCHEMA, '{"count" = 7}', "JSON has a colon"),
        (SCHEMA, '{"count": 7}{"count": 8}', "the value is complete, and nothing may follow it"),
        ({"type": ["boolean", "null"]}, "True", "in JSON, this is true"),
        ({"type": ["boolean", "null"]}, "None", "in JSON, this is null"),
        ({"type": "number"}, "NaN", "JSON has no NaN"),
        ({"type": "number"}, "-Infinity", "JSON has no Infinity"),
        ({"type": "number"}, ".5", "JSON has no such number"),
        ({"type": "string"}, '"a\nb"', "in a string, this character is written \\n"),
        ({"type": "string"}, '"a\x01b"', "in a string, this character is written \\u0001"),
        ({"type": "string"}, '"it\\\'s"', "JSON has no escape \\'"),
        ({"type": "string"}, "5", "strings are in double quotes"),
        ({"type": "string", "maxLength": 2}, '"abc"', "a string of at most 2 characters at the top"),
    ],
)  # fmt: skip
def test_where_and_why_a_text_is_refused(schema: Any, text: str, problem: str) -> None:
    checker = TextChecker((), schema, DECLARED)
    view = checker.view(text)
    assert problem in view.problem
    assert len(view.accepted) == engine().match(checker.grammar, text).position


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (
            '{"count": 7, "list": [], "kind": "a"}',
            ': properties have the schema\'s order, in which "kind" comes before "list"',
        ),
        ('{"kind": "a"}', ': "count" is required, and comes before "kind"'),
        ('{"count": 7, "count": 7}', ': "count" is given already'),
        ('{"count": 7, "other": 7}', ""),
    ],
)
def test_why_a_key_is_refused(text: str, why: str) -> None:
    problem = TextChecker((), SCHEMA, DECLARED).view(text).problem
    assert problem.endswith(why or '}"')


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
        ({"enum": list(range(20)), "maximum": 1}, "one of 0, 1"),
        ({"type": "string", "minLength": 1, "pattern": "^a"},
         "a string of at least 1 character that matches ^a"),
        ({"type": "string", "minLength": 3, "maxLength": 40, "format": "email"},
         "a string of 3 to 40 characters in the format email"),
        ({"type": "string", "minLength": 3, "maxLength": 3}, "a string of exactly 3 characters"),
        ({"type": "array", "items": {"type": "string"}, "maxItems": 2, "uniqueItems": True},
         "an array of at most 2 items without duplicates whose items are each a string"),
        ({"anyOf": [{"type": "null"}, {"$ref": "#/$defs/a"}], "$defs": {"a": {"type": "boolean"}}},
         "true or false or null"),
        ({"anyOf": [{"type": "integer", "maximum": 3}, {"type": "integer", "minimum": 9}]},
         "an integer ≤ 3 or an integer ≥ 9"),
        ({"allOf": [{"type": "number"}, {"minimum": 2}, {"minimum": 4, "multipleOf": 3}]},
         "a number ≥ 4 and a multiple of 3"),
        ({"$ref": "#"}, "any JSON value"),
        ({"allOf": [{"$ref": "#"}] * 3}, "any JSON value"),
        ({"type": "object", "minProperties": 1}, "an object of at least 1 property"),
        ({"type": "string", "not": {"enum": ["a", 5]}}, 'a string other than "a"'),
    ],
)  # fmt: skip
def test_the_words_for_a_schema(schema: Any, said: str) -> None:
    assert SchemaWords(schema).at(()).described() == said


def test_the_words_at_a_path_combine_all_that_judge_it() -> None:
    other = {"properties": {"a": {"maximum": 9, "type": "number"}}}
    schema = SchemaWords({"properties": {"a": {"minimum": 2, "type": "integer"}}, "allOf": [other]})
    assert schema.at(("a",)).described() == "an integer ≥ 2 and ≤ 9"
    assert schema.at(("b",)).described() == "any JSON value"


def test_the_words_at_a_path_name_the_choices() -> None:
    forms = [{"properties": {"a": {"type": "null"}}}, {"properties": {"a": {"type": "string"}}}]
    assert SchemaWords({"anyOf": forms}).at(("a",)).described() == "a string or null"
    schema = SchemaWords({"anyOf": forms, "properties": {"a": {"minLength": 3}}})
    assert schema.at(("a",)).described() == "a string of at least 3 characters or null"


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
