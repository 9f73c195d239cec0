"""The request of OpenAI's chat API, as a `ChatRequest`, and what of it has no effect. Pure.

Source: OpenAI's API reference, "Create chat completion".
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal, TypeAlias, assert_never

from pydantic import Field, StrictBool

from gbnf.prompts.messages import Image
from gbnf.tool_formats.template import OWN_VARIABLES
from gbnf_server.gateway import chat, reading
from gbnf_server.gateway.openai_chat.reply import ChatReply
from gbnf_server.gateway.turns import Turns
from gbnf_server.web.errors import HttpError, invalid_request

# -- messages


class _TextPart(reading.TextPart):
    type: Literal["text"]


class _RefusalPart(reading.RefusalPart):
    type: Literal["refusal"]


class _ImageUrl(reading.RequestPart):
    url: str


class _ImagePart(reading.ContentPart):
    type: Literal["image_url"]
    image_url: _ImageUrl

    def read(self, path: str) -> Image:
        """Return the image. Only data URLs are read."""
        return reading.read_data_url(self.image_url.url, f"{path}.image_url.url")


_UserPart: TypeAlias = Annotated[_TextPart | _ImagePart, Field(discriminator="type")]
_AssistantPart: TypeAlias = Annotated[_TextPart | _RefusalPart, Field(discriminator="type")]


class _CalledFunction(reading.RequestPart):
    name: str
    arguments: Any = None


class _ChatCall(reading.RequestPart):
    id: str
    type: Literal["function"] = "function"
    function: _CalledFunction


class _SystemMessage(reading.RequestPart):
    role: Literal["system", "developer"]
    content: str | list[_TextPart]


class _UserMessage(reading.RequestPart):
    role: Literal["user"]
    content: str | list[_UserPart]


class _AssistantMessage(reading.RequestPart):
    role: Literal["assistant"]
    content: str | list[_AssistantPart] | None = None
    tool_calls: list[_ChatCall] | None = None
    reasoning_content: str | None = None
    function_call: None = None


class _ToolMessage(reading.RequestPart):
    role: Literal["tool"]
    content: str | list[_UserPart]
    tool_call_id: str
    name: str | None = None


_MessageParam: TypeAlias = Annotated[
    _SystemMessage | _UserMessage | _AssistantMessage | _ToolMessage, Field(discriminator="role")
]

# -- parameters


class _ChatFunction(reading.Function):
    name: str = Field(pattern="^[a-zA-Z0-9_-]{1,64}$")


class _ChatTool(reading.RequestPart):
    type: Literal["function"]
    function: _ChatFunction


class _NamedTool(reading.RequestPart):
    type: Literal["function"] = "function"
    function: reading.Function


class _AllowedTools(reading.RequestPart):
    mode: Literal["auto", "required"]
    tools: list[_NamedTool]


class _AllowedToolsChoice(reading.RequestPart):
    type: Literal["allowed_tools"]
    allowed_tools: _AllowedTools


_ToolChoiceParam: TypeAlias = Annotated[_ChatTool | _AllowedToolsChoice, Field(discriminator="type")]


class _NamedSchema(reading.RequestPart):
    name: str = ""
    schema_: dict[str, Any] = Field(alias="schema")
    strict: bool | None = None


class _TextResponse(reading.RequestPart):
    type: Literal["text"]


class _JsonObjectResponse(reading.RequestPart):
    """A JSON object; `schema`, as in llama-server, says which."""

    type: Literal["json_object"]
    schema_: dict[str, Any] | None = Field(None, alias="schema")


class _JsonSchemaResponse(reading.RequestPart):
    type: Literal["json_schema"]
    json_schema: _NamedSchema


_ResponseFormat: TypeAlias = Annotated[
    _TextResponse | _JsonObjectResponse | _JsonSchemaResponse, Field(discriminator="type")
]


class _StreamOptions(reading.RequestPart):
    """What a stream contains. `include_obfuscation` is for OpenAI's own servers."""

    include_usage: bool | None = None
    include_obfuscation: bool | None = None


class _TemplateOptions(reading.RequestPart):
    """Variables of the chat template. That of some templates for reasoning is `thinking`."""

    enable_thinking: bool | None = None
    thinking: bool | None = None


class _ChatBody(reading.RequestPart, strict=False):
    """The body of a request. `grammar`, `top_k` and the like of llama-server and vLLM are extensions."""

    model: str = ""
    messages: list[_MessageParam] = Field(min_length=1)
    tools: list[_ChatTool] | None = None
    tool_choice: Literal["none", "auto", "required"] | _ToolChoiceParam | None = None
    parallel_tool_calls: StrictBool | None = None
    max_tool_calls: reading.MaxCalls | None = None
    response_format: _ResponseFormat | None = None
    grammar: str | None = None
    stream: StrictBool | None = None
    stream_options: _StreamOptions | None = None
    max_tokens: int | None = Field(None, ge=1)
    max_completion_tokens: int | None = Field(None, ge=1)
    stop: str | Annotated[list[str], Field(max_length=16)] | None = None
    seed: int | None = None
    temperature: float | None = Field(None, ge=0, le=100)
    top_p: float | None = Field(None, gt=0, le=1)
    top_k: int | None = Field(None, ge=-1)
    min_p: float | None = Field(None, ge=0, le=1)
    n: int | None = Field(None, ge=1, le=16)
    logprobs: StrictBool | None = None
    top_logprobs: int | None = Field(None, ge=0, le=20)
    reasoning_effort: str | None = None
    chat_template_kwargs: _TemplateOptions | None = None


