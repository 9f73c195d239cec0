"""The base of fake backends: everything of the protocol but `complete`."""

from __future__ import annotations

from types import TracebackType
from typing import Any, Self

from gbnf.prompts.messages import PromptStyle
from gbnf_server.backends.base import Capabilities, Completion, Dialect


class FakeBackend:
    """A backend without a model. Subclasses override `complete`."""

    name = "fake"
    prompt_style: PromptStyle = "minimal"
    context_length = 4096
    dialect: Dialect = "gbnf"
    capabilities = Capabilities()

    def complete(self, *_given: Any, **_limits: Any) -> Completion:
        raise NotImplementedError

    async def acomplete(self, *given: Any, **limits: Any) -> Completion:
        return self.complete(*given, **limits)

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
