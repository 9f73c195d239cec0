"""Several backends of the same model as one.

Requests with the same prefix (tools, system prompt and first message of the user) go to the backend that has
it in its cache; others to the one with the least load. A backend that fails is left out, and probed with
growing pauses until it answers. A request that failed before its first text goes to another backend.

Invariant: an error that is about one request never leaves a backend out.
"""

from __future__ import annotations

import asyncio
import copy
import hashlib
import json
from collections import OrderedDict
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from gbnf_server.backends.answer import RequestBackend
from gbnf_server.backends.base import Backend, BackendEvent, Completion, Dialect, ModelInfo, Request, Usage
from gbnf_server.system.errors import (
    AnswerTimeoutError,
    BackendError,
    BackendUnreachableError,
    ServerResponseError,
)

_KNOWN_PREFIXES = 10_000
_PREFIX = 64 * 1024  # characters that are compared, in about a millisecond
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 1.0, 60.0
_UNAVAILABLE = frozenset({502, 503, 504})


@dataclass(eq=False)
class Upstream:
    """One backend. `running`: its answers in progress; `healthy`: whether requests go to it."""

    backend: Backend
    places: int = 1
    running: int = 0
    healthy: bool = True
    probing: asyncio.Task[None] | None = field(default=None, repr=False)

    @property
    def name(self) -> str:
        """The backend's name, for messages and metrics."""
        return self.backend.name


