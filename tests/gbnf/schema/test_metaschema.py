"""The form of each keyword: what a keyword must be, in which draft, and which location an error names."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import jsonschema
import pytest

from gbnf.compiler.schema import compile_schema
from gbnf.errors import SchemaError
from support.oracle import accepts
from support.values import VALIDATORS

DRAFT_4, DRAFT_7 = (f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 7))
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
NAN, INF = float("nan"), float("inf")


@pytest.mark.parametrize(
    ("schema", "pointer"),
    [
        ({"type": "strin"}, "/type"),
        ({"$schema": DRAFT_7, "minimum": 1, "exclusiveMinimum": True}, "/exclusiveMinimum"),
        ({"$schema": DRAFT_4, "exclusiveMinimum": 1}, "/exclusiveMinimum"),
        ({"$schema": DRAFT_2020, "items": [{}]}, "/items"),
        ({"patternProperties": {"a/(": {}}}, "/patternProperties/a~1("),
        ({"enum": ["a"], "not": {"contains": {"pattern": "["}}}, "/not/contains/pattern"),
        (
            {"$schema": DRAFT_7, "enum": ["a"], "not": {"contains": {"pattern": "[", "$ref": 1}}},
            "/not/contains/$ref",
        ),
        ({"enum": ["a"], "$ref": "#/x-types/a", "x-types": {"a": {"minimum": "1"}}}, "/x-types/a/minimum"),
        ({"properties": {"a": 5}}, "/properties/a"),
        ({"properties": {"a": {"$ref": "#/nowhere"}}}, "/properties/a/$ref"),
        ({"properties": {"a": {"$ref": "https://example.com/schema"}}}, "/properties/a/$ref"),
        ({"requires_one_of": None}, "/requires_one_of"),
        ({"properties": {"a": {"requires_one_of": [None]}}}, "/properties/a/requires_one_of"),
        ({"properties": {"a": {}}, "requires_one_of": [["a", 1]]}, "/requires_one_of"),
        ({"enum": ["\ud800", "a"]}, "/enum/0"),
        ({"properties": {"a": {"properties": {"\udc00": {}}}}}, "/properties/a/properties"),
        ({"enum": ["a", NAN], "type": "string"}, "/enum/1"),
        ({"const": {"a": [1, INF]}}, "/const/a/1"),
        ({"not": {"enum": [NAN]}}, "/not/enum/0"),
        ({"type": "string", "minimum": NAN}, "/minimum"),
        ({"properties": {"a/b": {"exclusiveMaximum": -INF}}}, "/properties/a~1b/exclusiveMaximum"),
        ({"$defs": {"const": {"const": NAN}}}, "/$defs/const/const"),
        ({"const": 10**5000}, "/const"),
        ({"type": "integer", "maximum": 10**5000}, "/maximum"),
        (["not a schema"], ""),
    ],
)
def test_a_malformed_schema_is_an_error_that_names_the_location(schema: Any, pointer: str) -> None:
    with pytest.raises(SchemaError) as caught:
        compile_schema(schema)
    assert caught.value.pointer == pointer
    assert caught.value.hint


#: Keywords, the first draft that has them, and values of another form.
MALFORMED: list[tuple[list[str], int, list[Any]]] = [
    (["$ref"], 4, [1, {}, None]),
    (["type"], 4, [1, None, [], ["string", 1], {}]),
    (["enum"], 4, [3, "a", {}, None]),
    (["minimum", "maximum"], 4, ["1", True, None, [1]]),
    (["exclusiveMinimum", "exclusiveMaximum"], 4, ["1", None, {}]),
    (["multipleOf"], 4, ["1", 0, -2, True]),
    (["minLength", "maxLength", "minItems", "maxItems", "minProperties", "maxProperties"], 4,
     ["1", -1, 1.5, True, None]),
    (["minContains", "maxContains"], 2019, ["1", -1, 1.5, True, None]),
    (["pattern", "format"], 4, [1, None, ["a"]]),
    (["uniqueItems"], 4, ["true", 1, None]),
    (["allOf", "anyOf", "oneOf"], 4, [[], {}, [1], None]),
    (["prefixItems"], 2020, [[], {}, [1]]),
    (["not", "items", "additionalProperties"], 4, [1, "string", None, [1]]),
    (["contains", "propertyNames"], 6, [1, "string", None, []]),
    (["if", "then", "else"], 7, [1, "string", None, []]),
    (["unevaluatedItems", "unevaluatedProperties"], 2019, [1, "string", None, []]),
    (["properties", "patternProperties"], 4, [1, [], {"a": 1}, {"a": None}]),
    (["dependentSchemas"], 2019, [1, [], {"a": 1}, {"a": None}]),
    (["required"], 4, ["a", {}, [1], 1]),
    (["dependentRequired"], 2019, [[], {"a": "b"}, {"a": [1]}]),
    (["dependencies"], 4, [[], 1, {"a": 1}, {"a": [1]}]),
]  # fmt: skip
_SILENT_METASCHEMA = {(4, "$ref"), (4, "format")}
PLACES: list[tuple[str, Callable[[Any], Any]]] = [
    ("", lambda one: one),
    ("/not", lambda one: {"enum": [1], "not": one}),
    ("/properties/a~1b/allOf/0", lambda one: {"properties": {"a/b": {"allOf": [one]}}}),
]


@pytest.mark.parametrize(
    ("keyword", "draft", "value", "place"),
    [
        (*case, number % len(PLACES))
        for keywords, since, values in MALFORMED
        for number, case in enumerate(product(keywords, [*filter(None, VALIDATORS)], values))
        if since <= case[1] and (case[0] != "dependencies" or case[1] <= 7)
    ],
)
def test_a_keyword_of_another_form_is_an_error_in_every_draft(
    keyword: str, draft: int, value: Any, place: int
) -> None:
    validator, (pointer, around) = VALIDATORS[draft], PLACES[place]
    if (draft, keyword) not in _SILENT_METASCHEMA:
        with pytest.raises(jsonschema.SchemaError):
            validator.check_schema({keyword: value})
    with pytest.raises(SchemaError) as caught:
        compile_schema({"$schema": validator.META_SCHEMA["$schema"], **around({keyword: value})})
    assert caught.value.pointer.startswith(f"{pointer}/{keyword}")
    assert caught.value.hint


@pytest.mark.parametrize("draft", [DRAFT_4, DRAFT_2020])
def test_a_required_flag_of_draft_3_loads_and_is_a_finding(draft: str) -> None:
    schema = {"$schema": draft, "enum": [{"a": 1}], "properties": {"a": {"required": True}}, "required": True}
    grammar = compile_schema(schema)
    assert accepts(grammar, '{"a": 1}')
    assert [finding.pointer for finding in grammar.report if finding.kind == "unenforced"] == ["/required"]


def test_annotations_and_properties_may_be_named_like_keywords() -> None:
    schema = {
        "type": "object",
        "default": {"enum": [NAN]},
        "properties": {"minimum": {"type": "number", "default": INF}, "enum": {"examples": [NAN]}},
    }
    assert compile_schema(schema).exact
