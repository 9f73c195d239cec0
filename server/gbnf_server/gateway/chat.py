"""A request of the gateway as a value, whatever the API that it came through, and the calls that failed.

    JSON of an API ─Api─▶ ChatRequest ─engine─▶ events ─Api─▶ JSON, or server-sent events

Invariants of a `ChatRequest`: the names of its tools are unique, and those of its tool choice are among them.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Self, TypeAlias

from gbnf.prompts.messages import Message
from gbnf.requests.values import asks_for_several
from gbnf.schema.value_sets import equality_key
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf_server.backends.base import TemplateValue
from gbnf_server.planner.repeats import MAX_EXCLUDED_LENGTH
from gbnf_server.web.errors import invalid_request


@dataclass(frozen=True, slots=True)
class FunctionTool:
    """A tool of the client. `parameters`: the JSON Schema of its arguments, as the client gave it.

    `strict`: a keyword that cannot be enforced is an error. `param`: the path of the schema in the request.
    `pattern`: of the only argument, which its description says in another way, "" for any.
    """

    name: str
    description: str = ""
    parameters: Mapping[str, Any] = field(default_factory=lambda: {"type": "object", "properties": {}})
    strict: bool = False
    param: str = "tools"
    pattern: str = ""

    def declaration(self) -> dict[str, Any]:
        """Return the tool as OpenAI's chat API and chat templates declare it."""
        function = {"name": self.name, "description": self.description, "parameters": self.parameters}
        return {"type": "function", "function": function}


@dataclass(frozen=True, slots=True)
class ToolChoice:
    """Whether the model may, must or must not call tools, and which: `names`, None for all.

    A named choice of an API is `ToolChoice("required", (name,))`.
    """

    mode: Literal["auto", "required", "none"] = "auto"
    names: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class JsonObject:
    """Any JSON object."""


@dataclass(frozen=True, slots=True)
class JsonSchema:
    """JSON that satisfies a schema. `strict`: see `FunctionTool`. `param`: its path in the request."""

    schema: Mapping[str, Any] | bool
    strict: bool = False
    param: str = "response_format.json_schema.schema"


@dataclass(frozen=True, slots=True)
class GbnfText:
    """A text in the language of a GBNF grammar, whose text is `grammar`."""

    grammar: str


OutputFormat: TypeAlias = JsonObject | JsonSchema | GbnfText


@dataclass(frozen=True, slots=True)
class Sampling:
    """How tokens are chosen; the defaults are those of llama.cpp. Without a `seed`, each answer has another.

    `max_tokens` None: as many as fit the context. `logprobs`: return the log-probabilities of the tokens, and
    of this many alternatives to each.
    """

    max_tokens: int | None = None
    temperature: float = 0.8
    top_p: float = 0.95
    top_k: int = 40
    min_p: float = 0.05
    seed: int | None = None
    logprobs: int | None = None

    @classmethod
    def given(cls, **parameters: float | None) -> Self:
        """Return the sampling that a client asks for; None stands for the default."""
        return cls(**{name: value for name, value in parameters.items() if value is not None})  # type: ignore[arg-type]  # by name


@dataclass(frozen=True)
class ChatRequest:
    """What a client asks for. `model`: the name that it gave, which the answer repeats.

    `parallel`: an answer may have several calls, None if the request has several parts; `max_calls`: the most
    calls of an answer. `output`: the format of its text, None for any. `stop`: strings that end the text, and
    are no part of it. `reasoning`: whether the model reasons before it answers, None if its template can.
    `count`: how many answers to generate, one after another; 0 counts the prompt's tokens. `stream`: events
    are sent as they come. `excluded`: calls that an answer may not make, as far as a grammar can exclude
    them. `template_variables`: see `Request`. Raises HttpError.
    """

    model: str
    messages: tuple[Message, ...]
    tools: tuple[FunctionTool, ...] = ()
    tool_choice: ToolChoice = ToolChoice()
    parallel: bool | None = None
    max_calls: int | None = None
    output: OutputFormat | None = None
    sampling: Sampling = Sampling()
    stop: tuple[str, ...] = ()
    reasoning: bool | None = False
    count: int = 1
    stream: bool = False
    excluded: tuple[CallKey, ...] = ()
    template_variables: Mapping[str, TemplateValue] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.messages:
            raise invalid_request("there are no messages. Give at least one.", "messages")
        names = Counter(tool.name for tool in self.tools)
        for name, count in names.items():
            if count > 1:
                raise invalid_request(f"two tools have the name {name!r}.", "tools")
        for name in self.tool_choice.names or ():
            if name not in names:
                listed = ", ".join(names) or "none"
                problem = f"tool_choice names the tool {name!r}; those of the request are: {listed}."
                raise invalid_request(problem, "tool_choice")
        if self.tool_choice.mode == "required" and not self.callable_tools:
            raise invalid_request(
                "tool_choice requires a call, but there are no tools to call.", "tool_choice"
            )

    @cached_property
    def content(self) -> tuple[bytes, int]:
        """A hash of what decides the grammar and its errors, and the size of that in characters."""
        members = (self.tools, self.tool_choice, self.several, self.output, self.reasoning, self.excluded)
        text = repr((*members, self.asks_for_json))
        return hashlib.sha256(text.encode()).digest(), len(text)

    @cached_property
    def several(self) -> bool:
        """Whether an answer may have several calls. Small models go on calling if they may."""
        if self.max_calls == 1 or self.parallel is not None:
            return self.max_calls != 1 and self.parallel is True
        users = (message["content"] for message in reversed(self.messages) if message["role"] == "user")
        return asks_for_several(next(users, ""))

    @cached_property
    def asks_for_json(self) -> bool:
        """Whether the client speaks of JSON, so that a text may be some."""
        contents = (message["content"] for message in self.messages if message["role"] in {"user", "system"})
        return any("json" in content.casefold() for content in contents)

    @property
    def callable_tools(self) -> tuple[FunctionTool, ...]:
        """The tools that the answer may call."""
        if self.tool_choice.mode == "none":
            return ()
        names = self.tool_choice.names
        return tuple(tool for tool in self.tools if names is None or tool.name in names)


