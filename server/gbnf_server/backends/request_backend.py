"""The common part of all backends: the arguments of a call as one value."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Self

from gbnf.prompts.messages import Message
from gbnf_server.backends.base import AnswerFormat, Completion


@dataclass(frozen=True, slots=True)
class Request:
    """The arguments of `Completer.complete`. Raises ValueError for a limit below 1."""

    messages: Sequence[Message]
    grammar: AnswerFormat | None
    max_tokens: int
    temperature: float
    seed: int
    on_text: Callable[[str], None] | None

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}; it must be at least 1")


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
        return self._complete(Request(messages, grammar, max_tokens, temperature, seed, on_text))

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
        return await self._acomplete(Request(messages, grammar, max_tokens, temperature, seed, on_text))

    @abstractmethod
    def close(self) -> None:
        """Release the model. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @abstractmethod
    def _complete(self, request: Request) -> Completion: ...

    @abstractmethod
    async def _acomplete(self, request: Request) -> Completion: ...
