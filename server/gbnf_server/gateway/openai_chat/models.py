"""The JSON of a request, as pydantic models. Source: OpenAI's API reference, "Create chat completion".

Each model keeps the fields that it does not know, so that `conversion` can say which of them have no effect.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, ConfigDict, Field, StrictBool


class _Model(BaseModel):
    model_config = ConfigDict(extra="allow")


class TextPart(_Model):
    """A text, or the refusal of an assistant."""

    type: Literal["text"]
    text: str


class RefusalPart(_Model):
    """What an assistant said instead of an answer."""

    type: Literal["refusal"]
    refusal: str


class ImageUrl(_Model):
    """An image as a data URL."""

    url: str


class ImagePart(_Model):
    """An image in a message of the user."""

    type: Literal["image_url"]
    image_url: ImageUrl


UserPart: TypeAlias = Annotated[TextPart | ImagePart, Field(discriminator="type")]
AssistantPart: TypeAlias = Annotated[TextPart | RefusalPart, Field(discriminator="type")]


class CalledFunction(_Model):
    """A name, and arguments as JSON text."""

    name: str
    arguments: str


class ToolCallBody(_Model):
    """A call of an assistant."""

    id: str
    type: Literal["function"] = "function"
    function: CalledFunction


class SystemMessage(_Model):
    """Instructions."""

    role: Literal["system", "developer"]
    content: str | list[TextPart]


class UserMessage(_Model):
    """A message of the user."""

    role: Literal["user"]
    content: str | list[UserPart]


class AssistantMessage(_Model):
    """An earlier answer."""

    role: Literal["assistant"]
    content: str | list[AssistantPart] | None = None
    tool_calls: list[ToolCallBody] | None = None
    reasoning_content: str | None = None
    function_call: None = None


class ToolMessage(_Model):
    """The result of a call."""

    role: Literal["tool"]
    content: str | list[TextPart]
    tool_call_id: str
    name: str | None = None


ChatMessage: TypeAlias = Annotated[
    SystemMessage | UserMessage | AssistantMessage | ToolMessage, Field(discriminator="role")
]


class FunctionDefinition(_Model):
    """A function that the model may call."""

    name: str
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: StrictBool | None = None


class ToolDefinition(_Model):
    """A tool: only functions exist."""

    type: Literal["function"]
    function: FunctionDefinition


class NamedFunction(_Model):
    """The name of a function."""

    name: str


class NamedTool(_Model):
    """A tool by its name."""

    type: Literal["function"] = "function"
    function: NamedFunction


class AllowedTools(_Model):
    """Some of the tools."""

    mode: Literal["auto", "required"]
    tools: list[NamedTool]


class AllowedToolsChoice(_Model):
    """The model may, or must, call one of these."""

    type: Literal["allowed_tools"]
    allowed_tools: AllowedTools


class NamedToolChoice(NamedTool):
    """The model must call this tool."""

    type: Literal["function"]


ToolChoiceObject: TypeAlias = Annotated[NamedToolChoice | AllowedToolsChoice, Field(discriminator="type")]


class SchemaFormat(_Model):
    """A JSON Schema for the answer."""

    name: str = ""
    schema_: dict[str, Any] = Field(alias="schema")
    strict: StrictBool | None = None


class TextResponse(_Model):
    """Any text."""

    type: Literal["text"]


class JsonObjectResponse(_Model):
    """A JSON object; `schema`, as in llama-server, says which."""

    type: Literal["json_object"]
    schema_: dict[str, Any] | None = Field(None, alias="schema")


class JsonSchemaResponse(_Model):
    """JSON that satisfies a schema."""

    type: Literal["json_schema"]
    json_schema: SchemaFormat


ResponseFormat: TypeAlias = Annotated[
    TextResponse | JsonObjectResponse | JsonSchemaResponse, Field(discriminator="type")
]


class StreamOptions(_Model):
    """What a stream contains. `include_obfuscation` is for OpenAI's own servers."""

    include_usage: StrictBool | None = None
    include_obfuscation: StrictBool | None = None


class TemplateOptions(_Model):
    """Arguments of the chat template."""

    enable_thinking: StrictBool | None = None


class ChatBody(_Model):
    """The body of a request. `grammar`, `top_k`, `min_p` and `chat_template_kwargs` are extensions."""

    model: str = ""
    messages: list[ChatMessage] = Field(min_length=1)
    tools: list[ToolDefinition] | None = None
    tool_choice: Literal["none", "auto", "required"] | ToolChoiceObject | None = None
    parallel_tool_calls: StrictBool | None = None
    response_format: ResponseFormat | None = None
    grammar: str | None = None
    stream: StrictBool | None = None
    stream_options: StreamOptions | None = None
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
    chat_template_kwargs: TemplateOptions | None = None
