"""The drivers of the planner loop: blocking, and in asyncio. They contain no planning logic.

A driver performs the loop's effects on a backend and a context, and calls the hooks for its events; an
exception of a hook goes back into the loop, which turns it into a warning. A `GbnfError` is thrown into the
loop. Every other exception, including a keyboard interrupt and a cancellation, closes the loop and
propagates, and leaves no call half done:

- blocking: the tool is killed, and its incomplete change is rolled back;
- asyncio: the driver waits for a running tool, for as long as its manifest allows, so that its call is
  complete and can be undone; it does not wait for a tool that waits for a person, whose answer is then
  rejected.
"""

from __future__ import annotations

import asyncio
import time
from asyncio import wrap_future
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping, Sequence
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import partial
from typing import Any, TypeAlias, TypeVar, assert_never

from gbnf.errors import GbnfError, PoolError
from gbnf.protocols.readers import Unread
from gbnf.tool_formats import TextDelta
from gbnf.tools import Tool
from gbnf_server.backends.answer import Answered, AnswerEvent, AnswerSource, Asked
from gbnf_server.backends.base import Request
from gbnf_server.executors import Context, Field, Form, Person, run_executor
from gbnf_server.planner.events import (
    AskApproval,
    AskPerson,
    CallModel,
    Effect,
    Event,
    ExecuteTool,
    Run,
    RunFinished,
    TextWritten,
)
from gbnf_server.planner.loop import Planning, plan
from gbnf_server.planner.model_calls import Clock
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.system.errors import AnswerTimeoutError, BackendError, ExecutorError
from gbnf_server.system.event_loop import run_in_thread, shared_loop

_Asked = TypeVar("_Asked")
_Value = TypeVar("_Value")

Hook: TypeAlias = Callable[[Event], object]


def steady_clock(start: datetime) -> Clock:
    """Return a clock that begins at `start` and is independent of changes to the system clock."""
    origin = time.perf_counter()
    return lambda: start + timedelta(seconds=time.perf_counter() - origin)


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """Where effects are performed, and the hooks.

    `answers` asks the model; `execute` runs a tool, and may be called in any thread. `clock` is the run's
    clock, for `TextWritten`, the event that is not the loop's. `resumes`: an error of the backend after which
    the same request may succeed later is raised, since the run is repeated or resumed; otherwise it ends the
    run.
    """

    answers: AnswerSource
    context: Context
    hooks: Sequence[Hook] = ()
    execute: Callable[[Tool, Mapping[str, Any], Context], dict[str, Any]] = run_executor
    clock: Clock = lambda: datetime.now(UTC)
    resumes: bool = False

    def call_hooks(self, event: Event) -> tuple[str, ...]:
        """Call every hook with the event, and return the messages of their exceptions."""
        hook_errors = []
        for hook in self.hooks:
            try:
                hook(event)
            except Exception as error:  # noqa: BLE001  # no exception of a hook ends the run
                name = getattr(hook, "__qualname__", type(hook).__qualname__)
                hook_errors.append(f"the hook {name} raised {type(error).__name__}: {error}")
        return tuple(hook_errors)


def first_request(query: str, tools: tuple[Tool, ...], options: ResolvedOptions) -> Request:
    """Return what the first step of a run asks of the model. Raises PoolError if no tool can be offered."""
    planning = plan(query, tools, options, turn="", clock=lambda: datetime.now(UTC))
    with closing(planning):
        for effect in planning:
            if isinstance(effect, CallModel):
                return effect.request
            if isinstance(effect, RunFinished) and effect.run.error:
                raise PoolError(effect.run.error)
    raise PoolError("no tool can be offered.")


@dataclass(slots=True)
class _Driving:
    """A run in progress. `reply` or `error`: of its last request; `run`: once it has ended.

    `text`: whether the model's text is streamed.
    """

    planning: Planning
    environment: RunEnvironment
    text: bool
    reply: Any = None
    error: GbnfError | None = None
    run: Run | None = None
    _hook_errors: list[str] = field(default_factory=list)

    def advance(self) -> Effect | Event | None:
        """Return the next effect, or the next event after its hooks; None at the end."""
        reply, error, self.reply, self.error = self.reply, self.error, None, None
        try:
            request = self.planning.send(reply) if error is None else self.planning.throw(error)
        except StopIteration as stop:
            self.run = stop.value
            return None
        if isinstance(request, Event):
            self.reply = (*self._hook_errors, *self.environment.call_hooks(request))
            self._hook_errors.clear()
        return request

    def answers(self, effect: CallModel) -> AsyncGenerator[AnswerEvent, None]:
        """Ask the model. What is not streamed is not read here: the loop reads the whole text."""
        return self.environment.answers(Asked(effect.request, effect.reader if self.text else Unread))

    def hear(self, effect: CallModel, event: AnswerEvent) -> Iterator[TextWritten]:
        """Take the reply of the model, or yield a piece of its text after its hooks."""
        if isinstance(event, Answered):
            self.reply = event.completion
            return
        effect.pieces.append(event)
        if self.text and event.text:
            answer_text = "".join(delta.text for delta in event.deltas if isinstance(delta, TextDelta))
            now = self.environment.clock()
            written = TextWritten(now, effect.step, effect.purpose, event.text, answer_text)
            self._hook_errors += self.environment.call_hooks(written)
            yield written

    def fail(self, effect: Effect, error: GbnfError) -> None:
        """Take the error of an effect, or raise it if the run is to be resumed."""
        begun = effect.pieces if isinstance(effect, CallModel) and effect.request.timeout_s else ()
        is_end = bool(begun) and isinstance(error, AnswerTimeoutError)  # it took longer than the run may
        if self.environment.resumes and isinstance(error, BackendError) and error.is_retryable and not is_end:
            raise error
        self.error = error

    async def stream(self) -> AsyncGenerator[Event, None]:
        """Run to the end in an event loop; yield each event after its hooks."""
        try:
            while (request := self.advance()) is not None:
                if isinstance(request, Event):
                    yield request
                    continue
                try:
                    if isinstance(request, CallModel):
                        async with aclosing(self.answers(request)) as events:
                            async for event in events:
                                for written in self.hear(request, event):
                                    yield written
                    else:
                        self.reply = await _aperform(request, self.environment)
                except GbnfError as error:
                    self.fail(request, error)
        finally:
            self.close()

    def close(self) -> None:
        """Close the loop, after the hooks for a text that was cancelled."""
        with suppress(asyncio.CancelledError), closing(self.planning):
            cancelled = self.planning.throw(asyncio.CancelledError())
            if isinstance(cancelled, Event):
                self.environment.call_hooks(cancelled)


