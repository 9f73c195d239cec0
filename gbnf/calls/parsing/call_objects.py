"""Calls as JSON objects: which keys make an object a call, and the calls in a text's JSON."""

from __future__ import annotations

import re
from dataclasses import replace
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
_OUTER_KEYS = {"data", "message", "response"}
"""Of an object that has nothing but an object with calls."""
_SILENT_KEYS = frozenset({"id", "type", "index", "call_id"})
_NAME_IN_TEXT = re.compile(rf"""["']?\b(?:{"|".join(NAME_KEYS)})["']?\s*:\s*["']([\w.-]+)["']""")
_SAYS_NAME = re.compile(rf"""\b(?:{"|".join(NAME_KEYS)})["']?\s*:""")
_DOUBLED = re.compile(r"\{\s*(\{.*\})\s*\}", re.DOTALL)
"""Brackets that are doubled, as some chat templates show them in their instructions."""
_ARGUMENTS_IN_TEXT = re.compile(rf"""["']?\b(?:{"|".join(ARGUMENT_KEYS)})["']?\s*:""")


def _entries(value: Any, names: ToolNames) -> list[RawCall]:
    """Return the calls that a JSON value consists of: none if a part of it is no call."""
    match value:
        case list():
            entries = [entry for member in value if (entry := _entry(member, names)) is not None]
            return entries if len(entries) == len(value) else []
        case dict():
            members = _tool_calls(value)
            if not members and (entry := _entry(value, names)) is not None:
                return [entry]
            if not members and len(value) == 1 and value.keys() <= _OUTER_KEYS:
                members = _tool_calls(*value.values())
            listed = _entries(members, names)
            return [replace(entry, syntax="tool_calls", text_arguments=True) for entry in listed]
        case _:
            return []


def _tool_calls(value: Any) -> list[Any]:
    """Return the list of calls in an object: of `tool_calls`, `toolCalls` or `tool-calls`."""
    members = value.items() if isinstance(value, dict) else ()
    return next((calls for key, calls in members if fold(key) == "toolcalls" and isinstance(calls, list)), [])


def read_body(
    text: str, start: int, names: ToolNames, syntax: CallSyntaxName | None = None
) -> ParsedSpan | None:
    """Parse the calls in the JSON at `start`: none if it is complete without a call, None if it is neither.

    `syntax`: the syntax of the calls, if the text around them determines it.
    """
    value = extent(text, start)
    if value.closed:
        body = text[start : value.end]
        doubled = _DOUBLED.fullmatch(body)
        try:
            loaded = load(body if doubled is None else doubled[1])
        except InvalidJsonError as error:
            name = _NAME_IN_TEXT.search(body)
            if name is None or _ARGUMENTS_IN_TEXT.search(body) is None:
                return ParsedSpan(value.end)
            return ParsedSpan(value.end, (RawCall(name[1], None, syntax or "bare", error=str(error)),))
        if doubled is not None:
            loaded = Loaded(loaded.value, (*loaded.repairs, Repair("json", "ignored doubled brackets")))
        listed = _entries(_named_by_key(loaded.value, names) if syntax else loaded.value, names)
        return ParsedSpan(value.end, tuple(_written(entry, loaded, syntax) for entry in listed))
    return _open_body(text, start, names, syntax)


def _named_by_key(value: Any, names: ToolNames) -> Any:
    """Return a JSON value in which objects whose only key is a tool's name are calls with a name."""
    if isinstance(value, list):
        return [_named_by_key(member, names) for member in value]
    is_call = isinstance(value, dict) and len(value) == 1 and names.find(*value)
    return {"name": next(iter(value)), "arguments": next(iter(value.values()))} if is_call else value


def _open_body(text: str, start: int, names: ToolNames, syntax: CallSyntaxName | None) -> ParsedSpan | None:
    """Parse the calls in JSON without an end: its last brackets are missing, or it is truncated."""
    last = text.rfind("}", start)
    if last >= 0:
        head = text[start : last + 1]
        opened = extent(head, 0).open
        value, innermost = _closed(head, opened)
        listed = _entries(value, names)
        if listed and not any(_has_part(entry.arguments, innermost) for entry in listed):
            loaded = Loaded(None, (Repair("json", f"closed it with {closing(opened)}"),))
            return ParsedSpan(last + 1, tuple(_written(entry, loaded, syntax) for entry in listed))
    if not _SAYS_NAME.search(text, start):
        return None
    try:
        loaded = load(text[start:], truncated=True)
    except InvalidJsonError:
        return None
    listed = _entries(loaded.value, names)
    written = [_written(entry, loaded, syntax).noted(TRUNCATED) for entry in listed]
    truncated = tuple(replace(call, truncated=True) for call in written)
    return ParsedSpan(len(text), truncated, closed=False) if truncated else None


def _closed(head: str, opened: str) -> tuple[Any, Any]:
    """Return the value of `head` with its brackets closed, and the part that missing text belongs to.

    A mark at the end of that part keeps it from being equal to an earlier value of the same key.
    """
    if not opened or opened[-1] not in "{[":
        return None, None
    mark = f', "{"_" * (len(head) + 1)}"'  # longer than any text in it
    try:
        value = part = parse_json(head + mark + (": 0" if opened[-1] == "{" else "") + closing(opened))
    except InvalidJsonError:
        return None, None
    for _ in opened[1:]:
        part = (list(part.values()) if isinstance(part, dict) else part)[-1]
    if isinstance(part, dict):
        part.popitem()
    else:
        part.pop()
    return value, part


def _has_part(value: Any, part: Any) -> bool:
    members = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    return value is part or any(_has_part(member, part) for member in members)


def _entry(value: Any, names: ToolNames) -> RawCall | None:
    """Return the call that an object is, in any of its common forms; None if it is no call."""
    if not isinstance(value, dict):
        return None
    call_id = value["id"] if isinstance(value.get("id"), str) else None
    outer = next((key for key in (*_WRAPPERS, "function") if isinstance(value.get(key), dict)), None)
    if outer is not None:
        inner = _entry(value[outer], names)
        if inner is None:
            return None
        if outer == "function":
            return replace(inner, id=call_id, syntax="openai", text_arguments=True)
        return replace(inner, repairs=(Repair("wrapper", f"took the call from {outer!r}"),))
    name_key = next((key for key in NAME_KEYS if isinstance(value.get(key), str)), None)
    if name_key is None:
        return None
    name = value[name_key]
    rest = {key: member for key, member in value.items() if key != name_key and key not in _SILENT_KEYS}
    arguments_key = next((key for key in ARGUMENT_KEYS if key in rest), None)
    if arguments_key is not None:
        return RawCall(name, rest.pop(arguments_key), "bare", id=call_id, extra=rest)
    tool = names.find(name)
    if tool is None or not rest.keys() <= tool.args.get("properties", {}).keys():
        return None  # an object with a name that is not a call
    return RawCall(name, rest or None, "bare", id=call_id)


def _written(entry: RawCall, loaded: Loaded, syntax: CallSyntaxName | None) -> RawCall:
    """Return a call of loaded JSON with what was repaired in both."""
    repairs = [*loaded.repairs, *entry.repairs]
    if entry.extra:
        ignored = ", ".join(map(repr, entry.extra))
        repairs.append(Repair("extra", f"ignored {ignored} beside the arguments"))
    return replace(entry, syntax=syntax or entry.syntax, repairs=tuple(repairs))
