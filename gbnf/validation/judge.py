"""The judgement on one call. It never raises, whatever JSON value it is given."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from jsonschema import Draft202012Validator

from gbnf.effort import MAX_JUDGEMENT, bounded
from gbnf.errors import is_panic
from gbnf.manifests import Executor
from gbnf.schema.validators import taught
from gbnf.steps import offered_args
from gbnf.validation.closing import judged_schema
from gbnf.validation.complaints import complaints, got, nearest, shown

_SHAPE = 'a call is one object {"name": "…", "arguments": {…}}'
_DEPTH_LIMIT = 100
"""Levels of objects and arrays. Python's own limit is 1000 calls, and jsonschema takes several a level."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """Whether a call may be executed; `errors`, one line each, are empty exactly when it may."""

    errors: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        return not self.errors

    def __bool__(self) -> bool:
        return self.ok


def validate_call(
    call: Any, executors: Sequence[Executor], *, steps: Sequence[int] = (), closed: bool = True
) -> Verdict:
    """Judge `call` (a JSON value) against the tools that it may name.

    `steps`: the earlier steps that have entries, which step references may name. `closed`: objects that
    declare properties and say nothing of additional ones have none, and the arguments have none beyond those
    declared; False leaves them open as JSON Schema does.
    """
    try:
        with bounded(MAX_JUDGEMENT, may_backtrack=True):
            return Verdict(tuple(_errors(call, executors, tuple(steps), closed=closed)))
    except RecursionError:
        return Verdict(("the call is nested too deeply; write it flatter",))
    except BaseException as error:  # jsonschema on a model's output: its faults must not end a run
        if not isinstance(error, Exception) and not is_panic(error):
            raise
        return Verdict((f"the call can't be judged ({type(error).__name__}); give simpler values",))


def _errors(
    call: Any, executors: Sequence[Executor], steps: tuple[int, ...], *, closed: bool
) -> Iterator[str]:
    if not isinstance(call, dict):
        yield f"{_SHAPE}, got {got(call)}"
        return
    name = call.get("name")
    if not isinstance(name, str):
        yield f"{_SHAPE}; " + (
            f"the name must be a string, got {got(name)}" if "name" in call else "the name is missing"
        )
        return
    executor = next((tool for tool in executors if tool.name == name), None)
    if executor is None:
        names = [tool.name for tool in executors]
        tools = f"The tools are {', '.join(names)}." if names else "There are no tools."
        yield f"unknown tool {shown(name)}.{nearest(name, names)} {tools}"
        return
    if extra := [key for key in call if key not in ("name", "arguments")]:
        yield f"{_SHAPE}; take out {', '.join(shown(key) for key in extra)}"
    if "arguments" not in call:
        yield f"the arguments for tool '{name}' are missing; give {{}} where there are none"
        return
    arguments = call["arguments"]
    if not isinstance(arguments, dict):
        hint = "; write the object itself, not its text" if isinstance(arguments, str) else ""
        yield f"the arguments for tool '{name}' must be an object, got {got(arguments)}{hint}"
        return
    if fault := _no_json(arguments):
        yield f"the arguments for tool '{name}' {fault}"
        return
    yield from _argument_errors(arguments, executor, steps, closed=closed)


def _argument_errors(
    arguments: dict[str, Any], executor: Executor, steps: tuple[int, ...], *, closed: bool
) -> Iterator[str]:
    tool = executor.name
    offered = offered_args(executor, steps)
    if offered is None:
        yield f"tool '{tool}' needs an earlier step with entries, and there is none; call another tool first"
        return
    given = dict(arguments)
    for name in sorted(executor.runtime_resolved & given.keys()):
        yield f"argument '{name}' of tool '{tool}' is filled in by the runtime; leave it out"
        del given[name]
    for name, target in executor.step_references.items():
        if name not in given:
            continue
        if not steps:
            instead = (
                f"give '{target}' instead" if target in offered.get("properties", {}) else "leave it out"
            )
            yield (
                f"argument '{name}' of tool '{tool}' needs an earlier step with entries, and there is none; "
                f"{instead}"
            )
            del given[name]
        elif _is_integer(given[name]) and given[name] not in steps:
            numbers = ", ".join(str(step) for step in steps)
            yield (
                f"argument '{name}' of tool '{tool}' must be the number of an earlier step with entries "
                f"({numbers}), got {shown(given[name])}"
            )
    validator = _validator(executor, bool(steps), closed)
    yield from complaints(validator.iter_errors(given), tool, validator.schema)
    for group in offered.get("requires_one_of", ()):
        if not any(name in given for name in group):
            yield f"tool '{tool}' needs at least one of {list(group)}"


@lru_cache(maxsize=1024)
def _validator(executor: Executor, with_steps: bool, closed: bool) -> Any:
    without = frozenset() if with_steps else frozenset(executor.step_references)
    schema = judged_schema(executor.args, without, closed=closed)
    judge = taught(Draft202012Validator, every_draft=True)
    return judge(schema, format_checker=Draft202012Validator.FORMAT_CHECKER)


def _is_integer(value: Any) -> bool:
    return not isinstance(value, bool) and (
        isinstance(value, int) or (isinstance(value, float) and value.is_integer())
    )


def _no_json(value: Any) -> str:
    """What makes `value` no JSON value that can be judged; "" where it is one. Doesn't recurse."""
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
