"""The tools of the Responses API, and the choice among them.

A namespace is a list of functions with a name; the model knows each as `namespace__function`. Tools that the
API itself executes are refused, except for those without which an answer is only less informed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Literal

from pydantic import Field

from gbnf_server.gateway.chat import FunctionTool, ToolChoice
from gbnf_server.gateway.reading import Part, read_kind, read_part, refused

_LEFT_OUT = (
    "web_search",
    "web_search_2025_08_26",
    "web_search_preview",
    "web_search_preview_2025_03_11",
    "image_generation",
)
"""Tools that are left out with a warning: Codex offers them in every request."""


class Function(Part):
    """A function of the client."""

    type: Literal["function"]
    name: Annotated[str, Field(min_length=1)]
    description: str | None = None
    parameters: dict[str, Any] | None = None
    strict: bool | None = None


class Namespace(Part):
    """Functions with a common name."""

    type: Literal["namespace"]
    name: Annotated[str, Field(min_length=1)]
    tools: list[Any]


class LeftOut(Part):
    """A tool that is left out."""

    type: str


_TOOLS: dict[str, type[Part]] = {
    "function": Function,
    "namespace": Namespace,
    **dict.fromkeys(_LEFT_OUT, LeftOut),
}


class NamedChoice(Part):
    """A function that must be called."""

    type: Literal["function"]
    name: str
    namespace: str | None = None


class AllowedChoice(Part):
    """The tools that may be called."""

    type: Literal["allowed_tools"]
    mode: Literal["auto", "required"]
    tools: list[dict[str, Any]]


_CHOICES: dict[str, type[Part]] = {"function": NamedChoice, "allowed_tools": AllowedChoice}


@dataclass(frozen=True, slots=True)
class ToolTable:
    """The tools of a request. `places`: the model's name of each function -> namespace and name.

    `left_out`: the paths of the tools that are left out.
    """

    functions: tuple[FunctionTool, ...]
    places: Mapping[str, tuple[str | None, str]]
    left_out: tuple[str, ...]

    def model_name(self, namespace: str | None, name: str) -> str:
        """Return the name under which the model knows a function, which need not be in the table."""
        return name if namespace is None else f"{namespace}__{name}"

    def place(self, model_name: str) -> tuple[str | None, str]:
        """Return the namespace and the name of a function that the model called."""
        return self.places.get(model_name, (None, model_name))

    def choice(self, value: str | Mapping[str, Any] | None) -> ToolChoice:
        """Return the choice. Raises HttpError."""
        match value:
            case None | "auto":
                return ToolChoice()
            case "required" | "none":
                return ToolChoice(value)
            case str():
                raise refused(
                    f"tool_choice is {value!r}. Use auto, none, required or an object.", "tool_choice"
                )
        match read_kind(_CHOICES, value, "tool_choice"):
            case NamedChoice(name=name, namespace=namespace):
                return ToolChoice("required", (self.model_name(namespace, name),))
            case AllowedChoice(mode=mode, tools=tools):
                named = [
                    read_part(NamedChoice, tool, f"tool_choice.tools[{index}]")
                    for index, tool in enumerate(tools)
                    if tool.get("type") not in _LEFT_OUT
                ]
                return ToolChoice(mode, tuple(self.model_name(each.namespace, each.name) for each in named))
        raise AssertionError(value)


def read_tools(values: Sequence[Any]) -> ToolTable:
    """Return the tools of a request. Raises HttpError for one that cannot be left out."""
    functions: list[FunctionTool] = []
    places: dict[str, tuple[str | None, str]] = {}
    left_out: list[str] = []

    def add(tool: Function, namespace: str | None, path: str) -> None:
        name = tool.name if namespace is None else f"{namespace}__{tool.name}"
        places[name] = (namespace, tool.name)
        schema = {"type": "object", "properties": {}} if tool.parameters is None else tool.parameters
        strict, param = tool.strict is True, f"{path}.parameters"
        functions.append(FunctionTool(name, tool.description or "", schema, strict, param))

    for index, value in enumerate(values):
        match read_kind(_TOOLS, value, f"tools[{index}]"):
            case Function() as tool:
                add(tool, None, f"tools[{index}]")
            case Namespace(name=namespace, tools=members):
                for position, member in enumerate(members):
                    path = f"tools[{index}].tools[{position}]"
                    add(read_part(Function, member, path), namespace, path)
            case LeftOut(type=kind):
                left_out.append(f"tools[{index}] ({kind})")
    return ToolTable(tuple(functions), places, tuple(left_out))
