"""Validation never raises, agrees with jsonschema, and reports what to correct."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gbnf.calls.validation import validate_call
from gbnf.calls.validation.validator import filled_argument_errors
from gbnf.tools import ASK_USER, FINAL_ANSWER, Tool
from support.json_values import SIMPLE, nested
from support.pools import BUNDLED

property_names = st.sampled_from(
    sorted(
        {name for make_tool in BUNDLED for name in make_tool.args.get("properties", {})}
        | {"kind", "var", "x"}
    )
)
json_values = nested(
    SIMPLE | st.floats() | st.text(max_size=6) | property_names, property_names | st.text(max_size=3), size=15
)
tool_names = st.sampled_from([make_tool.name for make_tool in BUNDLED]) | st.text(max_size=5)
call_like = st.fixed_dictionaries(
    {}, optional={"name": tool_names | json_values, "arguments": json_values, "x": json_values}
)
arguments = st.dictionaries(property_names, json_values, max_size=5)


def errors(name: Any, given_arguments: Any, **options: Any) -> list[str]:
    return list(validate_call({"name": name, "arguments": given_arguments}, BUNDLED, **options).errors)


def make_tool(**args: Any) -> Tool:
    return Tool.from_mapping({"name": "t", "args": args})


def ok(tool: Any, given_arguments: Any, **options: Any) -> bool:
    return validate_call({"name": "t", "arguments": given_arguments}, [tool], **options).ok


@given(json_values | call_like, st.lists(st.integers(1, 5), max_size=2))
def test_it_never_raises(call: Any, steps: Any) -> None:
    verdict = validate_call(call, BUNDLED, steps=steps)
    assert verdict.ok == (not verdict.errors) == bool(verdict)
    assert all(error and "\n" not in error and len(error) < 3000 for error in verdict.errors)


@given(st.sampled_from(BUNDLED), arguments)
def test_without_closing_it_agrees_with_jsonschema(tool: Any, given_arguments: Any) -> None:
    given_arguments = {
        name: value
        for name, value in given_arguments.items()
        if name not in tool.runtime_resolved and name not in tool.step_references
    }
    verdict = validate_call({"name": tool.name, "arguments": given_arguments}, [tool], closed=False)
    try:
        plain = json.loads(json.dumps(given_arguments, allow_nan=False))
    except ValueError:
        assert not verdict.ok
        return
    validator = Draft202012Validator(tool.args, format_checker=Draft202012Validator.FORMAT_CHECKER)
    groups = [
        [name for name in group if name not in tool.step_references]
        for group in tool.args.get("requires_one_of", [])
    ]
    valid = validator.is_valid(plain) and all(any(name in plain for name in group) for group in groups)
    assert verdict.ok == valid


@given(st.sampled_from(BUNDLED), arguments, st.integers(1, 3))
def test_a_valid_call_has_no_undeclared_names(tool: Any, given_arguments: Any, step: Any) -> None:
    call = {"name": tool.name, "arguments": given_arguments}
    if validate_call(call, BUNDLED, steps=(step,)).ok:
        assert set(given_arguments) <= set(tool.model_args().get("properties", {}))
        assert all(given_arguments.get(name, step) == step for name in tool.step_references)


def test_the_words_of_the_contract() -> None:
    assert errors("get_inputs", {}) == ["missing required args ['title', 'dialog'] for tool 'get_inputs'"]
    assert errors("find_events_empty", {"period": "today", "limit": "3"}) == [
        "argument 'limit' of tool 'find_events_empty' must be integer, got string '3'"
    ]


FIELD = {"var": "a", "prompt": "b", "schema": {"kind": "text"}}


@pytest.mark.parametrize(
    ("name", "given_arguments", "said"),
    [
        ("find_events_empty", {"period": "soon"}, ["'period'", "one of ['today', 'tomorrow',", "string 'soon'"]),  # noqa: E501  # one case a line
        ("find_events_empty", {"start_date": "soon"}, ["'start_date'", "valid date"]),
        ("find_events_empty", {"period": "today", "limit": 21}, ["at most 20", "21"]),
        ("find_events_empty", {"period": "today", "limit": True}, ["must be integer", "boolean True"]),
        ("find_events_empty", {}, ["at least one of ['period', 'start_date']"]),
        ("create_dirs", {"paths": []}, ["'paths'", "at least 1 item,"]),
        ("create_dirs", {"paths": ["a", 1]}, ["'paths[1]'", "must be string, got integer 1"]),
        ("create_events", {"title": "", "starts": ["2026-01-01"]}, ["at least 1 character"]),
        ("compute", {"expression": "a" * 501}, ["another form than described: Arithmetic with", "aaa…"]),
        ("create_events", {"title": "x", "starts": ["at 9"]}, ["'starts[0]'", "as YYYY-MM-DDTHH:MM", "'at 9'"]),  # noqa: E501  # one case a line
        ("compute", {"expresion": "1"}, ["missing required args ['expression']"]),
        ("compute", {"expression": "1", "expresion": "1"}, ["unknown argument 'expresion'", "Did you mean 'expression'?"]),  # noqa: E501  # one case a line
        ("undo_last_turn", {"x": 1}, ["unknown argument 'x'", "It takes none."]),
        ("find_files", {"base_path": ".", "pattern": "*", "actor": "me"}, ["'actor'", "filled in by the runtime"]),  # noqa: E501  # one case a line
        ("get_inputs", {"title": "t", "dialog": [{**FIELD, "schema": {}}]}, ["['kind'] in 'dialog[0].schema'"]),  # noqa: E501  # one case a line
        ("get_inputs", {"title": "t", "dialog": [{**FIELD, "z": 1}]}, ["unknown argument 'z' in 'dialog[0]'", "var, prompt, schema"]),  # noqa: E501  # one case a line
    ],
)  # fmt: skip
def test_errors_name_location_value_and_what_is_expected(name: Any, given_arguments: Any, said: Any) -> None:
    first = errors(name, given_arguments)[0]
    assert all(part in first for part in said), first
    assert name in first


TEXT = {"type": "string"}
NAMES = ("a", "b", "c")


EXCLUSIVE = st.lists(st.sampled_from(NAMES), min_size=2, max_size=3, unique=True).flatmap(
    lambda names: st.sampled_from(
        [{"not": {"required": names}}, {"oneOf": [{"required": [name]} for name in names]}]
    )
)


@given(
    EXCLUSIVE | st.lists(st.sampled_from(NAMES)).map(lambda names: {"not": {"anyOf": [{"required": names}]}}),
    st.sets(st.sampled_from(NAMES)),
    st.booleans(),
)
def test_exclusive_properties_are_named_only_where_they_exclude_each_other(
    exclusive: dict[str, Any], given_names: set[str], nested: bool
) -> None:
    schema = {"type": "object", "properties": dict.fromkeys(NAMES, TEXT), **exclusive}
    value: dict[str, Any] = dict.fromkeys(given_names, "x")
    tool = make_tool(type="object", properties={"o": schema}) if nested else make_tool(**schema)
    call = {"name": "t", "arguments": {"o": value} if nested else value}
    told = [error for error in validate_call(call, [tool]).errors if ": give " in error]
    assert not told or not Draft202012Validator(schema).is_valid(value)
    for error in told:
        listed, _, excluded = error.partition(": give ")[2].partition(", not ")
        names = [name for name in NAMES if f"'{name}'" in listed]
        assert bool(excluded) == (len(given_names & {*names}) > 1)
        one = dict.fromkeys((given_names - {*names}) | {names[0]}, "x")  # what the message asks for is valid
        assert Draft202012Validator(schema).is_valid(one)


P = {"pattern": TEXT, "patterns": {"type": "array", "items": TEXT}, "base": TEXT}
EITHER = [{"required": ["pattern"]}, {"required": ["patterns"]}]
BOTH = {"pattern": "a", "patterns": ["b"]}


@pytest.mark.parametrize(
    ("rest", "given_arguments", "told"),
    [
        ({"not": {"required": ["pattern", "patterns"]}}, BOTH, "tool 't': give 'pattern' or 'patterns', not both"),  # noqa: E501  # one case a line
        ({"oneOf": EITHER}, BOTH, "tool 't': give 'pattern' or 'patterns', not both"),
        ({"not": {"allOf": EITHER}}, BOTH, "tool 't': give 'pattern' or 'patterns', not both"),
        ({"anyOf": [{"not": each} for each in EITHER]}, BOTH, "tool 't': give 'pattern' or 'patterns', not both"),  # noqa: E501  # one case a line
        ({"oneOf": [{**EITHER[0], "not": EITHER[1]}, {**EITHER[1], "not": EITHER[0]}]}, BOTH, "tool 't': give 'pattern' or 'patterns', not both"),  # noqa: E501  # one case a line
        ({"oneOf": [{**each, "properties": {"base": {"type": "string"}}} for each in EITHER]}, BOTH, "tool 't': give 'pattern' or 'patterns', not both"),  # noqa: E501  # one case a line
        ({"oneOf": [{"required": ["base", *each["required"]]} for each in EITHER]}, {**BOTH, "base": "."}, "tool 't': give 'pattern' or 'patterns', not both"),  # noqa: E501  # one case a line
        ({"if": EITHER[0], "then": {"not": EITHER[1]}}, BOTH, "tool 't': leave out 'patterns'"),
        ({"dependentSchemas": {"pattern": {"not": EITHER[1]}}}, BOTH, "tool 't': leave out 'patterns'"),
        ({"dependentSchemas": {"pattern": {"properties": {"patterns": False}}}}, {"pattern": "a", "patterns": []}, "must not contain []"),  # noqa: E501  # one case a line
        ({"oneOf": EITHER}, {"base": "."}, "tool 't': give 'pattern' or 'patterns'"),
        ({"oneOf": [*EITHER, {"required": ["base"]}]}, {**BOTH, "base": "."}, "tool 't': give 'pattern', 'patterns' or 'base', not several of them"),  # noqa: E501  # one case a line
        ({"not": {"required": ["pattern", "patterns", "base"]}}, {**BOTH, "base": "."}, "tool 't': give 'pattern', 'patterns' or 'base', not all of them"),  # noqa: E501  # one case a line
        ({"anyOf": [{"not": {"required": ["pattern", "patterns"]}}, {"required": ["base"]}]}, BOTH, "or needs ['base']"),  # noqa: E501  # one case a line
        ({"not": {"required": ["pattern", "patterns"], "not": {"required": ["base"]}}}, BOTH, "should not be valid under"),  # noqa: E501  # one case a line
        ({"oneOf": [{"required": ["pattern", "base"]}, {"required": ["patterns"]}]}, {"pattern": "a"}, "needs ['base']"),  # noqa: E501  # one case a line
        ({"oneOf": [{"required": ["pattern", "patterns"]}, {}]}, BOTH, "more than one of its forms"),
        ({"oneOf": [{"required": ["pattern"], "not": True}, *EITHER[1:]]}, {}, "fits none of its forms"),
        ({"oneOf": [*EITHER, {"required": ["pattern"]}]}, {}, "fits none of its forms"),
        ({"oneOf": [*EITHER, True]}, {"pattern": "x"}, "more than one of its forms"),
        ({"oneOf": [{**each, "properties": {"base": {"const": name}}} for name, each in zip("xy", EITHER, strict=True)]}, {"base": "z"}, "fits none of its forms"),  # noqa: E501  # one case a line
        ({"oneOf": [{"required": ["base", *each["required"]]} for each in EITHER]}, BOTH, "needs ['base']"),
        ({"not": {"required": ["base"]}}, {"base": "."}, "tool 't': leave out 'base'"),
    ],
)  # fmt: skip
def test_properties_that_exclude_each_other(rest: Any, given_arguments: Any, told: str) -> None:
    tool = make_tool(type="object", properties=P, **rest)
    (error,) = validate_call({"name": "t", "arguments": given_arguments}, [tool]).errors
    assert told in error if "tool 't':" not in told else told == error


@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ({"pattern": r"^[A-Z]{3}-\d{4}$", "description": "A number"}, "described: A number, got"),
        ({"pattern": r"^[A-Z]{3}-\d{4}$"}, "for example 'AAA-0000', got"),
        ({"pattern": "^A+$", "examples": [1, "B", "AA"]}, "for example 'AA', got"),
        ({"pattern": "^A+$", "description": "Letters", "default": "AAA"}, "described: Letters, for example 'AAA', got"),  # noqa: E501  # one case a line
        ({"format": "date"}, "valid date, for example '2026-01-31', got"),
        ({"format": "date", "examples": ["2030-12-24"]}, "valid date, for example '2030-12-24', got"),
        ({"format": "date-time", "pattern": "^2"}, "for example '2026-01-31T09:30:00Z', got"),
        ({"format": "date", "default": "today"}, "valid date, for example '2026-01-31', got"),
        *(({"pattern": each}, f"the pattern {each}, got") for each in ("^(yes|no)$", "^[a-z]+$", "^.{3}$")),
    ],
)  # fmt: skip
def test_a_form_is_described_or_shown_by_an_example(schema: dict[str, Any], said: str) -> None:
    tool = Tool("order", args={"type": "object", "properties": {"number": {"type": "string", **schema}}})
    error = "; ".join(validate_call({"name": "order", "arguments": {"number": "12 ?"}}, [tool]).errors)
    assert said in error
    assert not ("description" in schema and "pattern" in schema and schema["pattern"] in error)


@pytest.mark.parametrize(
    ("call", "said"),
    [
        (None, "got null"),
        ("{}", "got string '{}'"),
        ({}, "the name is missing"),
        ({"name": 3, "arguments": {}}, "the name must be a string"),
        ({"name": "get_now"}, "are missing; give {}"),
        ({"name": "get_now", "arguments": "{}"}, "write the object itself"),
        ({"name": "get_now", "arguments": []}, "must be an object"),
        ({"name": "get_now", "arguments": {}, "id": 1}, "take out 'id'"),
        ({"name": "get_noow", "arguments": {}}, "Did you mean 'get_now'?"),
        ({"name": "get_now", "arguments": {"timezone": float("nan")}}, "no JSON number"),
        ({"name": "get_now", "arguments": {3: 1}}, "no string"),
        ({"name": "get_now", "arguments": {"timezone": {1}}}, "no JSON value"),
    ],
)
def test_the_error_of_a_malformed_call_shows_the_expected_shape(call: Any, said: Any) -> None:
    (error,) = validate_call(call, BUNDLED).errors
    assert said in error


def test_no_tools_no_calls() -> None:
    assert "There are no tools." in validate_call({"name": "a", "arguments": {}}, []).errors[0]


@pytest.mark.slow
def test_depth_and_size_are_judged_without_harm() -> None:
    deep: list[object] = []
    for _ in range(100_000):
        deep = [deep]
    assert "nested too deeply" in errors("get_now", {"timezone": deep})[0]
    many = [{"x": 1}] * 500
    assert len(errors("get_inputs", {"title": "t", "dialog": many})) <= 13
    assert not ok(make_tool(properties={"n": {"multipleOf": 0.5}}), {"n": 10**400})


def test_step_references_name_steps_that_exist() -> None:
    assert errors("read_files", {"from_step": 2}, steps=(2, 4)) == []
    assert "(2, 4), got 3" in errors("read_files", {"from_step": 3}, steps=(2, 4))[0]
    assert "must be integer" in errors("read_files", {"from_step": True}, steps=(1,))[0]
    assert "give 'paths' instead" in errors("read_files", {"from_step": 1})[0]
    assert errors("read_files", {}, steps=(1,)) == [
        "tool 'read_files' needs at least one of ['paths', 'from_step']"
    ]
    assert errors("read_files", {}) == ["tool 'read_files' needs at least one of ['paths']"]
    needy = make_tool(properties={"from_step": {"type": "integer"}}, required=["from_step"])
    assert not ok(needy, {"from_step": 1})
    assert ok(needy, {"from_step": 1}, steps=(1,))


CLOSED = {"type": "object", "properties": {"a": {"type": "integer"}}}


@pytest.mark.parametrize(
    ("schema", "value", "closed", "standard"),
    [
        (CLOSED, {"a": 1}, 1, 1),
        (CLOSED, {"b": 1}, 0, 1),
        ({**CLOSED, "patternProperties": {"^b": {}}}, {"c": 1}, 1, 1),
        ({"type": "object"}, {"b": 1}, 1, 1),
        ({}, {"b": 1}, 1, 1),
        ({**CLOSED, "allOf": [{"properties": {"b": {}}}]}, {"a": 1, "c": 1}, 0, 1),
        ({**CLOSED, "anyOf": [{"required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]}, {"b": 1}, 1, 1),  # noqa: E501  # one case a line
        ({**CLOSED, "anyOf": [{"required": ["a"]}, {"properties": {"b": {}}, "required": ["b"]}]}, {"c": 1}, 0, 0),  # noqa: E501  # one case a line
        ({"anyOf": [CLOSED, {"type": "string"}]}, {"b": 1}, 0, 1),
        ({"anyOf": [CLOSED, {"type": "object"}]}, {"b": 1}, 1, 1),
        ({"$ref": "#/$defs/c"}, {"b": 1}, 0, 1),
        ({"type": "array", "items": CLOSED}, [{"b": 1}], 0, 1),
        ({"prefixItems": [{"$ref": "#/$defs/c"}]}, [{"b": 1}], 0, 1),
        ({"enum": [{"b": 1}]}, {"b": 1}, 1, 1),
    ],
)  # fmt: skip
def test_silent_objects_are_closed_in_a_tool_call(
    schema: Any, value: Any, closed: Any, standard: Any
) -> None:
    tool = make_tool(properties={"p": schema}, **{"$defs": {"c": CLOSED}})
    assert ok(tool, {"p": value}) == bool(closed)
    assert ok(tool, {"p": value}, closed=False) == bool(standard)


def test_the_arguments_themselves_are_closed() -> None:
    assert not ok(make_tool(), {"x": 1})
    assert ok(make_tool(), {"x": 1}, closed=False)
    assert ok(make_tool(additionalProperties=True), {"x": 1})
    assert not ok(make_tool(**CLOSED, anyOf=[{"required": ["a"]}]), {"a": 1, "x": 1})


def test_what_the_runtime_fills_in_is_refused_at_any_depth() -> None:
    inner = {"properties": {"a": {}, "r": {"runtime_resolved": True}}, "required": ["a", "r"]}
    for openness in ({}, {"additionalProperties": True}):
        tool = make_tool(properties={"p": {**inner, **openness}}, **openness)
        assert ok(tool, {"p": {"a": 1}})
        verdict = validate_call({"name": "t", "arguments": {"p": {"a": 1, "r": 1}}}, [tool])
        assert verdict.errors == ("argument 'p.r' of tool 't' is filled in by the runtime; leave it out",)


def test_errors_of_alternatives_list_what_each_requires() -> None:
    tool = make_tool(properties={"p": {"anyOf": [{"type": "integer", "minimum": 3}, CLOSED]}})
    verdict = validate_call({"name": "t", "arguments": {"p": {"a": "x"}}}, [tool])
    assert verdict.errors[0].startswith("argument 'p' of tool 't' fits none of its forms: a must be integer")


def test_the_built_in_tools_are_judged_alike() -> None:
    call = {"name": "final_answer", "arguments": {"message": "done"}}
    assert validate_call(call, [FINAL_ANSWER, ASK_USER]).ok
    assert not validate_call(call, BUNDLED).ok
    assert not validate_call({"name": "ask_user", "arguments": {"options": []}}, [ASK_USER]).ok


SCHEMAS: tuple[Any, ...] = (
    {"type": "string", "minLength": 2},
    {"type": "array", "items": {"type": "string"}, "maxItems": 2},
    {"enum": ["a", 1, None]},
    {"anyOf": [{"type": "integer", "minimum": 3}, {"pattern": "^a"}]},
    {"$ref": "#/$defs/named"},
    True,
)
VALUES = nested(
    st.none() | st.booleans() | st.integers(0, 5) | st.sampled_from(["", "a", "ab", "ba"]),
    st.sampled_from("xy"),
    size=5,
)


def tool_with(schema: Any, **args: Any) -> Tool:
    definitions = {"named": {"type": "object", "required": ["x"]}}
    properties = {"paths": schema, "other": {"type": "integer"}}
    return Tool.from_mapping(
        {"name": "t", "args": {"type": "object", "$defs": definitions, "properties": properties, **args}}
    )


@given(st.sampled_from(SCHEMAS), VALUES)
def test_it_agrees_with_jsonschema(schema: Any, value: Any) -> None:
    errors = filled_argument_errors(tool_with(schema, required=["other"]), "paths", value)
    root = {"$defs": {"named": {"type": "object", "required": ["x"]}}, "allOf": [schema]}
    assert (not errors) == Draft202012Validator(root).is_valid(value)
    assert all(error and "\n" not in error for error in errors)


@pytest.mark.parametrize("value", ["a", 1])
def test_a_property_that_the_runtime_fills_in_has_its_other_keywords(value: Any) -> None:
    tool = tool_with({"type": "string", "runtime_resolved": True})
    assert bool(filled_argument_errors(tool, "paths", value)) == (value == 1)


def test_a_value_nested_too_deep_is_an_error() -> None:
    value: Any = []
    for _ in range(100_000):
        value = [value]
    recursive = {"$defs": {"named": {"items": {"$ref": "#/$defs/named"}}}}
    [error] = filled_argument_errors(tool_with({"$ref": "#/$defs/named"}, **recursive), "paths", value)
    assert error.startswith("the entries can't be judged (")
