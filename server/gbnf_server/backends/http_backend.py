"""The common part of the HTTP backends: a call is a `Flow`, which an `HttpClient` drives."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import httpx

from gbnf_server.backends.base import Completion, Request
from gbnf_server.backends.http_client import Flow, HttpClient
from gbnf_server.backends.reasoning import ReasoningTags
from gbnf_server.backends.request_backend import RequestBackend
from gbnf_server.backends.streaming import EventStream, ReasoningFilter
from gbnf_server.system.errors import RequestNotSupported

ReadResponse: TypeAlias = Callable[[httpx.Response, dict[str, Any] | None], Completion]
"""Parses a response, and the object that the lines of a streamed one add up to."""


class HttpBackend(RequestBackend):
    """A backend whose model runs in a server. `_flow` sends requests and parses the responses."""

    _http: HttpClient

    def count_tokens(self, request: Request) -> int:
        """Refuse: most servers count tokens only while they answer. Raises RequestNotSupported."""
        del request
        hint = "Use a llama-server, or a model in this process."
        raise RequestNotSupported("the server", "counting tokens", hint)

    def clear_prompt_cache(self) -> None:
        """Do nothing: most servers have no request for it."""

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._http.close()

    @abstractmethod
    def _flow(self, request: Request) -> Flow[Completion]: ...

    def _check(self, request: Request) -> None:
        if request.trace:
            raise RequestNotSupported("a model server", "trace", "Run the model in this process.")

    def generate(self, request: Request) -> Completion:
        """Answer a request; see `Completer`."""
        self._check(request)
        return self._http.drive(self._flow(request))

    async def agenerate(self, request: Request) -> Completion:
        """Answer a request in an event loop; see `Completer`."""
        self._check(request)
        # cancelling it closes the connection, and the server stops
        return await self._http.adrive(self._flow(request))

    def _post(
        self,
        path: str,
        body: dict[str, Any],
        request: Request,
        stream: type[EventStream],
        read: ReadResponse,
        open_tags: ReasoningTags | None = None,
    ) -> Flow[Completion]:
        """Send the body, and read the response; if the request has an `on_text`, as a stream."""
        if request.on_text is None:
            response = yield from self._http.request(
                "POST",
                path,
                body,
                tokens=request.max_tokens,
                timeout=request.timeout_s,
            )
            return read(response, None)
        reasoning_filter = ReasoningFilter(
            request.on_text,
            constrained=request.is_whole_text,
            open_tags=open_tags,
            on_reasoning=request.on_reasoning,
        )
        lines = stream(reasoning_filter, request.max_tokens)
        response = yield from self._http.request(
            "POST",
            path,
            {**body, **stream.FIELDS},
            on_line=lines.feed,
            tokens=request.max_tokens,
            is_enough=lambda: bool(lines.repeated),
            timeout=request.timeout_s,
        )
        completion = read(response, lines.end())
        if lines.repeated and completion.finish == "length":
            completion = replace(completion, shortened_at=len(completion.text), repeated=lines.repeated)
        return reasoning_filter.end(completion)
