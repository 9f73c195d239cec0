"""Check calls by the leaderboard's AST rules for Python. Pure.

- The name is the expected one, each required argument is present, and no other argument is.
- A value has its declared type; an integer is accepted as a float, but not inside a list. Or it has the
  type of the first acceptable value, if that is another (the leaderboard writes variables as text).
- Text is compared ignoring case, spaces and the characters , . / - _ * ^, and with ' as ". So is text in
  lists and in objects. Lists are compared as a whole, objects by member, lists of objects in order.
- An expected argument is optional if "" is one of its acceptable values; a list may then be empty.
- Several expected calls may come in any order, each exactly once. If no function is relevant, no call is
  correct.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from gbnf_bench.bfcl.files import LeaderboardEntry, PossibleAnswer

Call: TypeAlias = tuple[str, Mapping[str, Any]]
"""A function's own name, and arguments."""

_TYPES: Mapping[str, type] = {
    "string": str, "integer": int, "float": float, "boolean": bool, "array": list, "tuple": list,
    "dict": dict, "any": str,
}  # fmt: skip
_IGNORED = re.compile(r"[ ,./\-_*^]")
_LEFT_OUT = ""


def fault(entry: LeaderboardEntry, calls: Sequence[Call]) -> str | None:
    """Return why the calls are wrong, None if they are correct."""
    match entry.kind:
        case "none":
            return f"{calls[0][0]} was called, and no function is relevant" if calls else None
        case "some":
            return None if calls else "no function was called"
        case "one" | "several":
            if len(calls) != len(entry.expected):
                return f"{len(calls)} calls, expected {len(entry.expected)}"
            return _unmatched(entry, calls)


def has_right_names(entry: LeaderboardEntry, calls: Sequence[Call]) -> bool:
    """Return whether the calls are of the expected functions, each as often as expected."""
    return Counter(name for name, _ in calls) == Counter(
        name for expected in entry.expected for name in expected
    )


def _unmatched(entry: LeaderboardEntry, calls: Sequence[Call]) -> str | None:
    """Assign to each expected call the first made call that matches and is not assigned yet."""
    functions = {function["name"]: function for function in reversed(entry.functions)}
    free = list(calls)
    for expected in entry.expected:
        [(name, values)] = expected.items()
        verdicts = [(call, call_fault(functions[name], values, call)) for call in free]
        fitting = next((call for call, wrong in verdicts if wrong is None), None)
        if fitting is None:
            return verdicts[0][1] if len(verdicts) == 1 else f"no call fits the expected {name}"
        free.remove(fitting)
    return None


def call_fault(function: Mapping[str, Any], expected: Mapping[str, Sequence[Any]], call: Call) -> str | None:
    """Return why a call does not match the expected one, None if it does."""
    name, arguments = call
    if name != function["name"]:
        return f"{name} was called, expected {function['name']}"
    parameters = function.get("parameters", {})
    properties = parameters.get("properties", {})
    for required in parameters.get("required", ()):
        if required not in arguments:
            return f"the required argument {required} is missing"
    for argument, value in arguments.items():
        if argument not in properties or argument not in expected:
            return f"the argument {argument} is not expected"
        if not is_right(value, properties[argument], expected[argument]):
            return f"{argument} is {value!r}, expected one of {list(expected[argument])!r}"
    for argument, acceptable in expected.items():
        if argument not in arguments and _LEFT_OUT not in acceptable:
            return f"the argument {argument} is missing"
    return None


def is_right(value: Any, parameter: Mapping[str, Any], acceptable: Sequence[Any]) -> bool:
    declared = parameter.get("type", "any")
    wanted = _TYPES.get(declared, str)
    if declared == "float" and type(value) is int:
        value = float(value)
    inner = None
    if wanted is list:
        inner = _TYPES.get((parameter.get("items") or {}).get("type", "any"), str)
    is_variable = _typed(value, wanted, inner, acceptable)
    if is_variable is None:
        return False
    if not is_variable:
        if wanted is dict:
            return any(
                _is_right_object(value, choice) for choice in acceptable if isinstance(choice, Mapping)
            )
        if wanted is list and inner is dict:
            return any(_are_right_objects(value, choice) for choice in _lists(acceptable))
        if wanted is str:
            return _plain(value) in [_plain(choice) for choice in acceptable if isinstance(choice, str)]
        if wanted is list:
            plain = [_plain(item) for item in value]
            return any(plain == [_plain(item) for item in choice] for choice in _lists(acceptable))
    return value in acceptable


