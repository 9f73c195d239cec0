"""The items of a request's input, as messages, and the tools of a request.

A namespace is a list of tools with a name; the model knows each as `namespace__name`. A custom tool takes a
text, which is the argument `input` of a function. Items may add tools. Tools that the API itself executes are
refused, except for those without which an answer is only less informed.

Source: the types of the package `openai` (`openai.types.responses.ResponseInputItemParam`, and `ToolParam`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, NamedTuple

from pydantic import Field

from gbnf.dialects.lark_patterns import lark_pattern, whole_pattern
from gbnf.errors import GrammarError
from gbnf.prompts.messages import Image
from gbnf_server.gateway import reading
from gbnf_server.gateway.chat import FunctionTool, ToolChoice
from gbnf_server.gateway.turns import Turns
from gbnf_server.web.errors import HttpError, invalid_request

# -- items


class _InputImage(reading.ContentPart):
    image_url: str

    def read(self, path: str) -> Image:
        """Return the image. Only data URLs are read."""
        return reading.read_data_url(self.image_url, f"{path}.image_url")


_CONTENT: dict[str, type[reading.ContentPart]] = {
    **dict.fromkeys(("input_text", "output_text", "text"), reading.TextPart),
    "input_image": _InputImage,
    "refusal": reading.RefusalPart,
}


class _MessageItem(reading.RequestPart):
    role: Literal["user", "assistant", "system", "developer"]
    content: str | list[Any]


class _CallItem(reading.RequestPart):
    """A call of the model. `arguments`: a JSON object, as text."""

    call_id: str
    name: str
    arguments: str
    namespace: str | None = None


class _CustomCallItem(reading.RequestPart):
    """A call of a custom tool."""

    call_id: str
    name: str
    input: str
    namespace: str | None = None


class _SearchCall(reading.RequestPart):
    """A call of the client's search for tools; without a `call_id`, the API itself has searched."""

    call_id: str | None = None
    arguments: dict[str, Any] | None = None


class _CallOutput(reading.RequestPart):
    call_id: str
    output: str | list[Any]


class _Reasoning(reading.RequestPart):
    """Reasoning of the model. `content` is whole; `summary` is used without it."""

    summary: list[Any] = Field(default_factory=list)
    content: list[Any] | None = None


class _Reference(reading.RequestPart):
    """An item of a stored response."""

    id: str


class _AddedTools(reading.RequestPart):
    """Tools that may be called from now on. `call_id`: that of the search that found them."""

    tools: list[Any]
    call_id: str | None = None


class _Encrypted(reading.ContentPart):
    """A text that only the servers of the API can read."""

    encrypted_content: str

    def read(self, path: str) -> str:
        """Return nothing."""
        return ""


_AGENT_CONTENT: dict[str, type[reading.ContentPart]] = {**_CONTENT, "encrypted_content": _Encrypted}


class _AgentMessage(reading.RequestPart):
    """A message of another agent of the client."""

    author: str = "another agent"
    content: str | list[Any]


_ITEMS: dict[str, type[reading.RequestPart]] = {
    "message": _MessageItem,
    "function_call": _CallItem,
    "function_call_output": _CallOutput,
    "custom_tool_call": _CustomCallItem,
    "custom_tool_call_output": _CallOutput,
    "tool_search_call": _SearchCall,
    "tool_search_output": _AddedTools,
    "additional_tools": _AddedTools,
    "agent_message": _AgentMessage,
    "reasoning": _Reasoning,
    "item_reference": _Reference,
}


def add_items(
    turns: Turns,
    items: Sequence[Any],
    stored: Callable[[str], Mapping[str, Any] | None],
    tools: RequestTools,
) -> None:
    """Add the items to the conversation, and their tools to those of the request. Raises HttpError.

    `stored` returns the stored item with an id.
    """
    for index, value in enumerate(items):
        path = f"input[{index}]"
        item = reading.read_kind(_ITEMS, value, path, kind="message")
        if isinstance(item, _Reference):
            stored_item = stored(item.id)
            if stored_item is None:
                problem = f"no stored response has an item with the id {item.id!r}."
                raise HttpError(404, problem, "not_found", f"{path}.id")
            item = reading.read_kind(_ITEMS, stored_item, path)
        _add_item(turns, item, path, tools)


def _add_item(turns: Turns, item: reading.RequestPart, path: str, tools: RequestTools) -> None:
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
        case _CustomCallItem():
            turns.call(item.call_id, _model_name(item.namespace, item.name), {INPUT: item.input})
        case _SearchCall(call_id=str() as call_id):
            turns.call(call_id, _SEARCH, item.arguments or {})
        case _AddedTools():
            names = tools.add(item.tools, f"{path}.tools")
            if item.call_id is not None:
                output = (
                    f"Tools that can be called now: {', '.join(names)}" if names else "No tools were found."
                )
                turns.result(item.call_id, output)
        case _AgentMessage():
            text, images = reading.read_content(_AGENT_CONTENT, item.content, f"{path}.content")
            turns.user(f"Message from {item.author}:\n{text}", images)
        case _CallOutput():
            text, images = reading.read_content(_CONTENT, item.output, f"{path}.output")
            turns.result(item.call_id, text, images, f"{path}.call_id")
        case _Reasoning():
            kinds = {"reasoning_text": reading.TextPart, "summary_text": reading.TextPart}
            parts = enumerate(item.content or item.summary)
            texts = [reading.read_kind(kinds, part, f"{path}.content[{index}]").text for index, part in parts]
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


