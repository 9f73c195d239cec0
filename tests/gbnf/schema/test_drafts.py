"""A schema of an earlier draft, rewritten in 2020-12, accepts the same values: jsonschema is the judge."""

from __future__ import annotations

import copy
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gbnf.schema.drafts import DIALECT, DRAFTS, as_2020_12, canonical_dialect
from gbnf.schema.keywords import walk
from support.effort import scaled

VALIDATORS = {
    "http://json-schema.org/draft-04/schema#": jsonschema.Draft4Validator,
    "http://json-schema.org/draft-06/schema#": jsonschema.Draft6Validator,
    "http://json-schema.org/draft-07/schema#": jsonschema.Draft7Validator,
    "https://json-schema.org/draft/2019-09/schema": jsonschema.Draft201909Validator,
    DIALECT: jsonschema.Draft202012Validator,
}
values = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.sampled_from(["", "a", "bb"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from("ab"), inner, max_size=2),
    max_leaves=6,
)


@st.composite
def schemas(draw: Any, dialect: str) -> dict[str, Any]:
    """Schemas with what the drafts write differently; each keyword in a form that its draft allows."""
    is_4, has_tuples = "draft-04" in dialect, dialect != DIALECT
    base: list[Any] = [{"type": "integer"}, {"type": "string"}, {}, {"$ref": "#/definitions/d"}]
    if not is_4:
        base += [True, False, {"const": "a"}]

    def deeper(inner: Any) -> Any:
        bounds = (
            {"minimum": st.integers(-1, 1), "exclusiveMinimum": st.booleans()}
            if is_4
            else {"exclusiveMinimum": st.integers(-1, 1)}
        )
        objects = {
            "items": st.lists(inner, min_size=1, max_size=2) | inner if has_tuples else inner,
            "additionalItems": inner,
            "dependencies": st.dictionaries(
                st.sampled_from("ab"), inner | st.just(["a"]), min_size=1, max_size=2
            ),
            "properties": st.dictionaries(st.sampled_from(["a", "b", "items"]), inner, max_size=2),
            "contains": inner,
            "const": st.sampled_from(["a", 1]),
            "if": inner,
            "then": inner,
            "minItems": st.integers(0, 2),
            "$ref": st.sampled_from(["#/definitions/d", "#/definitions/t/items/0"][: 1 + has_tuples]),
            **bounds,
        }
        return st.fixed_dictionaries({}, optional=objects)

    inner = st.recursive(st.sampled_from(base), deeper, max_leaves=6)
    drawn: dict[str, Any] = draw(deeper(inner))
    drawn["definitions"] = {"d": draw(st.sampled_from(base[:2])), "t": {"items": [{"type": "string"}]}}
    assume(not any(isinstance(one.get("items"), bool) for _, one in walk(drawn) if isinstance(one, dict)))
    if not has_tuples:
        del drawn["definitions"]["t"]
    return {"$schema": dialect, **drawn}


@pytest.mark.parametrize("dialect", VALIDATORS)
@settings(max_examples=scaled(40))
@given(data=st.data())
def test_it_accepts_the_same_values(dialect: str, data: Any) -> None:
    schema = data.draw(schemas(dialect))
    before = copy.deepcopy(schema)
    rewritten = as_2020_12(schema)
    assert schema == before
    assert "$schema" not in rewritten
    jsonschema.Draft202012Validator.check_schema(rewritten)
    for value in data.draw(st.lists(values, min_size=5, max_size=5)):
        expected = VALIDATORS[dialect](schema).is_valid(value)
        assert jsonschema.Draft202012Validator(rewritten).is_valid(value) == expected, (rewritten, value)


@given(data=st.data())
def test_rewriting_again_changes_nothing(data: Any) -> None:
    once = as_2020_12(data.draw(st.sampled_from(list(VALIDATORS)).flatmap(schemas)))
    assert as_2020_12(once) == once


