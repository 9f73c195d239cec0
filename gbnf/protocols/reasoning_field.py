"""Reasoning in the first property of a call: `{"thought": "…", "name": …}`. Pure.

It is a part of the grammar, so that it works with every backend that takes one, and is removed before the
call is validated.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from gbnf import Grammar
from gbnf.grammar import ir
from gbnf.protocols.readers import REASONING_KEY

MAX_REASONING_LENGTH = 300
"""Maximum characters of reasoning in a field."""

_CHARACTER = ir.char_class('"\\', (0x00, 0x1F), (0x7F, 0x7F), negated=True)
_SPACE = ir.optional(ir.literal(" "))
_MEMBER = ir.seq(
    ir.literal(f'"{REASONING_KEY}":'), _SPACE,
    ir.literal('"'), ir.repeat(_CHARACTER, 1, MAX_REASONING_LENGTH), ir.literal('",'), _SPACE,
)  # fmt: skip


@lru_cache(maxsize=64)
def with_reasoning_grammar(grammar: Grammar) -> Grammar:
    """Return a pool's grammar in which each call begins with reasoning."""
    root = grammar.rules.productions["root"]
    assert isinstance(root, ir.Seq)
    opening, *rest = root.items
    assert isinstance(opening, ir.Literal), "a pool's grammar begins with its calls' first key"
    root = ir.seq(ir.literal(opening.text[:1]), _MEMBER, ir.literal(opening.text[1:]), *rest)
    return Grammar(ir.Rules({**grammar.rules.productions, "root": root}), grammar.report, grammar.is_parsed)


def with_reasoning_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Return a pool's JSON Schema in which each call begins with reasoning."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [with_reasoning_schema(branch) for branch in schema["anyOf"]]}
    reasoning_message = {"type": "string", "minLength": 1, "maxLength": MAX_REASONING_LENGTH}
    return {
        **schema,
        "properties": {REASONING_KEY: reasoning_message, **schema["properties"]},
        "required": [REASONING_KEY, *schema["required"]],
    }


def pop_reasoning(call: Any) -> tuple[str, Any]:
    """Split a call into its reasoning, "" if there is none, and the rest."""
    if isinstance(call, dict) and isinstance(call.get(REASONING_KEY), str):
        return call[REASONING_KEY], {key: value for key, value in call.items() if key != REASONING_KEY}
    return "", call