_NEUTRAL: Mapping[str, tuple[Any, ...]] = {
    **dict.fromkeys(
        ("frequency_penalty", "presence_penalty", "dry_multiplier", "mirostat", "min_tokens"), (0,)
    ),
    **dict.fromkeys(("repetition_penalty", "repeat_penalty", "typical_p", "length_penalty", "best_of"), (1,)),
    **dict.fromkeys(("ignore_eos", "echo", "continue_final_message", "use_beam_search"), (False,)),
    **dict.fromkeys(("functions", "bad_words", "stop_token_ids", "documents", "lora"), ([],)),
    **dict.fromkeys(("audio", "web_search_options", "chat_template", "prompt", "json_schema", "ebnf"), ()),
    **dict.fromkeys(("structured_outputs", "guided_json", "guided_regex", "guided_choice"), ()),
    **dict.fromkeys(
        ("guided_grammar", "regex", "structural_tag", "reasoning_format", "thinking_forced_open"), ()
    ),
    "add_generation_prompt": (True,),
    "function_call": ("none",),
    "logit_bias": ({}, []),
    "modalities": (["text"],),
}
"""Parameters that would change an answer, and are not supported, with the values that change nothing."""


def parse_body(body: Mapping[str, Any]) -> ChatReply:
    """Return the reply to a request. Raises HttpError (400)."""
    for name, neutral in _NEUTRAL.items():
        value = body.get(name)
        if value is not None and value not in neutral:
            hint = "Use tools and tool_choice." if name in {"functions", "function_call"} else "Leave it out."
            problem = f"the parameter {name!r} is not supported. {hint}"
            raise HttpError(400, problem, "unsupported_parameter", name)
    parsed = reading.read_part(_ChatBody, body)
    request = _request(parsed)
    passed = {*_NEUTRAL, *(f"chat_template_kwargs.{name}" for name in request.template_variables)}
    ignored = dict.fromkeys(name for name in parsed.unknown() if name not in passed)
    include_usage = parsed.stream_options is not None and parsed.stream_options.include_usage is True
    return ChatReply(request, tuple(ignored), include_usage=include_usage)


def _request(body: _ChatBody) -> chat.ChatRequest:
    if body.top_logprobs is not None and not body.logprobs:
        raise invalid_request("top_logprobs needs logprobs: true.", "top_logprobs")
    sampling = chat.Sampling.given(
        max_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=None if body.top_k is None else max(body.top_k, 0),
        min_p=body.min_p,
        seed=None if body.seed is None else body.seed & 0xFFFFFFFF,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    )
    options = body.chat_template_kwargs or _TemplateOptions()
    thinking = options.thinking if options.enable_thinking is None else options.enable_thinking
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    turns = Turns(keeps_system=True)
    for index, message in enumerate(body.messages):
        _add_message(turns, message, f"messages[{index}]")
    return chat.ChatRequest(
        model=body.model,
        messages=turns.messages,
        tools=tuple(
            tool.function.tool(f"tools[{index}].function") for index, tool in enumerate(body.tools or ())
        ),
        tool_choice=_tool_choice(body),
        parallel=body.parallel_tool_calls,
        max_calls=body.max_tool_calls,
        output=_output(body),
        sampling=sampling,
        stop=tuple(text for text in stop if text),
        reasoning=reading.read_effort(body.reasoning_effort) if thinking is None else thinking,
        count=body.n or 1,
        stream=bool(body.stream),
        template_variables={
            name: value
            for name, value in (options.model_extra or {}).items()
            if isinstance(value, str | int | float) and name not in OWN_VARIABLES
        },
    )


def _tool_choice(body: _ChatBody) -> chat.ToolChoice:
    match body.tool_choice:
        case None:
            return chat.ToolChoice()
        case "none" | "auto" | "required" as mode:
            return chat.ToolChoice(mode)
        case _ChatTool(function=function):
            return chat.ToolChoice("required", (function.name,))
        case _AllowedToolsChoice(allowed_tools=allowed):
            names = dict.fromkeys(tool.function.name for tool in allowed.tools)
            return chat.ToolChoice(allowed.mode, tuple(names))
        case other:
            assert_never(other)


def _output(body: _ChatBody) -> chat.OutputFormat | None:
    form = body.response_format
    if body.grammar is not None:
        if form is not None and form.type != "text":
            raise invalid_request(
                "an answer has either a grammar or a response_format. Send one of the two.", "grammar"
            )
        return chat.GbnfText(body.grammar)
    match form:
        case _JsonSchemaResponse(json_schema=described):
            return chat.JsonSchema(described.schema_, bool(described.strict))
        case _JsonObjectResponse(schema_=None):
            return chat.JsonObject()
        case _JsonObjectResponse(schema_=dict() as schema):
            return chat.JsonSchema(schema, param="response_format.schema")
        case _:
            return None


def _add_message(turns: Turns, message: _MessageParam, path: str) -> None:
    text, images = reading.join_content(message.content or "", f"{path}.content")
    match message:
        case _SystemMessage():
            turns.system(text)
        case _UserMessage():
            turns.user(text, images)
        case _ToolMessage():
            turns.result(message.tool_call_id, text, images, name=message.name)
        case _AssistantMessage():
            if message.reasoning_content:
                turns.reasoning(message.reasoning_content)
            turns.assistant(text)
            for call in message.tool_calls or ():
                turns.call(call.id, call.function.name, reading.read_arguments(call.function.arguments))
