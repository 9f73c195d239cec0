"""The tool-call format of a model, from its chat template. Pure."""

from __future__ import annotations

import json
from functools import lru_cache

from gbnf.errors import ToolFormatError
from gbnf.tool_formats import ElementArguments, Part, ToolFormat, detect

_NAME, _ARGUMENTS = "create_file", {"path": "notes.md", "count": 2}


@lru_cache(maxsize=32)
def find_tool_format(template: str, bos_token: str = "", eos_token: str = "") -> ToolFormat | None:
    """Return the format of a chat template, None if it has no tools, or they cannot be derived."""
    try:
        return detect(template, bos_token=bos_token, eos_token=eos_token)
    except ToolFormatError:
        return None


def describe_format(tool_format: ToolFormat) -> str:
    """Return how arguments are written, what surrounds a call, and what else is known, in one line."""
    arguments = tool_format.arguments
    if isinstance(arguments, ElementArguments):
        written = "arguments as one element per parameter"
    else:
        written = "arguments as JSON in a string" if arguments.quoted else "arguments as JSON"
    around = f"{tool_format.begin}{_shown(tool_format.head)}", f"{_shown(tool_format.tail)}{tool_format.end}"
    facts = [written, "between {} and {}".format(*map(json.dumps, around))]
    facts.append("several calls" if tool_format.separator is not None else "one call at a time")
    if tool_format.reasoning is not None:
        facts.append(f"reasoning up to {json.dumps(tool_format.reasoning.end)}")
    return ", ".join([*facts, *tool_format.notes])


def _shown(parts: tuple[Part, ...]) -> str:
    return "".join(part if isinstance(part, str) else part.kind.upper() for part in parts)
