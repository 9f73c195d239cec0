"""The common part of all backends: answers for callers that block."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator
from typing import Self

from gbnf_server.backends.answer import Asked, collect_answer
from gbnf_server.backends.base import Backend, BackendEvent, Completion, Request
from gbnf_server.system.event_loop import shared_loop


class RequestBackend(ABC):
    """A backend whose answers can be awaited, or waited for."""

    @property
    def enforces_grammar(self) -> bool:
        """See `Backend`."""
        return False

    @abstractmethod
    def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        """Yield the events of one answer; see `Backend`."""

    def complete(self: Backend, request: Request) -> Completion:
        """Return one answer, verified, blocking; see `Backend`."""
        return shared_loop().run(collect_answer(self, Asked(request))).completion

    @abstractmethod
    def close(self) -> None:
        """Release the model. Idempotent."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
