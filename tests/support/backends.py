"""The base of fake backends, everything of the protocol but `respond`; and ways to ask a backend."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Callable, Sequence
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, Protocol

import httpx
import pytest

from gbnf import Grammar
from gbnf.prompts.messages import Image, Message
from gbnf.tool_formats import ReasoningDelta, TextDelta
from gbnf_server.backends.answer import Asked, RequestBackend, collect_answer
from gbnf_server.backends.base import Backend, BackendEvent, Completion, Dialect, ModelInfo, Request
from gbnf_server.backends.http_client import RetryPolicy
from gbnf_server.backends.model_traits import ModelTraits
from gbnf_server.system.errors import RequestNotSupportedError
from gbnf_server.system.event_loop import shared_loop

if TYPE_CHECKING:
    from gbnf_server.backends.in_process import InProcess


ANY = Grammar.parse('root ::= "{}"')
"""A grammar, for prompts of constrained answers."""


def prompt_tokens(backend: InProcess, messages: Sequence[Message], *, constrained: bool) -> list[int]:
    """Return the prompt of a conversation as the backend tokenizes it."""
    return backend._tokens(backend._template.prompt(Request(messages, ANY if constrained else None)))


async def acomplete(backend: Backend, request: Request) -> Completion:
    """Return one answer in the present event loop."""
    return (await collect_answer(backend, Asked(request))).completion


ASK: list[Message] = [{"role": "system", "content": "Plan."}, {"role": "user", "content": "hello"}]
CALL = '{"name": "final_answer", "arguments": {"message": "hi"}}'
QUICK = RetryPolicy(retries=1, backoff=0.001, loading_timeout=0.01)
SEEN: Message = {"role": "user", "content": "look", "images": [Image(b"GIF89a", "image/gif")]}


class Ask(Protocol):
    """Ask a backend for one answer; the options are those of `Request`."""

    def __call__(self, backend: Any, messages: list[Message] = ASK, **options: Any) -> Completion: ...


def ask_fixture(grammar: Callable[[Any], Any]) -> Any:
    """Return a fixture that asks blocking and in an event loop, by default with a backend's `grammar`."""

    @pytest.fixture(params=["sync", "async"])
    def ask(request: pytest.FixtureRequest) -> Ask:
        def call(backend: Any, messages: list[Message] = ASK, **options: Any) -> Completion:
            asked = Request(messages, **{"grammar": grammar(backend), **options})
            answer: Completion = (
                backend.complete(asked) if request.param == "sync" else asyncio.run(acomplete(backend, asked))
            )
            return answer

        return call

    return ask


def streamed(backend: Backend, request: Request) -> tuple[Completion, list[str], list[str]]:
    """Return a completion as the backend yields it, the pieces of its text, and those of its reasoning."""

    async def collect() -> list[BackendEvent]:
        async with aclosing(backend.generate(request)) as events:
            return [event async for event in events]

    *pieces, completion = shared_loop().run(collect())
    assert isinstance(completion, Completion)
    texts = [piece.text for piece in pieces if isinstance(piece, TextDelta)]
    return completion, texts, [piece.text for piece in pieces if isinstance(piece, ReasoningDelta)]


class FakeBackend(RequestBackend):
    """A backend without a model. Subclasses override `respond`, or `arespond`."""

    name = "fake"
    dialect: Dialect = "gbnf"
    model = ModelInfo(traits=ModelTraits(prompt_style="minimal", answers_by_call_only=True))
    context = 4096
    enforces_grammar = True

    async def facts(self) -> tuple[ModelInfo, int | None]:
        return self.model, self.context

    def respond(self, *_given: Any, **_limits: Any) -> Completion:
        raise NotImplementedError

    async def arespond(self, *given: Any, **limits: Any) -> Completion:
        return self.respond(*given, **limits)

    async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        limits = {key: getattr(request, key) for key in ("grammar", "max_tokens", "temperature", "seed")}
        completion = await self.arespond(request.messages, **limits)
        if completion.text:
            yield TextDelta(completion.text)
        yield completion

    async def count_tokens(self, _request: Request) -> int:
        raise RequestNotSupportedError(self.name, "counting tokens", "Count them.")

    def clear_prompt_cache(self) -> None:
        pass

    def close(self) -> None:
        pass


class PlayedSession:
    """An `HttpSession` that returns responses in turn."""

    def __init__(self, *responses: httpx.Response) -> None:
        self._responses = iter(responses)

    async def request(self, *_: object) -> httpx.Response:
        return next(self._responses)
