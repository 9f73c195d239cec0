r"""Text tool calls: parse the calls in a model's text, for models and servers without a grammar.

    result = parse_tool_calls('Sure!\n```json\n{"tool": "Get-Now", "args": {},}\n```', tools)
    match result:
        case ToolCalls(calls, syntax):
            calls[0].name, calls[0].arguments, calls[0].truncated     # "get_now", {}, False
            result.repairs                                            # what was ignored or corrected
        case FinalAnswer(content):
            ...                                                       # an answer: the text has no call

Calls are parsed in ten syntaxes (`CALL_SYNTAXES`, in order of priority). Invariants:

- only tools of the pool are called; an unknown name is an `InvalidToolCall` with the nearest name;
- `parse_tool_calls(render_tool_calls(call, syntax), pool)` is the same call, in every syntax, without
  repairs;
- whatever was ignored, corrected or guessed is in `repairs`;
- a call that ends with the text is `truncated`, and must not be executed;
- no text raises an exception, and nothing inside a call's strings is a call.

Names are imported on first use. `gbnf.calls.validation` checks a call against its schema,
`gbnf.calls.repair` corrects its arguments.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gbnf.lazy_names import lazy_names

if TYPE_CHECKING:
    from gbnf.calls.parsing.parser import TEXT_LIMIT as TEXT_LIMIT
    from gbnf.calls.parsing.parser import parse_tool_calls as parse_tool_calls
    from gbnf.calls.parsing.results import CallSyntaxName as CallSyntaxName
    from gbnf.calls.parsing.results import FinalAnswer as FinalAnswer
    from gbnf.calls.parsing.results import InvalidToolCall as InvalidToolCall
    from gbnf.calls.parsing.results import ParseResult as ParseResult
    from gbnf.calls.parsing.results import Repair as Repair
    from gbnf.calls.parsing.results import RepairKind as RepairKind
    from gbnf.calls.parsing.results import ToolCall as ToolCall
    from gbnf.calls.parsing.results import ToolCalls as ToolCalls
    from gbnf.calls.parsing.streaming import CallStream as CallStream
    from gbnf.calls.parsing.syntaxes import CALL_SYNTAXES as CALL_SYNTAXES
    from gbnf.calls.parsing.syntaxes import CallSyntax as CallSyntax
    from gbnf.calls.parsing.syntaxes import render_tool_calls as render_tool_calls

__all__, __getattr__, __dir__ = lazy_names(__name__, {
    "gbnf.calls.parsing.parser": ("TEXT_LIMIT", "parse_tool_calls"),
    "gbnf.calls.parsing.results": (
        "CallSyntaxName", "FinalAnswer", "InvalidToolCall", "ParseResult", "Repair", "RepairKind", "ToolCall",
        "ToolCalls",
    ),
    "gbnf.calls.parsing.streaming": ("CallStream",),
    "gbnf.calls.parsing.syntaxes": ("CALL_SYNTAXES", "CallSyntax", "render_tool_calls"),
})  # fmt: skip
