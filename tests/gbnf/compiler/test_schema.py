"""compile_schema, judged by llama.cpp's engine and by jsonschema."""

from __future__ import annotations

import json
import random
import re
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gbnf.compiler.schema import compile_schema
from gbnf.errors import SchemaError
from gbnf.grammar.ir import references
from support.effort import scaled
from support.grammars import unreachable_rules
from support.oracle import accepts, engine
from support.random_texts import generate
from support.schemas import DOCUMENTS, SHALLOW, spelled
from support.values import (
    JSON_VALUES,
    SERIALISERS,
    VALIDATORS,
    VALUES_OF_EACH_TYPE,
    canonical,
    in_declared_order,
    is_valid,
    values_near,
)


def compiled(schema: Any, **options: Any) -> Any:
    """The grammar, or None if no value satisfies the schema."""
    try:
        return compile_schema(schema, **options)
    except SchemaError:
        return None


@settings(max_examples=scaled(50))
@given(st.data(), st.sampled_from(SERIALISERS))
def test_a_valid_value_in_declared_order_is_accepted(data: st.DataObject, serialise: Any) -> None:
    schema = data.draw(DOCUMENTS)
    value = canonical(data.draw(values_near(schema)))
    assume(is_valid(schema, value) and in_declared_order(schema, value))
    assert accepts(compile_schema(schema), serialise(value))


@settings(max_examples=scaled(50))
@given(st.data())
def test_where_the_grammar_is_exact_an_invalid_value_is_refused(data: st.DataObject) -> None:
    schema = data.draw(DOCUMENTS)
    value = data.draw(values_near(schema) | JSON_VALUES)
    grammar = compiled(schema)
    assume(grammar is not None and grammar.exact)
    for one in (value, *VALUES_OF_EACH_TYPE):
        assert is_valid(schema, one) or not accepts(grammar, json.dumps(one, ensure_ascii=False)), one


@pytest.mark.parametrize("draft", VALIDATORS)
@settings(max_examples=scaled(30))
@given(denied=SHALLOW, data=st.data())
def test_a_complement_is_exact_or_reported_in_every_draft(
    draft: int | None, denied: Any, data: st.DataObject
) -> None:
    schema = spelled({"not": denied}, draft)
    value = canonical(data.draw(values_near(denied)))
    assume(
        not re.search(r"\d{17}", json.dumps(value))
    )  # a float has fewer digits, and compares another number
    grammar = compiled(schema)
    for one in (*VALUES_OF_EACH_TYPE, value):
        accepted = grammar is not None and accepts(grammar, json.dumps(one, ensure_ascii=False))
        if is_valid(schema, one):
            assert accepted or not in_declared_order(schema, one), one
        else:
            assert not accepted or not grammar.exact, one


@pytest.mark.slow
@given(DOCUMENTS, st.integers(0, 2**32), st.sampled_from(["default", "compact", "spaced", "free"]))
def test_a_derivation_parses_and_validates_where_the_grammar_is_exact(
    schema: Any, seed: int, whitespace: str
) -> None:
    grammar = compiled(schema, whitespace=whitespace)
    assume(grammar is not None)
    text = generate(grammar.rules, random.Random(seed))
    value = json.loads(text)
    assert accepts(grammar, text)
    if grammar.exact:
        assert is_valid(schema, value), (text, str(grammar))


@settings(max_examples=scaled(50))
@given(DOCUMENTS)
def test_the_engine_reads_the_text_and_only_a_schema_without_values_is_refused(schema: Any) -> None:
    grammar = compiled(schema)
    if grammar is None:
        for value in (None, True, 0, 1, -3, 0.5, "", "a", "abc", [], [1], {}, {"a": 1}):
            assert not is_valid(schema, value)
        return
    engine().check(str(grammar))
    names = [line.split(" ::= ")[0] for line in str(grammar).splitlines()]
    assert len(names) == len(set(names))
    assert all(re.fullmatch(r"[a-z][A-Za-z0-9]*", name) for name in names)
    used = {name for expr in grammar.rules.productions.values() for name in references(expr)}
    assert set(names) - used <= {"root"}
    assert not unreachable_rules(str(grammar))


