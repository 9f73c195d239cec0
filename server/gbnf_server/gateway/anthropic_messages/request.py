"""The request of the Messages API, as a `ChatRequest`.

Source: the types of the package `anthropic` (`anthropic.types.MessageCreateParams`, and `ContentBlockParam`
for the content of messages).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from gbnf.prompts.messages import Image
from gbnf_server.gateway import reading
from gbnf_server.gateway.chat import ChatRequest, FunctionTool, JsonSchema, Sampling, ToolChoice
from gbnf_server.gateway.turns import Turns
from gbnf_server.web.errors import HttpError, invalid_request

# -- messages


class _Base64Source(reading.RequestPart):
    type: Literal["base64"]
    media_type: str
    data: str


class _ImageBlock(reading.ContentPart):
    source: _Base64Source

    def read(self, path: str) -> Image:
        """Return the image. Only its bytes are read, no URL."""
        return reading.read_image(self.source.media_type, self.source.data, f"{path}.source")


class _TextSource(reading.RequestPart):
    type: Literal["text"]
    data: str


class _DocumentBlock(reading.ContentPart):
    source: _TextSource
    title: str | None = None

    def read(self, path: str) -> str:
        """Return the document. Only plain text is read."""
        return f"{self.title}\n\n{self.source.data}" if self.title else self.source.data


class _ToolReference(reading.ContentPart):
    """A tool that a search of the client has found. All tools of a request can be called anyway."""

    tool_name: str

    def read(self, path: str) -> str:
        """Return a text that names the tool."""
        return f"The tool {self.tool_name} can be called."


class _ToolUseBlock(reading.RequestPart):
    id: str
    name: str
    input: Any = None


class _ToolResultBlock(reading.RequestPart):
    tool_use_id: str
    content: str | list[Any] | None = None
    is_error: bool | None = None


class _ThinkingBlock(reading.RequestPart):
    thinking: str


class _RedactedThinkingBlock(reading.RequestPart):
    """Reasoning that only Anthropic's servers can read."""


_CONTENT: dict[str, type[reading.ContentPart]] = {
    "text": reading.TextPart,
    "image": _ImageBlock,
    "document": _DocumentBlock,
}

_RESULTS: dict[str, type[reading.ContentPart]] = {**_CONTENT, "tool_reference": _ToolReference}
_BLOCKS: dict[str, dict[str, type[reading.RequestPart]]] = {
    "user": {**_CONTENT, "tool_result": _ToolResultBlock},
    "assistant": {
        "text": reading.TextPart,
        "tool_use": _ToolUseBlock,
        "thinking": _ThinkingBlock,
        "redacted_thinking": _RedactedThinkingBlock,
    },
    "system": {"text": reading.TextPart},
}


class _MessageParam(reading.RequestPart):
    role: Literal["user", "assistant", "system"]
    content: str | list[Any]


def _add_message(turns: Turns, message: _MessageParam, path: str) -> None:
    """Add a message, whose content is at `path`, to the conversation. Raises HttpError."""
    add = {"user": turns.user, "assistant": turns.assistant, "system": turns.system}[message.role]
    if isinstance(message.content, str):
        add(message.content)
        return
    for index, value in enumerate(message.content):
        block_path = f"{path}[{index}]"
        match reading.read_kind(_BLOCKS[message.role], value, block_path):
            case reading.ContentPart() as block:
                content = block.read(block_path)
                if isinstance(content, Image):
                    turns.user("", [content])
                else:
                    add(content)
            case _ThinkingBlock(thinking=text):
                turns.reasoning(text)
            case _ToolUseBlock(id=call_id, name=name, input=arguments):
                turns.call(call_id, name, reading.read_arguments(arguments))
            case _ToolResultBlock() as result:
                text, images = reading.read_content(_RESULTS, result.content or "", f"{block_path}.content")
                text = f"Error: {text}" if result.is_error else text
                turns.result(result.tool_use_id, text, images, f"{block_path}.tool_use_id")


# -- parameters


class _ToolParam(reading.RequestPart):
    name: reading.ToolName
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None


class _Choice(reading.RequestPart):
    type: str
    disable_parallel_tool_use: bool | None = None


class _NamedChoice(_Choice):
    name: str


_MODES = {"auto": ToolChoice(), "any": ToolChoice("required"), "none": ToolChoice("none")}
_CHOICES: dict[str, type[_Choice]] = {**dict.fromkeys(_MODES, _Choice), "tool": _NamedChoice}


class _Thinking(reading.RequestPart):
    type: Literal["enabled", "disabled", "adaptive", "between_tools"]


class _OutputSchema(reading.RequestPart):
    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class _OutputConfig(reading.RequestPart):
    """The format of the text. `effort` has no effect, and is in every request of Claude Code."""

    format: _OutputSchema | None = None
    effort: str | None = None


