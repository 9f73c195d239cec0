"""The common part of all backends: `complete` in terms of `generate`."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Self

from gbnf.prompts.messages import Message
from gbnf_server.backends.base import AnswerFormat, Completion, Request


class RequestBackend(ABC):
    """A backend that answers a `Request`, blocking and in an event loop."""

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
        return self.generate(
            Request(
                messages,
                grammar,
                max_tokens=max_tokens,
                temperature=temperature,
                seed=seed,
                on_text=on_text,
            )
        )

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
        """Like `complete`, for an event loop; cancelling it ends the generation."""
        return await self.agenerate(
            Request(
                messages,
                grammar,
                max_tokens=max_tokens,
                temperature=temperature,
                seed=seed,
                on_text=on_text,
            )
        )

    @abstractmethod
    def close(self) -> None:
        """Release the model. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def generate(self, request: Request) -> Completion:
        """Answer a request; see `Completer`."""

    @abstractmethod
    async def agenerate(self, request: Request) -> Completion:
        """Answer a request in an event loop; see `Completer`."""
