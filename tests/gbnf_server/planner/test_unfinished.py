"""What a model has written is in the record of a run, also if its answer never ends."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from contextlib import aclosing, suppress
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, cast

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf.tool_formats import ReasoningDelta, TextDelta
from gbnf_server.backends.answer import answer
from gbnf_server.backends.base import BackendEvent, Request
from gbnf_server.executors import Context, Workspace
from gbnf_server.inspect.pages.run_view import view_run
from gbnf_server.planner.drivers import RunEnvironment, adrive, astream, drive
from gbnf_server.planner.events import Event, ModelCalled, Run, RunFinished, TextWritten
from gbnf_server.planner.loop import Planning, plan
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.planner.runs.recording import RecordedCall, RunRecorder
from gbnf_server.planner.runs.run_files import RecordedRun, read_runs
from gbnf_server.system.errors import AnswerTimeoutError, BackendError, ContextOverflowError
from support.backends import FakeBackend
from support.by_hand import ANSWER, NOW, POOL, completion, resolved, ticking
from support.effort import scaled

Piece = TextDelta | ReasoningDelta
PIECES = st.lists(
    st.builds(TextDelta, st.text(min_size=1, max_size=5)) | st.builds(ReasoningDelta, st.just("so ")),
    max_size=6,
)
LAST = TextDelta("the end")


class Unending(FakeBackend):
    """A backend that never completes an answer: after the pieces it does what `ends` does, or hangs."""

    def __init__(self, pieces: Sequence[Piece], ends: Callable[[], Awaitable[None]]) -> None:
        self._pieces, self._ends = pieces, ends

    async def generate(self, _request: Request) -> AsyncGenerator[BackendEvent, None]:
        for piece in self._pieces:
            yield piece
        await self._ends()
        raise AssertionError


async def hang() -> None:
    await asyncio.Event().wait()


def failing(error: BackendError) -> Callable[[], Awaitable[None]]:
    async def fail() -> None:
        raise error

    return fail


class Interrupting:
    """A hook that interrupts the run at the last piece of text."""

    def __call__(self, event: Event) -> None:
        if isinstance(event, TextWritten) and event.text == LAST.text:
            raise KeyboardInterrupt


def recorded(
    backend: FakeBackend,
    runs: Callable[[Planning, RunEnvironment], Run | None],
    hooks: Sequence[Any] = (),
    options: ResolvedOptions | None = None,
    clock: Any = None,
) -> tuple[RecordedRun, list[Event], Run | None]:
    """Run, and return what is in the file of the run, the events, and the run if it has ended."""
    events: list[Event] = []
    with TemporaryDirectory() as folder:
        path, clock = Path(folder, "run.json"), clock or ticking()
        with RunRecorder(path) as recorder:
            answers = recorder.recorded(partial(answer, backend), traces=backend.info().traits.traces)
            context = Context(Workspace(Path(folder)))
            heard = (events.append, recorder.add, *hooks)
            environment = RunEnvironment(answers, context, heard, lambda *_: {"time": "9:30"}, clock)
            planning = plan("go", POOL, options or resolved(), turn="t", clock=clock)
            run = runs(planning, environment)
        [found] = read_runs(path)
    return found, events, run


def blocking(planning: Planning, environment: RunEnvironment, *, text: bool) -> Run:
    events = drive(planning, environment, text=text)
    while True:
        try:
            next(events)
        except StopIteration as stop:
            return cast("Run", stop.value)


def in_loop(planning: Planning, environment: RunEnvironment, *, text: bool) -> Run:
    async def run() -> Run:
        async with aclosing(astream(planning, environment, text=text)) as events:
            *_, end = [event async for event in events]
        assert isinstance(end, RunFinished)
        return end.run

    return asyncio.run(run())


def holds_what_was_written(found: RecordedRun, events: list[Event], pieces: Sequence[Piece]) -> None:
    """Check the event and the call of the model in the record against what was streamed."""
    text = "".join(piece.text for piece in pieces if isinstance(piece, TextDelta))
    reasoning = "".join(piece.text for piece in pieces if isinstance(piece, ReasoningDelta))
    called = [event for event in events if isinstance(event, ModelCalled)]
    [decoding] = found.decodings
    ends: list[ModelCalled | RecordedCall] = [*called, decoding]
    for each in ends:
        assert (each.text, each.reasoning, each.usage.completion_tokens) == (text, reasoning, len(pieces))
    assert [(event.step, event.finish_reason, event.purpose) for event in called] == (
        [(1, "length", "call")] if pieces else []
    )
    assert decoding.error
    assert [event for event in found.events if isinstance(event, ModelCalled)] == called


@settings(max_examples=scaled(40), deadline=None)
@given(PIECES, st.booleans(), st.sampled_from([blocking, in_loop]), st.booleans())
def test_an_error_in_the_middle_of_an_answer(
    pieces: list[Piece], text: bool, driver: Callable[..., Run], is_late: bool
) -> None:
    ticks, failed = ticking(), [False]

    async def fail() -> None:
        failed[0] = True
        raise AnswerTimeoutError("too late") if is_late else BackendError("lost")

    def clock() -> datetime:
        return ticks() + timedelta(seconds=30 * (failed[0] and is_late))

    limit: dict[str, Any] = {"max_seconds": 9.0} if is_late else {}
    found, events, run = recorded(
        Unending(pieces, fail),
        partial(driver, text=text),
        options=resolved(max_steps=1, **limit),
        clock=clock,
    )
    holds_what_was_written(found, events, pieces)
    assert run is not None
    assert (found.run, run.outcome) == (run, "exhausted" if is_late else "failed")
    steps = [(step.number, step.text, step.reasoning, step.call, step.error) for step in run.steps]
    error = "too late" if is_late else "lost"
    called = [event for event in events if isinstance(event, ModelCalled)]
    assert steps == [(1, event.text, event.reasoning, None, error) for event in called]
    assert run.completion_tokens == len(pieces)
    assert isinstance(events[-1], RunFinished)


@settings(max_examples=scaled(40), deadline=None)
@given(PIECES, st.booleans())
def test_a_cancelled_answer(pieces: list[Piece], text: bool) -> None:
    def cancelled(planning: Planning, environment: RunEnvironment) -> None:
        async def cancel() -> None:
            async def run() -> None:
                async with aclosing(astream(planning, environment, text=text)) as events:
                    async for _ in events:
                        pass

            task = asyncio.create_task(run() if text else adrive(planning, environment))
            await hanging.wait()
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

        asyncio.run(cancel())

    hanging = asyncio.Event()

    async def hang_and_tell() -> None:
        hanging.set()
        await hang()

    found, events, _ = recorded(Unending(pieces, hang_and_tell), cancelled)
    holds_what_was_written(found, events, pieces)
    assert (found.run, found.error) == (None, "the run was interrupted")


@pytest.mark.parametrize("way", ["interrupt", "close", "aclose"])
@settings(max_examples=scaled(20), deadline=None)
@given(PIECES)
def test_an_answer_that_is_left_at_a_piece(way: str, before: list[Piece]) -> None:
    def interrupt(planning: Planning, environment: RunEnvironment) -> None:
        with pytest.raises(KeyboardInterrupt):
            blocking(planning, environment, text=True)

    def close(planning: Planning, environment: RunEnvironment) -> None:
        events = drive(planning, environment, text=True)
        next(event for event in events if isinstance(event, TextWritten) and event.text == LAST.text)
        events.close()

    def aclose(planning: Planning, environment: RunEnvironment) -> None:
        async def leave() -> None:
            async with aclosing(astream(planning, environment, text=True)) as events:
                async for event in events:
                    if isinstance(event, TextWritten) and event.text == LAST.text:
                        break

        asyncio.run(leave())

    runs = {"interrupt": interrupt, "close": close, "aclose": aclose}[way]
    hooks = [Interrupting()] if way == "interrupt" else []
    found, events, _ = recorded(Unending([*before, LAST], hang), runs, hooks)
    holds_what_was_written(found, events, [*before, LAST])


class InTurns(FakeBackend):
    """A backend that answers with whole texts, and as others do."""

    def __init__(self, *answers: str | FakeBackend) -> None:
        self._answers = iter(answers)

    async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        following = next(self._answers)
        if isinstance(following, str):
            yield completion(following)
            return
        async with aclosing(following.generate(request)) as events:
            async for event in events:
                yield event


@pytest.mark.parametrize("purpose", ["call", "reasoning"])
def test_the_answers_around_one_that_never_ends_keep_their_places(purpose: str) -> None:
    """Also in what is shown of the record."""
    lost = Unending([TextDelta("par"), TextDelta("tial")], failing(BackendError("lost")))
    first = [NOW] if purpose == "call" else ["think", NOW]
    backend = InTurns(*first, lost, "It is half past nine.")
    options = resolved(salvage=True, reasoning="free" if purpose == "reasoning" else "off")
    found, events, run = recorded(backend, partial(blocking, text=False), options=options)
    assert run is not None
    assert (run.outcome, [step.text for step in run.steps]) == ("salvaged", [NOW, "partial"])
    texts = [*first, "partial", "It is half past nine."]
    called = [event for event in events if isinstance(event, ModelCalled)]
    assert [event.text for event in called] == [each.text for each in found.decodings] == texts
    assert [event.purpose for event in called][-2:] == [purpose, "salvage"]
    entries = [entry for step in view_run(found).steps for entry in step.entries]
    assert [entry.decoding for entry in entries if entry.kind == "model"] == list(range(len(texts)))
    assert [entry.decoding for entry in entries if entry.kind == "failed"] == [len(first)]


def test_an_overflow_in_the_middle_of_an_answer_is_asked_again() -> None:
    lost = Unending([TextDelta("par")], failing(ContextOverflowError(5000, 4096)))
    found, _, run = recorded(InTurns(NOW, NOW, lost, ANSWER), partial(blocking, text=False))
    assert run is not None
    assert (run.outcome, [step.text for step in run.steps]) == ("answered", [NOW, NOW, ANSWER])
    assert [each.text for each in found.decodings] == [NOW, NOW, "par", ANSWER]
