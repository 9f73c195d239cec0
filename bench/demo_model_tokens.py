"""The chat format of the demonstration model: its marks, and the texts that are one token each.

Beside the marks, the fixed pieces of a conversation (a tool's line in the prompt, the text between the values
of a call or of a result) are tokens of their own, so that a conversation has few tokens besides its content.
Invariants: a piece ends where a grammar leaves a choice, so that forced text has the same tokens as sampled
text.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from gbnf.prompts.messages import system_prompt
from gbnf.tools import FINAL_ANSWER, load_manifests
from gbnf_server.system.folders import manifests_path

SPECIAL = ("<|end|>", "<|pad|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
_CALL = ('{"name": "', '", "arguments": {"', '", "arguments": {}}')
_BETWEEN = ('", "', '"], "', ', "', '"}, {"', '"}, "', '"}}], "')
_CLOSING = ("}}", '"}}', '"]}}', '"}]}}', '"}}]}}', '"]}}]}}', "]}}")
_RESULT = ('{"step": ', ', "result": {"', ', "error": "', 'entries": ["', 'entries": []', 'count": ')
_FIELDS = ('values": {"', 'sent_to": ["', 'file": "', 'date": "', 'time": "', 'weekday": "', 'value": ')


@cache
def pieces() -> tuple[str, ...]:
    """Return the fixed pieces that are one token each, without the marks."""
    tools = [*load_manifests(manifests_path()), FINAL_ANSWER]
    head, *lines = system_prompt(tools, style="minimal").split("\n")
    texts = [head, *(f"\n{line}" for line in lines), *(tool.name for tool in tools if "_" in tool.name)]
    texts += [*_CALL, *_BETWEEN, *_CLOSING, *_RESULT, *_FIELDS]
    for tool in tools:
        texts += _openings(tool.model_args())
    return tuple(dict.fromkeys(texts))


def _openings(schema: Mapping[str, Any]) -> Iterator[str]:
    """Return the text from a property's name to its value, for every property of a schema, at any depth."""
    for name, inner in schema.get("properties", {}).items():
        items = inner.get("items", {})
        if inner.get("type") == "integer":
            yield f'{name}": '
        elif "properties" in inner:
            yield f'{name}": {{"'
            yield from _openings(inner)
        elif "properties" in items:
            yield f'{name}": [{{"'
            yield from _openings(items)
        else:
            yield f'{name}": ["' if inner.get("type") == "array" else f'{name}": "'
        yield from (value for value in inner.get("enum", ()) if "_" in value)
