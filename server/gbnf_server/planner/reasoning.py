"""Reasoning before a call: in a field of the call, or as free text before the constrained call. Pure.

field   the call begins with a bounded string (`gbnf.protocols.call_protocols`)
free    two model calls: unconstrained reasoning, up to a limit of tokens, then the constrained call. A
        backend that renders the prompt itself puts the reasoning between the reasoning tags of its chat
        template; with other backends it is a message of plain text

Free reasoning takes two model calls rather than one grammar for both, so that endless reasoning is ended by
its own limit, and the call still has all of its tokens.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

from gbnf.prompts.messages import Message
from gbnf.tools.tool import localized_text
from gbnf_server.backends.base import Completion
from gbnf_server.backends.reasoning import ReasoningTags, reasoning_message

ReasoningMode: TypeAlias = Literal["off", "field", "free"]

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
