"""Answer a request: choose the format, compile the grammar, decode, verify, and yield the events."""

from __future__ import annotations

from collections.abc import AsyncIterator

from gbnf_server.backends.base import Backend
from gbnf_server.gateway.answers import AnswerEvent
from gbnf_server.gateway.chat import ChatRequest


class Engine:
    """Answers requests with one backend at a time, and caches their grammars.

    `retries`: how often a backend that ignored the grammar, or whose arguments are invalid, is asked again,
    as long as nothing of the answer has been sent. `compile_s`: the time limit of one request's grammars.
    """

    def __init__(self, *, retries: int = 0, compile_s: float = 30.0) -> None:
        self._retries, self._compile_s = retries, compile_s

    async def answer(self, request: ChatRequest, backend: Backend) -> AsyncIterator[AnswerEvent]:
        """Yield the events of the answers of a request.

        If it is streamed, they come as they are decoded, the first with the first token: an error before it
        has an HTTP status of its own. Otherwise those of an answer come at its end. Closing the iterator ends
        the generation. Raises GatewayError.
        """
        raise NotImplementedError(request, backend)
        yield
