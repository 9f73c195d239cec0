"""The items of a request's input, as messages.

Source: the types of the package `openai` (`openai.types.responses.ResponseInputItemParam`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pydantic import Field

from gbnf.prompts.messages import Image
from gbnf_server.gateway.reading import Part, read_arguments, read_data_url, read_kind, refused
from gbnf_server.gateway.turns import Turns


class InputTextPart(Part):
    """A text; `refusal` instead of `text` is a refusal of the model."""

    type: Literal["input_text", "output_text", "text", "summary_text", "reasoning_text"]
    text: str


class InputRefusalPart(Part):
    """A refusal of the model, as text."""

    type: Literal["refusal"]
    refusal: str


class InputImagePart(Part):
    """An image. Only data URLs are read."""

    type: Literal["input_image"]
    image_url: str


_CONTENT: dict[str, type[Part]] = {
    **dict.fromkeys(("input_text", "output_text", "text"), InputTextPart),
    "input_image": InputImagePart,
    "refusal": InputRefusalPart,
}


class MessageItem(Part):
    """A message. `content` is a text, or a list of parts."""

    type: Literal["message"] = "message"
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Any]


class CallItem(Part):
    """A call of the model. `arguments`: a JSON object, as text."""

    type: Literal["function_call"]
    call_id: str
    name: str
    arguments: str
    namespace: str | None = None


class CallOutputItem(Part):
    """The result of a call: a text, or a list of parts."""

    type: Literal["function_call_output"]
    call_id: str
    output: str | list[Any]


class ReasoningItem(Part):
    """Reasoning of the model. `content` is whole; `summary` is used without it."""

    type: Literal["reasoning"]
    summary: list[Any] = Field(default_factory=list)
    content: list[Any] | None = None


class ReferenceItem(Part):
    """An item of a stored response."""

    type: Literal["item_reference"]
    id: str


_ITEMS: dict[str, type[Part]] = {
    "message": MessageItem,
    "function_call": CallItem,
    "function_call_output": CallOutputItem,
    "reasoning": ReasoningItem,
    "item_reference": ReferenceItem,
}

ToolNames = Callable[[str | None, str], str]
"""The name under which the model knows the function of a namespace, None for none."""


def add_items(
    turns: Turns,
    items: Sequence[Any],
    *,
    names: ToolNames,
    stored: Callable[[str], Mapping[str, Any] | None],
    param: str = "input",
) -> None:
    """Add the items to the conversation. `stored` returns the stored item with an id. Raises HttpError."""
    for index, value in enumerate(items):
        path = f"{param}[{index}]"
        item = read_kind(_ITEMS, value, path, kind="message")
        if isinstance(item, ReferenceItem):
            found = stored(item.id)
            if found is None:
                raise refused(f"no stored response has an item with the id {item.id!r}.", f"{path}.id", 404)
            item = read_kind(_ITEMS, found, path)
        _add_item(turns, item, names, path)


def _add_item(turns: Turns, item: Part, names: ToolNames, path: str) -> None:
    match item:
        case MessageItem(role=role):
            text, images = _content(item.content, f"{path}.content")
            if images and role != "user":
                raise refused(f"{path} is a message of the {role} with an image.", f"{path}.content")
            match role:
                case "user":
                    turns.user(text, images)
                case "assistant":
                    turns.assistant(text)
                case _:
                    turns.system(text)
        case CallItem():
            arguments = read_arguments(item.arguments, f"{path}.arguments")
            turns.call(item.call_id, names(item.namespace, item.name), arguments)
        case CallOutputItem():
            text, images = _content(item.output, f"{path}.output")
            turns.result(item.call_id, text, images, f"{path}.call_id")
        case ReasoningItem():
            given = item.content or item.summary
            kinds = {"reasoning_text": InputTextPart, "summary_text": InputTextPart}
            texts = [
                read_kind(kinds, part, f"{path}.content[{index}]").text for index, part in enumerate(given)
            ]
            if texts:
                turns.reasoning("\n\n".join(texts))


def _content(content: str | Sequence[Any], path: str) -> tuple[str, list[Image]]:
    """Return the text of a content, a line break between its parts, and its images."""
    if isinstance(content, str):
        return content, []
    texts: list[str] = []
    images: list[Image] = []
    for index, value in enumerate(content):
        match read_kind(_CONTENT, value, f"{path}[{index}]"):
            case InputTextPart(text=text) | InputRefusalPart(refusal=text):
                texts.append(text)
            case InputImagePart(image_url=url):
                images.append(read_data_url(url, f"{path}[{index}].image_url"))
    return "\n".join(texts), images
