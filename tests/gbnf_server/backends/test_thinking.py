from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.calls import ShapeName, ToolCall, render
from gbnf.calls.shapes import SHAPES
from gbnf.prompt import Message
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.thinking import (
    KNOWN,
    Markers,
    beginning,
    begun,
    close_thinking,
    markers_of,
    opened,
    split_reasoning,
    thoughts_grammar,
)
from support.models import TEMPLATE, make_model
from support.oracle import engine

ASK: Message = {"role": "user", "content": "q"}
HARMONY = next(each for each in KNOWN if each.generation)
NEAR = st.text(st.sampled_from("</think>a[]THINK|<end"), max_size=12)


@given(st.sampled_from(["</think>", "[/THINK]", "aab", "aaa", "abab"]), st.data())
def test_thoughts_go_on_until_they_are_closed(closing: str, data: st.DataObject) -> None:
    text = data.draw(st.text(st.sampled_from(closing + "x<"), max_size=14) | NEAR)
    tail = data.draw(st.sampled_from(["", closing, closing + "x"]))
    whole = text + tail
    first = whole.find(closing)
    expected = first in (-1, len(whole) - len(closing))
    assert engine().judge(thoughts_grammar(closing), whole).complete == expected


@given(st.sampled_from(KNOWN), st.text(st.characters(exclude_categories=["Cs"], exclude_characters="<[|◁")))
def test_what_a_prompt_closes_an_answer_is_parted_at(markers: Markers, thoughts: str) -> None:
    begin = begun(thoughts, closed=True)
    assert split_reasoning(opened("", begin, markers) + "answer") == (thoughts.strip(), "answer")


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
def test_an_open_block_of_thoughts_is_closed(prompt: str, closed: str) -> None:
    assert close_thinking(prompt) == closed


@pytest.mark.parametrize(
    ("answer", "reasoning", "text"),
    [
        ("plain", "", "plain"),
        ("<think>so\n</think>\n\nthen", "so", "then"),
        ("so</think>then", "so", "then"),  # the prompt opened it
        ("<think>cut off", "cut off", ""),
        ("a <think> b", "", "a <think> b"),
        ("[THINK]so[/THINK]then", "so", "then"),
        (
            "<|channel|>analysis<|message|>so<|end|><|start|>assistant<|channel|>final<|message|>then",
            "so",
            "then",
        ),
        ("<|channel|>final<|message|>then", "", "then"),
        ("<|channel|>analysis<|message|>so<|end|>", "so", ""),
    ],
)
def test_thoughts_are_parted_from_the_text(answer: str, reasoning: str, text: str) -> None:
    assert split_reasoning(answer) == (reasoning, text)


PLACES = [
    '{{"name": "write_files", "arguments": {{"files": [{{"path": "a", "content": "so {} then"}}]}}}}',
    'Sure: {{"a": "{}"}}',
    '{{"a": {{"b": 1}}, "c": "\\"{}"}}',
    "{{'a': 'so {} then'}}",
    '{{"a": ["x", "{} is',  # a call that the token limit cut
    '{{"a": "{}"',  # one without its last bracket
    "<tool_call><function=f><parameter=a>\nso {} then</parameter></function></tool_call>",
    'f(a=1, b="so {} then")',
    "f('{}')",
    'tool: f\nargs:\n  a: "it\'s {}"',
    "It ends with `{}`.",
    "```tool\nwrite_files\ncontent: so {} then\n```",
]


@pytest.mark.parametrize("place", PLACES)
@given(markers=st.sampled_from(KNOWN), paired=st.booleans())
def test_a_marker_in_somebodys_text_ends_no_thoughts(place: str, markers: Markers, paired: bool) -> None:
    sign = f"{markers.begin} and {markers.end}" if paired else markers.end
    text = place.format(sign)
    assert split_reasoning(text) == ("", text)
    assert split_reasoning(f"so{markers.end}{text}") == ("so", text)


@pytest.mark.parametrize("shape", [shape.name for shape in SHAPES])
@given(
    markers=st.sampled_from(KNOWN),
    words=st.lists(st.text(st.sampled_from("ab '`:\\\n.")), min_size=2, max_size=2),
)
def test_a_call_keeps_a_marker_in_its_argument_in_every_shape(
    shape: ShapeName, markers: Markers, words: list[str]
) -> None:
    message = f"{words[0]}{markers.begin} {markers.end}{words[1]}"
    text = render(ToolCall("1", "final_answer", {"message": message}), shape)
    assert split_reasoning(text) == ("", text)