def drive(
    planning: Planning, environment: RunEnvironment, *, text: bool = False
) -> Generator[Event, None, Run]:
    """Run to the end, blocking; yield each event after its hooks, and return the run.

    With `text`, the model's text is streamed.
    """
    driving = _Driving(planning, environment, text)
    try:
        while (request := driving.advance()) is not None:
            if isinstance(request, Event):
                yield request
                continue
            try:
                if isinstance(request, CallModel):
                    with closing(shared_loop().iterate(driving.answers(request))) as events:
                        for event in events:
                            yield from driving.hear(request, event)
                else:
                    driving.reply = _perform(request, environment.context, environment)
            except GbnfError as error:
                driving.fail(request, error)
    finally:
        driving.close()
    assert driving.run is not None
    return driving.run


async def adrive(planning: Planning, environment: RunEnvironment) -> Run:
    """Run to the end without blocking the event loop; hooks are called in the event loop."""
    driving = _Driving(planning, environment, text=False)
    async with aclosing(driving.stream()) as events:
        async for _ in events:
            pass
    assert driving.run is not None
    return driving.run


def astream(
    planning: Planning, environment: RunEnvironment, *, text: bool = False
) -> AsyncGenerator[Event, None]:
    """As `drive`, for an event loop."""
    return _Driving(planning, environment, text).stream()


def _perform(
    effect: ExecuteTool | AskPerson | AskApproval, context: Context, environment: RunEnvironment
) -> Any:
    """Perform an effect, blocking; roll a tool's change back after an exception that isn't its own."""
    match effect:
        case AskPerson(question, options):
            field = Field("answer", question, "choice" if options else "text", options)
            return str(context.ask(Form("A question before going on", (field,)))["answer"])
        case AskApproval(call):
            return context.person.approve(call)
        case ExecuteTool(tool, arguments, on_output):
            try:
                return environment.execute(tool, arguments, replace(context, on_output=on_output))
            except GbnfError:
                raise
            except BaseException:
                with suppress(GbnfError, OSError):  # the interrupt matters more than a missing workspace
                    context.journal.recover()
                raise
        case _:
            assert_never(effect)


async def _aperform(effect: ExecuteTool | AskPerson | AskApproval, environment: RunEnvironment) -> Any:
    """As `_perform`; if it is cancelled, a tool is waited for, but not one that waits for a person."""
    person = CancellablePerson(environment.context.person)
    context = replace(environment.context, person=person)
    performed = run_in_thread(partial(_perform, effect, context, environment))
    try:
        return await wrap_future(performed)
    except asyncio.CancelledError:
        person.cancelled = True
        while not (performed.done() or person.is_answering):  # noqa: ASYNC110  # the first of two threads' facts
            await asyncio.sleep(0.02)
        raise


class CancellablePerson:
    """A person whose answers are rejected once `cancelled` is set; `has_rejected`: whether one was."""

    def __init__(self, person: Person) -> None:
        self._person = person
        self.cancelled = self.has_rejected = self.is_answering = False

    def answer(self, form: Form) -> dict[str, Any]:
        """Return the person's answers. Raises ExecutorError, also if the run was cancelled."""
        return self._answer(self._person.answer, form)

    def approve(self, call: Mapping[str, Any]) -> bool:
        """Return whether the person approves. Raises ExecutorError, also if the run was cancelled."""
        return self._answer(self._person.approve, call)

    def _answer(self, ask: Callable[[_Asked], _Value], asked: _Asked) -> _Value:
        self.is_answering = True
        try:
            if not self.cancelled:
                answer = ask(asked)
            if self.cancelled:
                self.has_rejected = True
                raise ExecutorError("the run was cancelled")
            return answer
        finally:
            self.is_answering = False
