"""Manifests that load with findings: near misses, names of other runtimes, schemas of other drafts."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf import compile_pool, compile_schema, load_tools, validate_call
from gbnf.schema.keywords import KEYWORDS
from gbnf.tools import Tool
from gbnf.tools.loosening import loosened_argument_schema
from support.json_values import nested


def manifest(**keys: Any) -> Tool:
    return Tool.from_mapping({"name": "mine", "args": {}, **keys})


def found(tool: Tool) -> list[tuple[str, str, str]]:
    return [(finding.kind, finding.pointer, finding.keyword) for finding in tool.findings]


@pytest.mark.parametrize(
    ("keys", "pointer", "key", "meant"),
    [
        ({"args": {"properties": {"a": {"minlength": 1}}}}, "/properties/a", "minlength", "minLength"),
        ({"args": {"properties": {"a": {"maxlegth": 1}}}}, "/properties/a", "maxlegth", "maxLength"),
        ({"args": {"additional_properties": False}}, "", "additional_properties", "additionalProperties"),
        ({"args": {"$defs": {"a/b": {"any_of": []}}}}, "/$defs/a~1b", "any_of", "anyOf"),
        ({"args": {"propertys": {"a": {}}}}, "", "propertys", "properties"),
        ({"run": {"timeout": 3}}, "/run", "timeout", "timeout_s"),
        ({"run": {"effects": "read"}}, "/run", "effects", "effect"),
        ({"offer": {"marker": ["undo"]}}, "/offer", "marker", "markers"),
        ({"effects": "read"}, "", "effects", "run.effect"),
        ({"confirm": True}, "", "confirm", "run.confirm"),
        ({"descripton": "x"}, "", "descripton", "description"),
    ],
)
def test_near_misses(keys: dict[str, Any], pointer: str, key: str, meant: str) -> None:
    tool = manifest(**keys)
    assert found(tool) == [("unknown_key", pointer, key)]
    assert f"did you mean `{meant}`?" in str(tool.findings[0])


@pytest.mark.parametrize(
    "keys",
    [
        {
            "args": {
                "properties": {"minlength": {"title": "T", "examples": [1], "x-order": 1, "$comment": ""}}
            }
        },
        {"args": {"properties": {"a": {"markdownDescription": "", "deprecated": True, "nullable": True}}}},
        {"args": {"properties": {"a": {"type": ["null", "string"], "enum": ["b", None], "nullable": True}}}},
        {"args": {"properties": {"a": {"enum": [{"minlength": 1}], "default": {"maxlegth": 2}}}}},
        {"args": {"properties": {"a": {"_format": "x", "@type": "y", "readonly": True, "form": {}}}}},
        {"author": "someone", "tags": ["a"], "run": {"network": True}, "x-gbnf": 1},
    ],
)
def test_what_is_no_near_miss(keys: dict[str, Any]) -> None:
    assert manifest(**keys).findings == ()


@pytest.mark.parametrize(
    ("schema", "keyword"),
    [
        ({"type": "string", "nullable": True}, "nullable"),
        ({"type": "string", "enum": ["b"], "nullable": True}, "nullable"),
        ({"type": ["string", "null"], "enum": ["b"]}, "enum"),
    ],
)
def test_null_that_is_meant_and_not_allowed(schema: dict[str, Any], keyword: str) -> None:
    tool = manifest(args={"properties": {"a": schema}})
    assert found(tool) == [("unknown_key", "/properties/a", keyword)]
    of_schema = compile_schema({"type": "object", "properties": {"a": schema}}).report
    assert [(each.kind, each.pointer, each.keyword) for each in of_schema] == found(tool)


def test_findings_below_a_local_definition_have_its_pointer() -> None:
    own = {"type": "object", "properties": {"n": {"$ref": "#/$defs/x"}, "i": {"type": "integer"}}}
    schema = {"type": "object", "properties": {"a": {"$defs": {"x": own}, "$ref": "#/$defs/x"}}}
    report = compile_pool(load_tools({"name": "mine", "parameters": schema})).report
    pointers = {each.pointer for each in report}
    assert "/properties/a/$defs/x/properties" in pointers
    assert not any("%" in pointer for pointer in pointers)


@pytest.mark.parametrize("inside", [{}, {"items": {"$ref": "#/$defs/x"}, "type": "array"}])
def test_a_reference_to_definitions_beside_it_is_resolved(inside: dict[str, Any]) -> None:
    own = {"$defs": {"x": {"type": "integer"}}} | (inside or {"$ref": "#/$defs/x"})
    schema = {"type": "object", "properties": {"a": own}, "required": ["a"]}
    [tool] = load_tools({"name": "mine", "parameters": schema})
    [finding] = tool.findings
    assert (finding.kind, finding.keyword) == ("undeclared", "$ref")
    grammar = compile_pool([tool])
    value = "[5]" if inside else "5"
    assert grammar.match('{"name": "mine", "arguments": {"a": ' + value + "}}").complete
    assert not grammar.match('{"name": "mine", "arguments": {"a": "').accepted


def test_undeclared_members_are_removed_from_their_group() -> None:
    tool = manifest(
        args={
            "properties": {"values": {"type": "string"}, "entries": {"type": "string"}},
            "requires_one_of": [["values", "entries", "from_step"]],
        }
    )
    assert found(tool) == [("undeclared", "/requires_one_of/0", "requires_one_of")]
    assert "'from_step'" in str(tool.findings[0])
    assert tool.args["requires_one_of"] == [["values", "entries"]]
    grammar = compile_pool([tool])
    assert grammar.match('{"name": "mine", "arguments": {"values": "x"}}').complete
    assert not grammar.match('{"name": "mine", "arguments": {}}').complete
    assert not validate_call({"name": "mine", "arguments": {}}, [tool])


DRAFT_7 = "http://json-schema.org/draft-07/schema#"
OLD: list[tuple[dict[str, Any], Any, Any]] = [
    ({"$schema": DRAFT_7, "items": [{"const": 1}], "additionalItems": False, "type": "array"}, [1], [2]),
    ({"items": [{"const": 1}], "minItems": 1, "maxItems": 2, "type": "array"}, [1, 2], [2]),
    ({"$schema": "https://json-schema.org/draft-04/schema", "minimum": 1, "exclusiveMinimum": True, "type": "integer"}, 2, 1),  # noqa: E501  # one case a line
    ({"$schema": DRAFT_7, "$ref": "#/definitions/d", "definitions": {"d": {"const": 1}}}, 1, 2),
]  # fmt: skip


@pytest.mark.parametrize(("schema", "valid", "invalid"), OLD)
def test_any_draft_is_read_alike(schema: dict[str, Any], valid: Any, invalid: Any) -> None:
    """The grammar of the schema itself, that of a tool, and the validator agree."""
    whole = compile_schema(schema, closed=True)
    top = {key: schema[key] for key in ("$schema", "definitions") if key in schema}
    inner = {key: value for key, value in schema.items() if key not in top}
    tool = manifest(args={**top, "properties": {"a": inner}, "required": ["a"]})
    pool = compile_pool([tool])
    for value, is_valid in ((valid, True), (invalid, False)):
        text = repr(value).replace("'", '"')
        call = {"name": "mine", "arguments": {"a": value}}
        assert whole.match(text).complete is is_valid
        assert pool.match('{"name": "mine", "arguments": {"a": ' + text + "}}").complete is is_valid
        assert validate_call(call, [tool]).ok is is_valid


_WORDS = [*sorted(KEYWORDS), "$defs", "a", "fills", "requires_one_of", "runtime_resolved"]
json_values = nested(
    st.none() | st.booleans() | st.integers(-2, 2) | st.sampled_from(["object", "#", "a", "("]),
    st.sampled_from(_WORDS),
    most=4,
    size=20,
)


@given(schema=json_values)
def test_any_schema_is_loosened_until_it_loads(schema: Any) -> None:
    """Whatever was removed is a finding; a schema that loads as it is has none."""
    args, findings = loosened_argument_schema("mine", schema)
    tool = Tool.from_mapping({"name": "mine", "args": args})
    try:
        whole = Tool.from_mapping({"name": "mine", "args": schema})
    except Exception:  # noqa: BLE001  # any of its errors
        assert findings
        assert {finding.kind for finding in findings} <= {"loosened", "undeclared"}
    else:
        assert not findings
        assert tool.args == whole.args


@pytest.mark.parametrize(
    ("schema", "pointers", "left"),
    [
        ({"properties": {"a": {"required": True}}}, ["/properties/a/required"], {"properties": {"a": {}}}),
        ({"properties": {"a": {"type": "any"}}}, ["/properties/a/type"], {"properties": {"a": {}}}),
        ({"properties": {"a": None}, "required": ["a"]}, ["/properties/a"], {"properties": {"a": True}, "required": ["a"]}),  # noqa: E501  # one case a line
        ({"properties": {"a": {}}, "required": ["a", "b"]}, ["/required"], {"properties": {"a": {}, "b": True}, "required": ["a", "b"]}),  # noqa: E501  # likewise
        ({"properties": {"a": {"$ref": "http://x.org/s"}}}, ["/properties/a/$ref"], {"properties": {"a": {}}}),  # noqa: E501  # likewise
        ({"type": ["object", "null"]}, ["/type"], {}),
        ({"properties": {"a": {"pattern": "("}, "b": {"enum": 3}}}, ["/properties/a/pattern", "/properties/b/enum"], {"properties": {"a": {}, "b": {}}}),  # noqa: E501  # likewise
        (None, ["/args"], {"additionalProperties": True}),
    ],
)  # fmt: skip
def test_what_is_removed(schema: Any, pointers: list[str], left: dict[str, Any]) -> None:
    args, findings = loosened_argument_schema("mine", schema)
    assert sorted(f"{finding.pointer}/{finding.keyword}" for finding in findings) == sorted(pointers)
    assert args == {"type": "object", **left}
