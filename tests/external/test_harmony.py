"""What gpt-oss writes, unlike its template: the grammar accepts it, and it is read as it was meant."""

from __future__ import annotations

import pytest

from chat_templates import chat_templates
from gbnf.calls.parsing.results import ToolCalls
from gbnf.tool_formats import ToolFormat, detect
from gbnf.tools import Tool
from support.oracle import engine

_NAME = "openai-gpt-oss-120b"
_NOTE = Tool(
    "note",
    args={
        "type": "object",
        "properties": {"n": {"type": "integer"}},
        "required": ["n"],
        "additionalProperties": False,
    },
)
_TOOLS = [_NOTE, Tool("note_all", args=_NOTE.args)]
_THOUGHT = "<|channel|>analysis<|message|>I think.<|end|><|start|>assistant"
_PREAMBLE = "<|channel|>commentary<|message|>One moment.<|end|><|start|>assistant"

pytestmark = pytest.mark.skipif(_NAME not in chat_templates(), reason="llama.cpp's sources are missing")


@pytest.fixture(scope="module")
def form() -> ToolFormat:
    return detect(chat_templates()[_NAME])


@pytest.mark.parametrize("content", ["", " <|constrain|>json", " json"])
@pytest.mark.parametrize("channel", ["commentary", "analysis"])
@pytest.mark.parametrize("behind", [True, False])
def test_calls(form: ToolFormat, channel: str, content: str, behind: bool) -> None:
    to, name = " to=functions.note", f"<|channel|>{channel}"
    call = f'{name + to if behind else to + name}{content}<|message|>{{"n": 5}}'
    for choice in ("auto", "required", "note"):
        for reasoning, before in (
            (False, ""), (True, ""), (True, _THOUGHT), (True, _THOUGHT * 2),
        ):  # fmt: skip
            grammar = form.grammar(_TOOLS, tool_choice=choice, reasoning=reasoning)
            assert engine().match(grammar, before + call).complete
            assert not engine().match(grammar, before + call.replace("5", '"5"')).complete
            found = form.parse(before + call, _TOOLS, reasoning=reasoning)
            assert isinstance(found, ToolCalls)
            assert [(each.name, each.arguments) for each in found.calls] == [("note", {"n": 5})]
            assert found.reasoning == "I think." * before.count("I think.")
    assert not engine().match(form.grammar(_TOOLS, tool_choice="note_all"), call).complete
    announced = form.parse(_PREAMBLE + call, _TOOLS)
    assert isinstance(announced, ToolCalls)
    assert (announced.content, len(announced.calls)) == ("One moment.", 1)
    assert engine().match(form.grammar(_TOOLS), _PREAMBLE + call).complete
    assert not engine().match(form.grammar(_TOOLS, tool_choice="required"), _PREAMBLE + call).complete
    assert not engine().match(form.grammar(_TOOLS, tool_choice="none"), _PREAMBLE + call).complete


@pytest.mark.parametrize(
    "header",
    ["<|channel|>final", "<|channel|>commentary", "<|channel|>final <|constrain|>json"],
)
def test_texts(form: ToolFormat, header: str) -> None:
    for before in ("", _THOUGHT):
        text = f"{before}{header}<|message|>Hello."
        assert engine().match(form.grammar(_TOOLS, reasoning=True), text).complete
        assert form.parse(text, _TOOLS, reasoning=True).content == "Hello."
