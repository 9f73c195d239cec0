"""Cases of results in format 1, whose patterns were no JSON Schemas.

A pattern was a plain value, or a table of one predicate: equals, contains, matches, one_of, unordered, any or
optional. Other tables and arrays had patterns for their members.
"""

from __future__ import annotations

from collections.abc import Mapping
from itertools import chain, combinations
from typing import Any

from gbnf_server.evaluation.expectations import contained

_PREDICATES = frozenset({"equals", "contains", "matches", "one_of", "unordered", "any", "optional"})


def convert_case(case: Mapping[str, Any]) -> dict[str, Any]:
    """Return the case with JSON Schemas in place of patterns."""
    case = dict(case)
    if "calls" in case:
        case["calls"] = list(map(_call, case["calls"]))
    if "plans" in case:
        case["plans"] = [list(map(_call, plan)) for plan in case["plans"]]
    if "after" in case:
        states = [case["after"]] if isinstance(case["after"], Mapping) else case["after"]
        states = [each for state in states for each in _states(state)]
        case["after"] = states[0] if len(states) == 1 else states
    if "answer" in case:
        case["answer"] = _expectation(case["answer"], text=True)
    return case


def _call(call: Mapping[str, Any]) -> dict[str, Any]:
    arguments = call.get("arguments", {})
    tables = {
        key: {name: _expectation(each) for name, each in arguments.items() if _may_be_absent(each) is absent}
        for key, absent in (("arguments", False), ("optional_arguments", True))
    }
    given = {"arguments"} & call.keys()
    return {**call, **{key: table for key, table in tables.items() if table or key in given}}


def _states(state: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Return the state, once for each choice of its files that may be absent."""
    files = state.get("files", {})
    optional = [path for path, pattern in files.items() if "*" not in path and _may_be_absent(pattern)]
    absent = chain.from_iterable(combinations(optional, count) for count in range(len(optional) + 1))
    rows = {
        key: [
            {name: _expectation(each, text=name != "to") for name, each in row.items()} for row in state[key]
        ]
        for key in ("events", "gone_events", "messages", "gone_messages")
        if key in state
    }
    return [
        {**state, **rows}
        | (
            {
                "files": {
                    path: _expectation(each, text=True) for path, each in files.items() if path not in out
                }
            }
            if files
            else {}
        )
        for out in absent
    ]


def _expectation(pattern: Any, *, text: bool = False) -> Any:
    """Return what stands for a pattern in a suite; `text`: it is compared with nothing but texts."""
    match pattern:
        case {"optional": inner}:
            return _expectation(inner, text=text)
        case Mapping():
            return _schema(pattern, text=text)
        case _:
            return pattern if _is_constant(pattern) else _schema(pattern)


def _schema(pattern: Any, *, text: bool = False) -> dict[str, Any]:
    match pattern:
        case {"equals": value}:
            return {"const": value}
        case {"any": _}:
            return {}
        case {"optional": inner}:
            return _schema(inner, text=text)
        case {"matches": regex}:
            return {"pattern": regex} if text else {"type": "string", "pattern": regex}
        case {"one_of": members} if all(map(_is_constant, members)):
            return {"enum": members}
        case {"one_of": members}:
            return {"anyOf": [_schema(each, text=text) for each in members]}
        case {"contains": members}:
            found = [
                _member(each, text=text) for each in (members if isinstance(members, list) else [members])
            ]
            return found[0] if len(found) == 1 else {"allOf": found}
        case {"unordered": members}:
            each = [{"contains": _schema(member), "minContains": members.count(member)} for member in members]
            return {"type": "array", "minItems": len(members), "maxItems": len(members), "allOf": each}
        case _ if _is_constant(pattern):
            return {"const": pattern}
        case list():
            count = len(pattern)
            items = list(map(_schema, pattern))
            return {"type": "array", "prefixItems": items, "minItems": count, "maxItems": count}
        case _:
            return {
                "type": "object",
                "properties": {name: _schema(each) for name, each in pattern.items()},
                "required": [name for name, each in pattern.items() if not _may_be_absent(each)],
                "additionalProperties": False,
            }


def _member(member: Any, *, text: bool) -> dict[str, Any]:
    """Return the schema of texts that contain a text or meet a pattern, and of arrays with such a member."""
    of_text = {"pattern": contained(member)} if isinstance(member, str) else _schema(member, text=True)
    if text:
        return of_text
    return {"anyOf": [{"type": "string", **of_text}, {"type": "array", "contains": _schema(member)}]}


def _is_constant(pattern: Any) -> bool:
    if isinstance(pattern, Mapping):
        return not _PREDICATES & pattern.keys() and all(map(_is_constant, pattern.values()))
    return not isinstance(pattern, list) or all(map(_is_constant, pattern))


def _may_be_absent(pattern: Any) -> bool:
    match pattern:
        case {"any": _} | {"optional": _}:
            return True
        case {"one_of": members}:
            return any(map(_may_be_absent, members))
        case _:
            return False