class Upstreams(RequestBackend):
    """All backends of a server as one. `pause`: waits so many seconds between probes.

    `salt`: of all requests, see `Request.cache_salt`. `on_usage`: called with what each answer has used.
    """

    salt = ""
    on_usage: Callable[[Upstream, Usage], None] | None = None

    def __init__(
        self, upstreams: Sequence[Upstream], *, pause: Callable[[float], Awaitable[None]] = asyncio.sleep
    ) -> None:
        self.upstreams = tuple(upstreams)
        self._pause = pause
        self._by_prefix: OrderedDict[bytes, Upstream] = OrderedDict()
        self._loop: asyncio.AbstractEventLoop | None = None

    def with_salt(self, salt: str) -> Upstreams:
        """Return the same backends, for requests that share a prompt cache with those of this salt only."""
        salted = copy.copy(self)
        salted.salt = salt
        return salted

    @property
    def name(self) -> str:  # type: ignore[override]  # a server's is known once it has answered
        """The names of all backends."""
        return ", ".join(upstream.name for upstream in self.upstreams)

    @property
    def places(self) -> int:
        """How many answers may be made at a time."""
        return sum(upstream.places for upstream in self.upstreams)

    @property
    def first(self) -> Upstream:
        """The first backend that answers. Raises BackendUnreachableError."""
        return self._healthy(())[0]

    @property
    def enforces_grammar(self) -> bool:  # type: ignore[override]  # nothing sets it
        """Whether all backends do."""
        return all(upstream.backend.enforces_grammar for upstream in self.upstreams)

    @property
    def dialect(self) -> Dialect:  # type: ignore[override]  # nothing sets it
        """What the first backend takes as a grammar."""
        return self.upstreams[0].backend.dialect

    async def facts(self) -> tuple[ModelInfo, int | None]:
        """Return what the first backend that answers knows of its model; others are left out."""
        while True:
            upstream = self.first
            try:
                return await upstream.backend.facts()
            except BackendError as error:
                if not _is_down(error):
                    raise
                self._leave_out(upstream)
                if not any(other.healthy for other in self.upstreams):
                    raise

    async def count_tokens(self, request: Request) -> int:
        """Return the number of a prompt's tokens, as the first backend that answers counts them."""
        return await self.first.backend.count_tokens(request)

    def clear_prompt_cache(self) -> None:
        """Clear the prompt cache of each backend."""
        for upstream in self.upstreams:
            upstream.backend.clear_prompt_cache()

    def close(self) -> None:
        """Close the backends, and end the probes. Idempotent."""
        for upstream in self.upstreams:
            if (probing := upstream.probing) is not None:
                with suppress(RuntimeError):  # its loop is closed
                    probing.get_loop().call_soon_threadsafe(probing.cancel)
            upstream.backend.close()

    def start_probing(self) -> None:
        """Probe the backends that did not answer before the server started, and later ones, in this loop."""
        self._loop = asyncio.get_running_loop()
        for upstream in self.upstreams:
            if not upstream.healthy:
                self._leave_out(upstream)

    async def check(self) -> None:
        """Leave out the backends that do not answer at all. One that answers late may be busy."""

        async def check(upstream: Upstream) -> None:
            try:
                answers = await upstream.backend.is_there()
            except BackendError as error:
                answers = not _is_down(error)
            if not answers:
                self._leave_out(upstream)

        await asyncio.gather(*(check(upstream) for upstream in self.upstreams if upstream.healthy))

    async def stop_probing(self) -> None:
        """End the probes of failed backends."""
        probes = [upstream.probing for upstream in self.upstreams if upstream.probing is not None]
        for probe in probes:
            probe.cancel()
        await asyncio.gather(*probes, return_exceptions=True)

    async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        """Answer a request on one of the backends. Raises BackendUnreachableError if none answers."""
        if self.salt:
            request = replace(request, cache_salt=f"{self.salt}/{request.cache_salt}".rstrip("/"))
        tried: list[Upstream] = []
        while True:
            upstream = self._choose(request, tried)
            tried.append(upstream)
            has_begun = False
            upstream.running += 1
            try:
                async with aclosing(upstream.backend.generate(request)) as events:
                    async for event in events:
                        has_begun = True
                        if isinstance(event, Completion) and self.on_usage is not None:
                            self.on_usage(upstream, event.usage)
                        yield event
                return
            except BackendError as error:
                if not _is_down(error):
                    raise
                self._leave_out(upstream)
                if has_begun or not any(other.healthy for other in self.upstreams):
                    raise
            finally:
                upstream.running -= 1

    def _choose(self, request: Request, tried: Sequence[Upstream]) -> Upstream:
        """Return the backend for a request, and remember it for requests with the same prefix."""
        if len(self.upstreams) == 1:
            return self._healthy(tried)[0]
        key = _prefix(request)
        chosen_before = self._by_prefix.get(key)
        healthy = self._healthy(tried)
        free = [upstream for upstream in healthy if upstream.running < upstream.places]
        if chosen_before in (free or healthy):
            assert chosen_before is not None
            self._by_prefix.move_to_end(key)
            return chosen_before
        chosen = min(free or healthy, key=lambda upstream: upstream.running / upstream.places)
        self._by_prefix[key] = chosen
        self._by_prefix.move_to_end(key)
        if len(self._by_prefix) > _KNOWN_PREFIXES:
            self._by_prefix.popitem(last=False)
        return chosen

    def _healthy(self, tried: Sequence[Upstream]) -> list[Upstream]:
        healthy = [upstream for upstream in self.upstreams if upstream.healthy and upstream not in tried]
        if not healthy:
            raise BackendUnreachableError(
                f"no server answers: {self.name}. They are probed; try again later."
            )
        return healthy

    def _leave_out(self, upstream: Upstream) -> None:
        upstream.healthy = False
        loop = asyncio.get_running_loop()
        if self._loop is not None and self._loop is not loop and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._leave_out, upstream)  # the answer was awaited elsewhere
        elif upstream.probing is None:
            upstream.probing = loop.create_task(self._probe(upstream))

    async def _probe(self, upstream: Upstream) -> None:
        """Probe a backend until it answers, or this is cancelled."""
        seconds = _FIRST_PAUSE_S
        try:
            while not upstream.healthy:
                await self._pause(seconds)
                seconds = min(2 * seconds, _LONGEST_PAUSE_S)
                with suppress(BackendError):
                    upstream.healthy = await upstream.backend.is_there()
        finally:
            upstream.probing = None


def _is_down(error: BackendError) -> bool:
    """Return whether an error is about the server, not about the request."""
    if isinstance(error, ServerResponseError):
        return error.status in _UNAVAILABLE
    return isinstance(error, BackendUnreachableError) and not isinstance(error, AnswerTimeoutError)


def _prefix(request: Request) -> bytes:
    """Return the hash of the beginning of a request: salt, tools, messages up to the first of the user."""
    digest, characters_left = hashlib.sha256(), _PREFIX
    for part in _beginning(request):
        text = json.dumps(part, sort_keys=True, default=list)[:characters_left]
        digest.update(text.encode())
        characters_left -= len(text)
        if not characters_left:
            break
    return digest.digest()


def _beginning(request: Request) -> Iterator[Any]:
    yield request.cache_salt
    yield from request.tools
    for message in request.messages:
        images = [hashlib.sha256(image.data[:_PREFIX]).hexdigest() for image in message.get("images", ())]
        yield [message["role"], message["content"][:_PREFIX], images]
        if message["role"] == "user":
            return
