"""The planner: a pool of executors, a model and a world, put together for one request at a time."""

from __future__ import annotations

import asyncio
import os
import time
from collections import Counter
from collections.abc import AsyncGenerator, Generator, Iterable, Sequence
from datetime import datetime, timedelta

from gbnf.errors import PoolError
from gbnf.prompts.messages import Image
from gbnf.tools import Tool
from gbnf_server.backends.base import Backend
from gbnf_server.executors import Context
from gbnf_server.planner.drivers import Hook, RunEnvironment, adrive, astream, drive
from gbnf_server.planner.events import Event, Run
from gbnf_server.planner.loop import Clock, Planning, check_request, plan
from gbnf_server.planner.reasoning import ReasoningMode
from gbnf_server.planner.run_state import Settings

GRAMMAR_VARIABLE = "GBNF_GRAMMAR"


class Planner:
    """Plans and executes requests over `executors`, with `backend` deciding and `context` as the world.

    Each run is a turn of its own, which `undo_last_turn` takes back as a whole. `hooks` see every event;
    one that raises makes a warning in the run. `grammar=False`, or the environment variable GBNF_GRAMMAR=0,
    lets the model write freely; with `soft` its calls are then read in any usual shape, and `lines` asks for
    them in plain lines. With `salvage`, a run that ends without an answer, and has results of tools, gets one
    out of them: its outcome is `salvaged`.
    `reasoning` lets the model think before each call: "field" in a first property of the call, "free" for up
    to `thought_tokens` tokens before the grammar binds; its thoughts are in the events, and never executed.
    `clock` gives aware, never decreasing times; by default it starts from the context's present. One planner
    may serve several runs at a time where its backend may.

    Raises PoolError for an empty pool and for two tools of one name, ValueError for a limit below 1, and what
    the backend raises when it is asked for its prompt style: a server that is not there is found out here.
    """

    def __init__(
        self,
        tools: Iterable[Tool],
        backend: Backend,
        *,
        context: Context,
        max_steps: int = 12,
        max_blocked: int = 3,
        final_answer_from: int = 2,
        ask_user: bool = False,
        grammar: bool = True,
        soft: bool = False,
        lines: bool = False,
        salvage: bool = True,
        reasoning: ReasoningMode = "off",
        thought_tokens: int = 256,
        max_tokens: int = 512,
        temperature: float = 0.0,
        seed: int = 0,
        language: str = "en",
        hooks: Sequence[Hook] = (),
        clock: Clock | None = None,
    ) -> None:
        self.tools = tuple(tools)
        if not self.tools:
            raise PoolError("the pool is empty: give the planner at least one executor")
        names = Counter(tool.name for tool in self.tools)
        if twice := [name for name, count in names.items() if count > 1]:
            raise PoolError(f"the pool holds two tools of the name {twice[0]!r}: rename one")
        self.backend, self.context, self.hooks = backend, context, tuple(hooks)
        self._clock = clock
        dialect = backend.dialect
        self.settings = Settings(
            max_steps=max_steps,
            max_blocked=max_blocked,
            final_answer_from=final_answer_from,
            ask_user=ask_user,
            grammar=grammar and not lines and dialect != "none" and os.environ.get(GRAMMAR_VARIABLE) != "0",
            soft=soft or lines or dialect == "none",
            lines=lines,
            dialect=dialect,
            salvage=salvage,
            reasoning=reasoning,
            thought_tokens=thought_tokens,
            reasoning_tags=backend.capabilities.reasoning_tags if reasoning == "free" else None,
            max_tokens=max_tokens,
            temperature=temperature,
            seed=seed,
            language=language,
            prompt_style=backend.prompt_style,
            backend=backend.name,
        )

    def run(self, query: str, *, images: Sequence[Image] = ()) -> Run:
        """Plan and execute. A `Run` comes back whatever a model or its server does.

        Raises ValueError, as the other ways to run do, where the request is blank, or holds half a character.
        `images` belong to the request; a backend that takes none fails the run, and says so.
        """
        events = self.events(query, images=images)
        while True:
            try:
                next(events)
            except StopIteration as stop:
                run: Run = stop.value
                return run

    def events(
        self, query: str, *, images: Sequence[Image] = (), text: bool = False
    ) -> Generator[Event, None, Run]:
        """Plan and execute, giving each event as it happens; the last holds the run. Closing it stops it.

        With `text`, what the model writes comes piece by piece, as `TextWritten`.
        """
        planning, environment = self._begin(query, images)
        return drive(planning, environment, text=text)

    def stream(
        self, query: str, *, images: Sequence[Image] = (), text: bool = True
    ) -> AsyncGenerator[Event, None]:
        """As `events`, for an event loop: `async for event in planner.stream(query)`.

        Leaving the loop early stops the run once the generator is closed, as `contextlib.aclosing` does.
        """
        planning, environment = self._begin(query, images)
        return astream(planning, environment, text=text)

    async def arun(self, query: str, *, images: Sequence[Image] = ()) -> Run:
        """As `run`, without blocking the event loop."""
        planning, environment = self._begin(query, images)
        return await adrive(planning, environment)

    def run_many(self, queries: Iterable[str], *, concurrency: int = 4) -> list[Run]:
        """The runs of all queries, in their order, at most `concurrency` at a time. Not inside an event loop.

        How many the backend really serves at once is its own: an in-process model has `parallel` contexts,
        a llama-server its slots; further calls wait. All runs share the planner's world. An interrupt, or an
        error that is no outcome, ends the runs that are under way; `gbnf_server.batch` keeps what was done.

        Raises ValueError, before the first run, where a request is blank, or holds half a character.
        """
        return asyncio.run(self.arun_many(queries, concurrency=concurrency))

    async def arun_many(self, queries: Iterable[str], *, concurrency: int = 4) -> list[Run]:
        """As `run_many`, for an event loop."""
        if concurrency < 1:
            raise ValueError(f"concurrency is {concurrency}; it is at least 1")
        queries = list(queries)
        for query in queries:
            check_request(query)
        free = asyncio.Semaphore(concurrency)

        async def run(query: str) -> Run:
            async with free:
                return await self.arun(query)

        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(run(query)) for query in queries]
        return [task.result() for task in tasks]

    def _begin(self, query: str, images: Sequence[Image]) -> tuple[Planning, RunEnvironment]:
        context = self.context.for_turn()
        clock = self._clock or steady_clock(context.now())
        planning = plan(
            query, self.tools, self.settings, turn=context.turn, clock=clock, images=tuple(images)
        )
        return planning, RunEnvironment(self.backend, context, self.hooks, clock=clock)


def steady_clock(start: datetime) -> Clock:
    """A clock that begins at `start` and never goes back, whatever is done to the machine's."""
    origin = time.perf_counter()
    return lambda: start + timedelta(seconds=time.perf_counter() - origin)
