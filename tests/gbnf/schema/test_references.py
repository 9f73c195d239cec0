"""Dynamic references: what one leads to depends on the way to it, and the grammar follows every way apart.

The expectations are the specification's. jsonschema agrees with most of them; where it does not, it loses
resources on the way that no reference led to (`Resolver.in_subresource` does not extend its dynamic scope).
"""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from jsonschema.validators import validator_for
from referencing.exceptions import Unresolvable

from gbnf import Grammar
from gbnf.compiler.schema import compile_schema
from gbnf.errors import SchemaError
from gbnf.schema.document import Document
from support.oracle import engine

_2019 = "https://json-schema.org/draft/2019-09/schema"
_2020 = "https://json-schema.org/draft/2020-12/schema"

_NODE = {
    "$schema": _2020,
    "$id": "https://e.com/r",
    "$dynamicAnchor": "n",
    "$ref": "t",
    "properties": {"a": True},
    "$defs": {
        "t": {
            "$id": "t",
            "$dynamicAnchor": "n",
            "properties": {"k": {"$dynamicRef": "#n", "unevaluatedProperties": False}},
        }
    },
}
_LISTS: dict[str, Any] = {
    "$schema": _2020,
    "$id": "https://e.com/r",
    "type": "object",
    "additionalProperties": False,
    "$defs": {
        "strings": {
            "$id": "strings",
            "$ref": "list",
            "$defs": {"item": {"$dynamicAnchor": "item", "type": "string"}},
        },
        "integers": {
            "$id": "integers",
            "$ref": "list",
            "$defs": {"item": {"$dynamicAnchor": "item", "type": "integer"}},
        },
        "list": {
            "$id": "list",
            "type": "array",
            "items": {"$dynamicRef": "#item"},
            "$defs": {"item": {"$dynamicAnchor": "item"}},
        },
    },
}
_TREE = {
    "$schema": _2019,
    "$id": "https://e.com/strict",
    "$recursiveAnchor": True,
    "$ref": "tree",
    "unevaluatedProperties": False,
    "$defs": {
        "tree": {
            "$id": "tree",
            "$recursiveAnchor": True,
            "type": "object",
            "properties": {"children": {"type": "array", "items": {"$recursiveRef": "#"}}},
        }
    },
}


def _lists(*names: str) -> dict[str, Any]:
    return {**_LISTS, "properties": {name: {"$ref": name} for name in names}}


def _accepted(grammar: Grammar, values: list[Any]) -> list[bool]:
    return [
        judgement.complete
        for judgement in engine().match_many(grammar, [json.dumps(value) for value in values])
    ]


@pytest.mark.parametrize(
    ("schema", "valid", "invalid"),
    [
        pytest.param(_NODE, [{"k": {"a": 1}}, {"k": {"k": {"a": 1}}}], [{"k": {"b": 1}}], id="unevaluated"),
        pytest.param(
            _lists("strings", "integers"),
            [{"strings": ["a"], "integers": [1]}],
            [{"strings": [1]}, {"integers": ["a"]}],
            id="two ways to one subschema",
        ),
        pytest.param(_TREE, [{"children": [{}]}], [{"children": [{"x": 1}]}, {"x": 1}], id="recursive"),
        pytest.param(
            {"$schema": _2019, "$ref": _2019},
            [{"not": {"type": "string"}}],
            [{"not": {"type": 1}}, {"items": [{"type": 1}]}],
            id="the metaschema of 2019-09",
        ),
        pytest.param(
            {"$schema": _2020, "$ref": _2020},
            [{"not": {"type": "string"}}],
            [{"not": {"type": 1}}, {"prefixItems": [{"type": 1}]}],
            id="the metaschema of 2020-12",
        ),
        pytest.param(
            {**_lists("strings"), "properties": {"strings": {"not": {"$ref": "strings"}}}},
            [{"strings": [1]}, {"strings": 1}],
            [{"strings": ["a"]}],
            id="a complement",
        ),
    ],
)
def test_a_dynamic_reference_resolves_by_the_path_to_it(
    schema: dict[str, Any], valid: list[Any], invalid: list[Any]
) -> None:
    grammar = compile_schema(schema)
    judge = validator_for(schema)(schema)
    assert all(map(judge.is_valid, valid))
    assert not any(map(judge.is_valid, invalid))
    assert _accepted(grammar, [*valid, *invalid]) == [True] * len(valid) + [False] * len(invalid)


