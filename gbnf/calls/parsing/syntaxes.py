"""The table of shapes, in priority order: how each begins, how it is read, how it is written.

What a shape's writer writes, its reader reads back as it was.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from gbnf.calls.parsing.fenced_blocks import FENCE, read_fenced, write_fenced
from gbnf.calls.parsing.json_syntaxes import OBJECT, read_object, write_bare, write_openai, write_tool_calls
from gbnf.calls.parsing.line_syntaxes import (
    CALL,
    PYTHON,
    YAML,
    read_call,
    read_python,
    read_yaml,
    write_call,
    write_python,
    write_yaml,
)
from gbnf.calls.parsing.readers import Reader
from gbnf.calls.parsing.results import CallSyntaxName, ToolCall
from gbnf.calls.parsing.tags import (
    FUNCTION,
    MISTRAL,
    TAG,
    read_function,
    read_mistral,
    read_tagged,
    write_function,
    write_mistral,
    write_tagged,
)
from gbnf.errors import InvalidArgumentError

Writer: TypeAlias = Callable[[Sequence[ToolCall]], str]


@dataclass(frozen=True, slots=True)
class CallSyntax:
    """One way to write calls."""

    name: CallSyntaxName
    opener: re.Pattern[str]
    read: Reader
    write: Writer


CALL_SYNTAXES: tuple[CallSyntax, ...] = (
    CallSyntax("fenced", FENCE, read_fenced, write_fenced),
    CallSyntax("call", CALL, read_call, write_call),
    CallSyntax("tool_calls", OBJECT, read_object, write_tool_calls),
    CallSyntax("bare", OBJECT, read_object, write_bare),
    CallSyntax("openai", OBJECT, read_object, write_openai),
    CallSyntax("tagged", TAG, read_tagged, write_tagged),
    CallSyntax("function", FUNCTION, read_function, write_function),
    CallSyntax("mistral", MISTRAL, read_mistral, write_mistral),
    CallSyntax("yaml", YAML, read_yaml, write_yaml),
    CallSyntax("python", PYTHON, read_python, write_python),
)
"""Every shape. Where a text holds calls in several, those of the first shape here are its calls."""


def render_tool_calls(calls: ToolCall | Sequence[ToolCall], syntax: CallSyntaxName = "bare") -> str:
    """Calls as text in a shape; `gbnf.calls.parse` reads them back as they were.

    Only "tool_calls", "openai" and "mistral" write the ids; the others are read back as call_1, call_2, ….
    Raises ValueError for a shape that doesn't exist.
    """
    for known in CALL_SYNTAXES:
        if known.name == syntax:
            return known.write([calls] if isinstance(calls, ToolCall) else calls)
    raise InvalidArgumentError(
        f"shape={syntax!r} is none of {', '.join(known.name for known in CALL_SYNTAXES)}"
    )
