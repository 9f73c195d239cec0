"""Images in messages, in the format of each server. Pure.

chat servers    content: [{"type": "text", …}, {"type": "image_url", "image_url": {"url": "data:…"}}]
Ollama          images: ["base64"]
llama-server    a marker in the prompt for each, and the images beside it, as base64
"""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping, Sequence
from typing import Any

from gbnf.prompts.messages import Image, Message
from gbnf_server.system.errors import BackendError


def refuse_images(messages: Sequence[Message], name: str) -> None:
    """Raise BackendError if a message contains an image, for backends without support for them."""
    if any(message.get("images") for message in messages):
        raise BackendError(
            f"{name} takes no images. Use a server whose model supports them, or put the image into the "
            "workspace and offer the tool describe_frame."
        )


def openai_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message of OpenAI's chat API, the arguments of its calls as JSON text."""
    images = message.get("images", ())
    plain = {key: value for key, value in message.items() if key not in {"images", "thinking"}}
    if calls := message.get("tool_calls"):
        plain["tool_calls"] = [_openai_call(call) for call in calls]
    if not images:
        return plain
    parts = [
        {"type": "image_url", "image_url": {"url": f"data:{image.media_type};base64,{_base64(image)}"}}
        for image in images
    ]
    return {**plain, "content": [{"type": "text", "text": message["content"]}, *parts]}


def _openai_call(call: Mapping[str, Any]) -> dict[str, Any]:
    function = call["function"]
    arguments = function["arguments"]
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return {**call, "type": "function", "function": {**function, "arguments": arguments}}


def ollama_message(message: Message) -> dict[str, Any]:
    """Return a message of Ollama's chat API."""
    images = message.get("images", ())
    plain: dict[str, Any] = {"role": message["role"], "content": message["content"]}
    if calls := message.get("tool_calls"):
        plain["tool_calls"] = [{"function": call["function"]} for call in calls]
    if "name" in message:
        plain["tool_name"] = message["name"]
    return {**plain, "images": [_base64(image) for image in images]} if images else plain


def insert_image_markers(messages: Sequence[Message], marker: str) -> tuple[list[Message], list[str]]:
    """Return the messages with a marker for each image, and the images in the same order, as base64.

    No text may contain the marker itself: escape it before.
    """
    plain: list[Message] = []
    data: list[str] = []
    for message in messages:
        images = message.get("images", ())
        data += [_base64(image) for image in images]
        content = "".join(f"{marker}\n" for _ in images) + message["content"]
        marked: Message = {**message, "content": content}
        marked.pop("images", None)
        plain.append(marked)
    return plain, data


def _base64(image: Image) -> str:
    return base64.b64encode(image.data).decode()
