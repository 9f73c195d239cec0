"""The common part of the HTTP backends: a call is a `Flow`, which an `HttpClient` drives."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from types import TracebackType
from typing import Self

from gbnf.prompts.messages import Message
from gbnf_server.backends.base import AnswerFormat, Completion
from gbnf_server.backends.http_client import Flow, HttpClient


class HttpBackend(ABC):
    """A backend whose model runs in a server. `_complete` sends requests and parses the responses."""

    _http: HttpClient

    def complete(
        self,
        messages: Sequence[Message],
        *,
        grammar: AnswerFormat | None,
        max_tokens: int = 512,
        temperature: float = 0.0,
        seed: int = 0,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """Answer the conversation; see `Backend`. `dialect` determines what `grammar` is."""
        return self._http.drive(self._complete(messages, grammar, max_tokens, temperature, seed, on_text))

    async def acomplete(
        self,
        messages: Sequence[Message],
        *,
        grammar: AnswerFormat | None,
        max_tokens: int = 512,
        temperature: float = 0.0,
        seed: int = 0,
        on_text: Callable[[str], None] | None = None,
    ) -> Completion:
        """Like `complete`, for an event loop; cancelling it closes the connection, and the server stops."""
        return await self._http.adrive(
            self._complete(messages, grammar, max_tokens, temperature, seed, on_text)
        )

    def clear_prompt_cache(self) -> None:  # noqa: B027 - overridden where the server allows it
        """Do nothing: most servers have no request for it."""

    def close(self) -> None:
        """Close the connections. Idempotent."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @abstractmethod
    def _complete(
        self,
        messages: Sequence[Message],
        grammar: AnswerFormat | None,
        max_tokens: int,
        temperature: float,
        seed: int,
        on_text: Callable[[str], None] | None,
    ) -> Flow[Completion]: ...
