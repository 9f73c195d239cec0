"""Compile requests in threads: each content once, in fair turns, with a deadline, cached.

Invariants: the event loop does no part of a compilation; one that nobody waits for any more is dropped at its
next step. What it has compiled by then stays in the caches of the gateway, as long as they have space.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from concurrent.futures import ThreadPoolExecutor
from contextvars import copy_context
from dataclasses import dataclass
from typing import Any

from gbnf.schema_caches import caches_in_use
from gbnf_server.gateway.chat import ChatRequest
from gbnf_server.gateway.compiling import Compiled, CompileSteps, Target, compile_steps
from gbnf_server.web.errors import HttpError
from gbnf_server.web.queue import AnswerQueue

_WORKERS = 2
_TURN_S = 0.05
"""How long a compilation goes on before others have their turn: at least a step."""
_MOST_COMPILING = 256
"""Requests that compile at a time, in turns."""
_KEPT = 256
"""Compiled formats of answers that are cached: clients repeat their tools in each request."""
_MOST_CHARACTERS = 8 * 1024 * 1024
"""Of the schemas and grammars of those, and of what is compiled between two times that the caches in use are
cleared. A character takes about 25 bytes in memory."""


@dataclass(eq=False, slots=True)
class _Entry:
    """A compilation, or its result. `size`: in characters; `waiting`: how many requests wait for it."""

    task: asyncio.Task[Compiled]
    size: int
    waiting: int = 0

    @property
    def is_final(self) -> bool:
        """Whether it has ended with what another attempt would end with: not with a full queue."""
        if not self.task.done() or self.task.cancelled():
            return False
        error = self.task.exception()
        return error is None or (isinstance(error, HttpError) and error.status == 400)


class Compiler:
    """Compiles requests. Not for use by several event loops."""

    def __init__(self, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="gbnf-compile")
        self._turns = AnswerQueue(_WORKERS, _MOST_COMPILING)
        self._cache: OrderedDict[Any, _Entry] = OrderedDict()
        self._compiled = 0  # characters since the caches were cleared
        self._running = 0

    async def compiled(self, request: ChatRequest, target: Target, owner: str = "") -> Compiled:
        """Return what constrains a request's answers on a backend. `owner`: whose turns it takes.

        Raises HttpError: 400 for what the client has to correct, 503 when the time is up. The same request
        may succeed later: much of it is compiled by then.
        """
        if "content" not in vars(request):  # what read it may have done that in its thread
            await asyncio.to_thread(getattr, request, "content")
        content, size = request.content
        key = (content, target)
        entry = self._cache.get(key)
        if entry is None or (entry.task.done() and not entry.is_final):
            task = asyncio.create_task(self._compile(key, request, target, owner))
            self._compiled += size
            entry = self._cache[key] = _Entry(task, size)
            task.add_done_callback(lambda done: done.cancelled() or done.exception())  # perhaps nobody asks
        self._cache.move_to_end(key)
        entry.waiting += 1
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(entry.task)
        except TimeoutError:
            problem = (
                f"the schemas take more than {self._timeout_s:g} s to compile. Simplify them, offer fewer "
                "tools, or try again later."
            )
            raise HttpError(503, problem, "compilation_timeout", retry_after=30) from None
        finally:
            entry.waiting -= 1
            if not entry.waiting and not entry.task.done():
                entry.task.cancel()
                if self._cache.get(key) is entry:
                    del self._cache[key]

    def close(self) -> None:
        """Start no further steps."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    async def _compile(self, key: Any, request: ChatRequest, target: Target, owner: str) -> Compiled:
        """Compile in turns with other requests, and count the characters."""
        steps = compile_steps(request, target)
        loop = asyncio.get_running_loop()
        compiled: Compiled | None = None
        self._running += 1
        try:
            while compiled is None:
                async with self._turns.place(owner):
                    turn = loop.run_in_executor(self._pool, copy_context().run, _take_turn, steps)
                    try:
                        compiled, size = await asyncio.shield(turn)
                    except asyncio.CancelledError:
                        await asyncio.wait([turn])  # it is not stopped inside of a step
                        raise
                self._compiled += size
            if (entry := self._cache.get(key)) is not None:
                entry.size += size
            return compiled
        finally:
            self._running -= 1
            self._forget()

    def _forget(self) -> None:
        """Forget the oldest formats, and what the caches in use have, if there are too many characters."""
        sizes = sum(entry.size for entry in self._cache.values())
        for key, entry in list(self._cache.items()):
            if len(self._cache) <= _KEPT and sizes <= _MOST_CHARACTERS:
                break
            if not entry.waiting or entry.task.done():
                sizes -= self._cache.pop(key).size
        # what the caches lose, compilations that run would have to do again in one step
        if self._compiled > _MOST_CHARACTERS * (4 if self._running else 1):
            self._compiled = 0
            caches_in_use().results.clear()


def _take_turn(steps: CompileSteps[Compiled]) -> tuple[Compiled | None, int]:
    """Go on for a turn. Return the result, None if it is not complete, and the characters it compiled."""
    until = time.monotonic() + _TURN_S
    try:
        size = next(steps)
        while time.monotonic() < until:
            size += next(steps)
    except StopIteration as done:
        compiled: Compiled = done.value
        if compiled.grammar is None:
            return compiled, 0
        compiled.grammar.matcher.start()  # it is built here, not when the answer begins
        return compiled, len(str(compiled.grammar))
    return None, size
