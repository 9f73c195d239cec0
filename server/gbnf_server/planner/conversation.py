"""A conversation: earlier requests, as messages before the present one.

Invariants: an exchange is shown whole or not at all, and none is shown without those after it; no result of
an earlier run has a step number, so that no call of this run can refer to it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from gbnf.prompts.messages import Message, call_text, result_text
from gbnf.tools import FINAL_ANSWER
from gbnf_server.planner.compaction import message_size
from gbnf_server.planner.events import Run
from gbnf_server.planner.options import ResolvedOptions

_RESULT_LIMIT = 500  # characters of an earlier result in a message
_EARLIER = 90_000  # the numbers of calls of earlier runs, which no step of this run has
_UNANSWERED = "(no answer)"


@dataclass(frozen=True, slots=True)
class Exchange:
    """One earlier request: the calls that succeeded, each with its result, and the answer."""

    query: str
    answer: str
    calls: tuple[tuple[Mapping[str, Any], Mapping[str, Any]], ...] = ()

    @classmethod
    def of(cls, run: Run) -> Self:
        """Return the exchange of a finished run. If it has no answer, its error stands for one."""
        done = tuple(
            (step.call, step.result)
            for step in run.steps
            if step.call is not None and step.result is not None
        )
        return cls(run.query, run.answer or run.error or _UNANSWERED, done)


def earlier_messages(
    history: Sequence[Exchange], options: ResolvedOptions, limit: int
) -> tuple[Message, ...]:
    """Return the messages of the last exchanges that have at most `limit` characters together."""
    shown: list[Message] = []
    for exchange in reversed(history):
        messages = _messages(exchange, options)
        limit -= sum(map(message_size, messages))
        if limit < 0:
            break
        shown[:0] = messages
    return tuple(shown)


def _messages(exchange: Exchange, options: ResolvedOptions) -> list[Message]:
    messages: list[Message] = [{"role": "user", "content": exchange.query}]
    for number, (call, result) in enumerate(exchange.calls, _EARLIER):
        shown = json.loads(result_text(0, result, limit=_RESULT_LIMIT))
        del shown["step"]
        messages.append(options.protocol.call_message(call, number))
        messages.append(options.protocol.outcome_message(call_text(shown), call["name"], number))
    answer = {"name": FINAL_ANSWER.name, "arguments": {"message": exchange.answer}}
    messages.append(options.protocol.call_message(answer, _EARLIER + len(exchange.calls)))
    return messages
