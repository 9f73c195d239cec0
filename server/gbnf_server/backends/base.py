"""The interface to a language model: messages and a grammar in, the events of one answer out.

    (TextDelta | ReasoningDelta)* Completion

Invariants of every backend:

- The pieces of text are whole characters, and add up to the completion's `text`; those of reasoning to its
  `reasoning`, or none come if the backend has it only at the end. A backend that can separate the two only at
  the end yields nothing before it.
- A text that was truncated (by the token limit or the end of the context) has `finish_reason="length"`. A
  backend that chooses the tokens itself ends a constrained text within the limit instead (`shortened_at`).
  Text that repeats without an end is truncated, or shortened, too.
- A server may have ignored the grammar: `gbnf_server.backends.answer` verifies the text of every backend.
- No message's text is tokenized to a control token: only messages from `adapt_messages` are sent.
- All errors are those of `gbnf_server.system.errors`; the backend stays usable afterwards.
- Closing the events ends the generation, also inside of an evaluation in this process.
- One backend may be called from several threads and event loops.
- If a request `is_native`, the text is the whole answer, reasoning and the texts of control tokens included:
  the model's tool-call format says what is what.
- A field that the backend does not support raises RequestNotSupportedError, and is never ignored.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Self, TypeAlias

from gbnf import Grammar
from gbnf.prompts.messages import Message
from gbnf.protocols.protocol import AnswerFormat
from gbnf.requests.evidence import Evidence
from gbnf.tool_formats import ReasoningDelta, TextDelta
from gbnf_server.backends.model_traits import ModelTraits
from gbnf_server.llama.token_values import TokenLogprob, TracedToken, Truncation, ValueProbability
from gbnf_server.system.errors import BackendError
from gbnf_server.system.event_loop import shared_loop

TemplateValue: TypeAlias = str | int | float | bool
"""The value of a variable of a chat template."""

ToolChoice: TypeAlias = Literal["auto", "required", "none"]
"""Whether an answer may be a call of a tool, has to be one, or may not be one."""

Dialect = Literal["gbnf", "json_schema", "none"]
"""What a backend takes as a grammar: a `Grammar`, a JSON Schema (`gbnf.dialects.call_schema`), or nothing."""


@dataclass(frozen=True, slots=True)
class ModelInfo:
    """What a backend knows of its model, and what the two support.

    `name`: the model, as a server or its file names it, "" if it is unknown. `traits`: what the model is.
    `takes_images`: whether messages may contain images; other backends refuse them. `takes_tools`: whether a
    request may have a `tool_choice`, as far as the server has not refused one. `slots`: how many answers a
    llama-server generates at a time; `build`: its version.
    """

    name: str = ""
    traits: ModelTraits = field(default_factory=ModelTraits)
    takes_images: bool = False
    takes_tools: bool = False
    slots: int = 1
    build: str = ""


MAX_ALTERNATIVES = 16
"""The most values of an enum, or names of tools, of which each is scored."""

MAX_LOGPROBS = 20
"""The largest number of alternatives in `Request.logprobs`, as in OpenAI's API."""


@dataclass(frozen=True, slots=True)
class Request:
    """One call of a model. Raises ValueError for a value out of range."""

    messages: Sequence[Message]
    grammar: AnswerFormat | None = None
    tools: Sequence[Mapping[str, Any]] = ()
    """Tools in OpenAI's form, declared through the chat template."""
    tool_choice: ToolChoice | None = None
    """The server's own API has the tools and their calls instead.

    In the text, these are as `server_calls_text` writes them (`gbnf.protocols.call_protocols`).
    """
    max_tokens: int = 512
    temperature: float = 0.0
    """0 is greedy, and ignores `seed`."""
    seed: int = 0
    truncation: Truncation = field(default_factory=Truncation)
    """Of the distribution; the default is that of the backend."""
    stop: Sequence[str] = ()
    """Strings that end the answer, and are no part of it."""
    reasoning: bool = False
    """Ask the template for reasoning; a grammar then covers it."""
    logprobs: int | None = None
    """Return the log-probabilities of the answer's tokens, and of this many alternatives to each."""
    trace: bool = False
    """Return what happened at each token, at the cost of a mask over the vocabulary for each."""
    probabilities: bool = False
    """Return those of the values in a JSON answer."""
    evidence: Evidence | None = None
    """What gets a bonus in a JSON call (`gbnf_server.llama.evidence_bias`)."""
    timeout_s: float | None = None
    """Seconds after which the backend ends the generation with an error; None for its own limit."""
    cache_salt: str = ""
    """The prompt shares a cache with those of the same salt only.

    Of a server that cannot separate them, `cached_tokens` is 0.
    """
    template_variables: Mapping[str, TemplateValue] = field(default_factory=dict)
    """Of the chat template, see `ModelTraits`."""

    def __post_init__(self) -> None:
        if self.max_tokens < 1:
            raise ValueError(f"max_tokens is {self.max_tokens}; it must be at least 1")
        if isinstance(self.stop, str) or "" in self.stop:
            raise ValueError(f"stop is {self.stop!r}; it must be a list of texts that are not empty")
        if self.logprobs is not None and not 0 <= self.logprobs <= MAX_LOGPROBS:
            raise ValueError(f"logprobs is {self.logprobs}; it must be between 0 and {MAX_LOGPROBS}")

    @property
    def is_whole_text(self) -> bool:
        """Whether all of the answer is its text, so that no reasoning is separated from it."""
        return self.grammar is not None or (bool(self.tools) and self.tool_choice is None)

    @property
    def is_native(self) -> bool:
        """Whether the answer is in the model's tool-call format: with calls, or reasoning in a grammar."""
        declared = bool(self.tools) and self.tool_choice is None
        return declared or (self.reasoning and isinstance(self.grammar, Grammar))

    @property
    def reported_logprobs(self) -> int | None:
        """The alternatives that a server is to report of each token, None for no log-probabilities."""
        return MAX_LOGPROBS if self.probabilities and self.logprobs is None else self.logprobs


