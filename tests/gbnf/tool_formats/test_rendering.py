"""Prompts and answers through the template of a format."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_templates import templates_with_calls, tool_format
from gbnf.calls.parsing.results import ToolCall, ToolCalls
from gbnf.tool_formats import detect
from gbnf.tool_formats.rendering import adapt_conversation
from gbnf.tools import Tool
from support.effort import one_in, scaled
from support.tool_templates import JSON_IN_TAGS

SCHEMA = {
    "type": "object",
    "properties": {
        "city": {"type": "string", "description": "A city"},
        "days": {"type": "integer", "description": "Days"},
    },
    "required": ["city"],
}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": "A tool", "parameters": SCHEMA}}
    for name in ("get_weather", "get_time")
]
CALL = ToolCall("call_abc1", "get_weather", {"city": "Rome", "days": 2})
OPENAI_CALL = {
    "id": CALL.id,
    "type": "function",
    "function": {"name": CALL.name, "arguments": dict(CALL.arguments)},
}
QUESTION: dict[str, Any] = {"role": "user", "content": "Is it sunny?"}
RESULTS: list[dict[str, Any]] = [
    QUESTION,
    {"role": "assistant", "content": "", "tool_calls": [OPENAI_CALL]},
    {"role": "tool", "tool_call_id": CALL.id, "content": "Sunny, 31 degrees"},
]
OTHER_WHEN_PAST = {"Apriel-1.6-15b-Thinker-fixed", "unsloth-Apriel-1.5"}  # with ids as soon as results follow
POOL = [Tool(name, args=SCHEMA) for name in ("get_weather", "get_time")]


IDS = st.text(st.characters(exclude_categories=["Cs"]), max_size=70) | st.sampled_from(
    ["call_1", "a1b2c3d4e"]
)
NAMES = one_in(8, templates_with_calls())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("reasoning", [False, True])
def test_prompts_show_tools_calls_and_results(name: str, reasoning: bool) -> None:
    form = tool_format(name)
    first = form.prompt([QUESTION], TOOLS, reasoning=reasoning)
    assert ("get_time" in first) == form.declares_tools
    assert QUESTION["content"] in first
    later = form.prompt(RESULTS, TOOLS, reasoning=reasoning)
    assert "Rome" in later
    assert "Sunny, 31 degrees" in later


@pytest.mark.parametrize("name", NAMES)
def test_a_prompt_without_reasoning_leaves_none_open(name: str) -> None:
    form = tool_format(name)
    tags = form.reasoning
    if tags is None:
        return
    for messages in ([QUESTION], RESULTS):
        end = form.prompt(messages, TOOLS).rpartition(str(messages[-1]["content"]))[2]
        assert end.rfind(tags.end) >= end.rfind(tags.begin)


@pytest.mark.parametrize("name", NAMES)
def test_a_past_answer_is_as_rendered(name: str) -> None:
    form = tool_format(name)
    following = form.prompt(RESULTS, TOOLS)
    assert (form.render([CALL]).strip() in following) == (name not in OTHER_WHEN_PAST)


def tool_call(name: str) -> dict[str, Any]:
    return {**OPENAI_CALL, "id": name}


@pytest.mark.parametrize("name", NAMES)
@settings(max_examples=scaled(10))
@given(first=IDS, second=IDS)
def test_any_id_is_rendered_in_calls_that_are_read_back_and_in_results(
    name: str, first: str, second: str
) -> None:
    form = tool_format(name)
    parsed = form.parse(form.render([replace(CALL, id=first)]), POOL)
    assert isinstance(parsed, ToolCalls), parsed
    assert [call.as_call() for call in parsed.calls] == [CALL.as_call()]
    answered = {"role": "tool", "tool_call_id": first, "content": "Sunny"}
    asked = {"role": "assistant", "content": "", "tool_calls": [tool_call(first)]}
    for conversation in (
        [QUESTION, asked, answered],
        [QUESTION, asked, {**answered, "tool_call_id": second}],
    ):
        assert "Sunny" in form.prompt(conversation, TOOLS)


@pytest.mark.parametrize("name", NAMES)
def test_results_have_the_ids_of_their_calls(name: str) -> None:
    form = tool_format(name)
    messages: list[dict[str, Any]] = [QUESTION]
    for number in range(12):
        messages.append({"role": "assistant", "content": "", "tool_calls": [tool_call(f"call {number}")]})
        messages.append({"role": "tool", "tool_call_id": f"call {number}", "content": "Sunny"})
    adapted = adapt_conversation(form, messages)
    results = [message["tool_call_id"] for message in adapted[2::2]]
    assert len(set(results)) == 12
    assert all(re.fullmatch(form.id_pattern, result) for result in results)
    calls = [call["id"] for message in adapted for call in message.get("tool_calls", ())]
    assert calls in (results, [])  # none where they are written into the content
    form.prompt(messages, TOOLS)


DESCRIBED_ONLY = (
    "{% for tool in tools or [] %}{% for schema in tool.function.parameters.properties.values() %}"
    "{% for branch in schema.anyOf or [schema] %}{% if branch.description is not defined %}"
    "{{ raise_exception('a schema has no description') }}{% endif %}{{ branch.type }} "
    "{% endfor %}{% endfor %}{% endfor %}"
) + JSON_IN_TAGS


@pytest.mark.parametrize(
    ("schema", "shown"),
    [
        ({"type": "string"}, "string "),
        ({"anyOf": [{"type": "string"}, {"type": "null"}]}, "string null "),
    ],
)
def test_a_template_may_read_the_description_of_each_schema(schema: Any, shown: str) -> None:
    function = {"name": "note", "parameters": {"type": "object", "properties": {"text": schema}}}
    form = detect(DESCRIBED_ONLY, eos_token="<|end|>")
    prompt = form.prompt([QUESTION], [{"type": "function", "function": function}])
    assert prompt.startswith(shown)
