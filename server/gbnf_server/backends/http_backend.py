"""The common part of the HTTP backends: send a body, and yield the events of the answer as they arrive."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import Any, TypeAlias

import httpx

from gbnf_server.backends.base import BackendEvent, Completion, Request
from gbnf_server.backends.http_client import HttpClient, HttpSession
from gbnf_server.backends.reasoning import ReasoningSplitter, ReasoningTags
from gbnf_server.backends.request_backend import RequestBackend
from gbnf_server.backends.streaming import EventStream
from gbnf_server.system.errors import RequestNotSupportedError

ReadResponse: TypeAlias = Callable[[httpx.Response, dict[str, Any]], Completion]
"""Parses a response, and the object that its lines add up to, without splitting reasoning from its text."""


class HttpBackend(RequestBackend):
    """A backend whose model runs in a server. `_events` sends requests and parses the responses."""

    _http: HttpClient

    def count_tokens(self, request: Request) -> int:
        """Refuse: most servers count tokens only while they answer. Raises RequestNotSupportedError."""
        del request
        hint = "Use a llama-server, or a model in this process."
        raise RequestNotSupportedError("the server", "counting tokens", hint)

    def clear_prompt_cache(self) -> None:
        """Do nothing: most servers have no request for it."""

    def close(self) -> None:
        """Allow no further call. Idempotent."""
        self._http.close()

    @abstractmethod
    def _events(self, request: Request, session: HttpSession) -> AsyncGenerator[BackendEvent, None]: ...

    async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        """Yield the events of one answer; see `Backend`. Closing them closes the connection."""
        if request.trace:
            raise RequestNotSupportedError("a model server", "trace", "Run the model in this process.")
        async with self._http.session() as session, aclosing(self._events(request, session)) as events:
            async for event in events:
                yield event


async def stream_answer(
    session: HttpSession,
    path: str,
    body: dict[str, Any],
    request: Request,
    parser: type[EventStream],
    read: ReadResponse,
    open_tags: ReasoningTags | None = None,
) -> AsyncGenerator[BackendEvent, None]:
    """Send the body, and yield the events of the response. `open_tags`: see `ReasoningSplitter`."""
    arrived: list[BackendEvent] = []
    splitter = ReasoningSplitter(arrived.append, open_tags, constrained=request.is_whole_text)
    stream = parser(splitter, request.max_tokens)
    response = httpx.Response(200)
    asked = {**body, **parser.FIELDS}
    received = session.lines(path, asked, tokens=request.max_tokens, timeout=request.timeout_s)
    async with aclosing(received):
        async for line in received:
            if isinstance(line, httpx.Response):
                response = line
                continue
            repeats = bool(stream.repeated)
            stream.feed(line)
            for event in arrived:
                yield event
            arrived.clear()
            if repeats and line.strip():  # and this line did not end it
                break
    completion = read(response, stream.end())
    reasoning, text = splitter.close()
    completion = replace(completion, text=text, reasoning=completion.reasoning or reasoning)
    if stream.repeated and completion.finish_reason == "length":
        completion = replace(completion, shortened_at=len(completion.text), repeated=stream.repeated)
    for event in arrived:
        yield event
    yield completion
