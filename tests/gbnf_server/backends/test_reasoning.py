from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.calls import CallSyntaxName, ToolCall, render_tool_calls
from gbnf.calls.parsing.syntaxes import CALL_SYNTAXES
from gbnf.prompts.messages import Message
from gbnf_server.backends.reasoning import (
    KNOWN_REASONING_TAGS,
    ReasoningTags,
    append_reasoning,
    close_reasoning,
    find_reasoning_tags,
    reasoning_grammar,
    reasoning_message,
    split_reasoning_message,
)
from support.oracle import engine
from support.wires import split_reasoning

ASK: Message = {"role": "user", "content": "q"}
HARMONY = next(each for each in KNOWN_REASONING_TAGS if each.generation_prompt)
NEAR = st.text(st.sampled_from("</think>a[]THINK|<end"), max_size=12)


@given(st.sampled_from(["</think>", "[/THINK]", "aab", "aaa", "abab"]), st.data())
def test_reasoning_continues_until_its_tag_is_closed(closing: str, data: st.DataObject) -> None:
    text = data.draw(st.text(st.sampled_from(closing + "x<"), max_size=14) | NEAR)
    tail = data.draw(st.sampled_from(["", closing, closing + "x"]))
    whole = text + tail
    first = whole.find(closing)
    expected = first in (-1, len(whole) - len(closing))
    assert engine().match(reasoning_grammar(closing), whole).complete == expected


