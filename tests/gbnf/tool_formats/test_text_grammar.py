"""Answers that reason, and whose text is in the language of another grammar."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_templates import chat_templates
from gbnf import compile_schema
from gbnf.errors import ToolFormatError
from gbnf.tool_formats import Delta, ReasoningDelta, TextDelta, ToolFormat, detect
from support.effort import scaled
from support.oracle import engine
from support.tool_templates import JSON_IN_TAGS

OPEN = JSON_IN_TAGS.replace(
    "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}",
    "<think>\n{% if enable_thinking is false %}\n</think>\n\n{% endif %}",
)


def formats() -> dict[str, ToolFormat]:
    found = {}
    for name, template in {"in tags": JSON_IN_TAGS, "open": OPEN, **chat_templates()}.items():
        try:
            form = detect(template)
        except ToolFormatError:
            continue
        if form.reasoning is not None:
            found[name] = form
    return found


FORMATS = formats()
OBJECT = compile_schema({"type": "object"})


def written(form: ToolFormat, reasoning: str, text: str) -> str:
    """An answer in the words of the format."""
    tags = form.reasoning
    assert tags is not None
    begin = "" if tags.prompt == "open" else tags.begin
    return f"{begin}{reasoning}{tags.end}{form.text.begin}{text}{form.text.end.strip()}"


@pytest.mark.parametrize("name", sorted(FORMATS))
@settings(max_examples=scaled(15))
@given(value=st.dictionaries(st.text(max_size=3), st.text(max_size=5)), size=st.integers(1, 30))
def test_reasoning_and_text_are_read_back(name: str, value: Any, size: int) -> None:
    form = FORMATS[name]
    inner = {**value, "marker": form.marker, "end": form.text.end + "x"}
    text = json.dumps(inner, ensure_ascii=False).replace("\\u0000", "")
    if not OBJECT.match(text).complete:
        return
    grammar = form.text_grammar(OBJECT)
    answer = written(form, "so it is", text)
    assert grammar.match(answer).complete
    assert not grammar.match(f"{answer}x").complete
    stream = form.stream_text()
    deltas: list[Delta] = []
    for at in range(0, len(answer), size):
        deltas += stream.feed(answer[at : at + size])
    deltas += stream.close()
    assert "".join(each.text for each in deltas if isinstance(each, ReasoningDelta)) == "so it is"
    assert "".join(each.text for each in deltas if isinstance(each, TextDelta)) == text
    assert all(isinstance(each, ReasoningDelta | TextDelta) for each in deltas)


@pytest.mark.parametrize("name", ["in tags", "open"])
def test_the_engine_agrees(name: str) -> None:
    form = FORMATS[name]
    grammar = form.text_grammar(OBJECT)
    for text, complete in (('{"a": 1}', True), ('{"a": 1', False), ("hi", False)):
        assert engine().match(grammar, written(form, "so", text)).complete == complete
