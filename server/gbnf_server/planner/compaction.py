"""Compaction: how a long history is shown to the model so that it fits the context. Pure.

The history itself is never changed; only its view in a prompt is. Four tiers, each shorter than the last:

    1  the results of old steps are shortened
    2  old steps become lines below the request: a call and its outcome
    3  the results of the last steps are shortened, too
    4  all steps but the last become lines, without arguments

Invariants: the system message, the request and all messages before it are always whole, and the last step is
always a call with its result; each assistant message is followed by its tool message; the number of each step
and the name of its tool stay visible, and the entries that a step reference names are not read from messages;
descriptions of tools that a result added are kept; a compaction makes the prompt shorter; and between two
compactions the view only grows at its end, so that servers reuse their cache: to that end, a compaction
frees half of what the history may take, or a quarter, if possible.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from gbnf.prompts.messages import Message, call_text, error_text, result_text, shorten
from gbnf.tools.tool import localized
from gbnf_server.backends.base import Completion
from gbnf_server.planner.events import Step
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.system.errors import ContextOverflowError

_LAST_TIER = 4

_KEPT_STEPS = 3
"""The last steps, which are not old."""

_RESULT_LIMIT = 400  # characters of a shortened result
_LINE_LIMIT = 250  # characters of the arguments and the outcome in a line

_MESSAGE_BYTES = 12  # around each message, in the chat template
_BYTES_PER_TOKEN = 3.5  # before a prompt is measured
_MOST_BYTES_PER_TOKEN = 8.0  # a server that counts fewer tokens leaves out the cached ones

_LINES = {"en": "Earlier steps, shortened:", "it": "Passi precedenti, abbreviati:"}


@dataclass(frozen=True, slots=True)
class Compaction:
    """How a history is shown: the steps up to `lines` as lines, and the results up to `results` shortened.

    `tier` is the strongest one that was applied, 0 for none.
    """

    tier: int = 0
    lines: int = 0
    results: int = 0

    @property
    def steps(self) -> tuple[int, ...]:
        """The numbers of the steps that are not shown whole."""
        return tuple(range(1, max(self.lines, self.results) + 1))


@dataclass(frozen=True, slots=True)
class PromptMeter:
    """Estimates the tokens of a prompt from its size in bytes and the prompts whose tokens were counted.

    `context_length` in tokens; None if it is not known. `first` and `last`: tokens and bytes of the first and
    the last of those prompts, which show how many bytes of the history make a token.
    """

    context_length: int | None = None
    first: tuple[int, int] = (0, 0)
    last: tuple[int, int] = (0, 0)

    def estimate(self, size: int) -> int:
        """Return the tokens of a prompt of `size` bytes."""
        tokens, bytes_ = (last - first for last, first in zip(self.last, self.first, strict=True))
        if tokens <= 0:
            tokens, bytes_ = self.last
        density = min(max(bytes_ / tokens, 1.0), _MOST_BYTES_PER_TOKEN) if tokens else _BYTES_PER_TOKEN
        return round(self.last[0] + (size - self.last[1]) / density)

    def measured(self, completion: Completion, messages: Sequence[Message]) -> PromptMeter:
        """Return the meter after a prompt that was answered, by a backend that may not count tokens."""
        return self._counted(completion.usage.prompt_tokens, completion.context_length, messages)

    def overflowed(self, error: ContextOverflowError, messages: Sequence[Message]) -> PromptMeter:
        """Return the meter after a prompt that did not fit."""
        least = (error.available or self.context_length or 0) + 1
        tokens = error.needed or max(self.estimate(prompt_size(messages)), least)
        return self._counted(tokens, error.available, messages)

    def _counted(self, tokens: int, length: int | None, messages: Sequence[Message]) -> PromptMeter:
        counted = (tokens, prompt_size(messages)) if tokens else self.last
        first = self.first if any(self.first) else counted
        return PromptMeter(length or self.context_length, first, counted)


def message_size(message: Message) -> int:
    """Return the bytes of a message's texts and calls."""
    called = message.get("tool_calls")
    texts = message["content"] + (json.dumps(called, ensure_ascii=False) if called else "")
    return len(texts.encode("utf-8", "replace"))


def prompt_size(messages: Sequence[Message]) -> int:
    """Return the bytes of a prompt, about."""
    return sum(message_size(message) + _MESSAGE_BYTES for message in messages)


