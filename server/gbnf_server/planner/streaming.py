"""Where a run takes place, and a model's text in it that comes piece by piece, blocking and in asyncio."""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, TypeAlias

from gbnf.tools import Tool
from gbnf_server.backends.base import Completer, Completion
from gbnf_server.executors import Context, run_executor
from gbnf_server.planner.effects import CallModel
from gbnf_server.planner.events import Event, TextWritten
from gbnf_server.planner.loop import Clock
from gbnf_server.planner.partial_answer import PartialAnswer

Hook: TypeAlias = Callable[[Event], object]


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """Where effects take place, and who watches. `execute` runs a tool; it may be called in any thread.

    `clock` is the run's, for events that the loop does not see: the model's text as it is written.
    """

    backend: Completer
    context: Context
    hooks: Sequence[Hook] = ()
    execute: Callable[[Tool, Mapping[str, Any], Context], dict[str, Any]] = run_executor
    clock: Clock = lambda: datetime.now(UTC)


def call_hooks(hooks: Sequence[Hook], event: Event) -> tuple[str, ...]:
    """Let every hook see the event; what those that raised have to say."""
    hook_errors = []
    for hook in hooks:
        try:
            hook(event)
        except Exception as error:  # noqa: BLE001 - a watcher's fault, whatever it is, is no reason to stop
            name = getattr(hook, "__qualname__", type(hook).__qualname__)
            hook_errors.append(f"the hook {name} raised {type(error).__name__}: {error}")
    return tuple(hook_errors)


def stream_text(
    effect: CallModel, environment: RunEnvironment, hook_errors: list[str]
) -> Generator[Event, None, Completion]:
    """Let the model write in a thread, and give each piece of its text; leaving early ends its call."""
    pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    done: list[Completion] = []
    faults: list[BaseException] = []
    left = threading.Event()

    def on_piece(piece: str) -> None:
        if left.is_set():
            raise _StreamClosedError
        pieces.put(piece)

    def write() -> None:
        try:
            done.append(
                environment.backend.complete(effect.messages, **generation_options(effect), on_text=on_piece)
            )
        except BaseException as fault:  # noqa: BLE001 - it is raised again where the text is awaited
            faults.append(fault)
        finally:
            pieces.put(None)

    partial = PartialAnswer(effect.purpose)
    threading.Thread(target=write, daemon=True).start()
    try:
        while (piece := pieces.get()) is not None:
            yield _piece(effect, environment, partial, piece, hook_errors)
    finally:
        left.set()
    if faults:
        raise faults[0]
    return done[0]


class _StreamClosedError(Exception):
    """Nobody listens any more: the model need not go on."""


class TextStream:
    """As `stream_text`, for an event loop: `completion` is there when `pieces` has ended."""

    def __init__(self, effect: CallModel, environment: RunEnvironment, hook_errors: list[str]) -> None:
        self._effect, self._world, self._complaints = effect, environment, hook_errors
        self.completion: Completion

    async def pieces(self) -> AsyncGenerator[Event, None]:
        effect, environment = self._effect, self._world
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[str | None] = asyncio.Queue()

        def on_piece(piece: str) -> None:  # perhaps in another thread
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

        task = asyncio.ensure_future(
            environment.backend.acomplete(effect.messages, **generation_options(effect), on_text=on_piece)
        )
        task.add_done_callback(lambda _: pieces.put_nowait(None))
        partial = PartialAnswer(effect.purpose)
        try:
            while (piece := await pieces.get()) is not None:
                yield _piece(effect, environment, partial, piece, self._complaints)
            self.completion = task.result()
        finally:
            task.cancel()


def _piece(
    effect: CallModel, environment: RunEnvironment, partial: PartialAnswer, piece: str, hook_errors: list[str]
) -> Event:
    event = TextWritten(environment.clock(), effect.step, effect.purpose, piece, partial.feed(piece))
    hook_errors += call_hooks(environment.hooks, event)
    return event


def generation_options(effect: CallModel) -> dict[str, Any]:
    return {
        "grammar": effect.grammar,
        "max_tokens": effect.max_tokens,
        "temperature": effect.temperature,
        "seed": effect.seed,
    }
