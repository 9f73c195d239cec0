"""The request of the Responses API, as a `ChatRequest`.

Source: the types of the package `openai` (`openai.types.responses.ResponseCreateParams`).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from gbnf_server.gateway.chat import ChatRequest, JsonObject, JsonSchema, OutputFormat, Sampling
from gbnf_server.gateway.openai_responses.items import RequestTools, ToolPlace, add_items, read_choice
from gbnf_server.gateway.openai_responses.store import ResponseStore
from gbnf_server.gateway.reading import (
    MaxCalls,
    RequestPart,
    check_supported,
    read_effort,
    read_kind,
    read_part,
)
from gbnf_server.gateway.turns import Turns
from gbnf_server.web.errors import HttpError


class _PlainFormat(RequestPart):
    type: Literal["text", "json_object"]


class _SchemaFormat(RequestPart):
    name: str
    schema_: Annotated[dict[str, Any], Field(alias="schema")]
    strict: bool | None = None


_FORMATS: dict[str, type[RequestPart]] = {
    **dict.fromkeys(("text", "json_object"), _PlainFormat),
    "json_schema": _SchemaFormat,
}


class _TextConfig(RequestPart):
    format: dict[str, Any] | None = None


class _ReasoningConfig(RequestPart):
    """Whether the model reasons, and where the reasoning is."""

    effort: Literal["none", "minimal", "low", "medium", "high", "xhigh", "max"] | None = None
    summary: Literal["auto", "concise", "detailed"] | None = None
    generate_summary: Literal["auto", "concise", "detailed"] | None = None


class ResponsesBody(RequestPart):
    """The parameters that have an effect here."""

    model: str
    input: str | list[Any] = Field(default_factory=list)
    instructions: str | None = None
    tools: list[Any] | None = None
    tool_choice: str | dict[str, Any] | None = None
    parallel_tool_calls: bool | None = None
    max_tool_calls: MaxCalls | None = None
    text: _TextConfig | None = None
    reasoning: _ReasoningConfig | None = None
    previous_response_id: str | None = None
    store: bool | None = None
    stream: bool | None = None
    metadata: dict[str, str] | None = None
    include: list[str] | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    temperature: Annotated[float, Field(ge=0, le=2)] | None = None
    top_p: Annotated[float, Field(gt=0, le=1)] | None = None
    top_logprobs: Annotated[int, Field(ge=0, le=20)] | None = None
    truncation: Literal["auto", "disabled"] | None = None
    prompt_cache_key: str | None = None
    safety_identifier: str | None = None
    user: str | None = None


_CHANGES_MEANING = {
    "background": "Responses are generated while the client waits. Leave it out, and use stream.",
    "conversation": "Conversations are not stored. Use previous_response_id, or send all items.",
    "prompt": "There are no stored prompts. Send the text as instructions.",
}

_LOGPROBS = "message.output_text.logprobs"
_ENCRYPTED = "reasoning.encrypted_content"


@dataclass(frozen=True, slots=True)
class ResponsesRequest:
    """A request: `chat`, what is decoded; `body`, what is repeated in the response.

    `places`: of the tools. `items`: the items of the input, which are stored with the response.
    `ignored`: the paths of what has no effect.
    """

    chat: ChatRequest
    body: ResponsesBody
    places: Mapping[str, ToolPlace]
    items: tuple[Mapping[str, Any], ...]
    ignored: tuple[str, ...]


def read_request(value: Mapping[str, Any], store: ResponseStore) -> ResponsesRequest:
    """Read the JSON of a request. Raises HttpError."""
    check_supported(value, _CHANGES_MEANING)
    body = read_part(ResponsesBody, value)
    tools = RequestTools(body.tools or ())
    items = [{"role": "user", "content": body.input}] if isinstance(body.input, str) else body.input
    turns = Turns()
    if body.instructions:
        turns.system(body.instructions)
    if body.previous_response_id is not None:
        earlier = store.conversation(body.previous_response_id)
        if earlier is None:
            problem = f"there is no stored response with the id {body.previous_response_id!r}. "
            hint = "Old ones are removed. Send all items instead."
            raise HttpError(404, problem + hint, "not_found", "previous_response_id")
        add_items(turns, earlier, store.item, tools)
    add_items(turns, items, store.item, tools)
    logprobs = body.top_logprobs
    if logprobs is None and _LOGPROBS in (body.include or ()):
        logprobs = 0
    chat = ChatRequest(
        model=body.model,
        messages=turns.messages,
        tools=tools.tools,
        tool_choice=read_choice(body.tool_choice),
        parallel=body.parallel_tool_calls,
        max_calls=body.max_tool_calls,
        output=_output(body.text),
        sampling=Sampling.given(
            max_tokens=body.max_output_tokens,
            temperature=body.temperature,
            top_p=body.top_p,
            logprobs=logprobs,
        ),
        reasoning=None if body.reasoning is None else read_effort(body.reasoning.effort),
        stream=body.stream is True,
    )
    ignored = (
        *tools.left_out,
        *body.unknown(),
        *(
            f"include[{index}]"
            for index, name in enumerate(body.include or ())
            if name not in {_LOGPROBS, _ENCRYPTED}
        ),
        *(["truncation"] if body.truncation == "auto" else []),
    )
    return ResponsesRequest(chat, body, tools.places, tuple(items), ignored)


def _output(text: _TextConfig | None) -> OutputFormat | None:
    if text is None or text.format is None:
        return None
    match read_kind(_FORMATS, text.format, "text.format"):
        case _SchemaFormat(schema_=schema, strict=strict):
            return JsonSchema(schema, strict is True, "text.format.schema")
        case _PlainFormat(type="json_object"):
            return JsonObject()
        case _:
            return None