@dataclass(frozen=True, slots=True)
class Usage:
    """The tokens of one answer, as far as the backend counts them.

    `cached_tokens`: how many of the `prompt_tokens` were in the KV cache. `forced_tokens`: how many of the
    `completion_tokens` the grammar forced, without a step of their own. `drafted_tokens`: how many guessed
    tokens the model evaluated along with another step; `accepted_tokens`: how many of them it chose.
    """

    prompt_tokens: int = 0
    completion_tokens: int = 0
    cached_tokens: int = 0
    forced_tokens: int = 0
    drafted_tokens: int = 0
    accepted_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Timings:
    """The seconds that one answer took; 0 where the backend does not report them.

    `grammar_s`: the time for parsing the grammar and computing token masks, None if unknown or without a
    grammar.
    """

    prompt_s: float = 0.0
    completion_s: float = 0.0
    grammar_s: float | None = None


@dataclass(frozen=True, slots=True)
class Completion:
    """One answer of a model."""

    text: str
    finish_reason: Literal["stop", "length"]
    """"length" for a truncated text, whose calls must not be executed."""
    usage: Usage = Usage()
    timings: Timings = Timings()
    grammar_violation: str | None = None
    """None if the text fits the grammar (a truncated text: is a prefix of it), or without a grammar."""
    unmatched: str = ""
    """Why a text that the backend does not constrain itself was not matched to its end, else ""."""
    reasoning: str = ""
    """The model's reasoning before the text, if the backend can separate the two."""
    reclaimed: bool = False
    """The server returned the text as reasoning, but it fits the grammar."""
    context_length: int | None = None
    """That of the backend, as far as it is known."""
    stop_string: str | None = None
    """That of the request which ended the text; with a grammar, the text then is a prefix only."""
    shortened_at: int | None = None
    """The index in the text from which on the token limit determined it, so that it could end.

    It is complete and valid, but another value than the model's own may be.
    """
    repeated: str = ""
    """The text that the model repeated there without an end, else "".

    That shortened or truncated the answer before the limit did.
    """
    logprobs: tuple[TokenLogprob, ...] = ()
    """One per token, if the request asked for them."""
    trace: tuple[TracedToken, ...] = ()
    """An entry for each token, and one for the end of the generation, if it was asked for."""
    probabilities: tuple[ValueProbability, ...] = ()
    """Those of the values in the text, if asked for (`gbnf_server.backends.value_probabilities`)."""


BackendEvent: TypeAlias = TextDelta | ReasoningDelta | Completion
"""A piece of an answer, or all of it: the last event."""


class Backend(ABC):
    """A language model, in this process or behind a server. Only its methods send requests.

    `name`: the model or the server, for messages and reports. `dialect`: what `grammar` is.
    `enforces_grammar`: whether each answer of a request with a grammar is in its language, or a prefix of it.
    By default it has one model, of which it knows `_info` and `_context_length`.
    """

    name: str
    dialect: Dialect
    enforces_grammar: bool = False
    _info: ModelInfo
    _context_length: int | None

    @abstractmethod
    def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        """Yield the events of one answer; see the module.

        Raises GrammarRefusedError, RequestNotSupportedError, ContextOverflowError, BackendUnreachableError,
        ServerResponseError or BackendError.
        """

    @abstractmethod
    def complete(self, request: Request) -> Completion:
        """Return the completion of one answer, verified, blocking. Raises what `generate` does."""

    async def facts(self) -> tuple[ModelInfo, int | None]:
        """Return what is known of the model, and its longest conversation in tokens: prompt and answer.

        The length is None if a server does not report it. A llama-server is asked whenever it may have been
        restarted with another model. Raises BackendError.
        """
        return self._info, self._context_length

    def info(self) -> ModelInfo:
        """Return what is known of the model, blocking; see `facts`."""
        return shared_loop().run(self.facts())[0]

    def context_length(self) -> int:
        """Return the longest conversation, blocking; see `facts`. Raises BackendError if it is unknown."""
        length = shared_loop().run(self.facts())[1]
        if length is None:
            raise BackendError(f"{self.name} reports no context length. Set context_length.")
        return length

    @abstractmethod
    async def count_tokens(self, request: Request) -> int:
        """Return the number of tokens of the request's prompt, which need not fit the context.

        Raises RequestNotSupportedError where only the server knows, and the errors of `generate`.
        """

    @property
    def stuck(self) -> str:
        """What an answer does for longer than it should, and cannot be interrupted in; "" for nothing."""
        return ""

    async def is_there(self) -> bool:
        """Return whether it answers requests again after it has failed. Raises BackendError."""
        return True

    def clear_prompt_cache(self) -> None:  # noqa: B027  # the default
        """Evaluate the whole prompt of the next call, if the backend controls its cache.

        A reused prefix changes the last digits of the logits after it.
        """

    @abstractmethod
    def close(self) -> None:
        """Release the model. Idempotent; completing afterwards is an error."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
