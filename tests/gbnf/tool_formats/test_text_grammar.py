"""Answers that reason, and whose text is in the language of another grammar."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_templates import chat_templates
from gbnf import compile_schema
from gbnf.errors import ToolFormatError
from gbnf.tool_formats import Delta, ReasoningDelta, TextDelta, ToolFormat, detect
from support.effort import one_in, scaled
from support.oracle import engine
from support.tool_templates import JSON_IN_TAGS

OPEN = JSON_IN_TAGS.replace(
    "{% if enable_thinking is false %}<think>\n\n</think>\n\n{% endif %}",
    "<think>\n{% if enable_thinking is false %}\n</think>\n\n{% endif %}",
)


OWN = {"in tags": JSON_IN_TAGS, "open": OPEN}
MAY_REASON = [name for name, text in chat_templates().items() if re.search("(?i)think|reason", text)]


@cache
def reasoning_format(name: str) -> ToolFormat:
    """Return the format of a template; skip the test if it has no reasoning, or no calls."""
    try:
        form = detect(OWN.get(name) or chat_templates()[name])
    except ToolFormatError as error:
        pytest.skip(f"the template has no format: {error}")
    if form.reasoning is None:
        pytest.skip("the template has no reasoning tags")
    return form


OBJECT = compile_schema({"type": "object"})


def written(form: ToolFormat, reasoning: str, text: str) -> str:
    """An answer in the words of the format."""
    tags = form.reasoning
    assert tags is not None
    begin = "" if tags.prompt == "open" else tags.begin
    return f"{begin}{reasoning}{tags.end}{form.text.begin}{text}{form.text.end.strip()}"


@pytest.mark.parametrize("name", one_in(10, [*OWN, *MAY_REASON]))
@settings(max_examples=scaled(15))
@given(value=st.dictionaries(st.text(max_size=3), st.text(max_size=5)), size=st.integers(1, 30))
def test_reasoning_and_text_are_read_back(name: str, value: Any, size: int) -> None:
    form = reasoning_format(name)
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
    form = reasoning_format(name)
    grammar = form.text_grammar(OBJECT)
    for text, complete in (('{"a": 1}', True), ('{"a": 1', False), ("hi", False)):
        assert engine().match(grammar, written(form, "so", text)).complete == complete
