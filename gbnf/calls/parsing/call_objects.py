"""Calls as JSON objects: which keys make an object a call, and the calls in a text's JSON."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

from gbnf.calls.parsing.lenient_json import Loaded, closing, extent, load
from gbnf.calls.parsing.readers import TRUNCATED, ParsedSpan
from gbnf.calls.parsing.results import CallSyntaxName, RawCall, Repair
from gbnf.calls.parsing.tool_names import ToolNames, fold
from gbnf.strict_json import InvalidJsonError, parse_json

NAME_KEYS = ("name", "tool", "function", "tool_name", "action")
ARGUMENT_KEYS = (
    "arguments",
    "args",
    "parameters",
    "input",
    "params",
    "tool_args",
    "tool_input",
    "action_input",
)
_WRAPPERS = ("tool_call", "function_call", "toolCall", "functionCall")
_OUTER_KEYS = ("data", "message", "response")
"""Of an object that has nothing but an object with calls."""
_SILENT_KEYS = frozenset({"id", "type", "index", "call_id"})
_SENTINEL = "\0cut"
_NAME_IN_TEXT = re.compile(rf"""["']?\b(?:{"|".join(NAME_KEYS)})["']?\s*:\s*["']([\w.-]+)["']""")
_SAYS_NAME = re.compile(rf"""\b(?:{"|".join(NAME_KEYS)})["']?\s*:""")
_DOUBLED = re.compile(r"\{\s*(\{.*\})\s*\}", re.DOTALL)
"""Brackets that are doubled, as some chat templates show them in their instructions."""
_ARGUMENTS_IN_TEXT = re.compile(rf"""["']?\b(?:{"|".join(ARGUMENT_KEYS)})["']?\s*:""")


def _entries(value: Any, names: ToolNames) -> list[RawCall] | None:
    """Return the calls that a JSON value consists of, None if it is not a call."""
    match value:
        case list() if value:
            return _all(value, names)
        case dict():
            if not (members := _tool_calls(value)) and (entry := _entry(value, names)) is not None:
                return [entry]
            (key, inner), *others = value.items() if value else (("", None),)
            if not members and not others and key in _OUTER_KEYS and isinstance(inner, dict):
                members = _tool_calls(inner)
            found = _all(members, names)
            as_listed = partial(replace, syntax="tool_calls", text_arguments=True)
            return None if found is None else [*map(as_listed, found)]
        case _:
            return None


def _tool_calls(value: Mapping[str, Any]) -> list[Any]:
    """Return the list of calls in an object: of `tool_calls`, `toolCalls` or `tool-calls`."""
    lists = (each for key, each in value.items() if fold(key) == "toolcalls" and isinstance(each, list))
    return next(lists, [])


def read_body(
    text: str, start: int, names: ToolNames, syntax: CallSyntaxName | None = None
) -> ParsedSpan | None:
    """Parse the calls in the JSON at `start`: none if it is complete without a call, None if it is neither.

    `syntax`: the syntax of the calls, if the text around them determines it.
    """
    found = extent(text, start)
    if found.closed:
        body = text[start : found.end]
        doubled = _DOUBLED.fullmatch(body)
        try:
            loaded = load(body if doubled is None else doubled[1])
        except InvalidJsonError as error:
            name = _NAME_IN_TEXT.search(body)
            if name is None or _ARGUMENTS_IN_TEXT.search(body) is None:
                return ParsedSpan(found.end)
            return ParsedSpan(found.end, (RawCall(name[1], None, syntax or "bare", error=str(error)),))
        if doubled is not None:
            loaded = Loaded(loaded.value, (*loaded.repairs, Repair("json", "ignored doubled brackets")))
        listed = _entries(_named_by_key(loaded.value, names) if syntax else loaded.value, names) or []
        return ParsedSpan(found.end, tuple(_written(entry, loaded, syntax) for entry in listed))
    return _open_body(text, start, names, syntax)


def _named_by_key(value: Any, names: ToolNames) -> Any:
    """Return a JSON value in which objects whose only key is a tool's name are calls with a name."""
    if isinstance(value, list):
        return [_named_by_key(each, names) for each in value]
    is_call = isinstance(value, dict) and len(value) == 1 and names.find(*value)
    return {"name": next(iter(value)), "arguments": next(iter(value.values()))} if is_call else value


