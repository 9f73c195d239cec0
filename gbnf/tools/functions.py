"""Typed Python functions, and pydantic models, as tools.

The schema of the arguments comes from the signature, by pydantic, and the descriptions from the docstring. A
call converts the arguments to the annotated types, and the result to JSON. pydantic is imported on first use.
"""

from __future__ import annotations

import inspect
from collections.abc import Awaitable, Callable
from dataclasses import replace
from functools import partial
from types import ModuleType
from typing import Any, Literal, TypeVar, overload

from gbnf.errors import InvalidArgumentError
from gbnf.findings import Finding
from gbnf.schema.models import ArgumentsModel
from gbnf.tools.loosening import build_tool
from gbnf.tools.tool import Tool

_ATTRIBUTE = "__gbnf_tool__"
_CONTEXT = ("gbnf_server.executors.context", "Context")
_Function = TypeVar("_Function", bound=Callable[..., Any])


@overload
def tool(function: _Function, /) -> _Function: ...


@overload
def tool(
    *,
    name: str | None = None,
    effect: Literal["read", "write"] = "write",
    confirm: bool = False,
    repeatable: bool = False,
    timeout_s: float = 30.0,
    own_process: bool = False,
) -> Callable[[_Function], _Function]: ...


def tool(function: Any = None, /, **options: Any) -> Any:  # noqa: D417  # the overloads list them
    """Mark a typed function as a tool, which `load_tools` returns; the function stays as it is.

        @tool(effect="read")
        def weather(city: str, days: Literal[1, 2, 3] = 1) -> str:
            \"\"\"Return the weather forecast.

            Args:
                city: Name of the city.
            \"\"\"

    Arguments are converted to the annotated types: enumerations, dates, models. A parameter annotated as
    `gbnf_server.executors.Context` receives the context of the call, and is no argument. The function may be
    async. It returns a JSON value, or what pydantic can write as one.

    `name`: by default that of the function. `effect`: whether it changes anything. `confirm`: whether the
    user approves each call. `repeatable`: whether a run may make the same call again, as to poll or to roll
    dice. `timeout_s`: seconds, 0 for no limit. `own_process`: whether a call runs in a process of its own,
    which imports the module of the function and is killed when the time is up, instead of in this process.

    Raises InvalidArgumentError for a function that cannot be a tool, such as one with `*args`.
    """  # noqa: D214, D413  # "Args:" is a part of the example
    if function is None:
        return partial(tool, **options)
    setattr(function, _ATTRIBUTE, function_tool(function, **options))
    return function


def function_tool(
    function: Callable[..., Any],
    *,
    name: str | None = None,
    effect: Literal["read", "write"] = "write",
    confirm: bool = False,
    repeatable: bool = False,
    timeout_s: float = 30.0,
    own_process: bool = False,
) -> Tool:
    """Return the tool of a function: the one attached by `tool`, otherwise one with these options."""
    marked = getattr(function, _ATTRIBUTE, None)
    if isinstance(marked, Tool):
        return marked
    called = name or str(getattr(function, "__name__", type(function).__name__))
    qualname = getattr(function, "__qualname__", "<")
    if own_process and ("<" in qualname or not getattr(function, "__module__", "")):
        raise InvalidArgumentError(
            f"the tool {called!r} cannot run in a process of its own. Define it at the top level of a "
            "module, so that it can be imported there."
        )
    summary, texts = _described(function)
    parameters, context, findings = _parameters(function, called)
    model = ArgumentsModel(called, parameters, texts)
    run = {"effect": effect, "confirm": confirm, "repeatable": repeatable, "timeout_s": timeout_s}
    built = build_tool(called, summary, model.json_schema(), run=run, extra={})
    call = FunctionCall(function, model, context, own_process)
    return replace(built, function=call, findings=(*built.findings, *findings))


def functions_of(module: ModuleType) -> list[Callable[..., Any]]:
    """Return the functions in a module marked by `tool`; without any, those defined in it, public and typed.

    Raises InvalidArgumentError if there are none.
    """
    public = [value for name, value in vars(module).items() if not name.startswith("_")]
    functions = [value for value in public if isinstance(getattr(value, _ATTRIBUTE, None), Tool)] or [
        value
        for value in public
        if inspect.isfunction(value) and value.__module__ == module.__name__ and value.__annotations__
        if inspect.signature(value).parameters.keys() <= value.__annotations__.keys()
    ]
    if not functions:
        raise InvalidArgumentError(
            f"the module {module.__name__!r} has no function marked by `gbnf.tool`, and no public one with "
            "annotated parameters."
        )
    return functions


