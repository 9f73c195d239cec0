"""Schemas and grammars whose derivations multiply: llama.cpp follows a bounded number of them."""

from __future__ import annotations

import json
import random
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st

from fuzz_targets.common import ORDERS, SEEDS, Target
from gbnf import Grammar, compile_schema
from gbnf.errors import AmbiguousGrammarError, GrammarError
from gbnf.grammar.stacks import MAX_STACKS
from support.engine_stacks import engine_stacks
from support.oracle import engine
from support.random_texts import generate
from support.unions_alike import unions_alike, value_of
from support.values import is_valid

_LONGEST = 2_000
#: A client's grammar is examined on a part of its texts only.
_MOST_OF_CLIENTS = 16 * MAX_STACKS


def check_alike(case: Mapping[str, Any]) -> str:
    """Check that valid values are accepted with few stacks, and that exact grammars derive no others."""
    schema, chance = case["schema"], random.Random(case["seed"])
    grammar = compile_schema(schema, property_order=case["order"])
    for depth in (3, 8, 14):
        text = json.dumps(value_of(schema, chance, depth), separators=(",", ":"))
        if len(text) > _LONGEST or not engine().match(grammar, text).complete:
            assert case["order"] == "declared" or len(text) > _LONGEST, f"{text} is refused"
            continue
        most = max(engine_stacks(grammar, text))
        assert most <= MAX_STACKS, f"{most} stacks"
    if grammar.exact:
        with suppress(ValueError):
            derived = generate(grammar.rules, chance, budget=100)
            assert is_valid(schema, json.loads(derived)), f"{derived} is accepted"
    return "exact" if grammar.exact else "merged"


_LETTERS = st.sampled_from(['"a"', '"b"', "s", "t", "s?", '("a" | s)', '"a"*', '""'])
_BODIES = st.lists(st.lists(_LETTERS, min_size=1, max_size=4).map(" ".join), min_size=1, max_size=4)


def check_client_grammar(case: Mapping[str, Any]) -> str:
    """Check that the matcher does little work, and that the engine does where a grammar is not refused."""
    text = "".join(
        f"{name} ::= {' | '.join(of)}\n" for name, of in zip(("root", "s", "t"), case["rules"], strict=True)
    )
    try:
        grammar = Grammar.parse(text)
        derived = generate(grammar.rules, random.Random(case["seed"]), budget=60)[:60]
        with suppress(AmbiguousGrammarError):
            grammar.match(derived * 3)
    except (GrammarError, ValueError):  # no finite text
        return "refused"
    try:
        grammar.check_stacks()
    except AmbiguousGrammarError:
        return "unbounded"
    if derived.isascii():
        most = max(engine_stacks(grammar, derived))
        assert most <= _MOST_OF_CLIENTS, f"{most} stacks"
    return "bounded"


ALIKE = Target(
    "alike", st.fixed_dictionaries({"schema": unions_alike(), "order": ORDERS, "seed": SEEDS}), check_alike
)
CLIENT_GRAMMAR = Target(
    "client-grammar",
    st.fixed_dictionaries({"rules": st.lists(_BODIES, min_size=3, max_size=3), "seed": SEEDS}),
    check_client_grammar,
)
