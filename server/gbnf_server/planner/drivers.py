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
from asyncio import wrap_future
from collections.abc import AsyncGenerator, Callable, Generator, Mapping, Sequence
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from typing import Any, TypeAlias, TypeVar, assert_never

from gbnf.errors import GbnfError
from gbnf.tool_formats import TextDelta
from gbnf.tools import Tool
from gbnf_server.backends.answer import Answered, AnswerPiece, AnswerSource, end_of
from gbnf_server.executors import Context, Field, Form, Person, run_executor
from gbnf_server.planner.effects import AskApproval, AskPerson, CallModel, ExecuteTool
from gbnf_server.planner.events import Event, Run, TextWritten
from gbnf_server.planner.loop import Clock, Planning
from gbnf_server.system.errors import ExecutorError
from gbnf_server.system.event_loop import run_in_thread, shared_loop

_Asked = TypeVar("_Asked")
_Value = TypeVar("_Value")

Hook: TypeAlias = Callable[[Event], object]


@dataclass(frozen=True, slots=True)
class RunEnvironment:
    """Where effects are performed, and the hooks.

    `answers` asks the model; `execute` runs a tool, and may be called in any thread. `clock` is the run's
    clock, for `TextWritten`, the event that is not the loop's.
    """

    answers: AnswerSource
    context: Context
    hooks: Sequence[Hook] = ()
    execute: Callable[[Tool, Mapping[str, Any], Context], dict[str, Any]] = run_executor
    clock: Clock = lambda: datetime.now(UTC)

    def call_hooks(self, event: Event) -> tuple[str, ...]:
        """Call every hook with the event, and return the messages of their exceptions."""
        hook_errors = []
        for hook in self.hooks:
            try:
                hook(event)
            except Exception as error:  # noqa: BLE001 - no exception of a hook ends the run
                name = getattr(hook, "__qualname__", type(hook).__qualname__)
                hook_errors.append(f"the hook {name} raised {type(error).__name__}: {error}")
        return tuple(hook_errors)

    def written(self, effect: CallModel, piece: AnswerPiece, hook_errors: list[str]) -> TextWritten:
        """Return the event of a piece of the model's text, after its hooks, whose errors are added."""
        said = "".join(delta.text for delta in piece.deltas if isinstance(delta, TextDelta))
        event = TextWritten(self.clock(), effect.step, effect.purpose, piece.text, said)
        hook_errors += self.call_hooks(event)
        return event


def drive(
    planning: Planning, environment: RunEnvironment, *, text: bool = False
) -> Generator[Event, None, Run]:
    """Run to the end, blocking; yield each event after its hooks, and return the run.

    With `text`, the model's text is streamed.
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
                reply = (*hook_errors, *environment.call_hooks(request))
                hook_errors.clear()
                yield request
                continue
            try:
                if not isinstance(request, CallModel):
                    reply = _perform(request, environment.context, environment)
                elif text:
                    with closing(shared_loop().iterate(environment.answers(request.asked))) as events:
                        for event in events:
                            if isinstance(event, Answered):
                                reply = event.completion
                            elif event.text:
                                yield environment.written(request, event, hook_errors)
                else:
                    reply = shared_loop().run(end_of(environment.answers(request.asked))).completion
            except GbnfError as fault:
                error = fault
    finally:
        planning.close()


async def adrive(planning: Planning, environment: RunEnvironment) -> Run:
    """Run to the end without blocking the event loop; hooks are called in the event loop."""
    finished: list[Run] = []
    async with aclosing(astream(planning, environment, finished=finished)) as events:
        async for _ in events:
            pass
    return finished[0]


async def astream(
    planning: Planning, environment: RunEnvironment, *, text: bool = False, finished: list[Run] | None = None
) -> AsyncGenerator[Event, None]:
    """As `drive`, for an event loop. The run is appended to `finished`, with the last hooks' warnings."""
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
                reply = (*hook_errors, *environment.call_hooks(request))
                hook_errors.clear()
                yield request
                continue
            try:
                if not isinstance(request, CallModel):
                    reply = await _aperform(request, environment)
                    continue
                async with aclosing(environment.answers(request.asked)) as events:
                    async for event in events:
                        if isinstance(event, Answered):
                            reply = event.completion
                        elif text and event.text:
                            yield environment.written(request, event, hook_errors)
            except GbnfError as fault:
                error = fault
    finally:
        planning.close()


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
    person = _CancellablePerson(environment.context.person)
    context = replace(environment.context, person=person)
    performed = run_in_thread(partial(_perform, effect, context, environment))
    try:
        return await wrap_future(performed)
    except asyncio.CancelledError:
        person.cancelled = True
        while not (performed.done() or person.is_answering):  # noqa: ASYNC110 - the first of two threads' facts
            await asyncio.sleep(0.02)
        raise


class _CancellablePerson:
    """A person whose answers are rejected once `cancelled` is set."""

    def __init__(self, person: Person) -> None:
        self._person = person
        self.cancelled = False
        self.is_answering = False

    def answer(self, form: Form) -> dict[str, Any]:
        return self._answer(self._person.answer, form)

    def approve(self, call: Mapping[str, Any]) -> bool:
        return self._answer(self._person.approve, call)

    def _answer(self, ask: Callable[[_Asked], _Value], asked: _Asked) -> _Value:
        self.is_answering = True
        try:
            if not self.cancelled:
                answer = ask(asked)
            if self.cancelled:
                raise ExecutorError("the run was cancelled")
            return answer
        finally:
            self.is_answering = False
