"""The origins of rules: parts of the schema without which the grammar is another."""

from __future__ import annotations

import pickle
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings

from gbnf import Grammar, compile_pool, compile_schema
from gbnf.compiler.origins import Origins, changed_rules, find_origins
from gbnf.errors import GbnfError, SchemaError
from gbnf.grammar.ir import Ref, Rules
from gbnf.grammar.passes import substitute
from gbnf.schema.keywords import resolve_pointer
from gbnf.tools import Tool
from support.effort import scaled
from support.pools import BUNDLED
from support.schemas import SCHEMAS


def without(pointer: str, schema: Any) -> Any:
    """The schema without what a pointer leads to, which is no property and no definition."""
    found = resolve_pointer(f"#{pointer.replace('%', '%25')}", schema)
    assert found is not None, pointer

    def copied(value: Any, path: tuple[str | int, ...]) -> Any:
        step, *inner = path
        items = value.items() if isinstance(value, dict) else enumerate(value)
        kept = {
            key: copied(member, tuple(inner)) if key == step and inner else member
            for key, member in items
            if inner or key != step
        }
        return kept if isinstance(value, dict) else list(kept.values())

    return copied(schema, found[0])


def renamed(rules: Rules) -> list[Any]:
    """The productions from the root on, with names that depend on their order only."""
    order = [rules.root]
    for name in order:
        order += [each for each in dict.fromkeys(rules.references[name]) if each not in order]
    names = {name: Ref(f"r{number}") for number, name in enumerate(order)}
    return [substitute(rules.productions[name], names) for name in order]


def another(name: str, reduced: Rules, whole: Rules) -> bool:
    """Whether a grammar has another rule of a name, or none. Numbers of auxiliary rules mean nothing."""
    if name not in reduced.productions:
        return True
    if name[-1].isdigit():
        return renamed(replace(reduced, root=name)) != renamed(replace(whole, root=name))
    return reduced.productions[name] != whole.productions[name]


def all_pointers(origins: Origins) -> frozenset[str]:
    """Return the parts that rules come from."""
    return frozenset(pointer for pointers in origins.of_rules.values() for pointer in pointers)


def compiled(schema: Any) -> Grammar | None:
    try:
        return compile_schema(schema)
    except SchemaError:
        return None


@settings(max_examples=scaled(50))
@given(SCHEMAS)
def test_parts_with_and_without_effect(schema: Any) -> None:
    whole = compiled(schema)
    if whole is None:
        return
    origins = find_origins(schema, compile_schema)
    assert list(origins.of_rules) == list(whole.rules.productions)
    assert origins.without_effect.isdisjoint(all_pointers(origins))
    for pointer in origins.without_effect | all_pointers(origins):
        before, _, last = pointer.rpartition("/")
        if before.rpartition("/")[2] in ("properties", "prefixItems", "$defs") or last == "properties":
            continue  # more than the part is removed, or less
        reduced = compiled(without(pointer, schema))
        assert reduced is not None
        assert (renamed(reduced.rules) == renamed(whole.rules)) == (pointer in origins.without_effect)
        for name, pointers in origins.of_rules.items():
            if pointer in pointers:
                assert another(name, reduced.rules, whole.rules)


@settings(max_examples=scaled(40))
@given(SCHEMAS)
def test_the_origins_are_those_of_rules_that_were_stored(schema: Any) -> None:
    """Stored expressions have nothing of what is computed on demand."""
    if compiled(schema) is None:
        return
    stored = find_origins(schema, lambda part: pickle.loads(pickle.dumps(compile_schema(part))))
    assert stored == find_origins(schema, compile_schema)


@given(SCHEMAS)
def test_a_grammar_has_no_rule_that_it_does_not_have(schema: Any) -> None:
    grammar = compiled(schema)
    if grammar is not None:
        assert changed_rules(grammar.rules, grammar.rules) == {}
        names = {name: Ref(f"other{name}") for name in grammar.rules.productions}
        other = {
            names[name].name: substitute(expr, names) for name, expr in grammar.rules.productions.items()
        }
        assert changed_rules(grammar.rules, Rules(other, names[grammar.rules.root].name)) == {}


