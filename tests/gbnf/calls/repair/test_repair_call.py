"""Argument repair: valid calls stay, damage is undone, every change is listed."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import date
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from calls import CALLS
from gbnf.calls import ToolCall
from gbnf.calls.repair import Coercion, repair_call
from gbnf.calls.validation import validate_call
from gbnf.tools import RunPolicy, Tool
from support.pools import BUNDLED, POOL, json_values, tool, valid_calls

TYPED = tool(
    "typed",
    ("count", "mode"),
    count={"type": "integer", "minimum": 0, "maximum": 10},
    ratio={"type": "number", "exclusiveMinimum": 0, "maximum": 1},
    flag={"type": "boolean"},
    note={"type": "string"},
    tags={"type": "array", "items": {"type": "string"}},
    counts={"type": "array", "items": {"type": "integer"}},
    place={"type": "object", "properties": {"city": {"type": "string"}, "zip_code": {"type": "string"}}},
    mode={"enum": ["Fast", "slow", "very-slow"], "default": "slow"},
    level={"enum": [1, 2, 3]},
    either={"anyOf": [{"type": "integer"}, {"type": "array", "items": {"type": "integer"}}]},
    maybe={"type": ["integer", "null"]},
)
TYPED_POOL = (TYPED,)

typed_arguments = st.fixed_dictionaries(
    {"count": st.integers(0, 10), "mode": st.sampled_from(["Fast", "slow", "very-slow"])},
    optional={
        "ratio": st.floats(0.1, 1),
        "flag": st.booleans(),
        "tags": st.lists(st.text(max_size=5), max_size=3),
        "counts": st.lists(st.integers(), max_size=3),
        "level": st.sampled_from([1, 2, 3]),
        "place": st.fixed_dictionaries({"city": st.text(max_size=5)}),
        "either": st.integers() | st.lists(st.integers(), max_size=2),
    },
)


def repaired(arguments: dict[str, Any], **options: Any) -> Any:
    return repair_call(
        {"name": "typed", "arguments": {"count": 1, "mode": "Fast"} | arguments}, TYPED_POOL, **options
    )


@given(valid_calls, st.booleans())
def test_a_valid_call_is_never_changed(call: Any, clamp: Any) -> None:
    found = repair_call(call, POOL, clamp=clamp)
    assert (found.call, found.coercions, found.ok) == (call.as_call(), (), True)


@pytest.mark.parametrize("name", CALLS)
def test_valid_calls_of_the_bundled_tools_are_unchanged(name: str) -> None:
    call = {"name": name, "arguments": CALLS[name]}
    found = repair_call(call, BUNDLED, clamp=True)
    assert (found.call, found.coercions, found.ok) == (call, (), True)


@given(typed_arguments, st.data())
def test_what_was_made_text_is_made_back(arguments: Any, data: Any) -> None:
    damaged = {
        key: json.dumps(value) if not isinstance(value, str) and data.draw(st.booleans()) else value
        for key, value in arguments.items()
    }
    found = repair_call({"name": "typed", "arguments": damaged}, TYPED_POOL)
    assert found.ok
    assert found.call["arguments"] == arguments
    changed = {key for key in arguments if damaged[key] != arguments[key]}
    assert {coercion.path for coercion in found.coercions} == changed


@given(
    st.dictionaries(
        st.sampled_from([*TYPED.args["properties"], "Count", "extra", "cnt", "ratios"]), json_values
    ),
    st.booleans(),
)
def test_every_change_is_listed_and_once_is_enough(arguments: Any, clamp: Any) -> None:
    call = {"name": "typed", "arguments": arguments}
    before = json.dumps(call)
    found = repair_call(call, TYPED_POOL, clamp=clamp)
    assert json.dumps(call) == before
    assert found.validation == validate_call(found.call, TYPED_POOL)
    listed = {coercion.path.partition("[")[0].partition(".")[0] for coercion in found.coercions}
    renamed = {each.before: each.after for each in found.coercions if each.kind == "renamed"}
    listed |= {key for key, name in renamed.items() if name in TYPED.args["properties"]}
    after = found.call["arguments"]
    changed = {
        key for key in arguments.keys() | after.keys() if arguments.get(key, ...) != after.get(key, ...)
    }
    assert changed <= listed
    again = repair_call(found.call, TYPED_POOL, clamp=clamp)
    if found.ok:
        assert again.coercions == ()


@given(
    st.recursive(json_values, lambda inner: st.dictionaries(st.sampled_from(["name", "arguments"]), inner))
)
def test_no_call_raises(call: Any) -> None:
    repair_call(call if isinstance(call, dict) else {"name": "typed", "arguments": call}, TYPED_POOL)


@given(
    st.dates(date(1000, 1, 1)),
    st.sampled_from(["%d %B %Y", "%B %d, %Y", "%b %d %Y", "%d of %B %Y", "%Y/%m/%d", "%Y %B %d"]),
    st.sampled_from(["", " or so", " to 5 May 2026", "Not "]),
)
def test_a_date_in_words_is_one_in_digits_unless_the_text_says_more(day: date, form: str, more: str) -> None:
    properties = {"day": {"type": "string", "format": "date"}, "note": {"type": "string"}}
    args = {"type": "object", "properties": properties}
    dated = Tool.from_mapping({"name": "dated", "description": {"en": "Take a day."}, "args": args})
    written = day.strftime(form)
    text = more + written if more.endswith("t ") else written + more
    repaired = repair_call({"name": "dated", "arguments": {"day": text, "note": written}}, (dated,))
    assert repaired.call["arguments"] == {"day": text if more else day.isoformat(), "note": written}
    assert repaired.ok == (not more)


@pytest.mark.parametrize(
    ("key", "given_value", "value", "kind"),
    [
        ("count", " 7.0 ", 7, "typed"),
        ("count", ["7"], 7, "unwrapped"),
        ("ratio", ".5", 0.5, "typed"),
        ("flag", "Yes", True, "typed"),
        ("flag", 0, False, "typed"),
        ("note", 5, "5", "typed"),
        ("note", True, "true", "typed"),
        ("tags", "a", ["a"], "wrapped"),
        ("tags", "['a', 'b',]", ["a", "b"], "parsed"),
        ("mode", "FAST", "Fast", "enum"),
        ("mode", "very slow", "very-slow", "enum"),
        ("maybe", "null", None, "typed"),
    ],
)
def test_one_coercion(key: str, given_value: Any, value: Any, kind: str) -> None:
    found = repaired({key: given_value})
    assert found.ok
    assert found.call["arguments"][key] == value
    assert type(found.call["arguments"][key]) is type(value)
    assert found.coercions == (Coercion(key, kind, given_value, value),)  # type: ignore[arg-type]  # from the table


@pytest.mark.parametrize(
    ("parts", "given_value"),
    [
        ([{"type": "array"}, {"type": "string"}], "x"),
        ([{"type": "string"}, {"type": "integer"}], 5),
        ([{"type": "integer"}, {"type": "boolean"}, {"type": "integer"}], 1),
        ([{"type": "array"}, {"type": "integer"}], "x"),
    ],
)
def test_parts_that_contradict_each_other_leave_no_change_that_is_undone(
    parts: Any, given_value: Any
) -> None:
    tools = (tool("contradictory", value={"allOf": parts}),)
    call = {"name": "contradictory", "arguments": {"value": given_value}}
    found = repair_call(call, tools)
    assert not found.ok
    assert json.dumps(found.call) == json.dumps(call) or len(found.coercions) == 1
    assert bool(found.coercions) == (json.dumps(found.call) != json.dumps(call))


def test_coercions_inside_lists_and_objects_name_their_location() -> None:
    found = repaired({"counts": "3", "place": {"City": "Rome", "zip_code": 100, "planet": "Earth"}})
    assert found.call["arguments"]["counts"] == [3]
    assert found.call["arguments"]["place"] == {"city": "Rome", "zip_code": "100"}
    assert [(each.path, each.kind) for each in found.coercions] == [
        ("counts", "wrapped"),
        ("counts[0]", "typed"),
        ("place.city", "renamed"),
        ("place.planet", "dropped"),
        ("place.zip_code", "typed"),
    ]


def test_numbers_are_clamped_only_where_asked() -> None:
    assert not repaired({"count": 99}).ok
    assert repaired({"count": 99}, clamp=True).call["arguments"]["count"] == 10
    assert repaired({"count": "-3"}, clamp=True).call["arguments"]["count"] == 0
    assert not repaired({"ratio": -1}, clamp=True).ok  # nothing is nearest to an exclusive bound


def test_unknown_keys_are_dropped_or_refused() -> None:
    assert repaired({"colour": "red"}).coercions == (Coercion("colour", "dropped", "red", None),)
    refused = repaired({"colour": "red", "count": "1"}, unknown="refuse")
    assert not refused.ok
    assert "colour" in refused.validation.errors[0]


def test_defaults_fill_what_is_required_and_missing() -> None:
    found = repair_call({"name": "typed", "arguments": {"count": 1}}, TYPED_POOL)
    assert found.call["arguments"] == {"count": 1, "mode": "slow"}
    assert found.coercions == (Coercion("mode", "filled", None, "slow"),)


def test_null_for_what_may_be_absent_is_dropped() -> None:
    assert repaired({"note": None, "maybe": None, "flag": "no"}).call["arguments"] == {
        "count": 1,
        "mode": "Fast",
        "maybe": None,
        "flag": False,
    }


def test_an_empty_list_for_what_may_be_absent_is_dropped_if_it_needs_items() -> None:
    words = {"type": "array", "items": {"type": "string"}}
    lists = tool(
        "lists", ("needed",), needed=words | {"minItems": 1}, any=words, some=words | {"minItems": 1}
    )
    found = repair_call({"name": "lists", "arguments": {"needed": ["a"], "any": [], "some": []}}, (lists,))
    assert found.call["arguments"] == {"needed": ["a"], "any": []}
    assert found.coercions == (Coercion("some", "dropped", [], None),)
    assert not repair_call({"name": "lists", "arguments": {"needed": []}}, (lists,)).ok


@pytest.mark.parametrize("value", ["seven", "7 minutes", "1,5", "0x7", "1e999", "", "٧", "7" * 500])
def test_text_that_is_not_a_number_is_unchanged_and_refused(value: str) -> None:
    found = repaired({"count": value})
    assert (found.ok, found.call["arguments"]["count"]) == (False, value)


def test_a_truncated_call_is_refused_even_if_valid() -> None:
    found = repair_call(ToolCall("call_1", "typed", {"count": 1, "mode": "slow"}, truncated=True), TYPED_POOL)
    assert not found.ok
    assert "cut" in found.validation.errors[0]


def test_a_text_of_arguments_that_does_not_end_is_not_made_up() -> None:
    found = repair_call({"name": "typed", "arguments": '{"count": 1, "mode": "Fa'}, TYPED_POOL)
    assert (found.ok, found.coercions) == (False, ())


def test_step_references_and_names() -> None:
    call = {"name": "Create-Events", "arguments": {"title": "x", "from_step": "2"}}
    found = repair_call(call, BUNDLED, steps=(2,))
    assert found.ok
    assert found.call == {"name": "create_events", "arguments": {"title": "x", "from_step": 2}}
    assert [each.kind for each in found.coercions] == ["renamed", "typed"]


def declaring(**properties: Any) -> Tool:
    """A tool whose arguments say more than `properties`."""
    return Tool("split", args={"type": "object"} | properties)


INTEGERS = {"type": "integer"}
own = st.builds(
    lambda names, required: {"properties": dict.fromkeys(names, INTEGERS)} | ({"required": names[:required]}),
    st.lists(st.sampled_from("abcdef"), max_size=3, unique=True),
    st.integers(0, 2),
)


def in_parts(inner: Any) -> Any:
    some = st.lists(inner, min_size=1, max_size=2)
    parts = (
        st.fixed_dictionaries({"allOf": some})
        | st.fixed_dictionaries({"anyOf": some})
        | st.fixed_dictionaries({"oneOf": some})
        | st.fixed_dictionaries({"if": inner, "then": inner, "else": inner})
        | st.fixed_dictionaries({"dependentSchemas": st.fixed_dictionaries({"a": inner})})
        | st.fixed_dictionaries(
            {"patternProperties": st.sampled_from([{"^[ab]$": INTEGERS}, {"f": INTEGERS}])}
        )
        | st.just({"$ref": "#/$defs/base"})
        | st.just({"additionalProperties": False})
    )
    return st.tuples(own, parts).map(lambda drawn: drawn[0] | drawn[1])


objects_in_parts = st.recursive(own, in_parts, max_leaves=6)


def declared(schema: Any, base: Any) -> set[str]:
    """The keys that a drawn schema declares at any of its branches."""
    names: set[str] = set(schema.get("properties", {})) | ({"f"} & schema.get("patternProperties", {}).keys())
    names |= {"a", "b"} if "^[ab]$" in schema.get("patternProperties", {}) else set()
    parts = [base] if "$ref" in schema else []
    parts += [part for keyword in ("allOf", "anyOf", "oneOf") for part in schema.get(keyword, ())]
    parts += [schema[keyword] for keyword in ("if", "then", "else") if keyword in schema]
    parts += schema.get("dependentSchemas", {}).values()
    return names.union(*(declared(part, base) for part in parts))


@given(objects_in_parts, own, st.booleans(), st.dictionaries(st.sampled_from("abcdefg"), st.integers(0, 9)))
def test_a_key_that_some_subschema_declares_is_never_dropped(
    schema: Any, base: Any, nested: Any, given_now: Any
) -> None:
    root = {"properties": {"n": INTEGERS, "o": schema}} if nested else schema
    split = declaring(**root, **{"$defs": {"base": base}})
    arguments = {key: str(value) if key < "d" else value for key, value in given_now.items()}
    call = {"name": "split", "arguments": {"n": "1", "o": arguments} if nested else arguments}
    found = repair_call(call, [split])
    after = found.call["arguments"]["o"] if nested else found.call["arguments"]
    kept = set(arguments) & declared(schema, base)
    assert kept <= set(after)
    renamed = {each.before: each.after for each in found.coercions if each.kind == "renamed"}
    assert all(int(after[renamed.get(key, key)]) == given_now[key] for key in {*kept, *renamed})
    assert not kept & {*renamed}
    dropped = {each.path.rpartition(".")[2] for each in found.coercions if each.kind == "dropped"}
    assert dropped == set(arguments) - set(after) - {*renamed}
    assert found.ok or not dropped


@given(objects_in_parts, own, st.dictionaries(st.sampled_from("abcdef"), st.integers(0, 9)))
def test_valid_arguments_beside_an_invalid_one_are_unchanged(schema: Any, base: Any, arguments: Any) -> None:
    root = {"properties": {"n": INTEGERS, "o": schema}, "$defs": {"base": base}}
    call = {"name": "split", "arguments": {"n": 1, "o": arguments}}
    assume(validate_call(call, [declaring(**root)]).ok)
    damaged = {"name": "split", "arguments": {"n": "1", "o": arguments}}
    found = repair_call(damaged, [declaring(**root)])
    assert (found.call, found.ok) == (call, True)
    assert found.coercions == (Coercion("n", "typed", "1", 1),)


STRANGE = ("xyz", "zz_top", "k9", "Über")
"""Keys that no property of the tools is spelled like."""


@given(st.sampled_from(STRANGE), st.text(), st.booleans(), st.sampled_from(["read", "write"]))
def test_the_only_required_text_that_is_missing_may_have_another_key_if_the_tool_reads(
    key: str, value: str, is_alone: bool, effect: Any
) -> None:
    properties = {"query": {"type": "string"}, "count": {"type": "integer"}}
    args = {"type": "object", "properties": properties, "required": ["query"]}
    searching = Tool("search", args=args, run=RunPolicy(effect))
    arguments = {"count": 3, key: value, **({} if is_alone else {"more": "x"})}
    repaired = repair_call({"name": "search", "arguments": arguments}, [searching])
    is_renamed = is_alone and effect == "read"
    assert repaired.ok is is_renamed
    assert (Coercion("query", "renamed", key, "query") in repaired.coercions) is is_renamed
    assert ("query" in repaired.call["arguments"]) is is_renamed


@pytest.mark.parametrize(
    ("required", "key", "is_renamed"),
    [
        ("text", "msg", True), ("body", "content", True), ("path", "filename", True), ("query", "q", True),
        ("endpoint", "end", False), ("allow", "all", False), ("point_y", "point_z", False),
        ("teamB", "teamC", False),
        ("to", "from", False), ("active", "inactive", False), ("min_price", "max_price", False),
        ("start_date", "start", True), ("count", "cnt", True), ("message", "massage", True),
    ],
)  # fmt: skip
def test_a_tool_that_writes_gets_no_value_that_is_another(required: str, key: str, is_renamed: bool) -> None:
    args = {"type": "object", "properties": {required: {"type": "string"}}, "required": [required]}
    writing = Tool("write", args={**args, "additionalProperties": False})
    repaired = repair_call({"name": "write", "arguments": {key: "x"}}, [writing])
    assert repaired.ok is is_renamed
    assert repaired.call["arguments"] == ({required: "x"} if is_renamed else {key: "x"})


def test_misspelt_keys_of_a_deep_value_are_repaired() -> None:
    node: dict[str, Any] = {"type": "object", "additionalProperties": False, "required": ["n"]}
    node["properties"] = {"n": {"type": "integer"}, "child": {"$ref": "#/$defs/node"}}
    value: dict[str, Any] = {"n": "3"}
    for _ in range(14):
        value = {"n": "3", "chlid": value}
    deep = tool("deep", ("root",), root={"$ref": "#/$defs/node"})
    deep = replace(deep, args={**deep.args, "$defs": {"node": node}})
    assert repair_call({"name": "deep", "arguments": {"root": value}}, [deep]).ok


ANY_KEY = st.sampled_from([*STRANGE, "count", "mode", "flag", "msg", "cnt", "txt", "notes", "ratoi", "lev"])
RENAMING = tool(
    "renaming",
    ("count", "text"),
    count={"type": "integer"},
    text={"type": "string"},
    mode={"enum": ["a", "b"]},
    ratio={"type": "number"},
    note={"type": "string"},
    level={"type": "integer"},
)


@given(
    st.dictionaries(ANY_KEY, st.sampled_from([1, "1", "a", "b", "x", None, True, [], 2.5]), max_size=4),
    st.booleans(),
)
def test_a_key_is_renamed_only_as_the_schema_determines(arguments: Any, refuses: bool) -> None:
    call = {"name": "renaming", "arguments": arguments}
    found = repair_call(call, [RENAMING], unknown="refuse" if refuses else "drop")
    properties = RENAMING.args["properties"]
    unknown = arguments.keys() - properties.keys()
    renamed = {each.before: each.after for each in found.coercions if each.kind == "renamed"}
    assert len({*renamed.values()}) == len(renamed)
    for key, name in renamed.items():
        assert key in unknown
        assert name not in arguments
        assert Draft202012Validator(properties[name]).is_valid(found.call["arguments"][name])
        assert not isinstance(arguments[key], int | float) or properties[name] != {"type": "string"}
        meant = {"cnt": "count", "txt": "text", "msg": "text", "notes": "note", "ratoi": "ratio"}
        assert meant[key] == name
    if not found.ok:  # what is wrong is not hidden
        assert all(repr(key) in "".join(found.validation.errors) for key in unknown - renamed.keys())


WORDS = {"type": "string"}


@pytest.mark.parametrize(
    ("names", "required", "arguments", "after"),
    [
        ("text", "text", {"msg": "hi"}, {"text": "hi"}),
        ("to message", "to message", {"msg": "hi", "to": "x"}, {"message": "hi", "to": "x"}),
        ("title address", "title address", {"addr": "x", "titel": "y"}, {"address": "x", "title": "y"}),
        ("pattern", "", {"patern": "x"}, {"pattern": "x"}),
        ("pattern", "", {"patterns": "x"}, {"pattern": "x"}),
        # nothing determines which, or whether
        ("timezone", "", {"time": "x"}, {}),
        ("description", "", {"desc": "x"}, {}),
        ("date", "", {"data": "x"}, {}),
        ("line2", "", {"line3": "x"}, {}),
        ("text", "text", {"limit": 5}, None),
        ("text", "text", {"one": "x", "two": "y"}, None),
        ("start_date start_time", "start_date start_time", {"start": "x"}, None),
        ("color column", "color column", {"col": "x"}, None),
    ],
)  # fmt: skip
def test_nearest_keys(names: str, required: str, arguments: Any, after: Any) -> None:
    properties: dict[str, Any] = dict.fromkeys(names.split(), WORDS)
    one = tool("one", tuple(required.split()), **properties)
    found = repair_call({"name": "one", "arguments": arguments}, [one])
    assert found.ok == (after is not None)
    assert found.call["arguments"] == (arguments if after is None else after)


def test_nearest_keys_inside_a_list_and_behind_a_reference() -> None:
    item = {"type": "object", "properties": {"text": WORDS, "at": INTEGERS}, "required": ["text"]}
    notes = declaring(
        properties={"n": {"type": "array", "items": {"$ref": "#/$defs/i"}}}, **{"$defs": {"i": item}}
    )
    call = {"name": "split", "arguments": {"n": [{"msg": "x", "at": "3"}, {"text": "y", "msg": "z"}]}}
    found = repair_call(call, [notes])
    assert found.call["arguments"] == {"n": [{"text": "x", "at": 3}, {"text": "y"}]}
    assert [(each.path, each.kind) for each in found.coercions] == [
        ("n[0].text", "renamed"), ("n[0].at", "typed"), ("n[1].msg", "dropped"),
    ]  # fmt: skip


TO = {"to": {"type": "string"}, "cc": {"type": "string"}}


@pytest.mark.parametrize(
    ("args", "arguments", "after"),
    [
        (
            {"properties": TO, "allOf": [{"properties": {"a": INTEGERS}}, {"properties": {"b": INTEGERS}}]},
            {"a": "1", "b": 2, "to": "x"},
            {"a": 1, "b": 2, "to": "x"},
        ),
        (
            {
                "properties": {"n": INTEGERS, "o": {"$ref": "#/$defs/base", "properties": TO}},
                "$defs": {"base": {"type": "object", "properties": {"id": INTEGERS}}},
            },
            {"n": "5", "o": {"id": 1, "to": "x"}},
            {"n": 5, "o": {"id": 1, "to": "x"}},
        ),
        (
            {
                "properties": TO,
                "anyOf": [
                    {"properties": {"k": INTEGERS}, "required": ["k"]},
                    {"properties": {"j": INTEGERS}, "required": ["j"]},
                ],
            },
            {"to": "x", "cc": "y", "k": "3"},
            {"to": "x", "cc": "y", "k": 3},
        ),
        (  # a name of another part is found by its spelling, and what no part knows goes
            {"properties": TO, "allOf": [{"properties": {"due_by": INTEGERS}}]},
            {"To": "x", "DueBy": "3", "why": "?"},
            {"to": "x", "due_by": 3},
        ),
        (
            {"properties": TO, "patternProperties": {"^x-": {}}, "additionalProperties": False},
            {"CC": "y", "x-id": 3, "why": "?"},
            {"cc": "y", "x-id": 3},
        ),
    ],
)
def test_what_the_parts_of_a_schema_declare_together(args: Any, arguments: Any, after: Any) -> None:
    found = repair_call({"name": "split", "arguments": arguments}, [declaring(**args)])
    assert (found.call["arguments"], found.ok) == (after, True)


@pytest.mark.parametrize("arguments", [{1: 2}, {"place": {None: 2}}, {"tags": [{2.5: "a"}]}])
def test_keys_that_are_no_texts_are_refused(arguments: Any) -> None:
    found = repair_call({"name": "typed", "arguments": arguments}, TYPED_POOL)
    assert (found.call["arguments"], found.coercions) == (arguments, ())
    assert "no string" in found.validation.errors[0]


def test_patterns_that_python_rejects_are_supported_by_repair_and_validation() -> None:
    args = {
        "type": "object",
        "properties": {"a": {"type": "string", "pattern": r"^\p{Lu}+$"}, "n": {"type": "integer"}},
        "patternProperties": {r"^\p{Ll}\d$": {"type": "integer"}},
        "additionalProperties": False,
    }
    named = Tool.from_mapping({"name": "t", "description": "d", "args": args})
    call = {"name": "t", "arguments": {"a": "ÀÉ", "n": "5", "é1": 1}}
    repaired = repair_call(call, [named])
    assert repaired.ok
    assert repaired.call == {"name": "t", "arguments": {"a": "ÀÉ", "n": 5, "é1": 1}}
    assert not repair_call({"name": "t", "arguments": {"a": "x"}}, [named]).ok