def test_an_enclosing_resource_is_in_the_dynamic_scope() -> None:
    """By the specification (2020-12 core, 7.1), a subschema's parent is in its dynamic scope."""
    schema = {
        "$schema": _2020,
        "$id": "https://e.com/outer",
        "$defs": {"item": {"$dynamicAnchor": "item", "type": "string"}},
        "properties": {
            "list": {
                "$id": "inner",
                "items": {"$dynamicRef": "#item"},
                "$defs": {"item": {"$dynamicAnchor": "item", "type": "integer"}},
            }
        },
    }
    grammar = compile_schema(schema)
    assert _accepted(grammar, [{"list": ["a"]}, {"list": [1]}]) == [True, False]
    assert jsonschema.Draft202012Validator(schema).is_valid({"list": [1]}), "jsonschema has been fixed"


@pytest.mark.slow
def test_a_value_that_occurs_often_is_searched_for_names_once() -> None:
    shared: Any = {"$anchor": "a", "type": "string"}
    for _ in range(60):
        shared = {"oneOf": [shared, {"type": "array", "items": shared}]}
    with pytest.raises(SchemaError, match="shared values counted each time"):
        compile_schema({"properties": {"p": shared, "q": {"$ref": "#a"}}})


@pytest.mark.parametrize("names_first", [True, False])
@pytest.mark.parametrize("draft", ["draft-04", "draft-06", "draft-07"])
def test_dependencies_of_both_kinds_hide_no_identifier(draft: str, names_first: bool) -> None:
    needed = [("a", ["b"]), ("b", {"definitions": {"c": {}}})]
    key = "id" if draft == "draft-04" else "$id"
    schema = {
        "$schema": f"http://json-schema.org/{draft}/schema#",
        "dependencies": dict(needed if names_first else needed[::-1]),
        "properties": {"p": {"$ref": "https://e.com/tree"}},
        "definitions": {"tree": {key: "https://e.com/tree", "type": "integer"}},
    }
    assert _accepted(compile_schema(schema), [{"p": 1}, {"p": "1"}]) == [True, False]


@pytest.mark.parametrize(
    "reference",
    ["#", "#/", "#/$defs/a~1b", "#/$defs/x%25y", "#/allOf/01", "#/allOf/-", "#/$defs/gone", "#here", "##"],
)
@pytest.mark.parametrize("draft", [None, "draft-04", "draft-07"])
@pytest.mark.parametrize("named", [{}, {"id": "#here"}, {"$id": "https://e.com/in"}, {"$anchor": "here"}])
def test_a_reference_leads_where_the_registry_says(
    reference: str, draft: str | None, named: dict[str, Any]
) -> None:
    schema = {
        **({"$schema": f"http://json-schema.org/{draft}/schema#"} if draft else {}),
        "properties": {"id": {"$ref": reference}},
        "allOf": [{}, {"type": "object", **named}],
        "$defs": {"a/b": {"$defs": named}, "x%y": {"title": "x"}},
        "": {"title": "empty"},
    }
    document = Document(schema)
    subschema = document.root.at("properties", "id")
    try:
        scopes = document.dynamic_scopes
        expected = scopes.follow("$ref", reference, scopes.resolver, ())[0]
    except (Unresolvable, AttributeError, ValueError):
        with pytest.raises(SchemaError, match="leads nowhere"):
            document.follow(subschema, "$ref")
    else:
        assert document.follow(subschema, "$ref").raw is expected
