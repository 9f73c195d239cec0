"""Texts of tool calls, whole and as a stream."""

from __future__ import annotations

import itertools
import json
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from fuzz_targets.common import Target, edited, edits
from gbnf.calls import (
    CALL_SYNTAXES,
    CallStream,
    FinalAnswer,
    ToolCall,
    ToolCalls,
    parse_tool_calls,
    render_tool_calls,
)
from support.pools import FRAGMENTS, POOL, call_lists, model_texts


@st.composite
def _call_text_cases(draw: st.DrawFn) -> dict[str, Any]:
    """Return calls rendered in a shape, with text around them, and some characters changed; or any text."""
    case: dict[str, Any] = {"calls": [], "shape": "bare", "before": "", "after": "", "edits": []}
    if draw(st.booleans()):
        case["before"] = draw(model_texts)
    else:
        case["calls"] = [[call.name, dict(call.arguments)] for call in draw(call_lists)]
        case["shape"] = draw(st.sampled_from([shape.name for shape in CALL_SYNTAXES]))
        if draw(st.booleans()):
            case["before"], case["after"] = draw(model_texts), draw(model_texts)
        case["edits"] = draw(edits(FRAGMENTS))
    case["sizes"] = draw(st.lists(st.integers(1, 12), min_size=1, max_size=5))
    return case


def check_call_text(case: Mapping[str, Any]) -> str:
    """Any text is a step; rendered calls are read back; a stream comes to the same, and shows no call."""
    calls = [ToolCall(f"call_{index}", name, args) for index, (name, args) in enumerate(case["calls"], 1)]
    text = render_tool_calls(calls, case["shape"]) if calls else ""
    if calls:
        assert parse_tool_calls(text, POOL) == ToolCalls(tuple(calls), case["shape"]), (
            f"{text!r} is read otherwise"
        )
    text = edited(case["before"] + text + case["after"], case["edits"])
    step = parse_tool_calls(text, POOL)
    names = {tool.name for tool in POOL}
    stream, rest = CallStream(POOL), text
    for size in itertools.cycle(case["sizes"]):
        if not rest:
            break
        stream.feed(rest[:size])
        rest = rest[size:]
    assert stream.close() == step, f"the stream of {text!r} ends otherwise"
    if isinstance(step, ToolCalls):
        assert step.calls or step.invalid, f"{text!r} has neither calls nor refused ones"
        assert {call.name for call in step.calls} <= names, f"{text!r} has unknown names"
        json.dumps([call.as_call() for call in step.calls])
    elif not step.reasoning:
        assert step.content == text, f"the answer {text!r} is changed"
    if "</think>" not in text:  # reasoning that a template opened is recognised by its end tag alone
        shown = stream.shown if isinstance(step, FinalAnswer) else stream.shown.strip()
        assert step.content.startswith(shown), f"of {text!r} the stream shows {shown!r}"
    return f"{len(step.calls)} calls" if isinstance(step, ToolCalls) else "answer"


CALL_TEXT = Target("call-text", _call_text_cases(), check_call_text)