class _Namespace(reading.RequestPart):
    """Tools with a common name."""

    name: reading.ToolName
    tools: list[Any]


class _Custom(reading.RequestPart):
    """A tool that takes a text."""

    class TextConstraint(reading.RequestPart):
        """What the text may be: anything, or a grammar's language."""

        type: Literal["text", "grammar"]
        syntax: Literal["lark", "regex"] | None = None
        definition: str | None = None

    name: reading.ToolName
    description: str | None = None
    format: TextConstraint | None = None


class _Search(reading.RequestPart):
    """A search for tools. That of the client is called like a function."""

    execution: Literal["server", "client"] | None = None
    description: str | None = None
    parameters: dict[str, Any] | None = None


class _LeftOut(reading.RequestPart):
    type: str


_MEMBERS: dict[str, type[reading.RequestPart]] = {"function": reading.Function, "custom": _Custom}
_TOOLS: dict[str, type[reading.RequestPart]] = {
    **_MEMBERS,
    "namespace": _Namespace,
    "tool_search": _Search,
    **dict.fromkeys(_LEFT_OUT, _LeftOut),
}
_SEARCH = "tool_search"
INPUT = "input"
"""The only argument of a custom tool."""


class ToolPlace(NamedTuple):
    """Where a tool of the request is: its namespace, its name, and which items its calls are."""

    namespace: str | None
    name: str
    kind: Literal["function", "custom", "tool_search"] = "function"


class RequestTools:
    """The tools of a request: `places` by the name under which the model knows each, and what is left out."""

    def __init__(self, values: Sequence[Any]) -> None:
        self.places: dict[str, ToolPlace] = {}
        self.left_out: list[str] = []
        self._declared = self._read(values, "tools")
        self._added: dict[str, FunctionTool] = {}

    @property
    def tools(self) -> tuple[FunctionTool, ...]:
        """All tools; of those with one name, the one that was added last."""
        declared = (tool for tool in self._declared if tool.name not in self._added)
        return (*declared, *self._added.values())

    def add(self, values: Sequence[Any], path: str) -> list[str]:
        """Add the tools of an item, and return their names. Raises HttpError."""
        tools = {tool.name: tool for tool in self._read(values, path)}
        self._added |= tools
        return list(tools)

    def _read(self, values: Sequence[Any], path: str, namespace: str | None = None) -> list[FunctionTool]:
        """Read tools. Raises HttpError for one that cannot be left out."""
        tools: list[FunctionTool] = []
        for index, value in enumerate(values):
            tool_path = f"{path}[{index}]"
            match reading.read_kind(_TOOLS if namespace is None else _MEMBERS, value, tool_path):
                case reading.Function() as function:
                    tools.append(function.tool(tool_path, self._name(ToolPlace(namespace, function.name))))
                case _Custom() as custom:
                    tools.append(
                        self._custom(
                            custom, tool_path, self._name(ToolPlace(namespace, custom.name, "custom"))
                        )
                    )
                case _Search(execution="client") as search:
                    name = self._name(ToolPlace(None, _SEARCH, "tool_search"))
                    function = reading.Function(
                        name=name, description=search.description, parameters=search.parameters
                    )
                    tools.append(function.tool(tool_path))
                case _Namespace(name=name, tools=members):
                    tools += self._read(members, f"{tool_path}.tools", name)
                case _:
                    self.left_out.append(f"{tool_path} ({value['type']})")
        return tools

    def _name(self, place: ToolPlace) -> str:
        name = _model_name(place.namespace, place.name)
        self.places[name] = place
        return name

    def _custom(self, custom: _Custom, path: str, name: str) -> FunctionTool:
        described, pattern, grammar = "The text.", "", custom.format
        if grammar is not None and grammar.definition is not None:
            described = f"The text, in the language of this {grammar.syntax} grammar:\n{grammar.definition}"
            try:
                is_lark = grammar.syntax == "lark"
                pattern = lark_pattern(grammar.definition) if is_lark else whole_pattern(grammar.definition)
            except GrammarError as error:
                self.left_out.append(f"{path}.format ({error})")
        properties = {INPUT: {"type": "string", "description": described}}
        parameters = {
            "type": "object", "properties": properties, "required": [INPUT], "additionalProperties": False,
        }  # fmt: skip
        return FunctionTool(name, custom.description or "", parameters, param=path, pattern=pattern)


class _Named(reading.RequestPart):
    """A function, or a custom tool, that must be called."""

    type: Literal["function", "custom"]
    name: str
    namespace: str | None = None

    @property
    def model_name(self) -> str:
        """The name under which the model knows the function."""
        return _model_name(self.namespace, self.name)


class _Allowed(reading.RequestPart):
    """The tools that may be called."""

    mode: Literal["auto", "required"]
    tools: list[dict[str, Any]]


_CHOICES: dict[str, type[reading.RequestPart]] = {
    **dict.fromkeys(_MEMBERS, _Named),
    "allowed_tools": _Allowed,
}


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
                if tool.get("type") not in {*_LEFT_OUT, _SEARCH}
            ]
            return ToolChoice(mode, tuple(allowed))
    raise AssertionError(value)


def _model_name(namespace: str | None, name: str) -> str:
    return name if namespace is None else f"{namespace}__{name}"