@given(st.sampled_from(KNOWN), st.text(st.sampled_from("a {}\"'`<[\\\n"), max_size=12), st.booleans())
def test_thoughts_that_the_prompt_opened_end_at_their_marker_alone(
    markers: Markers, thoughts: str, closed: bool
) -> None:
    text = f"{thoughts}{markers.end}{markers.between}then" if closed else thoughts
    expected = (thoughts.strip(), "then" if closed else "")
    assert split_reasoning(text, markers) == expected
    assert split_reasoning(f"{markers.opening}{text}", markers) == expected  # the model may begin them again
    assert split_reasoning(f"{markers.opening}{text}") == expected


@pytest.mark.parametrize(
    "thoughts",
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
def test_signs_in_thoughts_hide_no_end(thoughts: str) -> None:
    for markers in KNOWN:
        assert split_reasoning(f"{thoughts}{markers.end}\nthen") == (thoughts, "then")


def test_a_text_full_of_signs_is_read_at_once() -> None:
    for sign in (
        "{",
        '{"',
        "`",
        "```\n",
        "<parameter=a>",
        "'",
        "</think",
        "{'",
        "{ '\\",
        '="\\',
        "='",
        '="a"',
    ):
        assert split_reasoning(sign * (100_000 // len(sign))) == ("", sign * (100_000 // len(sign)))


@pytest.mark.parametrize(
    ("prompt", "markers", "end"),
    [
        ("A:", KNOWN[0], "A:<think>\nso\n</think>\n\n"),
        ("A:<think>\n", KNOWN[0], "A:<think>\nso\n</think>\n\n"),
        ("<|start|>assistant", HARMONY, f"<|start|>assistant{HARMONY.opening}so<|end|>{HARMONY.answering}"),
    ],
)
def test_thoughts_stand_in_the_models_own_markers(prompt: str, markers: Markers, end: str) -> None:
    assert opened(prompt, begun("so", closed=True), markers) == end
    still = opened(prompt, begun("so"), markers)
    assert end.startswith(still)
    assert still.endswith("so")


def test_a_conversation_is_parted_from_the_thoughts_at_its_end() -> None:
    assert beginning([ASK]) == ([ASK], None)
    assert beginning([ASK, begun("so")]) == ([ASK], begun("so"))
    assert beginning([]) == ([], None)


@pytest.mark.parametrize(
    ("template", "closing"),
    [
        ("{{ '<think>\\n' }}", "</think>"),
        ("{{ content.split('[THINK]') }}", "[/THINK]"),
        ("{{ '<|channel|>analysis<|message|>' }}", "<|end|>"),
    ],
)
def test_markers_are_those_that_the_template_speaks_of(template: str, closing: str) -> None:
    found = markers_of(template)
    assert found is not None
    assert found.closing == closing
    assert markers_of("{{ messages }}") is None


def test_the_tokens_of_markers() -> None:
    assert KNOWN[0].tokens == ("<think>", "</think>")
    assert KNOWN[1].tokens == ("[THINK]", "[/THINK]")
    assert HARMONY.tokens == ("<|channel|>", "<|message|>", "<|end|>", "<|start|>")


def test_a_model_in_process_thinks_in_its_own_markers(tmp_path: Path) -> None:
    template = TEMPLATE + "{% if enable_thinking %}{% else %}<think>\n\n</think>\n\n{% endif %}"
    with InProcess(make_model(tmp_path / "m.gguf", template=template), threads=1) as model:
        prompt = model._template.prompt([ASK, begun("")], constrained=True)
        assert prompt.endswith("<|assistant|><think>\n")
        prompt = model._template.prompt([ASK, begun("so", closed=True)], constrained=True)
        assert prompt.endswith("<|assistant|><think>\nso\n</think>\n\n")
        assert model.markers == KNOWN[0]
        grammar = thoughts_grammar("</think>")
        thought = model.complete([ASK, begun("")], grammar=grammar, max_tokens=8)
        assert thought.completion_tokens <= 8
        assert model.complete([ASK, begun("so", closed=True)], grammar='root ::= "{}"').text == "{}"
