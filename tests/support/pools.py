"""The bundled tools, and a pool with everything that text tool calls must handle, and calls of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from hypothesis import strategies as st

from gbnf import load_manifests
from gbnf.calls import CALL_SYNTAXES, ToolCall
from gbnf.tools import FINAL_ANSWER, Tool
from support.json_values import SIMPLE, nested

BUNDLED = load_manifests(Path(__file__).parents[2] / "manifests")


def tool(name: str, required: tuple[str, ...] = (), *, opened: bool = False, **properties: Any) -> Tool:
    args = {"type": "object", "properties": properties, "required": list(required)}
    return Tool(name, args=args | ({"additionalProperties": True} if opened else {}))


POOL = (
    tool("get_now", timezone={"type": "string"}),
    tool(
        "write_note",
        ("title",),
        title={"type": "string"},
        count={"type": "integer"},
        tags={"type": "array", "items": {"type": "string"}},
        data={},
        mixed={"type": ["string", "integer"]},
    ),
    tool("files.read-all", path={"type": "string"}),
    tool("Open2", opened=True, text={"type": "string"}),
    tool("final", message={"type": "string"}),
    FINAL_ANSWER,
)

#: Signs and phrases that begin, end or quote a call in some shape.
FRAGMENTS = (
    "```", "```tool\n", "```json\n", "```python\n", "\n```\n", "`", "CALL ", "CALL get_now", "call me",
    "\n", '{"name": "get_now", "arguments": {}}', '{"name": "Submit", "arguments": {}}', '{"tool_calls": [',
    "]}", '{"name": "write_note", "arguments": {"title": "', '"}}', "{'tool': 'get_now', args: {}}", "{",
    "}", "[", "]", '"', "'", "\\", "//", "/*", "#", "<tool_call>", "</tool_call>", "<function=get_now>",
    "</function>", "<think>", "</think>", "<parameter=timezone>", "</parameter>", "[TOOL_CALLS]", "[ARGS]",
    "tool: get_now\nargs:\n", "args:", "  timezone: UTC\n", "get_now(", "get_now()", "timezone=", ")", "(",
    ",", ":", ": ", "- ", "|\n", "> ", "final", "write note", "Sure, ", "The answer is 42.", " ", "é",
    '<invoke name="get_now">', "<|tool_call_begin|>functions.get_now:0", "<|tool_call_end|>", "to=get_now",
    "<arg_key>timezone</arg_key><arg_value>", "</arg_value>", "<|message|>{}", "<|tool_call>call:get_now",
    '{timezone:<|"|>', '<|"|>', "]<]minimax[>[<timezone>", "]<]minimax[>[</timezone>", "<|python_tag|>",
    "\u2028", "\r\n", "\t", "\0", "x = ", "return ", "  ", '{"x": 1}', "[{}]",
)  # fmt: skip

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=20) | st.lists(
    st.sampled_from(FRAGMENTS), max_size=6
).map("".join)
"""Texts that look like calls more often than not; no half characters."""

json_values = nested(SIMPLE | texts, texts, items=4, most=4)

_ARGUMENTS = {
    "get_now": st.fixed_dictionaries({}, optional={"timezone": texts}),
    "write_note": st.fixed_dictionaries(
        {"title": texts},
        optional={
            "count": st.integers(),
            "tags": st.lists(texts, max_size=4),
            "data": json_values,
            "mixed": st.integers() | texts,
        },
    ),
    "files.read-all": st.fixed_dictionaries({}, optional={"path": texts}),
    "Open2": st.builds(
        lambda extra, text: {key: value for key, value in extra.items() if key != "text"} | text,
        st.dictionaries(texts, json_values, max_size=4),
        st.fixed_dictionaries({}, optional={"text": texts}),
    ),
    "final": st.fixed_dictionaries({}, optional={"message": texts}),
    "final_answer": st.fixed_dictionaries({"message": texts}),
}

valid_calls = st.sampled_from(sorted(_ARGUMENTS)).flatmap(
    lambda name: _ARGUMENTS[name].map(lambda arguments: ToolCall("call_1", name, arguments))
)
"""Calls that the pool's validator takes."""

call_lists = st.lists(valid_calls, min_size=1, max_size=3).map(
    lambda calls: [ToolCall(f"call_{at}", call.name, call.arguments) for at, call in enumerate(calls, 1)]
)
shape_names = st.sampled_from([shape.name for shape in CALL_SYNTAXES])

model_texts = st.lists(st.sampled_from(FRAGMENTS) | st.text(st.characters(), max_size=8), max_size=14).map(
    "".join
)
"""What a model might write on a bad day: any characters, half ones too."""
