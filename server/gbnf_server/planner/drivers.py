"""The two ways to run the planner loop: blocking, and in asyncio. Neither knows a rule of planning.

A driver performs the loop's effects on a backend and a context, and shows its events to hooks; what a hook
raises goes back into the loop, which makes a warning of it. An error below `GbnfError` is thrown into the
loop. Every other exception, a keyboard interrupt and a cancellation among them, closes the loop and passes
on, and leaves nothing half done:

- blocking: the tool is killed, and the change that it was in the middle of is rolled back;
- asyncio: a tool that works is waited for, for as long as its manifest allows, so that its call is whole and
  can be undone; a tool that waits for a person is left to itself, and whatever answer comes is refused.
"""

from __future__ import annotations

import asyncio
import queue
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any, Generic, TypeAlias, TypeVar, assert_never

from gbnf.errors import GbnfError
from gbnf.manifests import Executor
from gbnf_server.backends.base import Backend, Completion
from gbnf_server.errors import ExecutorError
from gbnf_server.executors import Context, Field, Form, Person, run_executor
from gbnf_server.planner.effects import Approve, AskPerson, CallModel, Effect, Execute
from gbnf_server.planner.events import Event, Run, TextWritten
from gbnf_server.planner.loop import Clock, Planning
from gbnf_server.planner.partial import PartialAnswer

Hook: TypeAlias = Callable[[Event], object]
_Value = TypeVar("_Value")


@dataclass(frozen=True, slots=True)
class World:
    """Where effects take place, and who watches. `execute` runs a tool; it may be called in any thread.

    `clock` is the run's, for events that the loop does not see: the model's text as it is written.
    """

    backend: Backend
    context: Context
    hooks: Sequence[Hook] = ()
    execute: Callable[[Executor, Mapping[str, Any], Context], dict[str, Any]] = run_executor
    clock: Clock = lambda: datetime.now(UTC)


def drive(planning: Planning, world: World, *, text: bool = False) -> Generator[Event, None, Run]:
    """Run to the end, blocking; give each event once its hooks have seen it. Returns the run.

    With `text`, the model's text comes in pieces; it then writes in a thread of its own.
    """
    reply: Any = None
    error: GbnfError | None = None
    complaints: list[str] = []
    try:
        while True:
            try:
                request = planning.send(reply) if error is None else planning.throw(error)
            except StopIteration as stop:
                run: Run = stop.value
                return run
            reply = error = None
            if isinstance(request, Event):
                reply = (*complaints, *_show(world.hooks, request))
                complaints.clear()
                yield request
                continue
            try:
                if text and isinstance(request, CallModel):
                    reply = yield from _written(request, world, complaints)
                else:
                    reply = _perform(request, world)
            except GbnfError as fault:
                error = fault
    finally:
        planning.close()


async def adrive(planning: Planning, world: World) -> Run:
    """Run to the end without blocking the event loop; hooks are called in it."""
    finished: list[Run] = []
    async with aclosing(astream(planning, world, finished=finished)) as events:
        async for _ in events:
            pass
    return finished[0]


async def astream(
    planning: Planning, world: World, *, text: bool = False, finished: list[Run] | None = None
) -> AsyncGenerator[Event, None]:
    """As `drive`, for an event loop. `finished` gets the run, with what hooks complained of at its end."""
    reply: Any = None
    error: GbnfError | None = None
    complaints: list[str] = []
    try:
        while True:
            try:
                request = planning.send(reply) if error is None else planning.throw(error)
            except StopIteration as stop:
                if finished is not None:
                    finished.append(stop.value)
                return
            reply = error = None
            if isinstance(request, Event):
                reply = (*complaints, *_show(world.hooks, request))
                complaints.clear()
                yield request
                continue
            try:
                if text and isinstance(request, CallModel):
                    written = _Written(request, world, complaints)
                    async with aclosing(written.pieces()) as pieces:
                        async for piece in pieces:
                            yield piece
                    reply = written.completion
                else:
                    reply = await _aperform(request, world)
            except GbnfError as fault:
                error = fault
    finally:
        planning.close()


def _show(hooks: Sequence[Hook], event: Event) -> tuple[str, ...]:
    """Let every hook see the event; what those that raised have to say."""
    complaints = []
    for hook in hooks:
        try:
            hook(event)
        except Exception as error:  # noqa: BLE001 - a watcher's fault, whatever it is, is no reason to stop
            name = getattr(hook, "__qualname__", type(hook).__qualname__)
            complaints.append(f"the hook {name} raised {type(error).__name__}: {error}")
    return tuple(complaints)


def _perform(effect: Effect, world: World) -> Any:
    match effect:
        case CallModel():
            return world.backend.complete(effect.messages, **_limits(effect))
        case Execute():
            try:
                return world.execute(effect.executor, effect.arguments, world.context)
            except GbnfError:
                raise
            except BaseException:
                with suppress(GbnfError, OSError):  # the interrupt matters more than a workspace that is gone
                    world.context.workspace.journal.recover()
                raise
        case AskPerson():
            return _ask(world.context, effect)
        case Approve():
            return world.context.person.approve(effect.call)
        case _:
            assert_never(effect)


