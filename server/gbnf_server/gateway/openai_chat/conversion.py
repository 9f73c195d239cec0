"""From the JSON of a request to a `ChatRequest`, and what of it has no effect. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, assert_never

from pydantic import BaseModel, ValidationError

from gbnf.prompts.messages import Message
from gbnf_server.gateway.chat import (
    ChatRequest,
    FreeText,
    FunctionTool,
    GbnfText,
    JsonObject,
    JsonSchema,
    OutputFormat,
    Sampling,
    ToolChoice,
)
from gbnf_server.gateway.openai_chat.models import (
    AllowedToolsChoice,
    AssistantMessage,
    AssistantPart,
    ChatBody,
    ChatMessage,
    ImagePart,
    JsonObjectResponse,
    JsonSchemaResponse,
    NamedToolChoice,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolMessage,
    UserMessage,
    UserPart,
)
from gbnf_server.gateway.reading import NO_REASONING, read_arguments, read_data_url, validation_error
from gbnf_server.web.errors import HttpError

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


@dataclass(frozen=True, slots=True)
class ParsedBody:
    """A request, and the parameters in it that have no effect, as paths."""

    request: ChatRequest
    include_usage: bool
    ignored: tuple[str, ...]


def parse_body(body: Mapping[str, Any]) -> ParsedBody:
    """Return the request of a body. Raises HttpError (400)."""
    for name, neutral in _NEUTRAL.items():
        value = body.get(name)
        if value is not None and value not in neutral:
            hint = (
                " Use tools and tool_choice." if name in {"functions", "function_call"} else " Leave it out."
            )
            raise _refused(f"the parameter {name!r} is not supported.{hint}", name, "unsupported_parameter")
    try:
        parsed = ChatBody.model_validate(body)
    except ValidationError as error:
        raise validation_error(error, body) from None
    options = parsed.chat_template_kwargs
    for name in (options.model_extra or {}) if options is not None else {}:
        problem = f"the argument {name!r} of the chat template is not supported. Leave it out."
        raise _refused(problem, f"chat_template_kwargs.{name}", "unsupported_parameter")
    return ParsedBody(
        _request(parsed),
        bool(parsed.stream_options and parsed.stream_options.include_usage),
        tuple(dict.fromkeys(_ignored(parsed))),
    )


def _request(body: ChatBody) -> ChatRequest:
    if body.top_logprobs is not None and not body.logprobs:
        raise _refused("top_logprobs needs logprobs: true.", "top_logprobs")
    sampling = Sampling.given(
        max_tokens=body.max_tokens if body.max_completion_tokens is None else body.max_completion_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        top_k=None if body.top_k is None else max(body.top_k, 0),
        min_p=body.min_p,
        seed=None if body.seed is None else body.seed & 0xFFFFFFFF,
        logprobs=(body.top_logprobs or 0) if body.logprobs else None,
    )
    stop = (body.stop,) if isinstance(body.stop, str) else tuple(body.stop or ())
    return ChatRequest(
        model=body.model,
        messages=tuple(_message(message, index) for index, message in enumerate(body.messages)),
        tools=tuple(_tools(body)),
        tool_choice=_tool_choice(body),
        parallel=body.parallel_tool_calls is not False,
        output=_output(body),
        sampling=sampling,
        stop=tuple(text for text in stop if text),
        reasoning=_reasoning(body),
        count=body.n or 1,
        stream=bool(body.stream),
    )


def _tools(body: ChatBody) -> Iterator[FunctionTool]:
    for index, tool in enumerate(body.tools or ()):
        function = tool.function
        yield FunctionTool(
            function.name,
            function.description or "",
            {"type": "object", "properties": {}} if function.parameters is None else function.parameters,
            bool(function.strict),
            f"tools[{index}].function.parameters",
        )


def _tool_choice(body: ChatBody) -> ToolChoice:
    match body.tool_choice:
        case None:
            return ToolChoice()
        case "none" | "auto" | "required" as mode:
            return ToolChoice(mode)
        case NamedToolChoice(function=function):
            return ToolChoice("required", (function.name,))
        case AllowedToolsChoice(allowed_tools=allowed):
            return ToolChoice(
                allowed.mode, tuple(dict.fromkeys(tool.function.name for tool in allowed.tools))
            )
        case other:
            assert_never(other)


def _output(body: ChatBody) -> OutputFormat:
    form = body.response_format
    if body.grammar is not None:
        if form is not None and form.type != "text":
            raise _refused(
                "an answer has either a grammar or a response_format. Send one of the two.", "grammar"
            )
        return GbnfText(body.grammar)
    match form:
        case JsonSchemaResponse(json_schema=described):
            return JsonSchema(described.schema_, bool(described.strict))
        case JsonObjectResponse(schema_=None):
            return JsonObject()
        case JsonObjectResponse(schema_=dict() as schema):
            return JsonSchema(schema, param="response_format.schema")
        case _:
            return FreeText()


def _reasoning(body: ChatBody) -> bool | None:
    options = body.chat_template_kwargs
    if options is not None and options.enable_thinking is not None:
        return options.enable_thinking
    return None if body.reasoning_effort is None else body.reasoning_effort not in NO_REASONING


def _message(message: ChatMessage, index: int) -> Message:
    path = f"messages[{index}]"
    match message:
        case SystemMessage():
            return {"role": "system", "content": _text(message.content)}
        case UserMessage(content=str() as text):
            return {"role": "user", "content": text}
        case UserMessage(content=parts):
            images = [
                read_data_url(part.image_url.url, f"{path}.content[{at}].image_url.url")
                for at, part in enumerate(parts)
                if isinstance(part, ImagePart)
            ]
            user: Message = {"role": "user", "content": _text(parts)}
            return {**user, "images": images} if images else user
        case ToolMessage():
            result: Message = {"role": "tool", "content": _text(message.content)}
            result["tool_call_id"] = message.tool_call_id
            if message.name is not None:
                result["name"] = message.name
            return result
        case AssistantMessage():
            answer: Message = {"role": "assistant", "content": _text(message.content or "")}
            if message.tool_calls:
                answer["tool_calls"] = _calls(message, f"{path}.tool_calls")
            if message.reasoning_content:
                answer["reasoning_content"] = message.reasoning_content
            return answer
        case other:
            assert_never(other)


def _calls(message: AssistantMessage, path: str) -> list[dict[str, Any]]:
    return [
        {
            "id": call.id,
            "type": "function",
            "function": {
                "name": call.function.name,
                "arguments": read_arguments(call.function.arguments, f"{path}[{index}].function.arguments"),
            },
        }
        for index, call in enumerate(message.tool_calls or ())
    ]


def _text(content: str | Sequence[UserPart | AssistantPart]) -> str:
    if isinstance(content, str):
        return content
    texts: list[str] = []
    for part in content:
        match part:
            case TextPart(text=text) | RefusalPart(refusal=text):
                texts.append(text)
            case ImagePart():
                pass
    return "\n".join(texts)


def _ignored(model: BaseModel, path: str = "") -> Iterator[str]:
    """Yield the paths of the fields that no model knows."""
    for name, value in (model.model_extra or {}).items():
        if value is not None and (path or name not in _NEUTRAL):
            yield f"{path}{name}"
    for name in type(model).model_fields:
        value = getattr(model, name)
        for member in value if isinstance(value, list) else (value,):
            if isinstance(member, BaseModel):
                yield from _ignored(member, f"{path}{name.rstrip('_')}.")


def _refused(message: str, param: str, code: str = "invalid_request") -> HttpError:
    return HttpError(400, message, code, param)


__all__ = ["ParsedBody", "parse_body"]
