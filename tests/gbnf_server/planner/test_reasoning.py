"""Reasoning before a call: in its grammar, its schema, the conversation, and never in what is executed."""

from __future__ import annotations

import json
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from gbnf_server.backends.base import Completion
from gbnf_server.backends.reasoning import KNOWN_REASONING_TAGS, reasoning_grammar, reasoning_message
from gbnf_server.planner import ModelCalled
from gbnf_server.planner.events import CallModel, ExecuteTool
from support.by_hand import ANSWER, NOW, POOL, Driven, call, completion, drive_by_hand, resolved

FIELD = resolved(reasoning="field")
FREE = resolved(reasoning="free")
MARKED = resolved(reasoning="free", reasoning_tags=KNOWN_REASONING_TAGS[0])
THINKING_NOW = '{"thought": "the clock says", "name": "get_now", "arguments": {}}'


def drive(*texts: str | Completion, **given: Any) -> Driven:
    said = [completion(text) if isinstance(text, str) else text for text in texts]
    return drive_by_hand(POOL, said, **given)


def test_a_reasoning_field_is_kept_and_not_executed() -> None:
    driven = drive(THINKING_NOW, ANSWER, options=FIELD)
    [executed] = [effect for effect in driven.effects if isinstance(effect, ExecuteTool)]
    assert (executed.tool.name, executed.arguments) == ("get_now", {})
    first = driven.run.steps[0]
    assert (first.reasoning, first.call) == ("the clock says", {"name": "get_now", "arguments": {}})
    assert driven.of(ModelCalled)[0].text == THINKING_NOW
    asked = driven.of(CallModel)[1].request.messages
    assert '{"thought": "…", "name": "tool"' in asked[0]["content"]
    assert not any("the clock says" in message["content"] for message in asked)


def test_a_reasoning_field_is_found_in_text_calls_too() -> None:
    options = resolved(reasoning="field", call_format="text")
    fenced = f"```json\n{THINKING_NOW}\n```"
    driven = drive(fenced, ANSWER, options=options)
    first = driven.run.steps[0]
    assert (first.name, first.reasoning) == ("get_now", "the clock says")
    assert not any("thought" in repair for repair in first.repairs)


def test_other_keys_beside_a_reasoning_field_are_reported() -> None:
    options = resolved(reasoning="field", call_format="text")
    text = '{"note": 1, "thought": "say \\"now\\"", "name": "get_now", "arguments": {}}'
    first = drive(text, ANSWER, options=options).run.steps[0]
    assert (first.name, first.reasoning) == ("get_now", 'say "now"')
    assert first.repairs == ("extra: ignored 'note', 'thought' beside the arguments",)


def test_reasoning_before_a_call_in_the_models_own_tags() -> None:
    driven = drive("hm, the clock</think>", NOW, "done?", ANSWER, options=MARKED)
    thinking, calling, *_ = driven.of(CallModel)
    assert (thinking.purpose, thinking.request.messages[-1]) == ("reasoning", reasoning_message(""))
    assert (thinking.request.grammar, thinking.request.max_tokens) == (reasoning_grammar("</think>"), 256)
    assert calling.request.messages == (
        *thinking.request.messages[:-1],
        reasoning_message("hm, the clock", closed=True),
    )
    assert calling.request.grammar is not None
    assert driven.run.steps[0].reasoning == "hm, the clock"
    assert (driven.run.outcome, driven.run.completion_tokens) == ("answered", 4 * 7)


def test_reasoning_before_a_call_without_tags() -> None:
    driven = drive("I look at the clock.", NOW, "done", ANSWER, options=FREE, query="how late is it?")
    thinking, calling, later, _ = driven.of(CallModel)
    assert thinking.request.grammar is None
    assert thinking.request.messages[-1]["content"].startswith(
        "how late is it?\n\nBefore the next call, think"
    )
    assert calling.request.messages[: len(thinking.request.messages)] == thinking.request.messages
    assert [message["role"] for message in calling.request.messages[2:]] == ["assistant", "user"]
    assert calling.request.messages[2]["content"] == "I look at the clock."
    assert not any("I look at the clock" in message["content"] for message in later.request.messages)


def test_reasoning_that_was_truncated_or_split_off_is_still_reasoning() -> None:
    cut = completion("I look at", finish="length")
    driven = drive(cut, NOW, cut, ANSWER, options=FREE)
    assert [step.reasoning for step in driven.run.steps] == ["I look at", "I look at"]
    assert driven.run.outcome == "answered"


def test_a_text_that_is_only_reasoning_is_reported() -> None:
    mute = replace(completion(""), reasoning="I could call get_now")
    for options in (resolved(max_blocked=1), resolved(call_format="text", max_blocked=1)):
        driven = drive(mute, options=options)
        assert driven.run.steps[0].refusal == "unparsed"
        assert "all of the text is thoughts" in str(driven.run.error)
        assert driven.run.steps[0].reasoning == "I could call get_now"


@pytest.mark.parametrize("reasoning", ["off", "field", "free"])
def test_prompts_only_grow_while_the_grammar_narrows(reasoning: Any) -> None:
    """What a server has read it need not read again: each prompt begins with all that stays of the last."""
    texts = [NOW, call("find_files", base_path=".", pattern="*"), call("read_files", from_step=2), ANSWER]
    if reasoning == "field":
        texts = [json.dumps({"thought": "so", **json.loads(text)}) for text in texts]
    if reasoning == "free":
        texts = [each for text in texts for each in ("so", text)]
    driven = drive(*texts, replies=[{}, {"entries": ["a.md"]}], options=resolved(reasoning=reasoning))
    assert driven.run.outcome == "answered"
    effects = [effect for effect in driven.of(CallModel) if effect.purpose == "call"]
    assert len({effect.request.grammar for effect in effects}) == 2
    for before, after in pairwise(effects):
        kept = before.request.messages if reasoning != "free" else before.request.messages[:-3]
        assert after.request.messages[: len(kept)] == kept


def test_a_call_recovered_from_the_reasoning_is_executed_and_reported() -> None:
    taken = replace(completion(NOW), reasoning=NOW, reclaimed=True)
    driven = drive(taken, ANSWER)
    assert [step.name for step in driven.run.steps] == ["get_now", "final_answer"]
    [warning] = driven.run.warnings
    assert "the server returned the call as reasoning" in warning


def test_a_clean_call_with_a_reasoning_field_needs_no_grammar() -> None:
    driven = drive(
        THINKING_NOW, ANSWER, options=resolved(reasoning="field", call_format="json", constrained=False)
    )
    assert driven.run.steps[0].reasoning == "the clock says"
    without = drive(THINKING_NOW, options=resolved(call_format="json", constrained=False, max_blocked=1))
    assert without.run.steps[0].refusal == "invalid"
