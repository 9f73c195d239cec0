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
from typing import Any, Literal, TypeAlias

from gbnf.languages import chosen
from gbnf.prompt import Message
from gbnf_server.backends.base import Completion
from gbnf_server.backends.thinking import Markers, begun

Reasoning: TypeAlias = Literal["off", "field", "free"]

THOUGHT = "thought"
"""The property's name."""

THOUGHT_LENGTH = 300
"""Characters of a thought in a field, at most."""

LEFT_OUT = f"left out {THOUGHT!r} beside the arguments"
"""What reading softly says of a thought."""

_HEAD = 'root ::= "{\\"name\\":"'
_THOUGHTFUL = f'root ::= "{{\\"{THOUGHT}\\":" thought-space thought-text "," thought-space "\\"name\\":"'
_RULES = (
    f'thought-space ::= " "?\nthought-text ::= "\\"" [^"\\\\\\x00-\\x1F\\x7F]{{1,{THOUGHT_LENGTH}}} "\\""\n'
)
_IN_TEXT = re.compile(rf'"{THOUGHT}"\s*:\s*"((?:[^"\\]|\\.)*)"')

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


def thoughtful_grammar(gbnf: str) -> str:
    """A pool's grammar in which each call begins with a thought."""
    assert gbnf.startswith(_HEAD), "a pool's grammar begins with its calls' first key"
    return f"{_THOUGHTFUL}{gbnf.removeprefix(_HEAD)}{_RULES}"


def thoughtful_schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    """A pool's JSON Schema, likewise."""
    if "anyOf" in schema:
        return {**schema, "anyOf": [thoughtful_schema(branch) for branch in schema["anyOf"]]}
    thought = {"type": "string", "minLength": 1, "maxLength": THOUGHT_LENGTH}
    return {
        **schema,
        "properties": {THOUGHT: thought, **schema["properties"]},
        "required": [THOUGHT, *schema["required"]],
    }


def take_thought(call: Any) -> tuple[str, Any]:
    """Part a call from its thought; "" where it has none that is a text."""
    if isinstance(call, dict) and isinstance(call.get(THOUGHT), str):
        return call[THOUGHT], {key: value for key, value in call.items() if key != THOUGHT}
    return "", call


def thought_in(text: str) -> str:
    """The thought in a text that is read softly, "" where there is none."""
    found = _IN_TEXT.search(text)
    return found[1] if found else ""


def to_think(messages: tuple[Message, ...], markers: Markers | None, language: str) -> tuple[Message, ...]:
    """The conversation in which the model thinks about its next call."""
    if markers is not None:
        return (*messages, begun(""))
    last = messages[-1]
    asking: Message = {**last, "content": f"{last['content']}\n\n{chosen(_THINK, language)}"}
    return (*messages[:-1], asking)


def thoughts_of(completion: Completion, markers: Markers | None) -> str:
    """What it thought: one that thinks aloud may have put all of it, or a part, into its reasoning."""
    text = completion.text if markers is None else completion.text.removesuffix(markers.closing)
    return "\n".join(part for part in (completion.reasoning.strip(), text.strip()) if part)


def to_call(
    messages: tuple[Message, ...], thoughts: str, markers: Markers | None, language: str
) -> tuple[Message, ...]:
    """The conversation in which it writes the call that it has thought about."""
    if markers is not None:
        return (*messages, begun(thoughts, closed=True))
    if not thoughts:
        return messages
    thought: Message = {"role": "assistant", "content": thoughts}
    call: Message = {"role": "user", "content": chosen(_NOW_CALL, language)}
    return (*to_think(messages, None, language), thought, call)
