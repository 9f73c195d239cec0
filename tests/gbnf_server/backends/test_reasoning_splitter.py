"""Reasoning and text are distinguished alike whether an answer arrives whole or in pieces."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf import Grammar
from gbnf.prompts.messages import Message
from gbnf.tool_formats import ReasoningDelta, TextDelta
from gbnf_server.backends.base import Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.backends.reasoning import (
    KNOWN_REASONING_TAGS,
    ReasoningSplitter,
    ReasoningTags,
    find_unopened_end,
)
from support.backends import streamed
from support.models import TEMPLATE, make_model
from support.server import Reply, completion, scripted
from support.wires import SIZES, cut, split_reasoning

ASK: list[Message] = [{"role": "user", "content": "hello"}]
CALL = '{"name": "write_files", "arguments": {"files": [{"path": "a.md", "content": "DRAFT"}]}}'
PARTS = [
    *(
        sign
        for each in KNOWN_REASONING_TAGS
        for sign in (each.begin, each.closing, each.end, each.direct_answer_prefix, each.separator)
    ),
    *["a", " ", "\n", "<", "`", "```", "{", "}", '{"a": "', '"}', '"', "'", "\\", "<parameter=a>"],
    *["</parameter>", CALL],
]
TEXTS = st.lists(st.sampled_from([part for part in PARTS if part]), max_size=8).map("".join)


def given_on(
    text: str, sizes: list[int], opened: ReasoningTags | None = None, *, constrained: bool = False
) -> list[str]:
    said: list[TextDelta | ReasoningDelta] = []
    splitter = ReasoningSplitter(said.append, opened, constrained=constrained)
    for piece in cut(text, sizes):
        splitter.feed(piece)
    reasoning, answer = splitter.close()
    assert (reasoning, answer) == (("", text) if constrained else split_reasoning(text, opened))
    if constrained or is_announced(text, opened):
        assert "".join(each.text for each in said if isinstance(each, ReasoningDelta)) == reasoning
    return [each.text for each in said if isinstance(each, TextDelta)]


def is_announced(text: str, opened: ReasoningTags | None) -> bool:
    """Return whether the beginning of the text determines what of it is reasoning."""
    signs = tuple(
        sign for each in KNOWN_REASONING_TAGS for sign in (each.begin, each.direct_answer_prefix) if sign
    )
    return opened is not None or text.lstrip().startswith(signs) or find_unopened_end(text) is None


@given(TEXTS, SIZES, st.none() | st.sampled_from(KNOWN_REASONING_TAGS))
def test_the_pieces_join_to_the_text_however_it_is_split(
    text: str, sizes: list[int], opened: ReasoningTags | None
) -> None:
    whole = split_reasoning(text, opened)[1] if is_announced(text, opened) else text
    assert "".join(given_on(text, sizes, opened)) == whole
    assert "".join(given_on(text, sizes, opened, constrained=True)) == text


HARMONY = "<|channel|>analysis<|message|>"


@pytest.mark.parametrize(
    ("text", "opened", "reasoning", "said"),
    [
        (f"maybe {CALL} or", KNOWN_REASONING_TAGS[0], f"maybe {CALL} or", ""),  # once the call was made
        # once the line break made it an answer
        (f"maybe {CALL}\n", KNOWN_REASONING_TAGS[0], f"maybe {CALL}", ""),
        ('say "</think>then', KNOWN_REASONING_TAGS[0], 'say "', "then"),
        ("so[/THINK]then", KNOWN_REASONING_TAGS[0], "so[/THINK]then", ""),  # another model's marker
        ("[THINK]a</think>b[/THINK]c", None, "a</think>b", "c"),
        (CALL.replace("DRAFT", "</think>"), None, "", CALL.replace("DRAFT", "</think>")),  # split in two
        (f"{HARMONY}a<|end|><|start|>assistant{HARMONY}b", None, f"a<|end|><|start|>assistant{HARMONY}b", ""),
        ("<|START_THINKING|>so<|END_THINKING|><|START_", None, "so", "<|START_"),  # once lost
        ("\n<|channel|>final<|message|>then", None, "", "then"),
        ("<th", None, "", "<th"),
        ("a <think> b", None, "", "a <think> b"),
    ],
)
def test_known_differences_between_whole_and_streamed_texts(
    text: str, opened: ReasoningTags | None, reasoning: str, said: str
) -> None:
    assert split_reasoning(text, opened) == (reasoning, said)
    for size in (1, 3, 200):
        assert "".join(given_on(text, [size], opened)) == said


@pytest.mark.parametrize("stop", ["limit", "eos"])
@pytest.mark.parametrize("tail", ["", "\n", "\nbut no"])
def test_llama_server_never_reports_as_text_what_its_prompt_opened_as_reasoning(stop: str, tail: str) -> None:
    text = f"maybe {CALL}{tail}"
    prompt = Reply(200, {"prompt": "7c1f-system 7c1f-tool <think>\n"})
    events = [{"content": piece, "stop": False} for piece in cut(text, [9])]
    last = {**completion("", stop).body, "stop": True}
    stream = "".join(f"data: {json.dumps(event)}\n\n" for event in [*events, last])
    with (
        scripted(apply_template=[prompt], completion=[completion(text, stop), Reply(200, stream)]) as script,
        LlamaServer(script.url) as client,
    ):
        whole = client.complete(Request(ASK, grammar=None))
        by_piece, pieces, _ = streamed(client, Request(ASK, grammar=None))
    assert (whole.text, whole.reasoning, pieces) == ("", text.strip(), [])
    assert whole == by_piece
    assert whole.finish_reason == ("length" if stop == "limit" else "stop")


@pytest.mark.parametrize(("ending", "thinks"), [("<think>\n", True), ("<think>\n\n</think>\n\n", False)])
def test_a_model_in_process_whose_prompt_opens_reasoning_streams_nothing_until_it_ends(
    tmp_path: Path, ending: str, thinks: bool
) -> None:
    with InProcess(make_model(tmp_path / "m.gguf", template=TEMPLATE + ending), threads=1) as model:
        whole = model.complete(Request(ASK, grammar=None, max_tokens=40))
        model.clear_prompt_cache()
        by_piece, pieces, _ = streamed(model, Request(ASK, grammar=None, max_tokens=40))
        constrained = model.complete(Request(ASK, grammar=Grammar.parse("root ::= [a-z]{5}"), max_tokens=40))
    assert (whole.text, whole.reasoning, whole.finish_reason) == (
        by_piece.text,
        by_piece.reasoning,
        by_piece.finish_reason,
    )
    assert "".join(pieces) == whole.text
    assert (bool(whole.reasoning), bool(whole.text)) == (thinks, not thinks)
    assert (len(constrained.text), constrained.reasoning) == (5, "")
