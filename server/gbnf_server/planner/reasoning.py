"""Reasoning before a call: in a field of the call, or as free text before the constrained call. Pure.

field   the call begins with a bounded string, {"thought": "…", "name": …}: part of the grammar, so that it
        works with every backend that takes a grammar; the field is removed before the call is validated
free    two model calls: unconstrained reasoning, up to a limit of tokens, then the constrained call. A
        backend that renders the prompt itself puts the reasoning between the reasoning tags of its chat
        template; with other backends it is a message of plain text

Free reasoning takes two model calls rather than one grammar for both, so that endless reasoning is ended by
its own limit, and the call still has all of its tokens.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, TypeAlias

from gbnf import Grammar
from gbnf.grammar import ir
from gbnf.prompts.messages import Message
from gbnf.tools.languages import localized_text
from gbnf_server.backends.base import Completion
from gbnf_server.backends.reasoning import ReasoningTags, reasoning_message

ReasoningMode: TypeAlias = Literal["off", "field", "free"]

REASONING_KEY = "thought"
"""The property's name."""

MAX_REASONING_LENGTH = 300
"""Maximum characters of reasoning in a field."""

_CHARACTER = ir.char_class('"\\', (0x00, 0x1F), (0x7F, 0x7F), negated=True)
_SPACE = ir.optional(ir.literal(" "))
_MEMBER = ir.seq(
    ir.literal(f'"{REASONING_KEY}":'), _SPACE,
    ir.literal('"'), ir.repeat(_CHARACTER, 1, MAX_REASONING_LENGTH), ir.literal('",'), _SPACE,
)  # fmt: skip

_THINK = {
    "en": (
        "Before the next call, think: what is still missing, which one tool brings it, and with which "
        "arguments? Answer in a few sentences of plain text, without the call."
    ),
    "it": (
        "Prima della prossima chiamata rifletti: che cosa manca ancora, quale strumento lo porta e con quali "
        "argomenti? Rispondi in poche frasi di testo semplice, senza la chiamata."
    ),
}
_NOW_CALL = {"en": "Now write the next call.", "it": "Ora scrivi la prossima chiamata."}


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


def reasoning_messages(
    messages: tuple[Message, ...], reasoning_tags: ReasoningTags | None, language: str
) -> tuple[Message, ...]:
    """Return the conversation that requests reasoning about the next call."""
    if reasoning_tags is not None:
        return (*messages, reasoning_message(""))
    last = messages[-1]
    asking: Message = {**last, "content": f"{last['content']}\n\n{localized_text(_THINK, language)}"}
    return (*messages[:-1], asking)


def reasoning_text(completion: Completion, reasoning_tags: ReasoningTags | None) -> str:
    """Return the reasoning in a completion: that of the backend's own field, then the text."""
    text = completion.text if reasoning_tags is None else completion.text.removesuffix(reasoning_tags.closing)
    return "\n".join(part for part in (completion.reasoning.strip(), text.strip()) if part)


def call_messages(
    messages: tuple[Message, ...], text: str, reasoning_tags: ReasoningTags | None, language: str
) -> tuple[Message, ...]:
    """Return the conversation that requests the call, after the reasoning."""
    if reasoning_tags is not None:
        return (*messages, reasoning_message(text, closed=True))
    if not text:
        return messages
    thinking: Message = {"role": "assistant", "content": text}
    call: Message = {"role": "user", "content": localized_text(_NOW_CALL, language)}
    return (*reasoning_messages(messages, None, language), thinking, call)
