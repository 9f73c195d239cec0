"""From step to step, the prompt only grows, whatever the chat template: what is in a cache stays valid."""

from __future__ import annotations

import itertools
import json
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_templates import BOS, EOS, chat_templates
from gbnf.calls.parsing.results import ToolCall
from gbnf.errors import ToolFormatError
from gbnf.prompts.control_tokens import control_tokens_in, make_escaper, strings_removed_by
from gbnf.tool_formats import TemplateRenderer
from gbnf_server.backends.model_traits import ModelTraits, find_tool_format
from gbnf_server.backends.prompts import TemplateRules, roles_of
from gbnf_server.planner.events import CallModel
from gbnf_server.system.errors import ChatTemplateError
from support.by_hand import POOL, call, completion, drive_by_hand, resolved
from support.effort import one_in, scaled

REFUSE_RESULTS = {"fireworks-ai-llama-3-firefunction-v2", "mistralai-Ministral-3-14B-Reasoning-2512"}
NAMES = sorted(chat_templates().keys() - REFUSE_RESULTS)
CALLS = [
    call("get_now"),
    call("create_dirs", paths=["a"]),
    call("find_files", base_path="a", pattern="*"),
]
REFUSED = [call("no_such_tool"), call("find_tools", query="mail")]


class Template:
    """A template, as a backend in this process has it."""

    def __init__(self, source: str) -> None:
        self.renderer = TemplateRenderer(source, bos_token=BOS, eos_token=EOS)
        self.form = find_tool_format(source, BOS, EOS)
        escape = make_escaper(strings_removed_by(source) | control_tokens_in(source))
        self.rules = TemplateRules(roles_of(self.render), escape, ModelTraits(tool_format=self.form))

    def render(self, messages: Any) -> str:
        try:
            return self.renderer.render(messages, enable_thinking=False)
        except ToolFormatError as error:
            raise ChatTemplateError(str(error)) from None

    def prompt(self, request: Any) -> str:
        conversation = self.rules.conversation(request)
        if conversation.tool_format is not None:
            return conversation.render()
        return conversation.finish(self.render(conversation.messages))


@cache
def template(name: str) -> Template:
    return Template(chat_templates()[name])


@pytest.mark.skipif(not chat_templates(), reason="no sources of llama.cpp")
@pytest.mark.parametrize("call_format", ["json", "native"])
@pytest.mark.parametrize("name", one_in(8, NAMES))
@settings(max_examples=scaled(10))
@given(
    calls=st.lists(st.sampled_from(CALLS), min_size=1, max_size=4),
    others=st.lists(st.sampled_from(REFUSED), max_size=2),
    limit=st.sampled_from([None, 4]),
)
def test_a_prompt_begins_with_the_one_before_up_to_its_last_message(
    name: str, call_format: str, calls: list[str], others: list[str], limit: int | None
) -> None:
    """What follows the last message asks for the answer.

    In JSON, tools that are found and calls that are refused do not matter either. Templates declare all tools
    at one place, some of them before the last message of the user.
    """
    found = template(name)
    options: dict[str, Any] = {"max_tools": limit if call_format == "json" else None}
    texts = [*calls, *others]
    if call_format == "native":
        if found.form is None:
            pytest.skip("a template without tools")
        options["tool_format"] = found.form
        given_calls = [ToolCall("abcdefgh0", **json.loads(text)) for text in calls]
        texts = [found.form.render([each]) for each in given_calls]
    driven = drive_by_hand(
        POOL,
        [completion(text) for text in texts],
        query="mark0",
        replies=[{"entries": [f"mark{number}"]} for number in range(1, 9)],
        options=resolved(call_format=call_format, max_steps=len(texts) + 1, max_blocked=9, **options),
    )
    prompts = [found.prompt(effect.request) for effect in driven.of(CallModel)]
    assert len(prompts) > 1
    for before, after in itertools.pairwise(prompts):
        mark = max((f"mark{number}" for number in range(9)), key=before.rfind)
        end = before.rindex(mark) + len(mark)
        assert after.startswith(before[:end])
        assert len(after) > end
