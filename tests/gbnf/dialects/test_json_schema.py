"""The joint schema of a pool: jsonschema by it, and llama.cpp's engine by the grammar, say the same."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gbnf import compile_pool, validate_call
from gbnf.dialects import call_schema, schema_violation
from gbnf.errors import PoolError, SchemaError
from gbnf.testing import calls, near_misses
from gbnf.testing.generation import canonical_json
from gbnf.tools import FINAL_ANSWER, Tool
from support.oracle import engine
from support.pools import BUNDLED


def tool(name: str, **args: Any) -> Tool:
    return Tool(name=name, args={"type": "object", **args})


TREE = tool(
    "plant",
    required=["tree"],
    properties={"tree": {"$ref": "#/$defs/node"}, "note": {"$ref": "#/properties/label"}, "label": {}},
    **{"$defs": {"node": {"type": "object", "properties": {"next": {"$ref": "#/$defs/node"}}}}},
)
LIST = tool(
    "list.all",
    properties={"node": {"$ref": "#/$defs/node"}},
    **{"$defs": {"node": {"type": "integer", "minimum": 1, "maximum": 9}}},
)
STEPS = tool(
    "send",
    properties={"from_step": {"type": "integer"}, "text": {"type": "string"}, "to": {"enum": ["a", "b"]}},
    requires_one_of=[["from_step", "text"]],
)
GROUPS = tool(
    "many",
    properties={name: {"type": "boolean"} for name in "abcdefghij"},
    requires_one_of=[list("abcde"), list("fghij")],
)
DECLARED = tool(
    "declared",
    required=["a"],
    properties={"a": {"type": "string", "maxLength": 3}, "b": {"$ref": "#/$defs/b"}},
    **{"$schema": "https://json-schema.org/draft/2020-12/schema", "$defs": {"b": {"type": "boolean"}}},
)
POOLS = st.lists(
    st.sampled_from([*BUNDLED, TREE, LIST, STEPS, GROUPS, DECLARED]), unique=True, min_size=1, max_size=6
)


@pytest.mark.slow
@given(POOLS, st.sampled_from([(), (1,), (1, 3)]), st.data())
def test_it_agrees_with_the_grammar_on_calls_and_near_misses(pool: Any, steps: Any, data: Any) -> None:
    grammar = compile_pool(pool, final_answer=True, steps=steps)
    schema = call_schema(pool, final_answer=True, steps=steps)
    tools = (*pool, FINAL_ANSWER)
    call = data.draw(calls(tools, steps=steps))
    miss = data.draw(near_misses(tools, steps=steps)).value
    assume(not any(one.kind == "unenforced" and one.tool == miss["name"] for one in grammar.report))
    texts = [canonical_json(call), canonical_json(miss)]
    taken = [found.complete for found in engine().match_many(grammar, texts)]
    assert taken == [True, False]
    assert [schema_violation(schema, text) is None for text in texts] == taken


@pytest.mark.slow
@given(POOLS, st.data())
def test_open_objects_stay_open(pool: Any, data: Any) -> None:
    call = data.draw(calls(pool, closed=False))
    schema = call_schema(pool, closed=False)
    assert validate_call(call, pool, closed=False).ok
    assert schema_violation(schema, json.dumps(call)) is None


@given(POOLS)
def test_it_is_a_schema_without_our_own_words(pool: Any) -> None:
    text = json.dumps(call_schema(pool, steps=(1,)))
    Draft202012Validator.check_schema(json.loads(text))
    for word in ('"requires_one_of"', '"fills"', '"runtime_resolved"', '"description"', '"$schema"'):
        assert word not in text


def test_each_branch_binds_a_name_to_its_arguments() -> None:
    schema = call_schema([STEPS], final_answer=True, steps=(2,))
    named = [branch["properties"]["name"]["const"] for branch in schema["anyOf"]]
    assert named == ["send", "send", "final_answer"]
    required = [branch["properties"]["arguments"]["required"] for branch in schema["anyOf"]]
    assert required == [["from_step"], ["text"], ["message"]]
    assert all(list(branch["properties"]) == ["name", "arguments"] for branch in schema["anyOf"])


def test_unsupported_pools_are_errors() -> None:
    with pytest.raises(PoolError, match="empty"):
        call_schema([])
    with pytest.raises(PoolError, match="two tools"):
        call_schema([LIST, LIST])
    with pytest.raises(PoolError, match="earlier step"):
        call_schema([tool("t", required=["from_step"], properties={"from_step": {"type": "integer"}})])
    several = {name: {"$id": name, "$dynamicAnchor": "x", "type": "string"} for name in "ab"}
    with pytest.raises(SchemaError, match=r"/properties/a/\$dynamicRef.*no single JSON Pointer"):
        call_schema([tool("t", properties={"a": {"$dynamicRef": "a#x"}}, **{"$defs": several})])
    deeper = {"$schema": "https://json-schema.org/draft/2020-12/schema"}
    with pytest.raises(SchemaError, match=r"/properties/a/\$schema"):
        call_schema([tool("t", properties={"a": deeper})])
    with pytest.raises(SchemaError, match=r"\$schema"):
        call_schema([tool("t", **{"$schema": "http://json-schema.org/draft-07/schema#"})])


LEAF = {"type": "array", "items": {"$ref": "#/$defs/leaf"}, "$defs": {"leaf": {"enum": ["é", 1]}}}
NAMED: dict[str, Any] = {
    "an identifier": {"$id": "https://x.example/a", "properties": {"a": {"$ref": "#/$defs/b"}},
                      "$defs": {"b": {"type": "integer"}}},
    "an anchor": {"properties": {"a": {"$ref": "#x"}}, "$defs": {"b": {"$anchor": "x", "type": "integer"}}},
    "a resource": {"properties": {"a": {"$ref": "urn:leaf"}},
                   "$defs": {"a b/~%": {"$id": "urn:leaf", **LEAF}}},
    "an inner resource": {"properties": {"a": {"$id": "urn:leaf", **LEAF}}},
    "a dynamic anchor": {"properties": {"a": {"$dynamicRef": "#x"}},
                         "$defs": {"b": {"$dynamicAnchor": "x", "items": {"$dynamicRef": "#x"},
                                         "type": "array"}}},
    "two references": {"$id": "urn:a", "properties": {"a": {"$ref": "#/$defs/b", "$dynamicRef": "#/$defs/c"}},
                       "$defs": {"b": {"minimum": 1}, "c": {"maximum": 2}}},
    "no value": {"$id": "urn:a", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": False}},
    "any value": {"$id": "urn:a", "properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": True}},
}  # fmt: skip


@pytest.mark.parametrize("name", NAMED)
@given(value=st.recursive(st.sampled_from(["é", "e", 0, 1, 2, 3, None]), lambda v: st.lists(v, max_size=2)))
def test_named_schemas_accept_the_same_in_a_joint_schema(name: str, value: Any) -> None:
    args = {"type": "object", **NAMED[name]}
    joint = call_schema([tool("t", **NAMED[name]), LIST])
    assert not any(word in json.dumps(joint) for word in ("$id", "Anchor", "$anchor", "$dynamicRef"))
    for given_ in ({}, {"a": value}):
        judged = Draft202012Validator(joint).is_valid({"name": "t", "arguments": given_})
        assert judged == Draft202012Validator(args).is_valid(given_)


@pytest.mark.parametrize("end", ["", "#"])
def test_the_dialect_that_all_are_written_in_may_be_named(end: str) -> None:
    args = {"type": "object", "properties": {"a": {"type": "string"}}}
    named = {"$schema": f"https://json-schema.org/draft/2020-12/schema{end}", **args}
    one, other = (Tool.from_mapping({"name": "t", "args": each}) for each in (args, named))
    assert call_schema([one]) == call_schema([other])


@pytest.mark.parametrize(
    ("text", "said"), [("{", "not a JSON"), ('{"name": "send"}', "arguments"), ("[" * 5000, "not a JSON")]
)
def test_what_is_wrong_with_an_answer(text: str, said: str) -> None:
    assert said in str(schema_violation(call_schema([STEPS]), text))
