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
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from typing import Any, Generic, TypeVar, assert_never

from gbnf.errors import GbnfError
from gbnf_server.errors import ExecutorError
from gbnf_server.executors import Context, Field, Form, Person
from gbnf_server.planner.effects import AskApproval, AskPerson, CallModel, Effect, ExecuteTool
from gbnf_server.planner.events import Event, Run
from gbnf_server.planner.loop import Planning
from gbnf_server.planner.streaming import (
    Hook,
    RunEnvironment,
    TextStream,
    call_hooks,
    generation_options,
    stream_text,
)

__all__ = ["Hook", "RunEnvironment", "adrive", "astream", "drive"]

_Value = TypeVar("_Value")


def drive(
    planning: Planning, environment: RunEnvironment, *, text: bool = False
) -> Generator[Event, None, Run]:
    """Run to the end, blocking; give each event once its hooks have seen it. Returns the run.

    With `text`, the model's text comes in pieces; it then writes in a thread of its own.
    """
    reply: Any = None
    error: GbnfError | None = None
    hook_errors: list[str] = []
    try:
        while True:
            try:
                request = planning.send(reply) if error is None else planning.throw(error)
            except StopIteration as stop:
                run: Run = stop.value
                return run
            reply = error = None
            if isinstance(request, Event):
                reply = (*hook_errors, *call_hooks(environment.hooks, request))
                hook_errors.clear()
                yield request
                continue
            try:
                if text and isinstance(request, CallModel):
                    reply = yield from stream_text(request, environment, hook_errors)
                else:
                    reply = _perform(request, environment)
            except GbnfError as fault:
                error = fault
    finally:
        planning.close()


async def adrive(planning: Planning, environment: RunEnvironment) -> Run:
    """Run to the end without blocking the event loop; hooks are called in it."""
    finished: list[Run] = []
    async with aclosing(astream(planning, environment, finished=finished)) as events:
        async for _ in events:
            pass
    return finished[0]


async def astream(
    planning: Planning, environment: RunEnvironment, *, text: bool = False, finished: list[Run] | None = None
) -> AsyncGenerator[Event, None]:
    """As `drive`, for an event loop. `finished` gets the run, with what hooks complained of at its end."""
    reply: Any = None
    error: GbnfError | None = None
    hook_errors: list[str] = []
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
                reply = (*hook_errors, *call_hooks(environment.hooks, request))
                hook_errors.clear()
                yield request
                continue
            try:
                if text and isinstance(request, CallModel):
                    writing = TextStream(request, environment, hook_errors)
                    async with aclosing(writing.pieces()) as pieces:
                        async for piece in pieces:
                            yield piece
                    reply = writing.completion
                else:
                    reply = await _aperform(request, environment)
            except GbnfError as fault:
                error = fault
    finally:
        planning.close()


def _perform(effect: Effect, environment: RunEnvironment) -> Any:
    match effect:
        case CallModel():
            return environment.backend.complete(effect.messages, **generation_options(effect))
        case ExecuteTool():
            return _execute_blocking(effect, environment, environment.context)
        case AskPerson():
            return _ask(environment.context, effect)
        case AskApproval():
            return environment.context.person.approve(effect.call)
        case _:
            assert_never(effect)


async def _aperform(effect: Effect, environment: RunEnvironment) -> Any:
    match effect:
        case CallModel():
            return await environment.backend.acomplete(effect.messages, **generation_options(effect))
        case ExecuteTool():
            return await _execute(effect, environment)
        case AskPerson():
            return await _Thread(lambda: _ask(environment.context, effect)).result()
        case AskApproval():
            return await _Thread(lambda: environment.context.person.approve(effect.call)).result()
        case _:
            assert_never(effect)


def _execute_blocking(effect: ExecuteTool, environment: RunEnvironment, context: Context) -> dict[str, Any]:
    """What the tool gave; an error that isn't the tool's own takes back what it had begun to change."""
    try:
        return environment.execute(effect.tool, effect.arguments, context)
    except GbnfError:
        raise
    except BaseException:
        with suppress(GbnfError, OSError):  # the interrupt matters more than a workspace that is gone
            context.journal.recover()
        raise


def _ask(context: Context, effect: AskPerson) -> str:
    field = Field("answer", effect.question, "choice" if effect.options else "text", effect.options)
    return str(context.ask(Form("A question before going on", (field,)))["answer"])


async def _execute(effect: ExecuteTool, environment: RunEnvironment) -> dict[str, Any]:
    person = _CancellablePerson(environment.context.person)
    context = replace(environment.context, person=person)
    thread = _Thread(lambda: _execute_blocking(effect, environment, context))
    try:
        return await thread.result()
    except asyncio.CancelledError:
        person.cancelled = True
        while not (thread.is_done() or person.is_answering):  # noqa: ASYNC110 - the first of two threads' facts
            await asyncio.sleep(0.02)
        raise


class _CancellablePerson:
    """A person whom nobody waits for any more once `cancelled` is set."""

    def __init__(self, person: Person) -> None:
        self._person = person
        self.cancelled = False
        self.is_answering = False

    def answer(self, form: Form) -> dict[str, Any]:
        self.is_answering = True
        try:
            if not self.cancelled:
                answer = self._person.answer(form)
            if self.cancelled:
                raise ExecutorError("the run was cancelled")
            return answer
        finally:
            self.is_answering = False

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