@pytest.mark.parametrize("tool", BUNDLED, ids=lambda tool: tool.name)
def test_another_schema_for_an_argument_changes_only_rules_that_come_from_it(tool: Tool) -> None:
    def compile_args(args: Any) -> Grammar:
        return compile_pool((replace(tool, args=args),), steps=(1,))

    origins = find_origins(tool.args, compile_args)
    before = compile_args(tool.args).rules
    for name in tool.model_args().get("properties", {}).keys() - tool.step_references.keys():
        changed = {**tool.args["properties"], name: {"const": "another value"}}
        after = compile_args({**tool.args, "properties": changed}).rules
        for rule in changed_rules(before, after):
            own = f"/properties/{name}"
            assert any(f"{one}/".startswith(f"{own}/") for one in origins.of_rules[rule]), (rule, name)


INTEGER = {"type": "integer", "minimum": 1, "maximum": 70}
LIST = {"type": "array", "items": {"minLength": 2, "type": "string"}, "minItems": 1, "maxItems": 9}
OBJECT = {
    "type": "object",
    "properties": {"a": INTEGER, "b": LIST},
    "required": ["a"],
    "additionalProperties": False,
}


@pytest.mark.parametrize(
    ("schema", "pointers"),
    [
        (INTEGER, ["/type", "/minimum", "/maximum"]),
        (LIST, ["/type", "/items", "/items/minLength", "/items/type", "/minItems", "/maxItems"]),
        (OBJECT, ["/required", "/additionalProperties", "/properties/a/minimum", "/properties/b/items"]),
        ({"properties": {"a": {"$ref": "#/$defs/b"}}, "$defs": {"b": {"enum": [1, 2]}}}, ["/$defs/b/enum"]),
        ({"properties": {"a": {"$ref": "#/other/b"}}, "other": {"b": {"enum": [1]}}}, ["/other/b/enum"]),
        ({"properties": {"a/b~%41": {"enum": [1, 2]}}}, ["/properties/a~1b~0%41/enum"]),
        ({"items": {"properties": {"x": {"$ref": "#"}}}}, ["/items/properties/x/$ref"]),
        ({"not": {"type": "string"}}, ["/not"]),
        ({"oneOf": [{"type": "null"}, INTEGER]}, ["/oneOf/0", "/oneOf/1", "/oneOf/1/minimum"]),
        ({"if": {"type": "string"}, "then": {"minLength": 2}, "else": INTEGER}, ["/if", "/then", "/else"]),
        ({"patternProperties": {"^a": INTEGER}}, ["/patternProperties/^a", "/patternProperties/^a/minimum"]),
        ({"prefixItems": [{}, INTEGER], "type": "array"}, ["/prefixItems/1", "/prefixItems/1/minimum"]),
    ],
)  # fmt: skip
def test_a_part_is_the_origin_of_a_rule(schema: Any, pointers: list[str]) -> None:
    assert set(pointers) <= all_pointers(find_origins(schema, compile_schema))


@pytest.mark.parametrize(
    ("schema", "pointers"),
    [
        ({"type": "string", "minLength": 0}, {"/minLength"}),
        ({"type": "integer", "minimum": 3, "exclusiveMinimum": 5}, {"/minimum"}),
        ({"type": "string", "maximum": 5}, {"/maximum"}),
        ({"type": "array", "items": {"type": "string"}, "uniqueItems": True}, {"/uniqueItems"}),
    ],
)
def test_a_part_that_changes_nothing(schema: Any, pointers: set[str]) -> None:
    assert pointers <= find_origins(schema, compile_schema).without_effect


def test_keywords_of_one_value_have_rules_of_their_own() -> None:
    origins = find_origins(OBJECT, partial(compile_schema, property_order="declared"))
    affected = {
        pointer: {name for name, pointers in origins.of_rules.items() if pointer in pointers}
        for pointer in all_pointers(origins)
    }
    assert affected["/required"] == {"root"}
    assert affected["/properties/a/minimum"] < affected["/properties"]
    assert "root" not in affected["/properties/b/items/minLength"]


def test_the_schema_must_compile() -> None:
    with pytest.raises(GbnfError, match="minimum"):
        find_origins({"minimum": "x"}, compile_schema)


@pytest.mark.slow
def test_a_large_schema_takes_bounded_work() -> None:
    sizes: list[int] = []

    def counted(schema: Any) -> Grammar:
        grammar = compile_schema(schema)
        sizes.append(len(str(grammar)))
        return grammar

    words = [f"{number:05} {'x' * 60}" for number in range(2000)]
    schema = {"properties": {f"p{number}": {"enum": words[number::40]} for number in range(200)}}
    origins = find_origins(schema, counted)
    assert len(sizes) >= 9
    assert sum(sizes) < 3_000_000 + 9 * sizes[0]
    assert "/properties" in all_pointers(origins)
