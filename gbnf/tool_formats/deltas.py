"""What a stream of an answer in a tool-call format consists of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias


@dataclass(frozen=True, slots=True)
class TextDelta:
    """The next piece of the answer's text, which is not empty."""

    text: str


@dataclass(frozen=True, slots=True)
class ReasoningDelta:
    """The next piece of the reasoning, which is not empty."""

    text: str


@dataclass(frozen=True, slots=True)
class CallStarted:
    """The name of a call is complete. `index` counts the calls of the answer from 0.

    `id` is the one in the text, or `call_1`, `call_2`, …. The name is the model's; it may be unknown.
    """

    index: int
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class ArgumentsDelta:
    """The next piece of a call's arguments: those of one call join to the text of a JSON object."""

    index: int
    json_text: str


@dataclass(frozen=True, slots=True)
class CallEnded:
    """A call is complete. A call without this delta is truncated."""

    index: int


Delta: TypeAlias = TextDelta | ReasoningDelta | CallStarted | ArgumentsDelta | CallEnded
"""One step of an answer. Calls come one after another; text may come before, between and after them."""


def call_deltas(index: int, id: str, name: str, json_text: str, *, ended: bool = True) -> list[Delta]:  # noqa: A002  # the word of the formats
    """Return the deltas of a call that is read as a whole."""
    deltas: list[Delta] = [CallStarted(index, id, name), ArgumentsDelta(index, json_text)]
    return [*deltas, CallEnded(index)] if ended else deltas
