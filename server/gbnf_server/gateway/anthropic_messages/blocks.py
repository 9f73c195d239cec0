"""The content blocks of a request's messages, as messages of a conversation.

Source: the types of the package `anthropic` (`anthropic.types.ContentBlockParam`).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from gbnf.prompts.messages import Image
from gbnf_server.gateway.reading import Part, read_image, read_kind, read_part, refused
from gbnf_server.gateway.turns import Turns


class TextBlock(Part):
    """A text."""

    type: Literal["text"]
    text: str


class Base64Source(Part):
    """The bytes of an image."""

    type: Literal["base64"]
    media_type: str
    data: str


class ImageBlock(Part):
    """An image. Only its bytes are read, no URL."""

    type: Literal["image"]
    source: dict[str, Any]


class TextSource(Part):
    """The text of a document."""

    type: Literal["text"]
    data: str


class DocumentBlock(Part):
    """A document. Only plain text is read."""

    type: Literal["document"]
    source: dict[str, Any]
    title: str | None = None


class ToolUseBlock(Part):
    """A call of the model."""

    type: Literal["tool_use"]
    id: str
    name: str
    input: dict[str, Any]


class ToolResultBlock(Part):
    """The result of a call: a text, or a list of blocks."""

    type: Literal["tool_result"]
    tool_use_id: str
    content: str | list[Any] | None = None
    is_error: bool | None = None


class ThinkingBlock(Part):
    """Reasoning of the model."""

    type: Literal["thinking"]
    thinking: str


class RedactedThinkingBlock(Part):
    """Reasoning that only Anthropic's servers can read."""

    type: Literal["redacted_thinking"]


_CONTENT: dict[str, type[Part]] = {"text": TextBlock, "image": ImageBlock, "document": DocumentBlock}

_BLOCKS: dict[str, dict[str, type[Part]]] = {
    "user": {**_CONTENT, "tool_result": ToolResultBlock},
    "assistant": {
        "text": TextBlock,
        "tool_use": ToolUseBlock,
        "thinking": ThinkingBlock,
        "redacted_thinking": RedactedThinkingBlock,
    },
    "system": {"text": TextBlock},
}


class MessageParam(Part):
    """A message. `content` is a text, or a list of blocks."""

    role: Literal["user", "assistant", "system"]
    content: str | list[Any]


def add_messages(turns: Turns, messages: Sequence[Any]) -> None:
    """Add the messages to the conversation. Raises HttpError."""
    for index, value in enumerate(messages):
        path = f"messages[{index}]"
        add_content(turns, read_part(MessageParam, value, path), f"{path}.content")


def add_content(turns: Turns, message: MessageParam, path: str) -> None:
    """Add the content of a message, which is at `path`. Raises HttpError."""
    if isinstance(message.content, str):
        {"user": turns.user, "assistant": turns.assistant, "system": turns.system}[message.role](
            message.content
        )
        return
    for index, value in enumerate(message.content):
        at = f"{path}[{index}]"
        match read_kind(_BLOCKS[message.role], value, at):
            case TextBlock(text=text) if message.role == "assistant":
                turns.assistant(text)
            case TextBlock(text=text) if message.role == "system":
                turns.system(text)
            case ThinkingBlock(thinking=text):
                turns.reasoning(text)
            case ToolUseBlock(id=call_id, name=name, input=arguments):
                turns.call(call_id, name, arguments)
            case ToolResultBlock() as result:
                text, images = _result(result, at)
                turns.result(result.tool_use_id, text, images, f"{at}.tool_use_id")
            case RedactedThinkingBlock():
                pass
            case block:
                turns.user(*_content(block, at))


def _result(result: ToolResultBlock, path: str) -> tuple[str, list[Image]]:
    """Return the text of a result, a line break between its blocks, and its images."""
    if isinstance(result.content, str):
        text, images = result.content, []
    else:
        blocks = [
            _content(read_kind(_CONTENT, value, at), at)
            for index, value in enumerate(result.content or ())
            for at in [f"{path}.content[{index}]"]
        ]
        text = "\n".join(text for text, _ in blocks if text)
        images = [image for _, shown in blocks for image in shown]
    return (f"Error: {text}" if result.is_error else text), images


def _content(block: Part, path: str) -> tuple[str, list[Image]]:
    match block:
        case TextBlock(text=text):
            return text, []
        case ImageBlock(source=source):
            image = read_kind({"base64": Base64Source}, source, f"{path}.source")
            return "", [read_image(image.media_type, image.data, f"{path}.source")]
        case DocumentBlock(source=source, title=title):
            text = read_kind({"text": TextSource}, source, f"{path}.source").data
            return (f"{title}\n\n{text}" if title else text), []
    raise refused(f"{path} has no text and no image.", path)
