"""The base of fake backends, everything of the protocol but `complete`; and the prompts of real ones."""

from __future__ import annotations

from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gbnf.prompts.messages import Message, PromptStyle
from gbnf_server.backends.base import Capabilities, Completion, Dialect, Request

if TYPE_CHECKING:
    from gbnf_server.backends.in_process import InProcess


def prompt_tokens(backend: InProcess, messages: Sequence[Message], *, constrained: bool) -> list[int]:
    """Return the prompt of a conversation as the backend tokenizes it."""
    return backend._encoded(backend._template.prompt(messages, constrained=constrained))


class FakeBackend:
    """A backend without a model. Subclasses override `complete`."""

    name = "fake"
    prompt_style: PromptStyle = "minimal"
    context_length = 4096
    dialect: Dialect = "gbnf"
    capabilities = Capabilities()

    def complete(self, *_given: Any, **_limits: Any) -> Completion:
        raise NotImplementedError

    def generate(self, request: Request) -> Completion:
        return self.complete(request.messages, **_limits(request))

    async def agenerate(self, request: Request) -> Completion:
        return await self.acomplete(request.messages, **_limits(request))

    async def acomplete(self, *given: Any, **limits: Any) -> Completion:
        return self.complete(*given, **limits)

    def count_tokens(self, request: Request) -> int:
        raise NotImplementedError

    def clear_prompt_cache(self) -> None:
        pass

    def close(self) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        pass


def _limits(request: Request) -> dict[str, Any]:
    """Return the keyword arguments of `complete`; `on_text` only for a stream."""
    limits = {key: getattr(request, key) for key in ("grammar", "max_tokens", "temperature", "seed")}
    return limits if request.on_text is None else {**limits, "on_text": request.on_text}
