"""Calls as JSON in a text, in the ways in which models write them, written and read without the product."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Calls = Sequence[tuple[str, Any]]

_FENCE = re.compile(r"```\w*[ \t]*\n(.*?)```", re.DOTALL)
_DECODER = json.JSONDecoder()


def _plain(name: str, arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": arguments}


def _nested(name: str, arguments: Any) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name, "parameters": arguments}}


SPELLINGS: Mapping[str, Callable[[str, Any], str]] = {
    "bare": lambda name, arguments: json.dumps(_plain(name, arguments), ensure_ascii=False),
    "compact": lambda name, arguments: json.dumps(_plain(name, arguments), separators=(",", ":")),
    "parameters": lambda name, arguments: json.dumps({"name": name, "parameters": arguments}),
    "typed": lambda name, arguments: json.dumps({"type": "function", "name": name, "parameters": arguments}),
    "nested": lambda name, arguments: json.dumps(_nested(name, arguments)),
    "function": lambda name, arguments: json.dumps({"function": name, "arguments": arguments}),
    "lines": lambda name, arguments: (
        f'{{\n    "name": {json.dumps(name)},\n    "arguments": {json.dumps(arguments)}\n}}'
    ),
    "doubled": lambda name, arguments: "{" + json.dumps(_plain(name, arguments)) + "}",
}
"""Ways to write one call."""

WRAPPERS: Mapping[str, Callable[[Sequence[str]], str]] = {
    "alone": "\n".join,
    "list": lambda calls: f"[{', '.join(calls)}]",
    "block": lambda calls: "```json\n" + "\n".join(calls) + "\n```",
    "block of a list": lambda calls: "```\n[" + ", ".join(calls) + "]\n```",
    "blocks": lambda calls: "\n\n".join(f"```json\n{call}\n```" for call in calls),
}
"""Ways to write several."""


def spelled(calls: Calls, spelling: str, wrapper: str) -> str:
    """Return the text of calls."""
    return WRAPPERS[wrapper]([SPELLINGS[spelling](name, arguments) for name, arguments in calls])


def calls_of(text: str) -> list[tuple[str, Any]]:
    """Return the calls of a text that consists of them, [] for any other text."""
    bodies = _FENCE.findall(text) if text.lstrip().startswith("```") else [text]
    calls: list[tuple[str, Any]] = []
    for body in bodies:
        at = 0
        while at < len(body):
            skipped = re.match(r"[\s,\[\]]*", body[at:])
            at += 0 if skipped is None else skipped.end()
            if at == len(body):
                break
            is_doubled = re.match(r"\{\s*\{", body[at:])
            at += is_doubled.end() - 1 if is_doubled else 0
            try:
                value, at = _DECODER.raw_decode(body, at)
            except ValueError:
                return []
            if is_doubled:
                closing = re.match(r"\s*\}", body[at:])
                at += closing.end() if closing else 0
            inner = value.get("function", value) if isinstance(value, dict) else {}
            inner = inner if isinstance(inner, dict) else value
            name = next((inner[key] for key in ("name", "function", "tool") if key in inner), None)
            keys = [key for key in ("arguments", "parameters", "args", "input") if key in inner]
            if name is None or not keys:
                return []
            calls.append((name, inner[keys[0]]))
    return calls
