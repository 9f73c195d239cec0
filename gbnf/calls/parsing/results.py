"""What a model's text amounts to: tool calls or a final answer, and what was done to read it so."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

RepairKind: TypeAlias = Literal[
    "thoughts", "prose", "wrapper", "json", "name", "arguments", "cut", "ignored", "text"
]
"""What was done: thoughts, prose or a wrapper (a code block, a tag) left out; broken JSON mended; a name or
arguments read as what they nearly were; an end made up (`truncated`); calls in a second shape ignored; the text
itself not looked into or cleaned."""

CallSyntaxName: TypeAlias = Literal[
    "fenced", "call", "tool_calls", "bare", "openai", "tagged", "function", "mistral", "yaml", "python"
]
"""The ways to write a call; `gbnf.calls.parsing.syntaxes` is their table."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that was done to read a text. `detail` is one line."""

    kind: RepairKind
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool in the pool. `arguments` are not validated.

    `truncated`: the text ended inside the call, so that its arguments are not what the model meant to write. A cut
    call is never to be executed.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    truncated: bool = False

    def as_call(self) -> dict[str, Any]:
        """The call as `gbnf.validate_call` and the planner take it: `{"name": …, "arguments": {…}}`."""
        return {"name": self.name, "arguments": dict(self.arguments)}


@dataclass(frozen=True, slots=True)
class InvalidToolCall:
    """A call that names no tool of the pool, or whose arguments are none. `error` is for the model to read.

    `nearest` is the pool's name that is most like `name`, None where none is.
    """

    name: str
    error: str
    nearest: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """The calls of a text, in order, all written in `syntax`; at least one of `calls` and `invalid` is there.

    `content` is the prose around them, `inside_prose` whether some stands before the first and some behind it,
    `reasoning` what stood between think tags. Where the token limit ended a text with its call amid prose, the
    model may only have thought of the call: thoughts whose end never came look like that.
    """

    calls: tuple[ToolCall, ...]
    syntax: CallSyntaxName
    invalid: tuple[InvalidToolCall, ...] = ()
    content: str = ""
    reasoning: str = ""
    repairs: tuple[Repair, ...] = ()
    inside_prose: bool = False
    kind: Literal["tool_calls"] = "tool_calls"

    @property
    def truncated(self) -> bool:
        """Whether one of the calls is cut."""
        return any(call.truncated for call in self.calls)


@dataclass(frozen=True, slots=True)
class FinalAnswer:
    """A text without a call: the answer. Unchanged, but for thoughts that stood before it."""

    content: str
    reasoning: str = ""
    repairs: tuple[Repair, ...] = ()
    kind: Literal["final"] = "final"


ParseResult: TypeAlias = ToolCalls | FinalAnswer
"""What a text amounts to."""


@dataclass(frozen=True, slots=True)
class RawCall:
    """A call as it was written, before its name is looked up.

    `arguments` is any JSON value; `text_arguments`: a text there is JSON, as OpenAI writes them.
    `error`: why they can't be read.
    """

    name: str
    arguments: Any
    syntax: CallSyntaxName
    repairs: tuple[Repair, ...] = ()
    truncated: bool = False
    id: str | None = None
    text_arguments: bool = False
    error: str = ""
