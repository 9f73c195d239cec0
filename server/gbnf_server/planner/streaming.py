"""The environment of a run, and streaming of the model's text in it, blocking and in asyncio."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from gbnf.tools import Tool
from gbnf_server.backends.base import Cancellation, Completer, Completion, Request
from gbnf_server.executors import Context, run_executor
from gbnf_server.planner.effects import CallModel
from gbnf_server.planner.events import Event, TextWritten
from gbnf_server.planner.loop import Clock
from gbnf_server.planner.partial_answer import PartialAnswer

Hook: TypeAlias = Callable[[Event], object]


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """Where effects are performed, and the hooks. `execute` runs a tool; it may be called in any thread.

    `clock` is the run's clock, for `TextWritten`, the event that is not the loop's.
    """

    backend: Completer
    context: Context
    hooks: Sequence[Hook] = ()
    execute: Callable[[Tool, Mapping[str, Any], Context], dict[str, Any]] = run_executor
    clock: Clock = lambda: datetime.now(UTC)


def call_hooks(hooks: Sequence[Hook], event: Event) -> tuple[str, ...]:
    """Call every hook with the event, and return the messages of their exceptions."""
    hook_errors = []
    for hook in hooks:
        try:
            hook(event)
        except Exception as error:  # noqa: BLE001 - no exception of a hook ends the run
            name = getattr(hook, "__qualname__", type(hook).__qualname__)
            hook_errors.append(f"the hook {name} raised {type(error).__name__}: {error}")
    return tuple(hook_errors)


def stream_text(
    effect: CallModel, environment: RunEnvironment, hook_errors: list[str]
) -> Generator[Event, None, Completion]:
    """Call the model in a thread, and yield each piece of its text; closing ends the call."""
    pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    done: list[Completion] = []
    faults: list[BaseException] = []
    cancellation, is_closed = Cancellation(), threading.Event()  # a time-out cancels, too

    def on_piece(piece: str) -> None:
        if is_closed.is_set():
            raise _StreamClosedError
        pieces.put(piece)

    def write() -> None:
        try:
            done.append(environment.backend.generate(request_of(effect, on_piece, cancellation)))
        except BaseException as fault:  # noqa: BLE001 - it is raised again where the text is awaited
            faults.append(fault)
        finally:
            pieces.put(None)

    partial = PartialAnswer(effect.purpose, effect.answer_format, reasoning=effect.reasoning)
    threading.Thread(target=write, daemon=True).start()
    try:
        while (piece := pieces.get()) is not None:
            yield _piece(effect, environment, partial, piece, hook_errors)
    finally:
        is_closed.set()
        cancellation.set()
    if faults:
        raise faults[0]
    return done[0]


class _StreamClosedError(Exception):
    """The stream was closed: the model may stop."""


class TextStream:
    """As `stream_text`, for an event loop: `completion` is set when `pieces` has ended."""

    def __init__(self, effect: CallModel, environment: RunEnvironment, hook_errors: list[str]) -> None:
        self._effect, self._environment, self._hook_errors = effect, environment, hook_errors
        self.completion: Completion

    async def pieces(self) -> AsyncGenerator[Event, None]:
        """Yield each piece of the text as an event."""
        effect, environment = self._effect, self._environment
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[str | None] = asyncio.Queue()

        def on_piece(piece: str) -> None:  # perhaps in another thread
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

        task = asyncio.ensure_future(environment.backend.agenerate(request_of(effect, on_piece)))
        task.add_done_callback(lambda _: pieces.put_nowait(None))
        partial = PartialAnswer(effect.purpose, effect.answer_format, reasoning=effect.reasoning)
        try:
            while (piece := await pieces.get()) is not None:
                yield _piece(effect, environment, partial, piece, self._hook_errors)
            self.completion = task.result()
        finally:
            task.cancel()
            await asyncio.wait([task])


def _piece(
    effect: CallModel, environment: RunEnvironment, partial: PartialAnswer, piece: str, hook_errors: list[str]
) -> Event:
    event = TextWritten(environment.clock(), effect.step, effect.purpose, piece, partial.feed(piece))
    hook_errors += call_hooks(environment.hooks, event)
    return event


def request_of(
    effect: CallModel,
    on_text: Callable[[str], None] | None = None,
    cancellation: Cancellation | None = None,
) -> Request:
    """Return the request of an effect."""
    return Request(
        effect.messages,
        effect.grammar,
        tools=effect.tools,
        reasoning=effect.reasoning,
        max_tokens=effect.max_tokens,
        temperature=effect.temperature,
        seed=effect.seed,
        timeout_s=effect.timeout_s,
        on_text=on_text,
        cancellation=cancellation,
    )