def _lists(acceptable: Sequence[Any]) -> Iterator[list[Any]]:
    """Return the acceptable lists; "" stands for an empty one, as in the leaderboard's checker."""
    for choice in acceptable:
        if isinstance(choice, list):
            yield choice
        elif choice == _LEFT_OUT:
            yield []


def _typed(value: Any, wanted: type, inner: type | None, acceptable: Sequence[Any]) -> bool | None:
    """Return whether the type is correct although it is not the declared one; None if it is wrong."""
    kind, written = type(value), next((type(choice) for choice in acceptable if choice != _LEFT_OUT), None)
    if kind is wanted:
        fits = inner is None or _items_typed(value, inner, acceptable)
        return (written is not None and written is not wanted) if fits else None
    return True if written is not None and kind is written else None


def _items_typed(values: Sequence[Any], inner: type, acceptable: Sequence[Any]) -> bool:
    """Return whether every item has the inner type, or that of an acceptable list's first item."""
    lists: list[Sequence[Any] | None] = [
        choice if isinstance(choice, list) else None for choice in acceptable
    ]
    return any(
        items is None or all(_typed(value, inner, None, items) is not None for value in values)
        for items in lists
    )


def _is_right_object(value: Mapping[str, Any], acceptable: Mapping[str, Any]) -> bool:
    choices = {key: choice if isinstance(choice, list) else [choice] for key, choice in acceptable.items()}
    for key, member in value.items():
        if _plain(member) not in [_plain(choice) for choice in choices.get(key, ())]:
            return False
    return all(key in value or _LEFT_OUT in choice for key, choice in choices.items())


def _are_right_objects(values: Sequence[Any], acceptable: Sequence[Any]) -> bool:
    return len(values) == len(acceptable) and all(
        isinstance(value, Mapping) and isinstance(choice, Mapping) and _is_right_object(value, choice)
        for value, choice in zip(values, acceptable, strict=True)
    )


def _plain(value: Any) -> Any:
    """Return a text normalized for comparison; any other value unchanged."""
    if not isinstance(value, str):
        return value
    return _IGNORED.sub("", value).lower().replace("'", '"')


def right_calls(entry: LeaderboardEntry) -> Iterator[Call]:
    """Return, for each expected call, calls that the possible answers describe.

    Each acceptable value occurs once; the last call omits the optional arguments.
    """
    functions = {function["name"]: function for function in reversed(entry.functions)}
    for expected in entry.expected:
        [name] = expected
        yield from _variants(expected, functions[name].get("parameters", {}).get("required", ()))


def _variants(expected: PossibleAnswer, required: Sequence[str]) -> Iterator[Call]:
    [(name, values)] = expected.items()
    choices = {
        argument: [_written(choice) for choice in acceptable if choice != _LEFT_OUT]
        for argument, acceptable in values.items()
    }
    usual = {argument: options[0] for argument, options in choices.items() if options}
    yield name, usual
    for argument, options in choices.items():
        for other in options[1:]:
            yield name, {**usual, argument: other}
    least = {
        argument: value
        for argument, value in usual.items()
        if argument in required or _LEFT_OUT not in values[argument]
    }
    if least != usual:
        yield name, least


def _written(acceptable: Any) -> Any:
    """Return an acceptable value as it occurs in a call.

    In objects, each member has acceptable values; the first is used.
    """
    match acceptable:
        case Mapping():
            return {
                key: _written(values[0])
                for key, value in acceptable.items()
                if (
                    values := [item for item in value if item != _LEFT_OUT]
                    if isinstance(value, list)
                    else [value]
                )
            }
        case list():
            return [_written(value) for value in acceptable]
        case _:
            return acceptable
