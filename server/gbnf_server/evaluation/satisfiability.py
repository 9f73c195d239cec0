"""Whether a case can be met: some arguments that fit an expected call have to be valid, what goes was there.

What is surely impossible is told: an argument that is needed and not expected, a value written out that its
schema refuses. A pattern that leaves a value open is taken on trust.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.exceptions import ValidationError
from referencing.exceptions import Unresolvable

from gbnf.tools import Tool
from gbnf_server.evaluation.cases import ExpectedCall, InitialState, expected_states
from gbnf_server.evaluation.errors import Fault, KeyPath
from gbnf_server.evaluation.pattern_types import fits_some_list, fits_some_text
from gbnf_server.evaluation.patterns import (
    Contains,
    Equals,
    ListPattern,
    Matches,
    ObjectPattern,
    OneOf,
    OptionalPattern,
    Pattern,
    Unordered,
)
from gbnf_server.evaluation.snapshots import OUTBOX
from gbnf_server.executors.calendar_file import FILE as CALENDAR


def check_arguments(call: ExpectedCall, tool: Tool, at: KeyPath) -> None:
    """Raises Fault where no valid call of this tool fits; the arguments' names are known already."""
    args = tool.model_args()
    filled = {target for name, target in tool.step_references.items() if name in call.arguments}
    _check_needed(args, {*call.arguments, *filled}, at)
    for group in args.get("requires_one_of", ()):
        if not any(name in call.arguments for name in group):
            raise Fault(
                at, None, f"{call.name} needs at least one of {', '.join(group)}, and none is expected",
                "Expect one of them, or write {any = true} for what may be given.",
            )  # fmt: skip
    validator = Draft202012Validator(args, format_checker=Draft202012Validator.FORMAT_CHECKER)
    for name, pattern in call.arguments.items():
        _check(pattern, args["properties"][name], validator, (*at, name))


def check_gone(table: Mapping[str, Any], before: InitialState) -> None:
    """Raises Fault where more is to go than there is; what earlier calls have made is not known here."""
    if before.calls or any(path == CALENDAR or path.startswith(f"{OUTBOX}/") for path in before.files):
        return
    for after, at in expected_states(table):
        for key, there in (("gone_events", len(before.events)), ("gone_messages", 0)):
            if len(after.get(key, ())) > there:
                raise Fault(
                    (*at, key), after[key], f"before the run there are {there} of these",
                    "Put them into before (events, or calls that make them), or take them out.",
                )  # fmt: skip


def _check(pattern: Pattern, schema: Any, validator: Draft202012Validator, at: KeyPath) -> None:
    if isinstance(pattern, OptionalPattern):
        _check(pattern.pattern, schema, validator, (*at, "optional"))
        return
    _check_kind(pattern, schema, at)
    values = list(_written_out(pattern))
    if values:
        refusals = [_refusal(value, schema, validator) for value in values]
        if all(refusals):
            raise Fault(
                at, values[0], f"the tool's schema refuses it: {refusals[0]}",
                "Expect a value that the tool takes.",
            )  # fmt: skip
    elif isinstance(pattern, ListPattern) and isinstance(schema, Mapping) and "prefixItems" not in schema:
        for index, member in enumerate(pattern.patterns):
            _check(member, schema.get("items", True), validator, (*at, index))
    elif isinstance(pattern, ObjectPattern) and isinstance(schema, Mapping):
        _check_needed(schema, pattern.patterns.keys(), at)
        for name, member in pattern.patterns.items():
            _check(member, schema.get("properties", {}).get(name, True), validator, (*at, name))


_KINDS = {"string": fits_some_text, "array": fits_some_list}


def _check_kind(pattern: Pattern, schema: Any, at: KeyPath) -> None:
    """Raises Fault where a predicate is for values of another type than the schema's."""
    if not isinstance(pattern, Contains | Matches | Unordered) or not isinstance(schema, Mapping):
        return
    kind = schema.get("type")
    if isinstance(kind, str) and not _KINDS.get(kind, lambda _: False)(pattern):
        raise Fault(
            at, None, f"the tool's schema takes a value of type {kind} here, and none fits this",
            "Expect a value of this type: matches is for texts, unordered for arrays, contains for both.",
        )  # fmt: skip


def _check_needed(schema: Mapping[str, Any], given: Collection[str | None], at: KeyPath) -> None:
    for name in schema.get("required", ()):
        if name not in given:
            raise Fault(
                at, None, f"{name} has to be given, and is not expected",
                f"Write {name} = {{any = true}} where any value will do.",
            )  # fmt: skip


def _written_out(pattern: Pattern) -> Iterator[Any]:
    """The values that fit, where they are written out; none where the pattern leaves something open."""
    match pattern:
        case OneOf(patterns):
            choices = [list(_written_out(each)) for each in patterns]
            if all(choices):
                yield from (value for values in choices for value in values)
        case Equals(value):
            yield value
        case ListPattern(patterns):
            values = [list(_written_out(each)) for each in patterns]
            if all(len(each) == 1 for each in values):
                yield [each[0] for each in values]
        case ObjectPattern(members):
            found = {name: list(_written_out(each)) for name, each in members.items()}
            if all(len(each) == 1 for each in found.values()):
                yield {name: each[0] for name, each in found.items()}


def _refusal(value: Any, schema: Any, validator: Draft202012Validator) -> str:
    """What the schema says against the value; "" where it takes it, or where it cannot be asked."""
    try:
        error: ValidationError | None = next(validator.evolve(schema=schema).iter_errors(value), None)
    except (Unresolvable, RecursionError, re.error):
        return ""
    return "" if error is None else error.message
