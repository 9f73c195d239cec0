"""The seam between the planner and a language model: messages and a grammar in, one text out.

What must stay true of every backend:

- With a grammar, the text is in the grammar's language, or `grammar_violation` says what is wrong with it.
- A text that was cut (by the token limit or by the end of the context) says so with `finish="length"`.
- No message's text is read as a control token: only messages that `conversation.adapt` returns are sent.
- Whatever goes wrong is an error of `gbnf_server.errors`; the backend stays usable after it.
- One backend may be called from several threads.
- `on_text` gets each new piece of the answer's text as it is written: whole characters only, and all pieces
  together are the completion's `text`. Thoughts are not among them: a backend that tells thoughts from text
  only at the end sends nothing before. It may be called in another thread than the caller's, never in two at
  a time. What it raises ends the call and passes on.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Literal, Protocol, Self, TypeAlias

from gbnf import Grammar
from gbnf.prompts.messages import Message, PromptStyle
from gbnf_server.backends.reasoning import ReasoningTags

Dialect = Literal["gbnf", "json_schema", "none"]
"""What a backend takes as a grammar: a `Grammar`, a JSON Schema (`gbnf.dialects.call_schema`), or nothing."""

AnswerFormat: TypeAlias = Grammar | Mapping[str, Any]
"""What constrains an answer: a `Grammar`; for backends of the dialect "json_schema", a JSON Schema."""


def dialect_of(backend: object) -> Dialect:
    """A backend's `dialect`; one that has none takes GBNF."""
    found: Dialect = getattr(backend, "dialect", "gbnf")
    return found


def reasoning_tags_of(backend: object) -> ReasoningTags | None:
    """Where a backend's model begins and ends its thoughts, None where it can't be made to."""
    found: ReasoningTags | None = getattr(backend, "reasoning_tags", None)
    return found


def clear_prompt_cache(backend: object) -> None:
    """Make the next call evaluate its whole prompt; a backend without `clear_prompt_cache` has no such wish."""
    clear: Callable[[], None] | None = getattr(backend, "clear_prompt_cache", None)
    if clear is not None:
        clear()


DEMO_MODEL_NAME = "gbnf-planner-demo"
"""`general.name` of the embedded model, which was trained on the minimal prompt."""


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer of a model.

    `finish` is "length" for a text that was cut: it is never to be executed. `cached_tokens` of the
    `prompt_tokens` were still in the model's memory. Times are seconds. `grammar_violation` is None where the
    text fits the grammar, or none was asked for (a cut text fits when it is a prefix of the language).
    `reasoning` is what the model thought aloud before its text, where the backend can tell the two apart.
    `grammar_s` is what the grammar took of the whole, from reading it to masking with it; None where the
    backend does not tell, or none was asked for. `forced_tokens` of the `completion_tokens` cost no step of
    the model, since the grammar let them be foreseen. `reclaimed`: the text stood where the server keeps
    thoughts, and was taken from there since it fits the grammar.
    """

    text: str
    finish: Literal["stop", "length"]
    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int
    prompt_s: float
    completion_s: float
    grammar_violation: str | None = None
    reasoning: str = ""
    grammar_s: float | None = None
    forced_tokens: int = 0
    reclaimed: bool = False

    @property
    def sampled_tokens(self) -> int:
        """How many of the tokens cost a step of the model each."""
        return self.completion_tokens - self.forced_tokens


class Backend(Protocol):
    """A language model, wherever it runs. `context_length` is in tokens, prompt and answer together.

    A backend that takes no GBNF says in an attribute `dialect` what its `grammar` is instead. One that takes
    the beginning of the model's thoughts (`thinking.begun`) has their `markers`. One whose messages may show
    images says so in `takes_images`; the others refuse them. One that keeps prompts between calls can be told
    to drop them (`clear_prompt_cache`), since what is reused changes the last digits of what comes after it.
    """

    @property
    def name(self) -> str: ...

    @property
    def prompt_style(self) -> PromptStyle: ...

    @property
    def context_length(self) -> int: ...

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
        """Answer the conversation. Temperature 0 is greedy, and ignores the seed.

        Raises GrammarRefused, ContextOverflow, BackendUnreachable, ServerError or BackendError.
        """
        ...

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
        """Answer the conversation without blocking the event loop; otherwise as `complete`."""
        ...

    def close(self) -> None:
        """Let go of the model. Calling twice is fine; completing afterwards is an error."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...