# The client executes calls, so only the messages say which failed, and may be repeated without an end. Most
# APIs have no mark for a failure; a result counts as one if it begins like an error message, or is a JSON
# object that says so.

CallKey: TypeAlias = tuple[str, str]
"""The name of a tool, and its arguments as JSON with sorted keys."""

INVALID_ARGUMENTS = "INVALID_JSON"
"""The only member of arguments that are no JSON object: their text. Such a call was not made."""

MAX_EXCLUDED = 8
"""How many calls a grammar excludes, those that failed last: each is some 25 kB of it."""

_ERROR = re.compile(
    r"\s*(?:error|exception|failed|failure|traceback|\w+(?:Error|Exception))\b", re.IGNORECASE
)
_MARKS = {"isError": True, "is_error": True, "ok": False, "success": False}
"""Members of an object that says that it is an error."""


def call_key(name: str, arguments: Mapping[str, Any]) -> CallKey:
    """Return what equal calls have in common."""
    return name, equality_key(dict(arguments))


def failed_calls(messages: Sequence[Message]) -> Counter[CallKey]:
    """Return how often each call has failed since another one succeeded for the first time."""
    calls: dict[str, CallKey] = {}
    failed: Counter[CallKey] = Counter()
    succeeded: set[CallKey] = set()
    for message in messages:
        for identifier, function in _made_calls(message):
            calls[identifier] = call_key(function["name"], function["arguments"])
        key = calls.get(message.get("tool_call_id", ""))
        if key is None:
            continue
        if is_error(message["content"]):
            failed[key] = failed.pop(key, 0) + 1  # the order is that of the last failures
        elif key not in succeeded:  # it may have changed what the others depend on
            succeeded.add(key)
            failed.clear()
    return failed


def succeeded_calls(messages: Sequence[Message]) -> list[Mapping[str, Any]]:
    """Return the calls, each with name and arguments, whose own result is not an error."""
    calls = dict(call for message in messages for call in _made_calls(message))
    results = {m["tool_call_id"]: m["content"] for m in messages if "tool_call_id" in m}
    return [calls[key] for key, result in results.items() if key in calls and not is_error(result)]


def _made_calls(message: Message) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield the id and the function of each call of a message that could be made."""
    for call in message.get("tool_calls", ()):
        if INVALID_ARGUMENTS not in call["function"]["arguments"]:
            yield call["id"], call["function"]


def excluded_calls(messages: Sequence[Message], failures: int) -> tuple[CallKey, ...]:
    """Return the short calls that failed at least so many times, sorted; at most `MAX_EXCLUDED`."""
    excluded = [
        key
        for key, count in failed_calls(messages).items()
        if count >= failures and len(key[1]) <= MAX_EXCLUDED_LENGTH
    ]
    return tuple(sorted(excluded[-MAX_EXCLUDED:]))


def is_error(result: str) -> bool:
    """Return whether a result says that its call failed."""
    if _ERROR.match(result):
        return True
    try:
        value = parse_json(result)
    except InvalidJsonError:
        return False
    if not isinstance(value, dict):
        return False
    if value.get("error") or value.get("status") in ("error", "failed"):
        return True
    return any(value.get(name) is mark for name, mark in _MARKS.items())