@settings(max_examples=scaled(40))
@given(DOCUMENTS, st.sampled_from([0, 1, 2]))
def test_a_depth_cap_refuses_no_valid_value_and_is_reported(schema: Any, depth: int) -> None:
    capped, full = compiled(schema, max_depth=depth), compiled(schema)
    assume(capped is not None and full is not None)
    text = generate(full.rules, random.Random(depth))
    assert accepts(capped, text)
    if str(capped) != str(full):
        assert not capped.exact


DRAFT_4, DRAFT_6, DRAFT_7 = (f"http://json-schema.org/draft-0{number}/schema#" for number in (4, 6, 7))
DRAFT_2020 = "https://json-schema.org/draft/2020-12/schema"
UNKNOWN = "https://json-schema.org/draft-07/schema#"  # with an s; jsonschema knows it not, and reads 2020-12


@pytest.mark.parametrize(
    ("schema", "accepted", "refused"),
    [
        pytest.param(
            {
                "type": "object",
                "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
                "required": ["b"],
            },
            ['{"b": 1}', '{"a": 1, "b": 2}', '{"x": [], "b": 1}', '{"b":1,"c":null}'],
            ['{"a": 1}', '{"a": 1,}', '{"b": 1, "b": 2}', '{"b": 1', '{ "b": 1}', '{"b": 1, "a": 2}', "{}"],
            id="required and optional properties",
        ),
        pytest.param(
            {
                "type": "object",
                "properties": {"a": {}, "\tb": {"const": "x"}},
                "additionalProperties": {"type": "integer"},
            },
            ['{"a": "x", "b": 1}', '{"aa": 1}', '{"": 1}', '{"\\n": 1}'],
            ['{"a": 1, "a": 2}', '{"b": "x"}', '{"\\u0061": 1}', '{"\\tb": 1}'],
            id="a declared key does not slip in among the additional ones",
        ),
        pytest.param(
            {"type": "string", "minLength": 2, "maxLength": 3},
            ['"ab"', '"日本"', '"😀😀"', '"\\ud83d\\ude00a"'],
            ['"a"', '"abcd"', '"\\ud83d\\ude00"', '"😀"'],
            id="lengths count code points",
        ),
        pytest.param(
            {"type": "integer", "minimum": -12, "exclusiveMaximum": 101},
            ["-12", "-9", "0", "7", "99", "100"],
            ["-13", "101", "-0", "00", "1.5", "1e1", "-"],
            id="integer bounds",
        ),
        pytest.param(
            {
                "type": "object",
                "properties": {"kind": {"type": "string"}},
                "required": ["kind"],
                "allOf": [
                    {
                        "if": {"properties": {"kind": {"const": f"k{number}"}}},
                        "then": {"properties": {"size": {"const": number}}, "required": ["size"]},
                    }
                    for number in range(12)
                ],
            },
            ['{"kind": "k0", "size": 0}', '{"kind": "k11", "size": 11}', '{"kind": "x"}'],
            ['{"kind": "k0"}', '{"kind": "k3", "size": 2}', '{"kind": 1}', '{"size": 1}'],
            id="many conditions on one property",
        ),
        pytest.param(
            {
                "$schema": "http://json-schema.org/draft-04/schema#",
                "systems": {"type": "array", "items": {"id": {"type": "string"}, "type": "integer"}},
                "$ref": "#/systems",
            },
            ["[]", "[1, 2]"],
            ['["a"]'],
            id="an id that is no string identifies nothing",
        ),
        pytest.param(
            {"type": "string", "maxLength": 5000},
            ['"' + "a" * 5000 + '"'],
            ['"' + "a" * 5001 + '"'],
            id="a bound beyond what llama.cpp repeats",
        ),
        pytest.param(
            {
                "type": "array",
                "items": {
                    "type": "object",
                    "properties": {"a": {"type": "string"}},
                    "additionalProperties": False,
                },
                "minItems": 60,
                "maxItems": 90,
            },
            ["[" + ",".join(["{}"] * 60) + "]", "[" + ",".join(['{"a":""}'] * 90) + "]"],
            ["[" + ",".join(["{}"] * 59) + "]", "[" + ",".join(["{}"] * 91) + "]"],
            id="a repeated group of many rules",
        ),
        pytest.param(
            {
                "type": "array",
                "$ref": "#/$defs/pair",
                "unevaluatedItems": {"type": "null"},
                "$defs": {"pair": {"prefixItems": [{"type": "integer"}, {"type": "boolean"}]}},
            },
            ["[]", "[1]", "[1, true, null, null]"],
            ["[null]", "[1, true, 2]"],
            id="unevaluated items behind a tuple",
        ),
        pytest.param(
            {"oneOf": [{"anyOf": [{"const": "ab"}, {"type": "string", "minLength": 5}]}, {"pattern": "^a"}]},
            ['"bcdef"', '"ac"', "1"],
            ['"ab"', '"abcdef"'],
            id="a value that two branches of oneOf share",
        ),
        pytest.param(
            {"if": {"const": 1}, "else": {"maximum": 9}, "oneOf": [{}, {"type": "integer"}]},
            ["1.5", '"a"'],
            ["1", "2"],
            id="an integer that two branches of oneOf share",
        ),
        pytest.param(
            {
                "type": "array",
                "uniqueItems": True,
                "maxItems": 2,
                "items": {
                    "anyOf": [
                        {"enum": [1, True]},
                        {"type": ["integer", "boolean"], "minimum": 1, "maximum": 3},
                    ]
                },
            },
            ["[1, 2]", "[true, 1]", "[false, true]"],
            ["[1, 1]", "[true, true]", "[1, 2, 3]"],
            id="unique items of branches that overlap",
        ),
        pytest.param(
            {
                "type": "object",
                "allOf": [{"properties": {f"a{n}": {} for n in range(24)}}, {"properties": {"b": {}}}],
            },
            ['{"a0": 1, "b": 1, "a19": 1}', '{"b": 1, "a17": 1}'],
            ['{"a17": 1, "a0": 1}', '{"a18": 1, "a17": 1}'],
            id="many properties beside others",
        ),
        pytest.param(
            {"oneOf": [{"type": "object"}, {"properties": {"a": False}}]},
            ['{"a": 1}', "1"],
            ["{}", '{"b": 1}'],
            id="a property that one branch of oneOf forbids",
        ),
        pytest.param(
            {
                "enum": [{"a": 1}, {"a\n": 1}],
                "patternProperties": {"^a$": {}},
                "unevaluatedProperties": False,
            },
            ['{"a": 1}'],
            ['{"a\\n": 1}'],
            id="keys of values by the end of ECMA-262",
        ),
        pytest.param(
            {"oneOf": [{"enum": ["é", "-"]}, {"type": "string", "pattern": r"^(?<all>\p{L}+)$"}]},
            ['"-"', '"ab"'],
            ['"é"', '"+"'],
            id="branches of oneOf by a Unicode property",
        ),
        pytest.param(
            {"type": "number", "minimum": 0, "maximum": 2, "multipleOf": 0.5, "not": {"type": "integer"}},
            ["0.5", "1.5"],
            ["0", "1", "2", "1.0"],
            id="multiples without the integers",
        ),
        pytest.param(
            {"type": "number", "multipleOf": 0.5}, ["1.5", "-20", "0"], ["1.3", "1.55", "1."], id="multiples"
        ),
        pytest.param(
            {"type": "integer", "multipleOf": 11, "maximum": 22},
            ["22", "-33"],
            ["33", "21"],
            id="multiples up to a bound",
        ),
        *(
            pytest.param(
                {"$schema": draft, **schema}, accepted, refused, id=f"{next(iter(schema))} in {draft}"
            )
            for draft, schema, accepted, refused in (
                (DRAFT_4, {"const": 1, "type": "integer"}, ["1", "2"], ["true"]),
                (DRAFT_6, {"if": True, "then": {"maxLength": 1}, "type": "string"}, ['"ab"'], ["1"]),
                (DRAFT_7, {"minContains": 0, "type": "array", "contains": {"const": 1}}, ["[2, 1]"], ["[2]"]),
                (DRAFT_7, {"unevaluatedProperties": False, "type": "object"}, ['{"b": 1}'], ["1"]),
                (DRAFT_7, {"dependencies": {"a": ["b"]}, "type": "object"}, ['{"b": 1}'], ['{"a": 1}']),
                (DRAFT_2020, {"dependencies": {"a": ["b"]}, "type": "object"}, ['{"a": 1}'], ["1"]),
                (DRAFT_4, {"not": {"items": {"type": "string"}}}, ["[1]", '["a", 1]'], ["[]", '["a"]']),
                (
                    DRAFT_4,
                    {"enum": [[1.0], 2.0], "items": {"type": "integer"}},
                    ["[1]", "2", "2.0"],
                    ["[1.0]"],
                ),
                (DRAFT_4, {"enum": ["x", "2024-02-29"], "format": "date"}, ['"2024-02-29"'], ['"x"']),
                (DRAFT_4, {"enum": [[1]], "items": True}, ["[1]"], ["[]"]),
                (DRAFT_4, {"not": {"minimum": 2}}, ["1", "1.5"], ["2", '"a"']),
                (DRAFT_4, {"not": {"enum": [1, None]}}, ["1.5", "0", '"a"'], ["1", "null"]),
                (
                    DRAFT_7,
                    {"enum": [1, 2], "$ref": "#/definitions/a", "pattern": 1, "definitions": {"a": {}}},
                    ["3"],
                    [],
                ),
                (UNKNOWN, {"items": [{"type": "null"}], "enum": [[None], [1]]}, ["[null]"], ["[1]"]),
                (UNKNOWN, {"$ref": "#/$defs/s", "$defs": {"s": {}}, "maxLength": 1}, ['"a"'], ['"ab"']),
            )
        ),
    ],
)
def test_languages(schema: Any, accepted: list[str], refused: list[str]) -> None:
    grammar = compile_schema(schema, property_order="declared")
    assert grammar.exact, grammar.report
    assert [text for text in accepted if not accepts(grammar, text)] == []
    assert [text for text in refused if accepts(grammar, text)] == []