def _open_body(text: str, start: int, names: ToolNames, syntax: CallSyntaxName | None) -> ParsedSpan | None:
    """Parse the calls in JSON without an end: its last brackets are missing, or it is truncated."""
    last = text.rfind("}", start)
    if last >= 0:
        head = text[start : last + 1]
        opened = extent(head, 0).open
        marked = _closed_with_mark(head, opened)
        listed = _entries(marked, names) if marked is not None else None
        if listed and not any(_holds_mark(entry.arguments) for entry in listed):
            loaded = Loaded(None, (Repair("json", f"closed it with {closing(opened)}"),))
            listed = [
                replace(entry, extra={key: entry.extra[key] for key in entry.extra if key != _SENTINEL})
                for entry in listed
            ]
            return ParsedSpan(last + 1, tuple(_written(entry, loaded, syntax) for entry in listed))
    if not _SAYS_NAME.search(text, start):
        return None
    try:
        loaded = load(text[start:], truncated=True)
    except InvalidJsonError:
        return None
    listed = _entries(loaded.value, names) or []
    written = [_written(entry, loaded, syntax).noted(TRUNCATED) for entry in listed]
    truncated = tuple(replace(call, truncated=True) for call in written)
    return ParsedSpan(len(text), truncated, closed=False) if truncated else None


def _closed_with_mark(head: str, opened: str) -> Any:
    """Return the value of `head` with its brackets closed, and a mark in the innermost open one.

    The mark shows which part of the value the missing text belongs to.
    """
    if not opened or opened[-1] not in "{[":
        return None
    mark = ', "\\u0000cut": 1' if opened[-1] == "{" else ', "\\u0000cut"'
    try:
        return parse_json(head + mark + closing(opened))
    except InvalidJsonError:
        return None


def _holds_mark(value: Any) -> bool:
    match value:
        case dict():
            return any(key == _SENTINEL or _holds_mark(member) for key, member in value.items())
        case list():
            return any(_holds_mark(member) for member in value)
        case _:
            return bool(value == _SENTINEL)


def _all(members: list[Any], names: ToolNames) -> list[RawCall] | None:
    """Return the calls of a list if every member is one; a mark at its end is ignored."""
    found = [_entry(member, names) for member in members if member != _SENTINEL]
    return None if not found or any(entry is None for entry in found) else [e for e in found if e is not None]


def _entry(value: Any, names: ToolNames) -> RawCall | None:
    if not isinstance(value, dict):
        return None
    for wrapper in _WRAPPERS:
        if isinstance(value.get(wrapper), dict):
            inner = _entry(value[wrapper], names)
            took = Repair("wrapper", f"took the call from {wrapper!r}")
            return None if inner is None else replace(inner, repairs=(took,))
    given_id = value["id"] if isinstance(value.get("id"), str) else None
    nested = value.get("function")
    if isinstance(nested, dict):
        inner = _entry(nested, names)
        return None if inner is None else replace(inner, id=given_id, syntax="openai", text_arguments=True)
    for key in NAME_KEYS:
        name = value.get(key)
        if isinstance(name, str):
            return _named(value, key, name, given_id, names)
    return None


def _named(
    value: Mapping[str, Any], key: str, name: str, given_id: str | None, names: ToolNames
) -> RawCall | None:
    rest = {other: member for other, member in value.items() if other != key and other not in _SILENT_KEYS}
    for argument_key in ARGUMENT_KEYS:
        if argument_key in rest:
            arguments = rest.pop(argument_key)
            return RawCall(name, arguments, "bare", id=given_id, extra=rest)
    rest.pop(_SENTINEL, None)
    tool = names.find(name)
    if tool is None or not rest.keys() <= tool.args.get("properties", {}).keys():
        return None  # an object with a name that is not a call
    return RawCall(name, rest or None, "bare", id=given_id)


def _written(entry: RawCall, loaded: Loaded, syntax: CallSyntaxName | None) -> RawCall:
    """Return a call of loaded JSON with what was repaired in both."""
    repairs = [*loaded.repairs, *entry.repairs]
    if entry.extra:
        ignored = ", ".join(map(repr, entry.extra))
        repairs.append(Repair("extra", f"ignored {ignored} beside the arguments"))
    return replace(entry, syntax=syntax or entry.syntax, repairs=tuple(repairs))
