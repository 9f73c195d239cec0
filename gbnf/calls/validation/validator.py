"""The validator of calls. It never raises, whatever the JSON value."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gbnf.calls.validation.argument_schemas import validation_schema
from gbnf.calls.validation.messages import error_messages, short_repr, typed_value
from gbnf.errors import is_rust_panic, suggestion
from gbnf.schema.closing import InPlaceSchemas
from gbnf.schema_caches import schema_cache
from gbnf.strict_json import has_type
from gbnf.tools import Tool
from gbnf.tools.tool import offered_args
from gbnf.work_limits import MAX_VALIDATION_WORK, limit_work

_SHAPE = 'a call is one object {"name": "…", "arguments": {…}}'
_DEPTH_LIMIT = 100
"""Levels of objects and arrays. Python's limit is 1000 calls, and jsonschema uses several per level."""


@dataclass(frozen=True, slots=True)
class ValidationResult:
    """Whether a call may be executed. `errors`, one line each, are empty if it may."""

    errors: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether the call is valid."""
        return not self.errors

    def __bool__(self) -> bool:
        return self.ok


def validate_call(
    call: Any, tools: Sequence[Tool], *, steps: Sequence[int] = (), closed: bool = True
) -> ValidationResult:
    """Judge `call` (a JSON value) against the tools that it may name.

    `steps`: the earlier steps that have entries, which step references may name. `closed`: objects that
    declare properties but not `additionalProperties` allow no others, and neither do the arguments; False
    leaves them open as JSON Schema does.
    """
    try:
        with limit_work(MAX_VALIDATION_WORK, may_backtrack=True):
            return ValidationResult(tuple(_errors(call, tools, tuple(steps), closed=closed)))
    except RecursionError:
        return ValidationResult(("the call is nested too deeply; write it flatter",))
    except BaseException as error:  # jsonschema on a model's output: its faults must not end a run
        if not isinstance(error, Exception) and not is_rust_panic(error):
            raise
        return ValidationResult((f"the call can't be judged ({type(error).__name__}); give simpler values",))


def _errors(call: Any, tools: Sequence[Tool], steps: tuple[int, ...], *, closed: bool) -> Iterator[str]:
    if not isinstance(call, dict):
        yield f"{_SHAPE}, got {typed_value(call)}"
        return
    name = call.get("name")
    if not isinstance(name, str):
        yield f"{_SHAPE}; " + (
            f"the name must be a string, got {typed_value(name)}" if "name" in call else "the name is missing"
        )
        return
    called_tool = next((tool for tool in tools if tool.name == name), None)
    if called_tool is None:
        names = [tool.name for tool in tools]
        listed = f"The tools are {', '.join(names)}." if names else "There are no tools."
        yield f"unknown tool {short_repr(name)}.{suggestion(name, names)} {listed}"
        return
    if extra := [key for key in call if key not in ("name", "arguments")]:
        yield f"{_SHAPE}; take out {', '.join(short_repr(key) for key in extra)}"
    if "arguments" not in call:
        yield f"the arguments for tool '{name}' are missing; give {{}} where there are none"
        return
    arguments = call["arguments"]
    if not isinstance(arguments, dict):
        hint = "; write the object itself, not its text" if isinstance(arguments, str) else ""
        yield f"the arguments for tool '{name}' must be an object, got {typed_value(arguments)}{hint}"
        return
    if fault := no_json(arguments):
        yield f"the arguments for tool '{name}' {fault}"
        return
    yield from _argument_errors(arguments, called_tool, steps, closed=closed)


def _argument_errors(
    arguments: dict[str, Any], called_tool: Tool, steps: tuple[int, ...], *, closed: bool
) -> Iterator[str]:
    tool = called_tool.name
    offered = offered_args(called_tool, steps)
    if offered is None:
        yield f"tool '{tool}' needs an earlier step with entries, and there is none; call another tool first"
        return
    remaining = dict(arguments)
    for name in sorted(called_tool.runtime_resolved & remaining.keys()):
        yield f"argument '{name}' of tool '{tool}' is filled in by the runtime; leave it out"
        del remaining[name]
    for name, target in called_tool.step_references.items():
        if name not in remaining:
            continue
        if not steps:
            instead = (
                f"give '{target}' instead" if target in offered.get("properties", {}) else "leave it out"
            )
            yield (
                f"argument '{name}' of tool '{tool}' needs an earlier step with entries, and there is none; "
                f"{instead}"
            )
            del remaining[name]
        elif has_type(remaining[name], ["integer"]) and remaining[name] not in steps:
            numbers = ", ".join(str(step) for step in steps)
            yield (
                f"argument '{name}' of tool '{tool}' must be the number of an earlier step with entries "
                f"({numbers}), got {short_repr(remaining[name])}"
            )
    validator = _validator(called_tool, bool(steps), closed)
    yield from error_messages(validator.iter_errors(remaining), tool, validator.schema)
    for group in offered.get("requires_one_of", ()):
        if not any(name in remaining for name in group):
            yield f"tool '{tool}' needs at least one of {list(group)}"


@schema_cache(maxsize=1024)
def _validator(called_tool: Tool, with_steps: bool, closed: bool) -> Any:
    from gbnf.schema.validators import schema_validator  # noqa: PLC0415  # needed once arguments are judged

    without = frozenset() if with_steps else frozenset(called_tool.step_references)
    return schema_validator(validation_schema(called_tool.args, without, closed=closed))


def no_json(value: Any) -> str:
    """Return why `value` is not a JSON value that can be validated, "" if it is. Not recursive."""
    level: list[Any] = [value]
    for _ in range(_DEPTH_LIMIT):
        below: list[Any] = []
        for member in level:
            match member:
                case None | bool() | int() | str():
                    pass
                case float():
                    if not math.isfinite(member):
                        return f"hold {member}, which is no JSON number"
                case dict():
                    if not all(isinstance(key, str) for key in member):
                        return "hold a key that is no string"
                    below += member.values()
                case list():
                    below += member
                case _:
                    return f"hold a {type(member).__name__}, which is no JSON value"
        if not below:
            return ""
        level = below
    return "are nested too deeply; write them flatter"


def filled_argument_errors(tool: Tool, target: str, value: Any) -> tuple[str, ...]:
    """Return the errors of `value` as the argument `target`, which the runtime may fill in, one line each.

    Only schemas that apply whatever the other arguments are count. Never raises.
    """
    validator, schemas = _validators(tool, target)
    try:
        with limit_work(MAX_VALIDATION_WORK, may_backtrack=True):
            errors = [error for schema in schemas for error in validator.descend(value, schema, path=target)]
            return tuple(error_messages(errors, tool.name, validator.schema))
    except BaseException as error:  # jsonschema on a tool's output: its errors must not end a run
        if not (isinstance(error, Exception) or is_rust_panic(error)):
            raise
        return (f"the entries can't be judged ({type(error).__name__})",)


@schema_cache(maxsize=1024)
def _validators(tool: Tool, target: str) -> tuple[Any, tuple[Any, ...]]:
    from gbnf.schema.validators import schema_validator  # noqa: PLC0415  # as above

    properties = {
        name: {key: member for key, member in schema.items() if key != "runtime_resolved"}
        if name == target and isinstance(schema, Mapping)
        else schema
        for name, schema in tool.args.get("properties", {}).items()
    }
    root = validation_schema({**tool.args, "properties": properties}, frozenset(), closed=True)
    applying = InPlaceSchemas(root).of(root, branches=False)  # in every object that `root` accepts
    declared = (here["properties"][target] for here in applying if target in here.get("properties", {}))
    return schema_validator(root), tuple(declared)
