"""The request of the Messages API, as a `ChatRequest`.

Source: the types of the package `anthropic` (`anthropic.types.MessageCreateParams`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from gbnf_server.gateway.anthropic_messages.blocks import MessageParam, add_content, add_messages
from gbnf_server.gateway.chat import ChatRequest, FreeText, FunctionTool, JsonSchema, Sampling, ToolChoice
from gbnf_server.gateway.reading import Part, read_kind, read_part, refused
from gbnf_server.gateway.turns import Turns
from gbnf_server.web.errors import HttpError


class ToolParam(Part):
    """A tool that the client executes."""

    type: Literal["custom"] | None = None
    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    input_schema: dict[str, Any]
    strict: bool | None = None


class Choice(Part):
    """Which tools the model may or must call."""

    type: Literal["auto", "any", "none"]
    disable_parallel_tool_use: bool | None = None


class ToolNamed(Part):
    """The tool that the model must call."""

    type: Literal["tool"]
    name: str
    disable_parallel_tool_use: bool | None = None


_CHOICES: dict[str, type[Part]] = {**dict.fromkeys(("auto", "any", "none"), Choice), "tool": ToolNamed}


class Thinking(Part):
    """Whether the model reasons."""

    type: Literal["enabled", "disabled", "adaptive", "between_tools"]


class OutputSchema(Part):
    """Structured output."""

    type: Literal["json_schema"]
    schema_: Annotated[dict[str, Any], Field(alias="schema")]


class OutputConfig(Part):
    """The format of the text. `effort` has no effect, and is in every request of Claude Code."""

    format: OutputSchema | None = None
    effort: str | None = None


class CountBody(Part):
    """The parameters that the number of a prompt's tokens depends on."""

    model: str
    messages: list[Any]
    system: str | list[Any] | None = None
    tools: list[Any] | None = None
    tool_choice: dict[str, Any] | None = None
    thinking: Thinking | None = None
    output_config: OutputConfig | None = None


class MessagesBody(CountBody):
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


def read_request(value: Mapping[str, Any]) -> tuple[ChatRequest, list[str]]:
    """Read the JSON of a request, and list the paths of what has no effect. Raises HttpError."""
    _check_supported(value)
    body = read_part(MessagesBody, value)
    sampling = Sampling.given(
        max_tokens=body.max_tokens, temperature=body.temperature, top_p=body.top_p, top_k=body.top_k
    )
    stop, stream = tuple(body.stop_sequences or ()), body.stream is True
    return replace(_chat(body), sampling=sampling, stop=stop, stream=stream), _ignored(body)


def read_count_request(value: Mapping[str, Any]) -> ChatRequest:
    """Read the JSON of a request whose prompt's tokens are counted. Raises HttpError."""
    _check_supported(value)
    return _chat(read_part(CountBody, value))


def _check_supported(value: Mapping[str, Any]) -> None:
    for name, hint in _CHANGES_MEANING.items():
        if value.get(name):
            raise refused(f"{name} is not supported. {hint}", name)
    if value.get("thread"):
        problem = "thread is not supported. Send the whole conversation in messages."
        raise HttpError(400, problem, THREAD_REFUSED, "thread")


def _chat(body: CountBody) -> ChatRequest:
    turns = Turns()
    if body.system:
        add_content(turns, MessageParam(role="system", content=body.system), "system")
    add_messages(turns, body.messages)
    if turns.messages and turns.messages[-1]["role"] == "assistant":
        problem = "the last message is the assistant's. Prefilled answers are not supported."
        raise refused(problem, "messages")
    choice, parallel = _choice(body.tool_choice)
    form = body.output_config.format if body.output_config is not None else None
    return ChatRequest(
        model=body.model,
        messages=turns.messages,
        tools=tuple(_tool(tool, f"tools[{index}]") for index, tool in enumerate(body.tools or ())),
        tool_choice=choice,
        parallel=parallel,
        output=FreeText() if form is None else JsonSchema(form.schema_, param="output_config.format.schema"),
        reasoning=body.thinking is not None and body.thinking.type != "disabled",
    )


def _tool(value: Any, path: str) -> FunctionTool:
    kind = value.get("type") if isinstance(value, dict) else None
    if kind not in {None, "custom"}:
        problem = f"{path} is a tool of the type {kind!r}, which Anthropic defines. "
        raise refused(problem + "Give tools with an input_schema, which the client executes.", f"{path}.type")
    tool = read_part(ToolParam, value, path)
    return FunctionTool(
        tool.name, tool.description or "", tool.input_schema, tool.strict is True, f"{path}.input_schema"
    )


def _choice(value: dict[str, Any] | None) -> tuple[ToolChoice, bool]:
    """Return the choice, and whether an answer may have several calls."""
    if value is None:
        return ToolChoice(), True
    match read_kind(_CHOICES, value, "tool_choice"):
        case ToolNamed(name=name, disable_parallel_tool_use=single):
            return ToolChoice("required", (name,)), single is not True
        case Choice(type=kind, disable_parallel_tool_use=single):
            choice = ToolChoice("required" if kind == "any" else kind)
            return choice, single is not True
    raise AssertionError(value)


def _ignored(body: MessagesBody) -> list[str]:
    """Return the paths of what has no effect."""
    ignored = [name for name, value in (body.model_extra or {}).items() if value is not None]
    for path, part in (("thinking", body.thinking), ("output_config", body.output_config)):
        ignored += [f"{path}.{name}" for name in part.unknown()] if part is not None else []
    return ignored
