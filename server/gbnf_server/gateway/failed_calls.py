"""The calls of a conversation that failed, which a model may repeat without an end, and those that succeeded.

The client executes calls, so only the messages say what came of them. Most APIs have no mark for a failure; a
result counts as one if it begins like an error message, or is a JSON object that says so.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from gbnf.prompts.messages import Message
from gbnf.schema.value_sets import whole_numbers
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf_server.planner.repeats import MAX_EXCLUDED_LENGTH

CallKey: TypeAlias = tuple[str, str]
"""The name of a tool, and its arguments as JSON with sorted keys."""

MAX_EXCLUDED = 8
"""How many calls a grammar excludes, those that failed last: each is some 25 kB of it."""

_ERROR = re.compile(
    r"\s*(?:error|exception|failed|failure|traceback|\w+(?:Error|Exception))\b", re.IGNORECASE
)
_MARKS = {"isError": True, "is_error": True, "ok": False, "success": False}
"""Members of an object that says that it is an error."""


def call_key(name: str, arguments: Mapping[str, Any]) -> CallKey:
    """Return what equal calls have in common."""
    return name, json.dumps(whole_numbers(dict(arguments)), sort_keys=True)


def failed_calls(messages: Sequence[Message]) -> Counter[CallKey]:
    """Return how often each call has failed since another one succeeded for the first time."""
    made: dict[str, CallKey] = {}
    failed: Counter[CallKey] = Counter()
    succeeded: set[CallKey] = set()
    for message in messages:
        for call in message.get("tool_calls", ()):
            function = call["function"]
            made[call["id"]] = call_key(function["name"], function["arguments"])
        key = made.get(message.get("tool_call_id", ""))
        if key is None:
            continue
        if _is_error(message["content"]):
            failed[key] = failed.pop(key, 0) + 1  # the order is that of the last failures
        elif key not in succeeded:  # it may have changed what the others depend on
            succeeded.add(key)
            failed.clear()
    return failed


def succeeded_calls(messages: Sequence[Message]) -> list[Mapping[str, Any]]:
    """Return the calls, each with name and arguments, whose own result is not an error."""
    made = {call["id"]: call["function"] for message in messages for call in message.get("tool_calls", ())}
    results = {m["tool_call_id"]: m["content"] for m in messages if "tool_call_id" in m}
    return [made[each] for each, result in results.items() if each in made and not _is_error(result)]


def excluded_calls(messages: Sequence[Message], failures: int) -> tuple[CallKey, ...]:
    """Return the short calls that failed at least so many times, sorted; at most `MAX_EXCLUDED`."""
    found = [
        key
        for key, count in failed_calls(messages).items()
        if count >= failures and len(key[1]) <= MAX_EXCLUDED_LENGTH
    ]
    return tuple(sorted(found[-MAX_EXCLUDED:]))


def _is_error(result: str) -> bool:
    if _ERROR.match(result):
        return True
    try:
        value = parse_json(result)
    except InvalidJsonError:
        return False
    if not isinstance(value, dict):
        return False
    if value.get("error") or value.get("status") in ("error", "failed"):
        return True
    return any(value.get(name) is mark for name, mark in _MARKS.items())
