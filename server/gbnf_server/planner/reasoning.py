"""Thoughts before a call: in a field of the call, or freely before the grammar binds. Pure.

field   the call begins with a bounded string, {"thought": "…", "name": …}: part of the grammar, so that it
        works wherever a grammar does; the thought is taken out before the call is judged
free    two questions: the model thinks, unheld and up to a limit of tokens, then it writes the call, held.
        A backend that renders the prompt itself lets it think between the markers of its chat template;
        elsewhere it thinks in a message of plain words, which every server takes

Two questions rather than one grammar for both: thoughts that go on for ever are ended by their own limit,
and the call still has all of its tokens.
"""

from __future__ import annotations

import re
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
"""Characters of a thought in a field, at most."""

DROPPED_REASONING = f"left out {REASONING_KEY!r} beside the arguments"
"""What reading softly says of a thought."""

_CHARACTER = ir.char_class('"\\', (0x00, 0x1F), (0x7F, 0x7F), negated=True)
_SPACE = ir.optional(ir.literal(" "))
_MEMBER = ir.seq(
    ir.literal(f'"{REASONING_KEY}":'), _SPACE,
    ir.literal('"'), ir.repeat(_CHARACTER, 1, MAX_REASONING_LENGTH), ir.literal('",'), _SPACE,
)  # fmt: skip
_IN_TEXT = re.compile(rf'"{REASONING_KEY}"\s*:\s*"((?:[^"\\]|\\.)*)"')

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
    """Return a pool's grammar in which each call begins with a thought."""
    root = grammar.rules.productions["root"]
    assert isinstance(root, ir.Seq)
    opening, *rest = root.items
    assert isinstance(opening, ir.Literal), (
        "a pool's grammar begins with the brace of a call and its first key"
    )
    root = ir.seq(ir.literal(opening.text[:1]), _MEMBER, ir.literal(opening.text[1:]), *rest)
    return Grammar(ir.Rules({**grammar.rules.productions, "root": root}), grammar.report)


def with_reasoning_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A pool's JSON Schema, likewise."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [with_reasoning_schema(branch) for branch in schema["anyOf"]]}
    reasoning_message = {"type": "string", "minLength": 1, "maxLength": MAX_REASONING_LENGTH}
    return {
        **schema,
        "properties": {REASONING_KEY: reasoning_message, **schema["properties"]},
        "required": [REASONING_KEY, *schema["required"]],
    }


def pop_reasoning(call: Any) -> tuple[str, Any]:
    """Part a call from its thought; "" where it has none that is a text."""
    if isinstance(call, dict) and isinstance(call.get(REASONING_KEY), str):
        return call[REASONING_KEY], {key: value for key, value in call.items() if key != REASONING_KEY}
    return "", call


def find_reasoning(text: str) -> str:
    """The thought in a text that is read softly, "" where there is none."""
    found = _IN_TEXT.search(text)
    return found[1] if found else ""


def reasoning_messages(
    messages: tuple[Message, ...], reasoning_tags: ReasoningTags | None, language: str
) -> tuple[Message, ...]:
    """The conversation in which the model thinks about its next call."""
    if reasoning_tags is not None:
        return (*messages, reasoning_message(""))
    last = messages[-1]
    asking: Message = {**last, "content": f"{last['content']}\n\n{localized_text(_THINK, language)}"}
    return (*messages[:-1], asking)


def reasoning_text(completion: Completion, reasoning_tags: ReasoningTags | None) -> str:
    """What it thought: one that thinks aloud may have put all of it, or a part, into its reasoning."""
    text = completion.text if reasoning_tags is None else completion.text.removesuffix(reasoning_tags.closing)
    return "\n".join(part for part in (completion.reasoning.strip(), text.strip()) if part)


def call_messages(
    messages: tuple[Message, ...], text: str, reasoning_tags: ReasoningTags | None, language: str
) -> tuple[Message, ...]:
    """The conversation in which it writes the call that it has thought about."""
    if reasoning_tags is not None:
        return (*messages, reasoning_message(text, closed=True))
    if not text:
        return messages
    thinking: Message = {"role": "assistant", "content": text}
    call: Message = {"role": "user", "content": localized_text(_NOW_CALL, language)}
    return (*reasoning_messages(messages, None, language), thinking, call)
