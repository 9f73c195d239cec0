"""The items of a request's input, as messages, and the tools of a request.

A namespace is a list of functions with a name; the model knows each as `namespace__function`. Tools that the
API itself executes are refused, except for those without which an answer is only less informed.

Source: the types of the package `openai` (`openai.types.responses.ResponseInputItemParam`, and `ToolParam`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from pydantic import Field

from gbnf.prompts.messages import Image
from gbnf_server.gateway import reading
from gbnf_server.gateway.chat import FunctionTool, ToolChoice
from gbnf_server.gateway.turns import Turns
from gbnf_server.web.errors import HttpError, invalid_request

# -- items


class _InputImage(reading.Content):
    image_url: str

    def read(self, path: str) -> Image:
        """Return the image. Only data URLs are read."""
        return reading.read_data_url(self.image_url, f"{path}.image_url")


_CONTENT: dict[str, type[reading.Content]] = {
    **dict.fromkeys(("input_text", "output_text", "text"), reading.Text),
    "input_image": _InputImage,
    "refusal": reading.Refusal,
}


class _MessageItem(reading.Part):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Any]


class _CallItem(reading.Part):
    """A call of the model. `arguments`: a JSON object, as text."""

    call_id: str
    name: str
    arguments: str
    namespace: str | None = None


class _CallOutput(reading.Part):
    call_id: str
    output: str | list[Any]


class _Reasoning(reading.Part):
    """Reasoning of the model. `content` is whole; `summary` is used without it."""

    summary: list[Any] = Field(default_factory=list)
    content: list[Any] | None = None


class _Reference(reading.Part):
    """An item of a stored response."""

    id: str


_ITEMS: dict[str, type[reading.Part]] = {
    "message": _MessageItem,
    "function_call": _CallItem,
    "function_call_output": _CallOutput,
    "reasoning": _Reasoning,
    "item_reference": _Reference,
}


def add_items(turns: Turns, items: Sequence[Any], stored: Callable[[str], Mapping[str, Any] | None]) -> None:
    """Add the items to the conversation. `stored` returns the stored item with an id. Raises HttpError."""
    for index, value in enumerate(items):
        path = f"input[{index}]"
        item = reading.read_kind(_ITEMS, value, path, kind="message")
        if isinstance(item, _Reference):
            found = stored(item.id)
            if found is None:
                problem = f"no stored response has an item with the id {item.id!r}."
                raise HttpError(404, problem, "not_found", f"{path}.id")
            item = reading.read_kind(_ITEMS, found, path)
        _add_item(turns, item, path)


def _add_item(turns: Turns, item: reading.Part, path: str) -> None:
    match item:
        case _MessageItem(role=role):
            text, images = reading.read_content(_CONTENT, item.content, f"{path}.content")
            if images and role != "user":
                raise invalid_request(f"{path} is a message of the {role} with an image.", f"{path}.content")
            match role:
                case "user":
                    turns.user(text, images)
                case "assistant":
                    turns.assistant(text)
                case _:
                    turns.system(text)
        case _CallItem():
            arguments = reading.read_arguments(item.arguments)
            turns.call(item.call_id, _model_name(item.namespace, item.name), arguments)
        case _CallOutput():
            text, images = reading.read_content(_CONTENT, item.output, f"{path}.output")
            turns.result(item.call_id, text, images, f"{path}.call_id")
        case _Reasoning():
            kinds = {"reasoning_text": reading.Text, "summary_text": reading.Text}
            given = enumerate(item.content or item.summary)
            texts = [reading.read_kind(kinds, part, f"{path}.content[{index}]").text for index, part in given]
            if texts:
                turns.reasoning("\n\n".join(texts))


# -- tools


_LEFT_OUT = (
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "image_generation",
)
"""Tools that are left out with a warning: Codex offers them in every request."""


class _Namespace(reading.Part):
    """Functions with a common name."""

    name: reading.ToolName
    tools: list[Any]


class _LeftOut(reading.Part):
    type: str


_TOOLS: dict[str, type[reading.Part]] = {
    "function": reading.Function,
    "namespace": _Namespace,
    **dict.fromkeys(_LEFT_OUT, _LeftOut),
}


class _Named(reading.Part):
    """A function that must be called."""

    type: Literal["function"]
    name: str
    namespace: str | None = None

    @property
    def model_name(self) -> str:
        """The name under which the model knows the function."""
        return _model_name(self.namespace, self.name)


class _Allowed(reading.Part):
    """The tools that may be called."""

    mode: Literal["auto", "required"]
    tools: list[dict[str, Any]]


_CHOICES: dict[str, type[reading.Part]] = {"function": _Named, "allowed_tools": _Allowed}


Places: TypeAlias = dict[str, tuple[str | None, str]]
"""The name under which the model knows a function -> its namespace and its name."""


def read_tools(values: Sequence[Any]) -> tuple[list[FunctionTool], Places, list[str]]:
    """Return the tools of a request, where they are, and the paths of those that are left out.

    Raises HttpError for one that cannot be left out.
    """
    tools: list[FunctionTool] = []
    places: Places = {}
    left_out: list[str] = []

    def add(function: reading.Function, namespace: str | None, path: str) -> None:
        name = _model_name(namespace, function.name)
        places[name] = (namespace, function.name)
        tools.append(function.tool(path, name))

    for index, value in enumerate(values):
        path = f"tools[{index}]"
        match reading.read_kind(_TOOLS, value, path):
            case reading.Function() as function:
                add(function, None, path)
            case _Namespace(name=namespace, tools=members):
                for position, member in enumerate(members):
                    at = f"{path}.tools[{position}]"
                    add(reading.read_kind({"function": reading.Function}, member, at), namespace, at)
            case _LeftOut(type=kind):
                left_out.append(f"{path} ({kind})")
    return tools, places, left_out


def read_choice(value: str | Mapping[str, Any] | None) -> ToolChoice:
    """Return the choice among the tools. Raises HttpError."""
    match value:
        case None | "auto":
            return ToolChoice()
        case "required" | "none":
            return ToolChoice(value)
        case str():
            raise invalid_request(
                f"tool_choice is {value!r}. Use auto, none, required or an object.", "tool_choice"
            )
    match reading.read_kind(_CHOICES, value, "tool_choice"):
        case _Named() as named:
            return ToolChoice("required", (named.model_name,))
        case _Allowed(mode=mode, tools=tools):
            allowed = [
                reading.read_part(_Named, tool, f"tool_choice.tools[{index}]").model_name
                for index, tool in enumerate(tools)
                if tool.get("type") not in _LEFT_OUT
            ]
            return ToolChoice(mode, tuple(allowed))
    raise AssertionError(value)


def _model_name(namespace: str | None, name: str) -> str:
    return name if namespace is None else f"{namespace}__{name}"
