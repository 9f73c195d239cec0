"""The result of parsing a model's text: tool calls or a final answer, and the repairs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

RepairKind: TypeAlias = Literal[
    "reasoning", "prose", "wrapper", "json", "name", "arguments", "extra", "truncated", "ignored", "text"
]
"""reasoning, prose, wrapper (a code block, a tag): ignored around a call; json: invalid JSON repaired; name,
arguments: mapped to what they resemble; extra: keys beside the arguments, ignored; truncated: completed at
the end of the text; ignored: calls in another syntax; text: changed, or too long to be parsed."""

CallSyntaxName: TypeAlias = Literal[
    "fenced",
    "call",
    "tool_calls",
    "bare",
    "openai",
    "tagged",
    "function",
    "mistral",
    "yaml",
    "python",
    "native",
]
"""The syntaxes of calls; `gbnf.calls.parsing.syntaxes` is their table. native: the format of the model's chat
template (`gbnf.tool_formats`)."""


@dataclass(frozen=True, slots=True)
class Repair:
    """One thing that was ignored, corrected or guessed in a text. `detail` is one line."""

    kind: RepairKind
    detail: str

    def __str__(self) -> str:
        return f"{self.kind}: {self.detail}"


@dataclass(frozen=True, slots=True)
class ToolCall:
    """One call of a tool in the pool. `arguments` are not validated.

    `truncated`: the text ended inside the call, so that its arguments are incomplete. Such a call must not be
    executed. `extra`: what its object has beside the name and the arguments, which are ignored.
    """

    id: str
    name: str
    arguments: Mapping[str, Any]
    truncated: bool = False
    extra: Mapping[str, Any] = field(default_factory=dict)

    def as_call(self) -> dict[str, Any]:
        """Return the call as `gbnf.validate_call` takes it: `{"name": …, "arguments": {…}}`."""
        return {"name": self.name, "arguments": dict(self.arguments)}


@dataclass(frozen=True, slots=True)
class InvalidToolCall:
    """A call of an unknown tool, or with arguments that cannot be parsed. `error` is for the model.

    `nearest` is the tool name most similar to `name`, None if the pool is empty or the name is known.
    """

    name: str
    error: str
    nearest: str | None = None


@dataclass(frozen=True, slots=True)
class ToolCalls:
    """The calls of a text, in order, all in `syntax`. `calls` or `invalid` has at least one.

    `content` is the prose around them, without whitespace at its end, `preface` that before the first,
    `inside_prose` whether there is some both before and after it, `reasoning` the text between reasoning
    tags. If the token limit ended a text with a call inside prose, the call may be part of the model's
    reasoning, whose end tag is missing.
    """

    calls: tuple[ToolCall, ...]
    syntax: CallSyntaxName
    invalid: tuple[InvalidToolCall, ...] = ()
    content: str = ""
    reasoning: str = ""
    repairs: tuple[Repair, ...] = ()
    inside_prose: bool = False
    preface: str = ""
    kind: Literal["tool_calls"] = "tool_calls"

    @property
    def truncated(self) -> bool:
        """Whether one of the calls is truncated."""
        return any(call.truncated for call in self.calls)


@dataclass(frozen=True, slots=True)
class FinalAnswer:
    """A text without a call: the answer, unchanged except for reasoning before it."""

    content: str
    reasoning: str = ""
    repairs: tuple[Repair, ...] = ()
    kind: Literal["final"] = "final"


ParseResult: TypeAlias = ToolCalls | FinalAnswer
"""The result of parsing a text."""


@dataclass(frozen=True, slots=True)
class RawCall:
    """A call before its name is resolved.

    `arguments` is any JSON value; `text_arguments`: a string there is JSON text, as in OpenAI's API.
    `error`: why the arguments cannot be parsed. `extra`: see `ToolCall`.
    """

    name: str
    arguments: Any
    syntax: CallSyntaxName
    repairs: tuple[Repair, ...] = ()
    truncated: bool = False
    id: str | None = None
    text_arguments: bool = False
    error: str = ""
    extra: Mapping[str, Any] = field(default_factory=dict)

    def noted(self, *notes: Repair) -> RawCall:
        """Return the call with more repairs."""
        return replace(self, repairs=(*self.repairs, *notes))
