"""A backend that reports every call of another, with a trace where there is one."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import aclosing
from dataclasses import replace
from typing import TypeAlias

from gbnf.prompts.messages import PromptStyle
from gbnf_server.backends.base import Backend, BackendEvent, Capabilities, Completion, Dialect, Request
from gbnf_server.backends.request_backend import RequestBackend

OnCall: TypeAlias = Callable[[Request, "Completion | BaseException"], None]
"""Gets a call's request, and the completion or the exception that ended it."""


class RecordingBackend(RequestBackend):
    """Answers as another backend does, and reports each call to `on_call`, also one that fails.

    A backend whose capabilities include traces is asked for one. Closing it closes the other backend.
    """

    def __init__(self, backend: Backend, on_call: OnCall) -> None:
        self._backend, self._on_call = backend, on_call

    async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        """Yield the events of one answer; see `Completer`."""
        try:
            traced = await asyncio.to_thread(self._traced, request)  # capabilities may be those of a server
            async with aclosing(self._backend.generate(traced)) as events:
                async for event in events:
                    if isinstance(event, Completion):
                        self._on_call(request, event)
                    yield event
        except GeneratorExit:
            self._on_call(request, asyncio.CancelledError())
            raise
        except BaseException as error:
            self._on_call(request, error)
            raise

    def _traced(self, request: Request) -> Request:
        return replace(request, trace=True) if self._backend.capabilities.traces else request

    @property
    def name(self) -> str:
        """That of the other backend, as all properties."""
        return self._backend.name

    @property
    def prompt_style(self) -> PromptStyle:
        """See `Backend`."""
        return self._backend.prompt_style

    @property
    def context_length(self) -> int:
        """See `Backend`."""
        return self._backend.context_length

    @property
    def enforces_grammar(self) -> bool:
        """See `Completer`."""
        return self._backend.enforces_grammar

    @property
    def dialect(self) -> Dialect:
        """See `Backend`."""
        return self._backend.dialect

    @property
    def capabilities(self) -> Capabilities:
        """See `Backend`."""
        return self._backend.capabilities

    def count_tokens(self, request: Request) -> int:
        """Return the number of tokens of the request's prompt; see `Backend`."""
        return self._backend.count_tokens(request)

    def clear_prompt_cache(self) -> None:
        """Clear the cache of the other backend."""
        self._backend.clear_prompt_cache()

    def close(self) -> None:
        """Close the other backend. Idempotent."""
        self._backend.close()
