"""Repair and validation of a call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gbnf.calls.parsing.lenient_json import load_complete
from gbnf.calls.parsing.results import ToolCall
from gbnf.calls.parsing.tool_names import ToolNames
from gbnf.calls.repair.arguments import ArgumentRepairer, Coercion, UnknownKeys
from gbnf.calls.validation import ValidationResult, validate_call
from gbnf.calls.validation.validator import no_json
from gbnf.tools import Tool
from gbnf.tools.tool import offered_args
from gbnf.work_limits import MAX_VALIDATION_WORK, WorkLimitError, limit_work

_TRUNCATED = ValidationResult(("the call was cut before its end and not executed; write a shorter one",))


@dataclass(frozen=True, slots=True)
class RepairedCall:
    """A repaired call: the changes, in order, and the validation of the result."""

    call: dict[str, Any]
    coercions: tuple[Coercion, ...]
    validation: ValidationResult

    @property
    def ok(self) -> bool:
        """Whether the repaired call is valid."""
        return self.validation.ok


def repair_call(
    call: Mapping[str, Any] | ToolCall,
    tools: Sequence[Tool],
    *,
    steps: Sequence[int] = (),
    clamp: bool = False,
    unknown: UnknownKeys = "drop",
) -> RepairedCall:
    """Correct a call's arguments by the tool's schema, and validate the result. Never raises.

    A valid call is returned unchanged. Otherwise strings become the numbers, booleans, lists and objects that
    they spell, scalars become lists of one, and enumerated values are found whatever their case; keys are
    found whatever their spelling, also with one other letter; a required one without a default also by an
    abbreviation or a synonym, or for tools that only read if it alone is missing and one unknown key has a
    text for it. Other unknown keys are dropped if the call is valid then, and otherwise, or with
    `unknown="refuse"`, left to the validator; missing required ones get their default. Numbers are moved to
    their bounds only with `clamp`. A truncated `ToolCall` is invalid. `steps` as in `validate_call`.
    """
    as_written = call.as_call() if isinstance(call, ToolCall) else dict(call)
    if isinstance(call, ToolCall) and call.truncated:
        return RepairedCall(as_written, (), _TRUNCATED)
    validation = validate_call(as_written, tools, steps=steps)
    tool = ToolNames(tools).find(as_written["name"]) if isinstance(as_written.get("name"), str) else None
    if validation.ok or tool is None or no_json(as_written.get("arguments")):
        return RepairedCall(as_written, (), validation)
    coercions: list[Coercion] = []
    named = {**as_written, "name": tool.name}
    if as_written["name"] != tool.name:
        coercions.append(Coercion("name", "renamed", as_written["name"], tool.name))
    arguments = named.get("arguments")
    if isinstance(arguments, str) and isinstance(parsed := load_complete(arguments), dict):
        coercions.append(Coercion("arguments", "parsed", arguments, parsed))
        arguments = parsed
    args = offered_args(tool, steps)
    if args is not None and isinstance(arguments, dict):
        repairer = ArgumentRepairer(args, clamp=clamp, unknown=unknown, only_reads=tool.run.effect == "read")
        try:
            with limit_work(MAX_VALIDATION_WORK, may_backtrack=True):
                arguments = repairer.repaired(arguments)
        except (RecursionError, WorkLimitError):
            return RepairedCall(as_written, (), validation)
        coercions += repairer.coercions
    if not coercions:
        return RepairedCall(as_written, (), validation)
    named["arguments"] = arguments
    validation = validate_call(named, tools, steps=steps)
    if unknown == "drop" and not validation.ok and any(coercion.kind == "dropped" for coercion in coercions):
        return repair_call(call, tools, steps=steps, clamp=clamp, unknown="refuse")  # which names the keys
    return RepairedCall(named, tuple(coercions), validation)
