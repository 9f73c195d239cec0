"""The origins of rules: complete, in the author's schema, and where a change of the schema is seen."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given

from gbnf import compile_schema, load_manifests
from gbnf.compiler.options import CompileOptions
from gbnf.compiler.origins import schema_origins, tool_origins
from gbnf.compiler.pool import MAX_DEPTH, compile_tool
from gbnf.compiler.primitives import RESERVED
from gbnf.errors import SchemaError
from gbnf.schema.applicators import resolve_pointer
from gbnf.tools import Tool
from support.oracle import CHECKOUT
from support.schemas import SCHEMAS

BUNDLED = load_manifests(CHECKOUT / "manifests")
OPTIONS = CompileOptions("default", MAX_DEPTH, closed=True)


def subschema_at(pointer: str, schema: Any) -> Any:
    found = resolve_pointer(f"#{pointer.replace('%', '%25')}", schema)
    assert found is not None, pointer
    return found[1]


def rules_of(tool: Tool) -> dict[str, str]:
    compiled = compile_tool(tool, OPTIONS, has_steps=True)
    assert not isinstance(compiled, SchemaError | None)
    lines = [line.partition(" ::= ") for line in compiled.part.text.splitlines()]
    return {name: production for name, _, production in lines}


@given(SCHEMAS)
def test_each_rule_of_a_schema_has_an_origin_in_it(schema: Any) -> None:
    try:
        grammar = compile_schema(schema)
    except SchemaError:
        return
    origins = schema_origins(schema, CompileOptions())
    assert {"root", *(grammar.rules.productions.keys() - RESERVED)} == origins.keys()
    for pointers in origins.values():
        assert pointers
        assert all(isinstance(subschema_at(pointer, schema), dict | bool) for pointer in pointers)


@given(SCHEMAS)
def test_each_rule_of_a_tool_has_an_origin_in_its_arguments(schema: Any) -> None:
    tool = Tool(name="any", args={"type": "object", "properties": {"value": schema}})
    compiled = compile_tool(tool, OPTIONS, has_steps=False)
    if isinstance(compiled, SchemaError | None):
        return
    origins = tool_origins(tool, OPTIONS, has_steps=False)
    assert origins is not None
    assert list(compiled.part.productions) == list(origins)
    for pointers in origins.values():
        assert pointers
        assert all(isinstance(subschema_at(pointer, tool.args), dict | bool) for pointer in pointers)


@pytest.mark.parametrize("tool", BUNDLED, ids=lambda tool: tool.name)
def test_another_schema_for_an_argument_changes_only_rules_with_its_origin(tool: Tool) -> None:
    origins = tool_origins(tool, OPTIONS, has_steps=True)
    assert origins is not None
    before = rules_of(tool)
    for name in tool.model_args().get("properties", {}).keys() - tool.step_references.keys():
        changed = {**tool.args["properties"], name: {"const": "another value"}}
        after = rules_of(Tool(name=tool.name, args={**tool.args, "properties": changed}))
        own = f"/properties/{name}"
        for rule, production in before.items():
            if after.get(rule, production) != production and not _renames(production, after[rule]):
                assert any(f"{one}/".startswith(f"{own}/") for one in origins[rule]), (rule, name)


def _renames(before: str, after: str) -> bool:
    """Whether two productions differ in the names of rules only, as when two rules are no longer equal."""
    words = [[word for word in text.split() if not word.strip("()").isalnum()] for text in (before, after)]
    return words[0] == words[1]


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"enum": [1, 2]}}}, "/$defs/b"),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"enum": [1, 2]}}}, "/properties/a"),
        ({"properties": {"a/b~%41": {"enum": [1, 2]}}}, "/properties/a~1b~0%41"),
        ({"items": {"properties": {"x": {"$ref": "#"}}}}, "/items/properties/x"),
        ({"allOf": [{"minItems": 2}], "type": "array"}, "/allOf/0"),
        ({"type": "object", "properties": {"xy": {}, "xz": {"type": "null"}}}, "/properties/xz"),
        ({"not": {"type": "string"}}, "/not"),
        ({"properties": {"a": {"anyOf": [{"type": "null"}, {"minLength": 2}]}}}, "/properties/a/anyOf/1"),
    ],
)
def test_a_subschema_is_the_origin_of_a_rule(schema: Any, pointer: str) -> None:
    origins = schema_origins(schema, CompileOptions())
    assert any(pointer in pointers for pointers in origins.values())
