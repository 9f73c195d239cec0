r"""Soft calls: a model's text in, a step out, for models and servers that no grammar holds.

    step = parse('Sure!\n```json\n{"tool": "Get-Now", "args": {},}\n```', executors)
    match step:
        case ToolCalls(calls, shape):
            calls[0].name, calls[0].arguments, calls[0].cut     # "get_now", {}, False
            step.repairs                                        # what was done to read it so
        case Final(content):
            ...                                                 # an answer: no sign of a call

A call is read in ten shapes (`CALL_SYNTAXES`, in priority order). What must stay true:

- only tools of the pool are called; an invented name is refused with the nearest;
- `parse_tool_calls(render(call, shape), pool)` is the call again, in every shape, with nothing repaired;
- whatever was left out, mended or guessed is in `repairs`;
- a call that the text's end cut is marked `cut`, and never to be executed;
- no text raises, and what stands inside a call's strings is never a call.
"""

from gbnf.calls.parsing.parser import TEXT_LIMIT, parse_tool_calls
from gbnf.calls.parsing.results import (
    CallSyntaxName,
    FinalAnswer,
    InvalidToolCall,
    ParseResult,
    Repair,
    RepairKind,
    ToolCall,
    ToolCalls,
)
from gbnf.calls.parsing.streaming import CallStream
from gbnf.calls.parsing.syntaxes import CALL_SYNTAXES, CallSyntax, render_tool_calls

__all__ = [
    "CALL_SYNTAXES",
    "TEXT_LIMIT",
    "CallStream",
    "CallSyntax",
    "CallSyntaxName",
    "FinalAnswer",
    "InvalidToolCall",
    "ParseResult",
    "Repair",
    "RepairKind",
    "ToolCall",
    "ToolCalls",
    "parse_tool_calls",
    "render_tool_calls",
]