class _CountBody(reading.RequestPart):
    """The parameters that the number of a prompt's tokens depends on."""

    model: str
    messages: list[Any]
    system: str | list[Any] | None = None
    tools: list[Any] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: _Thinking | None = None
    output_config: _OutputConfig | None = None
    max_tool_calls: reading.MaxCalls | None = None  # an extension


class _MessagesBody(_CountBody):
    """The parameters that have an effect here. `metadata` names the user, and changes no answer."""

    max_tokens: Annotated[int, Field(ge=1)]
    stop_sequences: list[Annotated[str, Field(min_length=1)]] | None = None
    stream: bool | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_k: Annotated[int, Field(ge=0)] | None = None
    metadata: dict[str, Any] | None = None


_CHANGES_MEANING = {
    "mcp_servers": "The gateway connects to no MCP servers. Give their tools in tools.",
    "container": "There are no containers. Leave it out.",
}

THREAD_REFUSED = "thread_unsupported_request"
"""The code of a request whose conversation the server would have to hold. Clients then send it whole."""


_BILLING_HEADER = re.compile(r"\Ax-anthropic-billing-header:[^\n]*\n?")


def stable_request(value: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return a request without the line with which Claude Code begins its system prompt.

    The line differs in each request, so that no server would find a prompt that begins with it in its cache.
    """
    match value.get("system"):
        case str() as text:
            return {**value, "system": _BILLING_HEADER.sub("", text)}
        case [{"text": str() as text} as first, *others] if remaining := _BILLING_HEADER.sub("", text):
            return {**value, "system": [{**first, "text": remaining}, *others]}
        case [{"text": str() as text}, *others] if text:
            return {**value, "system": others}
        case _:
            return value


def read_request(value: Mapping[str, Any]) -> tuple[ChatRequest, list[str]]:
    """Read the JSON of a request, and list the paths of what has no effect. Raises HttpError."""
    _check_supported(value)
    body = reading.read_part(_MessagesBody, value)
    sampling = Sampling.given(
        max_tokens=body.max_tokens, temperature=body.temperature, top_p=body.top_p, top_k=body.top_k
    )
    stop, stream = tuple(body.stop_sequences or ()), body.stream is True
    return replace(_chat(body), sampling=sampling, stop=stop, stream=stream), [*body.unknown()]


def read_count_request(value: Mapping[str, Any]) -> ChatRequest:
    """Read the JSON of a request whose prompt's tokens are counted. Raises HttpError."""
    _check_supported(value)
    return _chat(reading.read_part(_CountBody, value))


def _check_supported(value: Mapping[str, Any]) -> None:
    reading.check_supported(value, _CHANGES_MEANING)
    if value.get("thread"):
        problem = "thread is not supported. Send the whole conversation in messages."
        raise HttpError(400, problem, THREAD_REFUSED, "thread")


def _chat(body: _CountBody) -> ChatRequest:
    turns = Turns()
    if body.system:
        _add_message(turns, _MessageParam(role="system", content=body.system), "system")
    for index, value in enumerate(body.messages):
        path = f"messages[{index}]"
        _add_message(turns, reading.read_part(_MessageParam, value, path), f"{path}.content")
    if turns.messages and turns.messages[-1]["role"] == "assistant":
        problem = "the last message is the assistant's. Prefilled answers are not supported."
        raise invalid_request(problem, "messages")
    choice, single = _choice(body.tool_choice)
    form = body.output_config.format if body.output_config is not None else None
    return ChatRequest(
        model=body.model,
        messages=turns.messages,
        tools=tuple(_tool(tool, f"tools[{index}]") for index, tool in enumerate(body.tools or ())),
        tool_choice=choice,
        parallel=None if single is None else not single,
        max_calls=body.max_tool_calls,
        output=None if form is None else JsonSchema(form.schema_, param="output_config.format.schema"),
        reasoning=body.thinking is not None and body.thinking.type != "disabled",
    )


def _tool(value: Any, path: str) -> FunctionTool:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in {None, "custom"}:
        problem = f"{path} is a tool of the type {kind!r}, which Anthropic defines. "
        raise invalid_request(
            problem + "Give tools with an input_schema, which the client executes.", f"{path}.type"
        )
    tool = reading.read_part(_ToolParam, value, path)
    return FunctionTool(
        tool.name, tool.description or "", tool.input_schema, tool.strict is True, f"{path}.input_schema"
    )


def _choice(value: dict[str, Any] | None) -> tuple[ToolChoice, bool | None]:
    """Return the choice, and whether an answer may have one call only, if the client says so."""
    if value is None:
        return ToolChoice(), None
    choice = reading.read_kind(_CHOICES, value, "tool_choice")
    named = ToolChoice("required", (choice.name,)) if isinstance(choice, _NamedChoice) else None
    return named or _MODES[choice.type], choice.disable_parallel_tool_use
