"""Faults on purpose: a backend, a log and tools that fail where a schedule says so, then work again.

A schedule is drawn by Hypothesis. Faults that are part of a run (`LASTING`) stand in the script in place of a
text, so that an uninterrupted run has them, too; those of a schedule interrupt runs.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from typing import Any

import pytest
from hypothesis import strategies as st

from gbnf.tool_formats import TextDelta
from gbnf_server.backends.base import BackendEvent, Completion, Request, Usage
from gbnf_server.planner.runs.run_log import RunLog
from gbnf_server.system.errors import (
    AnswerTimeoutError,
    BackendError,
    BackendUnreachableError,
    ConversationRefusedError,
    MalformedTextError,
    ServerResponseError,
)
from support.backends import FakeBackend

PASSING: tuple[BackendError, ...] = (
    BackendUnreachableError("nobody answers"),
    AnswerTimeoutError("it has not begun to answer"),
    *(ServerResponseError(status, "later") for status in (401, 408, 429, 500, 503)),
)
"""After these the same request may succeed later. No piece of an answer has come before a late one."""
LASTING: tuple[BackendError, ...] = (
    BackendError("the engine has failed"),
    MalformedTextError("half a character"),
    ServerResponseError(400, "no"),
    ConversationRefusedError("roles"),
)
"""These are the end, or a part, of a run."""
HANGS = "hangs"
_SALVAGE = "The request was: "
Fault = BackendError | str | None
Said = str | BackendError


class Killed(BaseException):
    """The process ends here. Nobody may catch it."""


def schedules(faults: Sequence[Fault] = (*PASSING, HANGS)) -> st.SearchStrategy[list[tuple[Fault, int]]]:
    """Return for each of the first answers what happens in it, and after how many of its pieces."""
    one = st.tuples(st.none() | st.none() | st.sampled_from(faults), st.integers(0, 3))
    return st.lists(one, max_size=8)


class Failing(FakeBackend):
    """A backend that says its script's texts, in pieces, or what a schedule has for the next answer.

    `said`: the answers that came to their end, by request. `hanging`: set while an answer hangs. `open`: how
    many answers have begun, and not ended.
    """

    name = "failing"

    def __init__(
        self, texts: Mapping[str, Sequence[Said]], schedule: Iterable[tuple[Fault, int]] = ()
    ) -> None:
        self.begin(texts, schedule)

    def begin(self, texts: Mapping[str, Sequence[Said]], schedule: Iterable[tuple[Fault, int]] = ()) -> None:
        """Begin anew with other texts and another schedule."""
        self._texts, self._schedule = texts, iter(schedule)
        self.said: Counter[tuple[str, int]] = Counter()
        self.hanging: asyncio.Event | None = None
        self.open = 0

    async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        self.open += 1
        try:
            async with aclosing(self._events(request)) as events:
                async for event in events:
                    yield event
        finally:
            self.open -= 1

    async def _events(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        first = next(message["content"] for message in request.messages if message["role"] == "user")
        is_salvage = first.startswith(_SALVAGE)
        query = first.removeprefix(_SALVAGE).split("\n\n")[0]  # what was compacted follows it
        made = sum(message["role"] == "assistant" for message in request.messages)
        texts = self._texts[query]
        text = "It was noted [1]." if is_salvage else texts[min(made, len(texts) - 1)]
        made = -1 if is_salvage else made
        fault, after = next(self._schedule, (None, 0))
        lasting = text if isinstance(text, BackendError) else None
        written = "" if isinstance(text, BackendError) else text
        size = len(written) // 3 + 1
        pieces = [written[start : start + size] for start in range(0, len(written), size)]
        if isinstance(fault, AnswerTimeoutError):
            after = 0
        for number, piece in enumerate(pieces):
            if number == after:
                await self._fail(fault)
            yield TextDelta(piece)
            await asyncio.sleep(0)
        if after >= len(pieces):
            await self._fail(fault)
        if lasting is not None:
            self.said[query, made] += 1
            raise lasting
        self.said[query, made] += 1
        yield Completion(written, "stop", Usage(10, len(pieces)))

    async def _fail(self, fault: Fault) -> None:
        if isinstance(fault, BackendError):
            raise fault
        if fault == HANGS:
            if self.hanging is not None:
                self.hanging.set()
            await asyncio.Event().wait()


@contextmanager
def dying_log(lines: int) -> Iterator[Callable[[], None]]:
    """End the process after so many lines of logs, from then on whatever is logged or checked.

    Gives what raises Killed once the process has ended.
    """
    left = lines
    append = RunLog.append

    def check() -> None:
        if left <= 0:
            raise Killed

    def dying(log: RunLog[Any, Any], value: Any, **options: Any) -> None:
        nonlocal left
        check()
        append(log, value, **options)
        left -= 1
        check()

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RunLog, "append", dying)
        yield check


def lasting_part(value: Mapping[str, Any]) -> Any:
    """Return a run as JSON without times and its turn."""
    changing = {"started_at", "duration_s", "turn", "model_s", "tool_s", "seconds"}
    return json.loads(
        json.dumps(value), object_hook=lambda each: {k: v for k, v in each.items() if k not in changing}
    )
