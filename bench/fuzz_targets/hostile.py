"""Schemas that are meant to harm: malformed, deep, wide, and asking for themselves."""

from __future__ import annotations

import json
import math
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any
from unittest.mock import patch

from hypothesis import strategies as st

from fuzz_targets.common import ORDERS, SEEDS, Target
from gbnf import compile_pool, compile_schema, validate_call
from gbnf.errors import GbnfError
from gbnf.grammar import analysis
from gbnf.grammar.ir import Rules
from gbnf.tools import Tool
from support.hostile_schemas import SCHEMA_KEYWORDS, hostile_schema
from support.oracle import engine
from support.random_texts import generate
from support.values import VALIDATORS

KEYWORDS = (*SCHEMA_KEYWORDS, "fills", "nullable", "runtime_resolved")
EXTREMES = st.sampled_from(
    [0, -1, 1, 2, 10**6, 10**9, 2**63, 10**400, -(10**400), 0.1, 1e-300, 5e-324, 1.7e308, math.inf, math.nan]
)
_DRAFTS = [validator.META_SCHEMA["$schema"] for validator in VALIDATORS.values()]
_LOOPS = ["#", "#/", "#/$defs/a", "#/$defs/b", "#/properties/a", "#n", "x", "#/$defs", "%", ""]
WORDS = st.sampled_from(
    [*_LOOPS, *_DRAFTS, "object", "array", "integer", "string", "date", "regex", "nonsense", "a",
     "^(a|b)*a(a|b){30}$", "(a*)*b", "(?<=a*)b", "\\p{L}{1,400}", "[", "\\", "(?:(?:a{1,99}){1,99}){1,99}"]
) | st.text(max_size=4)  # fmt: skip


_KEYS = st.sampled_from(["a", "b", "^a", "x.*y", ""]) | st.text(max_size=3)


def _hostile(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    maps = st.dictionaries(_KEYS, inner, max_size=4)
    lists = st.lists(inner, max_size=4)
    return st.one_of(
        st.dictionaries(st.sampled_from(KEYWORDS), inner | maps | lists, max_size=5),
        st.dictionaries(st.sampled_from(KEYWORDS), inner | maps | lists, min_size=2, max_size=4),
        st.builds(lambda name: {"$ref": name}, st.sampled_from(_LOOPS)),
        st.builds(lambda keyword, some: {keyword: some}, st.sampled_from(["allOf", "anyOf", "oneOf"]), lists),
        st.builds(lambda one, other: {**one, "not": other}, maps, inner),
    )


_HOSTILE: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | EXTREMES | WORDS | st.just({}) | st.text(max_size=3),
    _hostile,
    max_leaves=14,
)


@st.composite
def _hostile_cases(draw: st.DrawFn) -> dict[str, Any]:
    """A schema, or the seed of one that a case could not hold, and what is put around it how many times."""
    if draw(st.booleans()):
        return {"seed": draw(SEEDS), "wrap": "", "times": 0, "order": draw(ORDERS)}
    schema = draw(_hostile(_HOSTILE))
    wrap = draw(st.sampled_from(["", "", "items", "not", "properties", "allOf", "oneOf", "const", "chain"]))
    return {"schema": schema, "wrap": wrap, "times": draw(st.integers(1, 2000)), "order": draw(ORDERS)}


def _wrapped(schema: Any, wrap: str, times: int) -> Any:
    for link in range(times if wrap else 0):
        match wrap:
            case "items" | "not" | "const":
                schema = {wrap: schema}
            case "properties":
                schema = {wrap: {"a": schema}}
            case "allOf" | "oneOf":
                schema = {wrap: [schema, {"type": "string", "minLength": link}]}
            case _:
                break
    if wrap == "chain":
        links = times % 40
        following = ({"$ref": f"#/$defs/d{link + 1}"} for link in range(links))
        return {
            "$ref": "#/$defs/d0",
            "$defs": {
                **{f"d{link}": {"oneOf": [ref, {"not": ref}, schema]} for link, ref in enumerate(following)},
                f"d{links}": schema,
            },
        }
    return schema


def _derived(rules: Rules) -> str | None:
    """Return a text of the grammar; None where each is too long for `generate`, as of a long array."""
    try:
        return generate(rules, random.Random(0))
    except ValueError:
        with patch.object(analysis, "MAX_BYTES", math.inf):
            if rules.root not in analysis.cheapest_costs(rules):
                raise
        return None


def check_hostile_schema(case: Mapping[str, Any]) -> str:
    """Compilation ends, in a grammar that the engine takes or in an error of the tree."""
    schema = case["schema"] if "schema" in case else hostile_schema(random.Random(case["seed"]))
    schema = _wrapped(schema, case["wrap"], case["times"])
    outcome = "error"
    with suppress(GbnfError):
        grammar = compile_schema(schema, property_order=case["order"])
        engine().check(grammar)
        text = _derived(grammar.rules)
        if text is not None:
            json.loads(text)
        outcome = "grammar"
    with suppress(GbnfError):
        args = {"type": "object", "properties": {"a": schema}}
        tool = Tool.from_mapping({"name": "t", "description": "t", "args": args})
        engine().check(compile_pool([tool]))
        validate_call({"name": "t", "arguments": {"a": 1}}, [tool])
        outcome += ", tool"
    return outcome


HOSTILE_SCHEMA = Target("hostile-schema", _hostile_cases(), check_hostile_schema)