class FunctionCall:
    """Calls a function with arguments of the types in its signature. It is the `function` of a tool.

    `own_process`: whether a call runs in a process of its own, which imports the function.
    """

    def __init__(
        self, function: Callable[..., Any], model: ArgumentsModel, context: str | None, own_process: bool
    ) -> None:
        self.function = self.__wrapped__ = function  # the second for `inspect.unwrap`
        self._model, self._context, self.own_process = model, context, own_process

    def __call__(self, arguments: dict[str, Any], context: Any) -> Any:
        """Return the result as a JSON value, or an awaitable of it. Raises InvalidArgumentError."""
        values = self._model.values(arguments)
        if self._context is not None:
            values[self._context] = context
        result = self.function(*_positional(self.function, values), **values)
        return _awaited(result) if inspect.isawaitable(result) else _jsonable(result)


def _positional(function: Callable[..., Any], values: dict[str, Any]) -> list[Any]:
    """Take the positional-only parameters out of `values`; those before the last one given have defaults."""
    only = [arg for arg in inspect.signature(function).parameters.values() if arg.kind is arg.POSITIONAL_ONLY]
    while only and only[-1].name not in values:
        only.pop()
    return [values.pop(arg.name, arg.default) for arg in only]


async def _awaited(result: Awaitable[Any]) -> Any:
    return _jsonable(await result)


def _jsonable(value: Any) -> Any:
    from pydantic_core import to_jsonable_python  # noqa: PLC0415  # `import gbnf` does not import pydantic

    return to_jsonable_python(value)


def _described(function: Callable[..., Any]) -> tuple[str, dict[str, str]]:
    """Return the description of a function, and those of its parameters, from its docstring.

    Without docstring_parser, all of the docstring is the description.
    """
    text = inspect.getdoc(function) or ""
    try:
        from docstring_parser import ParseError, parse  # noqa: PLC0415  # only functions have docstrings
    except ModuleNotFoundError:
        return text, {}
    try:
        parsed = parse(text)
    except ParseError:
        return text, {}
    texts = {arg.arg_name: " ".join(arg.description.split()) for arg in parsed.params if arg.description}
    parts = (parsed.short_description, parsed.long_description)
    return "\n\n".join(part for part in parts if part), texts


def _parameters(
    function: Callable[..., Any], name: str
) -> tuple[dict[str, tuple[Any, Any]], str | None, list[Finding]]:
    """Return annotation and default of each argument, the parameter for the context, and findings."""
    try:
        signature = inspect.signature(function, eval_str=True)
    except (NameError, TypeError, ValueError, SyntaxError, AttributeError) as error:
        raise InvalidArgumentError(
            f"the signature of the tool {name!r} cannot be read: {error}. Import the types of its "
            "annotations where the module runs, not below TYPE_CHECKING."
        ) from None
    parameters: dict[str, tuple[Any, Any]] = {}
    context, findings = None, []
    for index, parameter in enumerate(signature.parameters.values()):
        is_annotated = parameter.annotation is not parameter.empty
        annotation = parameter.annotation if is_annotated else Any
        if parameter.kind in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
            raise InvalidArgumentError(
                f"the tool {name!r} has the parameter {str(parameter)!r}, which no schema describes. "
                "Name each argument, or take a list or dict."
            )
        if index == 0 and parameter.name in ("self", "cls") and not is_annotated:
            raise InvalidArgumentError(
                f"the tool {name!r} is a method without its object. Give the bound method to load_tools."
            )
        if (getattr(annotation, "__module__", ""), getattr(annotation, "__name__", "")) == _CONTEXT:
            context = parameter.name
            continue
        if not is_annotated:
            reason = "the parameter has no annotation, so any JSON value is accepted"
            findings.append(
                Finding(name, f"/properties/{parameter.name}", "type", "free_form", reason, validator=False)
            )
        parameters[parameter.name] = (annotation, parameter.default)
    return parameters, context, findings
