"""An independent writer of calls in a tool-call format: plain concatenation, no grammar and no template."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from gbnf.calls.parsing.results import ToolCall
from gbnf.tool_formats import JsonArguments, Part, ToolFormat
from support.notations import write


def written_calls(form: ToolFormat, calls: Sequence[ToolCall]) -> str:
    """Return an answer with the calls, each value in the first form of its type."""
    written = [
        _parts(form.head, call, at) + _arguments(form, call) + _parts(form.tail, call, at)
        for at, call in enumerate(calls)
    ]
    assert len(calls) <= 1 or form.separator is not None
    return form.begin + (form.separator or "").join(written) + form.end


def _parts(parts: Sequence[Part], call: ToolCall, index: int) -> str:
    text = ""
    for part in parts:
        if isinstance(part, str):
            text += part
        elif part.kind == "name":  # in JSON, it stands between quotes
            text += json.dumps(call.name, ensure_ascii=False)[1:-1] if text.endswith('"') else call.name
        else:
            text += call.id if part.kind == "id" else str(part.base + index)
    return text


def _arguments(form: ToolFormat, call: ToolCall) -> str:
    if not isinstance(form.arguments, JsonArguments):
        return write(dict(call.arguments), form.arguments)
    separators = (",", ":") if form.arguments.whitespace == "compact" else None
    text: Any = json.dumps(call.arguments, ensure_ascii=False, separators=separators)
    return json.dumps(text, ensure_ascii=False) if form.arguments.quoted else text