@pytest.mark.parametrize("dialect", DRAFTS)
def test_any_scheme_and_an_empty_fragment_name_a_dialect(dialect: str) -> None:
    uri = dialect.partition("://")[2]
    for declared in (f"http://{uri}", f"https://{uri}", f"http://{uri}#", f"https://{uri}#"):
        assert canonical_dialect(declared) == dialect


@pytest.mark.parametrize(
    ("schema", "expected"),
    [
        # without a declared draft, each keyword means what it meant in its own
        ({"items": [{"type": "null"}], "additionalItems": False}, {"prefixItems": [{"type": "null"}], "items": False}),  # noqa: E501 - one case a line
        ({"items": [], "additionalItems": {"type": "null"}}, {"items": {"type": "null"}}),
        ({"minimum": 1, "exclusiveMinimum": True}, {"exclusiveMinimum": 1}),
        ({"maximum": 1, "exclusiveMaximum": False}, {"maximum": 1}),
        ({"dependencies": {"a": ["b"], "b": {"required": ["c"]}}}, {"dependentRequired": {"a": ["b"]}, "dependentSchemas": {"b": {"required": ["c"]}}}),  # noqa: E501 - likewise
        ({"dependencies": {"a": "b"}}, {"dependentRequired": {"a": ["b"]}}),
        ({"dependencies": {"a": ["b"]}, "dependentRequired": {"a": ["c"]}}, {"dependentRequired": {"a": ["c", "b"]}}),  # noqa: E501 - likewise
        ({"$ref": "#/definitions/a", "minLength": 1}, {"$ref": "#/definitions/a", "minLength": 1}),
        ({"$id": "#name"}, {"$anchor": "name"}),
        # a property may have a keyword's name
        ({"properties": {"items": [1]}, "enum": [{"items": [1]}]}, {"properties": {"items": [1]}, "enum": [{"items": [1]}]}),  # noqa: E501 - likewise
        # draft 4
        ({"$schema": "http://json-schema.org/draft-04/schema", "id": "urn:x"}, {"$id": "urn:x"}),
        # 2019-09
        ({"$schema": "https://json-schema.org/draft/2019-09/schema", "items": {"$recursiveRef": "#"}}, {"items": {"$ref": "#"}}),  # noqa: E501 - likewise
        # an unknown dialect is the last one
        ({"$schema": "https://example.org/mine", "dependencies": {"a": ["b"]}}, {}),
        (True, True),
        (None, None),
        ({"items": 3, "dependencies": 3, "$ref": 3, "exclusiveMinimum": "1"}, {"items": 3, "dependencies": 3, "$ref": 3, "exclusiveMinimum": "1"}),  # noqa: E501 - likewise
    ],
)  # fmt: skip
def test_examples(schema: Any, expected: Any) -> None:
    assert as_2020_12(schema) == expected


def test_references_follow_what_was_moved() -> None:
    schema = {
        "properties": {
            "items": {"items": [{"type": "string"}], "additionalItems": {"type": "integer"}},
            "first": {"$ref": "#/properties/items/items/0"},
            "rest": {"$ref": "#/properties/items/additionalItems"},
            "nowhere": {"$ref": "#/properties/absent/0"},
        }
    }
    properties = as_2020_12(schema)["properties"]
    assert properties["first"]["$ref"] == "#/properties/items/prefixItems/0"
    assert properties["rest"]["$ref"] == "#/properties/items/items"
    assert properties["nowhere"] == {"$ref": "#/properties/absent/0"}


def test_a_recursive_anchor_is_dynamic() -> None:
    schema = {
        "$schema": "https://json-schema.org/draft/2019-09/schema",
        "$recursiveAnchor": True,
        "additionalProperties": {"$recursiveRef": "#"},
        "type": "object",
    }
    validator = jsonschema.Draft202012Validator(as_2020_12(schema))
    assert validator.is_valid({"a": {"b": {}}})
    assert not validator.is_valid({"a": {"b": 1}})