@given(
    st.sampled_from(KNOWN_REASONING_TAGS),
    st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<[|◁")),
)
def test_what_a_prompt_closes_an_answer_is_parted_at(reasoning_tags: ReasoningTags, reasoning: str) -> None:
    begin = reasoning_message(reasoning, closed=True)
    assert split_reasoning(append_reasoning("", begin, reasoning_tags) + "answer") == (
        reasoning.strip(),
        "answer",
    )


@pytest.mark.parametrize(
    ("prompt", "closed"),
    [
        ("<|assistant|><think>\n", "<|assistant|><think>\n\n</think>\n\n"),
        ("<|assistant|>\n", "<|assistant|>\n"),
        ("<think>\n\n</think>\n\n", "<think>\n\n</think>\n\n"),
        ("[/INST][THINK]", "[/INST][THINK]\n\n[/THINK]"),
        ("q<|end|><|start|>assistant", "q<|end|><|start|>assistant<|channel|>final<|message|>"),
        ("", ""),
    ],
)
def test_an_open_reasoning_block_is_closed(prompt: str, closed: str) -> None:
    assert close_reasoning(prompt) == closed


PLACES = [
    '{{"name": "write_files", "arguments": {{"files": [{{"path": "a", "content": "so {} then"}}]}}}}',
    'Sure: {{"a": "{}"}}',
    '{{"a": {{"b": 1}}, "c": "\\"{}"}}',
    "{{'a': 'so {} then'}}",
    '{{"a": ["x", "{} is',  # a call truncated by the token limit
    '{{"a": "{}"',  # one without its last bracket
    "<tool_call><function=f><parameter=a>\nso {} then</parameter></function></tool_call>",
    'f(a=1, b="so {} then")',
    "f('{}')",
    'tool: f\nargs:\n  a: "it\'s {}"',
    "It ends with `{}`.",
    "```tool\nwrite_files\ncontent: so {} then\n```",
]


@pytest.mark.parametrize("place", PLACES)
@given(reasoning_tags=st.sampled_from(KNOWN_REASONING_TAGS), paired=st.booleans())
def test_a_tag_quoted_in_the_text_does_not_end_the_reasoning(
    place: str, reasoning_tags: ReasoningTags, paired: bool
) -> None:
    sign = f"{reasoning_tags.begin} and {reasoning_tags.end}" if paired else reasoning_tags.end
    text = place.format(sign)
    assert split_reasoning(text) == ("", text)
    assert split_reasoning(f"so{reasoning_tags.end}{text}") == ("so", text)


@pytest.mark.parametrize("shape", [shape.name for shape in CALL_SYNTAXES])
@given(
    reasoning_tags=st.sampled_from(KNOWN_REASONING_TAGS),
    words=st.lists(st.text(st.sampled_from("ab '`:\\\n.")), min_size=2, max_size=2),
)
def test_a_call_keeps_a_marker_in_its_argument_in_every_shape(
    shape: CallSyntaxName, reasoning_tags: ReasoningTags, words: list[str]
) -> None:
    message = f"{words[0]}{reasoning_tags.begin} {reasoning_tags.end}{words[1]}"
    text = render_tool_calls(ToolCall("1", "final_answer", {"message": message}), shape)
    assert split_reasoning(text) == ("", text)


@given(
    st.sampled_from(KNOWN_REASONING_TAGS),
    st.text(st.sampled_from("a {}\"'`<[\\\n"), max_size=12),
    st.booleans(),
)
def test_reasoning_that_the_prompt_opened_ends_only_at_its_tag(
    reasoning_tags: ReasoningTags, reasoning: str, closed: bool
) -> None:
    text = f"{reasoning}{reasoning_tags.end}{reasoning_tags.separator}then" if closed else reasoning
    expected = (reasoning.strip(), "then" if closed else "")
    assert split_reasoning(text, reasoning_tags) == expected
    assert (
        split_reasoning(f"{reasoning_tags.opening}{text}", reasoning_tags) == expected
    )  # the model may begin them again
    assert split_reasoning(f"{reasoning_tags.opening}{text}") == expected


@pytest.mark.parametrize(
    "reasoning",
    [
        "so {x",
        "it's \"so",
        "a `b",
        "{ x: 1",
        "[1",
        "a: 'b",
        'a, "b',
        "say: \"a\" ('b')",
        'try {"a": 1}',
        '{"a": 1',
    ],
)
def test_characters_in_reasoning_do_not_hide_its_end(reasoning: str) -> None:
    for reasoning_tags in KNOWN_REASONING_TAGS:
        assert split_reasoning(f"{reasoning}{reasoning_tags.end}\nthen") == (reasoning, "then")


def test_a_text_full_of_openers_is_parsed_in_linear_time() -> None:
    for sign in ("{", '{"', "`", "```\n", "<parameter=a>", "'", "</think", "{ '\\", '="\\', "='", '="a"'):
        assert split_reasoning(sign * (100_000 // len(sign))) == ("", sign * (100_000 // len(sign)))


@pytest.mark.parametrize(
    ("prompt", "reasoning_tags", "end"),
    [
        ("A:", KNOWN_REASONING_TAGS[0], "A:<think>\nso\n</think>\n\n"),
        ("A:<think>\n", KNOWN_REASONING_TAGS[0], "A:<think>\nso\n</think>\n\n"),
        (
            "<|start|>assistant",
            HARMONY,
            f"<|start|>assistant{HARMONY.opening}so<|end|>{HARMONY.answer_prefix}",
        ),
    ],
)
def test_reasoning_is_in_the_models_own_tags(prompt: str, reasoning_tags: ReasoningTags, end: str) -> None:
    assert append_reasoning(prompt, reasoning_message("so", closed=True), reasoning_tags) == end
    still = append_reasoning(prompt, reasoning_message("so"), reasoning_tags)
    assert end.startswith(still)
    assert still.endswith("so")


def test_a_conversation_is_split_from_the_reasoning_at_its_end() -> None:
    assert split_reasoning_message([ASK]) == ([ASK], None)
    assert split_reasoning_message([ASK, reasoning_message("so")]) == ([ASK], reasoning_message("so"))
    assert split_reasoning_message([]) == ([], None)


@pytest.mark.parametrize(
    ("template", "closing"),
    [
        ("{{ '<think>\\n' }}", "</think>"),
        ("{{ content.split('[THINK]') }}", "[/THINK]"),
        ("{{ '<|channel|>analysis<|message|>' }}", "<|end|>"),
    ],
)
def test_image_markers_are_those_in_the_template(template: str, closing: str) -> None:
    found = find_reasoning_tags(template)
    assert found is not None
    assert found.closing == closing
    assert find_reasoning_tags("{{ messages }}") is None
