"""The tool-call format of a model, from its chat template. Pure."""

from __future__ import annotations

from functools import lru_cache

from gbnf.calls import ToolCall
from gbnf.errors import ToolFormatError
from gbnf.tool_formats import ElementArguments, ToolFormat, detect

_NAME, _ARGUMENTS = "create_file", {"path": "notes.md", "count": 2}


@lru_cache(maxsize=32)
def find_tool_format(template: str, bos_token: str = "", eos_token: str = "") -> ToolFormat | None:
    """Return the format of a chat template, None if it has no tools, or they cannot be derived."""
    try:
        return detect(template, bos_token=bos_token, eos_token=eos_token)
    except ToolFormatError:
        return None


def describe_format(tool_format: ToolFormat) -> str:
    """Return how a call is written, with an example, and what else is known, in one line."""
    arguments = tool_format.arguments
    if isinstance(arguments, ElementArguments):
        written = "one element per argument"
    else:
        written = "arguments as JSON in a string" if arguments.quoted else "arguments as JSON"
    example = tool_format.render([ToolCall("call00001", _NAME, _ARGUMENTS)])
    facts = [written, "several calls" if tool_format.separator is not None else "one call at a time"]
    if tool_format.reasoning is not None:
        facts.append(f"reasoning up to {tool_format.reasoning.end.strip()}")
    return f"{', '.join([*facts, *tool_format.notes])}; for example {example}"
