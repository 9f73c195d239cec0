"""Templates that show tools but no calls: past calls are written into the content, in the model's form."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.calls.parsing.results import ToolCall, ToolCalls
from gbnf.errors import ToolFormatError
from gbnf.tool_formats import ToolFormat, detect
from gbnf.tools import Tool
from support.oracle import engine

_MESSAGES = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _template(instructions: str) -> str:
    return f"{{% if tools %}}{instructions.replace('TOOLS', '{{ tools|tojson }}')}\n{{% endif %}}{_MESSAGES}"


_LIQUID = "List of tools: TOOLS"
_GRANITE = (
    "Tools: TOOLS. When a tool is required, respond only with <|tool_call|> followed by a JSON list of them."
)
_SHOWN = 'TOOLS Write:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
_OTHER = 'TOOLS Write <call>{"tool": <name>, "input": <object>}</call>'

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "maxLength": 20},
        "n": {"type": "integer", "minimum": 0, "maximum": 9},
        "on": {"type": ["boolean", "null"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 2},
    },
    "required": ["text"],
    "additionalProperties": False,
}
_TOOLS = (Tool("note", args=_SCHEMA), Tool("note_all", args=_SCHEMA))


_GIVEN = [("note", {"text": "a", "on": True}), ("note_all", {"text": "b", "tags": ["c"]})]
_PYTHON = 'note(text="a", on=True), note_all(text="b", tags=["c"])'
_JSON = [f'{{"name": "{name}", "arguments": {json.dumps(arguments)}}}' for name, arguments in _GIVEN]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("instructions", "text"),
    [
        (_LIQUID, f"<|tool_call_start|>[{_PYTHON}]<|tool_call_end|>"),
        (_GRANITE, f"<|tool_call|>[{', '.join(_JSON)}]"),
        (_SHOWN, "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in _JSON)),
        (
            _OTHER,
            "\n".join(
                f'<call>{{"tool": "{name}", "input": {json.dumps(arguments)}}}</call>'
                for name, arguments in _GIVEN
            ),
        ),
    ],
)
def test_what_the_models_write(instructions: str, text: str) -> None:
    form = detect(_template(instructions))
    parsed = form.parse(text, _TOOLS)
    assert isinstance(parsed, ToolCalls)
    assert [(call.name, call.arguments) for call in parsed.calls] == _GIVEN
    assert engine().match(form.grammar(_TOOLS, parallel=True), text).complete
    assert not engine().match(form.grammar(_TOOLS), text).complete
    assert form.render(parsed.calls) == text
    assert _prompt(form, _GIVEN).count(text) == 1


def _prompt(form: ToolFormat, calls: list[tuple[str, Any]]) -> str:
    """Return the prompt after an answer with calls and their results."""
    made = [
        {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for at, (name, arguments) in enumerate(calls)
    ]
    results = [{"role": "tool", "tool_call_id": f"c{at}", "content": "Done."} for at in range(len(calls))]
    answer = {"role": "assistant", "content": "I try.", "tool_calls": made}
    prompt = form.prompt([{"role": "user", "content": "Hi"}, answer, *results])
    assert prompt.count("Done.") == len(calls)
    assert "I try." in prompt
    return prompt


@given(
    st.sampled_from([_LIQUID, _GRANITE, _SHOWN]),
    st.fixed_dictionaries(
        {
            "text": st.text(max_size=25)
            | st.sampled_from(['")]', "<|tool_call_end|>", "</tool_call>", "True"])
        },
        optional={
            "n": st.integers(-1, 10),
            "on": st.none() | st.booleans(),
            "tags": st.lists(st.text("ab", max_size=5), max_size=3),
        },
    ),
)
def test_what_is_written_is_read(instructions: str, arguments: dict[str, Any]) -> None:
    form = detect(_template(instructions))
    arguments = {key: arguments[key] for key in _SCHEMA["properties"] if key in arguments}
    text = form.render([ToolCall("call_1", "note", arguments)])
    parsed = form.parse(text, _TOOLS)
    assert isinstance(parsed, ToolCalls)
    assert [(call.name, call.arguments) for call in parsed.calls] == [("note", arguments)]
    if all(char not in json.dumps(arguments) for char in ("\\u0000", "\\u007f")):
        is_valid = jsonschema.Draft202012Validator(_SCHEMA).is_valid(arguments)
        assert engine().match(form.grammar(_TOOLS), text).complete == is_valid


def test_a_template_that_says_nothing_has_no_format() -> None:
    for instructions in ("TOOLS", "Call a tool: <tool_call>"):
        with pytest.raises(ToolFormatError, match="renders no tool call"):
            detect(_template(instructions))