async def _aperform(effect: Effect, world: World) -> Any:
    match effect:
        case CallModel():
            return await world.backend.acomplete(effect.messages, **_limits(effect))
        case Execute():
            return await _execute(effect, world)
        case AskPerson():
            return await _Thread(lambda: _ask(world.context, effect)).result()
        case Approve():
            return await _Thread(lambda: world.context.person.approve(effect.call)).result()
        case _:
            assert_never(effect)


def _written(effect: CallModel, world: World, complaints: list[str]) -> Generator[Event, None, Completion]:
    """Let the model write in a thread, and give each piece of its text; leaving early ends its call."""
    pieces: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    done: list[Completion] = []
    faults: list[BaseException] = []
    left = threading.Event()

    def heard(piece: str) -> None:
        if left.is_set():
            raise _LeftAloneError
        pieces.put(piece)

    def write() -> None:
        try:
            done.append(world.backend.complete(effect.messages, **_limits(effect), on_text=heard))
        except BaseException as fault:  # noqa: BLE001 - it is raised again where the text is awaited
            faults.append(fault)
        finally:
            pieces.put(None)

    partial = PartialAnswer(effect.purpose)
    threading.Thread(target=write, daemon=True).start()
    try:
        while (piece := pieces.get()) is not None:
            yield _piece(effect, world, partial, piece, complaints)
    finally:
        left.set()
    if faults:
        raise faults[0]
    return done[0]


class _LeftAloneError(Exception):
    """Nobody listens any more: the model need not go on."""


class _Written:
    """As `_written`, for an event loop: `completion` is there when `pieces` has ended."""

    def __init__(self, effect: CallModel, world: World, complaints: list[str]) -> None:
        self._effect, self._world, self._complaints = effect, world, complaints
        self.completion: Completion

    async def pieces(self) -> AsyncGenerator[Event, None]:
        effect, world = self._effect, self._world
        loop = asyncio.get_running_loop()
        pieces: asyncio.Queue[str | None] = asyncio.Queue()

        def heard(piece: str) -> None:  # perhaps in another thread
            loop.call_soon_threadsafe(pieces.put_nowait, piece)

        task = asyncio.ensure_future(
            world.backend.acomplete(effect.messages, **_limits(effect), on_text=heard)
        )
        task.add_done_callback(lambda _: pieces.put_nowait(None))
        partial = PartialAnswer(effect.purpose)
        try:
            while (piece := await pieces.get()) is not None:
                yield _piece(effect, world, partial, piece, self._complaints)
            self.completion = task.result()
        finally:
            task.cancel()


def _piece(
    effect: CallModel, world: World, partial: PartialAnswer, piece: str, complaints: list[str]
) -> Event:
    event = TextWritten(world.clock(), effect.step, effect.purpose, piece, partial.feed(piece))
    complaints += _show(world.hooks, event)
    return event


def _limits(effect: CallModel) -> dict[str, Any]:
    return {
        "grammar": effect.grammar,
        "max_tokens": effect.max_tokens,
        "temperature": effect.temperature,
        "seed": effect.seed,
    }


def _ask(context: Context, effect: AskPerson) -> str:
    field = Field("answer", effect.question, "choice" if effect.options else "text", effect.options)
    return str(context.ask(Form("A question before going on", (field,)))["answer"])


async def _execute(effect: Execute, world: World) -> dict[str, Any]:
    person = _Leaving(world.context.person)
    context = replace(world.context, person=person)
    thread = _Thread(lambda: world.execute(effect.executor, effect.arguments, context))
    try:
        return await thread.result()
    except asyncio.CancelledError:
        person.left = True
        while not (thread.is_done() or person.is_thinking):  # noqa: ASYNC110 - the first of two threads' facts
            await asyncio.sleep(0.02)
        raise


class _Leaving:
    """A person whom nobody waits for any more once `left` is set."""

    def __init__(self, person: Person) -> None:
        self._person = person
        self.left = False
        self.is_thinking = False

    def answer(self, form: Form) -> dict[str, Any]:
        self.is_thinking = True
        try:
            if not self.left:
                answer = self._person.answer(form)
            if self.left:
                raise ExecutorError("the run was cancelled")
            return answer
        finally:
            self.is_thinking = False

    def approve(self, call: Mapping[str, Any]) -> bool:
        return self._person.approve(call)


class _Thread(Generic[_Value]):
    """Blocking work in a thread that keeps no process alive: it may be waiting at a terminal for ever."""

    def __init__(self, work: Callable[[], _Value]) -> None:
        self._loop = asyncio.get_running_loop()
        self._future: asyncio.Future[_Value] = self._loop.create_future()
        self._work = work
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def is_done(self) -> bool:
        return not self._thread.is_alive()

    async def result(self) -> _Value:
        return await self._future

    def _run(self) -> None:
        try:
            value = self._work()
        except BaseException as error:  # noqa: BLE001 - it is raised again where the result is awaited
            self._deliver(self._future.set_exception, error)
        else:
            self._deliver(self._future.set_result, value)

    def _deliver(self, setter: Callable[[Any], None], value: object) -> None:
        def deliver() -> None:
            if not self._future.done():
                setter(value)

        with suppress(RuntimeError):  # the event loop is closed: nobody waits
            self._loop.call_soon_threadsafe(deliver)