def compacted(
    history: Sequence[Message], steps: Sequence[Step], compaction: Compaction, language: str
) -> tuple[Message, ...]:
    """Return the messages that show a history: the request and what precedes it, and two of each step."""
    if compaction.tier == 0:
        return tuple(history)
    first = len(history) - 2 * len(steps)
    before, pairs = list(history[:first]), history[first:]
    if compaction.lines:
        added = (_added_tools(message) for message in pairs[1 : 2 * compaction.lines : 2])
        lines = [_line(step, bare=compaction.tier == _LAST_TIER) for step in steps[: compaction.lines]]
        below = "\n".join([localized(_LINES, language), *lines, *(text for text in added if text)])
        before[-1] = {**before[-1], "content": f"{before[-1]['content']}\n\n{below}"}
    return (*before, *_shown_pairs(pairs, steps, compaction))


def next_compaction(
    system: Message,
    history: Sequence[Message],
    steps: Sequence[Step],
    current: Compaction,
    meter: PromptMeter,
    options: ResolvedOptions,
    *,
    overflowed: bool = False,
) -> tuple[Compaction, int, int] | None:
    """Return the weakest compaction that frees enough tokens, else the one that frees the most.

    With the tokens of the prompt before and after it, estimated. None if the prompt is short enough now, or
    if none makes it shorter. `overflowed`: it is known to be too long.
    """

    def size(compaction: Compaction) -> int:
        return prompt_size([system, *compacted(history, steps, compaction, options.language)])

    now = size(current)
    most = _most_tokens(meter, options)
    if not overflowed and (most is None or meter.estimate(now) <= most):
        return None
    sizes = {candidate: size(candidate) for candidate in _candidates(current, len(steps))}
    shorter = [candidate for candidate in sizes if sizes[candidate] < now]
    if not shorter:
        return None
    chosen = shorter[0]
    if most is not None:
        fixed = meter.estimate(prompt_size([system, *history[: len(history) - 2 * len(steps)]]))
        room = max(most - fixed, 0)
        enough = (
            candidate
            for freed in (room // 2, room // 4, 0)
            for candidate in shorter
            if meter.estimate(sizes[candidate]) <= most - freed
        )
        chosen = next(enough, min(shorter, key=lambda candidate: sizes[candidate]))
    return chosen, meter.estimate(now), meter.estimate(sizes[chosen])


def _most_tokens(meter: PromptMeter, options: ResolvedOptions) -> int | None:
    """Return the tokens that a prompt may have, None if the context is not known.

    The rest, up to a quarter of the context, is for the answer.
    """
    if meter.context_length is None:
        return None
    answer = options.max_tokens + (options.reasoning_budget if options.reasoning == "free" else 0)
    return meter.context_length - min(answer, meter.context_length // 4)


def _candidates(current: Compaction, steps: int) -> Iterator[Compaction]:
    """Yield the compactions that show less than the current one, the weakest first."""
    old = max(steps - _KEPT_STEPS, 0)
    for tier, lines, results in ((1, 0, old), (2, old, old), (3, old, steps), (4, steps - 1, steps)):
        if tier >= current.tier:
            yield Compaction(tier, max(lines, current.lines), max(results, current.results))


def _shown_pairs(
    pairs: Sequence[Message], steps: Sequence[Step], compaction: Compaction
) -> Iterator[Message]:
    """Yield calls and outcomes of the steps that are not lines; older outcomes are shortened."""
    for index, step in enumerate(steps[compaction.lines :], compaction.lines):
        call, outcome = pairs[2 * index : 2 * index + 2]
        yield call
        if step.number > compaction.results:
            yield outcome
            continue
        if step.result is None:
            text = error_text(step.number, step.error or "", limit=_RESULT_LIMIT)
        else:
            text = result_text(step.number, step.result, limit=_RESULT_LIMIT, keep_ends=True)
        added = _added_tools(outcome)
        shown: Message = {**outcome, "content": f"{text}\n\n{added}" if added else text}
        yield min(outcome, shown, key=lambda message: len(message["content"]))


def _added_tools(outcome: Message) -> str:
    """Return the descriptions of tools below the JSON line of a tool message, "" if there are none."""
    return outcome["content"].partition("\n\n")[2]


def _line(step: Step, *, bare: bool) -> str:
    """Return a step on one line of JSON: its number, its call, and its outcome. `bare`: without arguments."""
    line: dict[str, Any] = {"step": step.number}
    line |= {} if step.call is None else {"call": step.name}
    outcome: dict[str, Any] = {"error": step.error} if step.result is None else {"result": step.result}
    if bare and step.result is not None:
        return call_text(line | {key: len(value) for key, value in step.result.items() if key == "entries"})
    arguments = {} if bare or step.call is None else {"arguments": step.call["arguments"]}
    shown, left_out = shorten(arguments | outcome, limit=_LINE_LIMIT, keep_ends=True)
    return call_text(line | shown | ({"left_out": left_out} if left_out else {}))
