"""The planner: tools, a model, and a context in which requests are executed.

Of a conversation, an earlier request is shown whole or not at all, and none is shown without those after it.
No result of an earlier run has a step number, so that no call of this run can refer to it.
"""

from __future__ import annotations

import asyncio
import json
import os
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Generator, Iterable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Self

from gbnf.errors import PoolError
from gbnf.prompts.messages import Image, Message, call_text, result_text
from gbnf.tools import FINAL_ANSWER, Tool
from gbnf_server.backends.answer import AnswerSource, answer
from gbnf_server.backends.base import Backend
from gbnf_server.executors import Context, prepare_executors
from gbnf_server.planner.compaction import message_size
from gbnf_server.planner.drivers import Hook, RunEnvironment, adrive, astream, drive, steady_clock
from gbnf_server.planner.events import Event, Run
from gbnf_server.planner.loop import Planning, check_request, plan
from gbnf_server.planner.model_calls import Clock
from gbnf_server.planner.options import PlannerOptions, ResolvedOptions
from gbnf_server.planner.prerequisites import order_tools
from gbnf_server.system.part_cache import use_disk_cache

if TYPE_CHECKING:
    from gbnf_server.planner.runs.recording import RunRecorder

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


GRAMMAR_VARIABLE = "GBNF_GRAMMAR"
_DEFAULT_OPTIONS = PlannerOptions()


class Planner:
    """Plans and executes requests: `backend` decides which of `tools` to call, `context` is where they run.

        Planner(tools, backend, PlannerOptions(max_steps=20), context=context).run("find my notes")

    Each run is a turn of its own, which `undo_last_turn` takes back as a whole. `tools` may be a function,
    for tools that change (`gbnf_server.mcp`): each run has those that it returns when the run begins.
    `hooks` see every event; an exception in a hook becomes a warning of the run. `recorder` records them, and
    the calls of the model. `clock` returns aware times that never decrease; by default it starts from the
    context's present. `resumes`: see `gbnf_server.planner.drivers.RunEnvironment`. A planner may serve
    several runs at a time if its backend may.

    With the environment variable GBNF_GRAMMAR=0, the call format is "json" without a grammar, unless another
    is chosen that has none. Compiled tools are kept in the cache folder for later processes, unless
    GBNF_COMPILE_CACHE=0.

    Raises PoolError for an empty pool, for two tools of the same name, for an unknown name in `required` or
    `terminal`, and if no run can end in the order of the tools, also when a run begins; and what the backend
    raises when it cannot reach its server.
    """

    def __init__(
        self,
        tools: Iterable[Tool] | Callable[[], Iterable[Tool]],
        backend: Backend,
        options: PlannerOptions = _DEFAULT_OPTIONS,
        *,
        context: Context,
        hooks: Sequence[Hook] = (),
        recorder: RunRecorder | None = None,
        clock: Clock | None = None,
        resumes: bool = False,
    ) -> None:
        self._tools = tools if callable(tools) else tuple(tools)
        self._given_options = options
        _ = self.tools
        self.backend, self.context, self.hooks = backend, context, tuple(hooks)
        self.answers: AnswerSource = partial(answer, backend)
        self._clock, self._resumes = clock, resumes
        constrained = os.environ.get(GRAMMAR_VARIABLE) != "0"
        if not constrained and options.call_format == "native":
            options = replace(options, call_format="json")
        self.options = ResolvedOptions.resolve(options, backend, constrained=constrained)
        if recorder is not None:
            self.answers = recorder.recorded(self.answers, traces=self.options.model.traces)
            self.hooks += (recorder.add,)
        use_disk_cache()

    @property
    def tools(self) -> tuple[Tool, ...]:
        """The present tools. Raises PoolError."""
        tools = tuple(self._tools() if callable(self._tools) else self._tools)
        if not tools:
            raise PoolError("the pool is empty: give the planner at least one tool")
        names = Counter(tool.name for tool in tools)
        if duplicates := [name for name, count in names.items() if count > 1]:
            raise PoolError(f"the pool has two tools named {duplicates[0]!r}: rename one")
        order_tools(tools, self._given_options)
        return tools

    def run(self, query: str, *, images: Sequence[Image] = (), history: Sequence[Exchange] = ()) -> Run:
        """Plan and execute a request. Errors of the model or its server are outcomes of the `Run`.

        `images` belong to the request; with a backend that takes none the run fails. `history`: earlier
        exchanges of the conversation, `Exchange.of(run)` for each; the last are shown to the model, up to
        about a third of its context. Raises ValueError if a request is blank, or contains a lone surrogate;
        the other methods do, too.
        """
        events = self.stream(query, images=images, history=history, text=False)
        while True:
            try:
                next(events)
            except StopIteration as stop:
                run: Run = stop.value
                return run

    def stream(
        self, query: str, *, images: Sequence[Image] = (), history: Sequence[Exchange] = (), text: bool = True
    ) -> Generator[Event, None, Run]:
        """Plan and execute, yielding each event; the last has the run. Closing the generator stops the run.

        With `text`, the model's text comes as `TextWritten` events, too.
        """
        planning, environment = self._begin(query, images, history)
        return drive(planning, environment, text=text)

    def astream(
        self, query: str, *, images: Sequence[Image] = (), history: Sequence[Exchange] = (), text: bool = True
    ) -> AsyncGenerator[Event, None]:
        """As `stream`, for an event loop: `async for event in planner.astream(query)`.

        Close the generator to stop the run, for example with `contextlib.aclosing`.
        """
        _check(query, history)
        return self._astream(query, images, history, text=text)

    async def arun(
        self, query: str, *, images: Sequence[Image] = (), history: Sequence[Exchange] = ()
    ) -> Run:
        """As `run`, without blocking the event loop."""
        planning, environment = await asyncio.to_thread(self._begin, query, images, history)
        return await adrive(planning, environment)

    async def _astream(
        self, query: str, images: Sequence[Image], history: Sequence[Exchange], *, text: bool
    ) -> AsyncGenerator[Event, None]:
        # MCP servers list their tools, and a server tells its context length
        planning, environment = await asyncio.to_thread(self._begin, query, images, history)
        async with aclosing(astream(planning, environment, text=text)) as events:
            async for event in events:
                yield event

    def _begin(
        self, query: str, images: Sequence[Image], history: Sequence[Exchange]
    ) -> tuple[Planning, RunEnvironment]:
        """Check a request; return its run, which has not started, and the environment of the run."""
        _check(query, history)
        context, tools = self.context.for_turn(), self.tools
        prepare_executors(tools, context)
        options = self.options
        if options.call_format == "server" and not self.backend.info().takes_tools:  # it has refused them
            options = replace(options, call_format="text")
        clock = self._clock or steady_clock(context.now())
        planning = plan(
            query,
            tools,
            options,
            turn=context.turn,
            clock=clock,
            images=tuple(images),
            # as many characters as the context has tokens: about a third of it
            history=earlier_messages(history, options, self.backend.context_length()) if history else (),
        )
        environment = RunEnvironment(self.answers, context, self.hooks, clock=clock, resumes=self._resumes)
        return planning, environment


def _check(query: str, history: Sequence[Exchange]) -> None:
    """Raise ValueError for a request that is blank, or contains a lone surrogate."""
    for request in (query, *(exchange.query for exchange in history)):
        check_request(request)