@pytest.mark.parametrize("pattern", [r"^(a)(?<=a*)\1$", r"^(?<x>a)\k<x>$"])
def test_values_beside_a_pattern_without_an_automaton_are_a_finding(pattern: str) -> None:
    """Whatever matches it may take time without end, so the compiler asks nobody."""
    grammar = compile_schema({"enum": ["aa", "ab"], "pattern": pattern})
    assert accepts(grammar, '"aa"')
    assert [finding.pointer for finding in grammar.report if finding.kind == "unenforced"] == ["/pattern"]


UNIQUE = {"type": "array", "items": {"type": "string"}, "uniqueItems": True}


@pytest.mark.parametrize(
    ("schema", "pointers"),
    [
        ({"oneOf": [{"type": "null"}, UNIQUE]}, ["/oneOf/1/uniqueItems"]),
        ({"if": {"type": "string"}, "then": True, "else": UNIQUE}, ["/else/uniqueItems"]),
        ({"dependentSchemas": {"a/b": {"properties": {"c": UNIQUE}}}, "type": "object"},
         ["/dependentSchemas/a~1b/properties/c/uniqueItems"]),
        ({"allOf": [UNIQUE, {**UNIQUE, "maxItems": 9}]}, ["/allOf/0/uniqueItems", "/allOf/1/uniqueItems"]),
        ({"$ref": "other", "$defs": {"a": {"$id": "other", "$ref": "#/$defs/b", "$defs": {"b": UNIQUE}}}},
         ["/$defs/a/$defs/b/uniqueItems"]),
        ({"not": {"type": "array", "items": {"not": UNIQUE}}}, ["/not/items/not/uniqueItems"]),
        ({"allOf": [{"contains": {}, "unevaluatedItems": False}]}, ["/allOf/0/unevaluatedItems"]),
    ],
)  # fmt: skip
def test_a_finding_has_the_pointer_of_its_keyword(schema: Any, pointers: list[str]) -> None:
    found = compile_schema(schema).report
    assert [finding.pointer for finding in found if finding.kind == "unenforced"] == pointers


@pytest.mark.parametrize(
    "schema",
    [
        False,
        {"type": "string", "not": {"format": "nonsense"}},
        {"not": {"required": True}},
        {"const": "\n", "pattern": "^$"},
        {"type": "string", "enum": [1, 2]},
        {"type": "object", "required": ["a"], "properties": {"a": False}},
        {"type": "object", "required": ["a"], "additionalProperties": False},
        {"type": "object", "required": ["a"], "properties": {"a": {"$ref": "#"}}},
    ],
)
def test_an_unsatisfiable_schema_is_an_error_with_its_reason(schema: Any) -> None:
    with pytest.raises(SchemaError, match=r"no JSON value satisfies the schema: .+"):
        compile_schema(schema)
