"""Readers of answers: one of two formats, and one whole call."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gbnf import Grammar, compile_schema
from gbnf.calls import ToolCalls, parse_tool_calls, render_tool_calls
from gbnf.errors import clip
from gbnf.protocols.call_protocols import JsonCallStream, json_grammar
from gbnf.protocols.protocol import Offered
from gbnf.protocols.readers import (
    AnswerInText,
    AnswerNotAllowedError,
    AnswerReader,
    EitherReader,
    FinalAnswerText,
    PlainText,
    SpokenText,
    TextCalls,
    WholeJsonCall,
    begins_call,
    either_grammar,
)
from gbnf.tool_formats import CallEnded, CallStarted, Delta, TextDelta, detect
from support.deltas import calls, text
from support.oracle import engine
from support.pools import POOL, call_lists, json_values, model_texts, shape_names, texts, tool
from support.tool_templates import JSON_IN_TAGS

TOOLS = (tool("go", x={"type": "integer"}),)
CALLS = json_grammar(Offered(TOOLS, answer=False, parallel=True))
OBJECT = compile_schema({"type": "object"})  # some of its texts are calls, too
EITHER = either_grammar(CALLS, OBJECT)
WAYS = ((CALLS, lambda: JsonCallStream(TOOLS, final_answer=False)), (OBJECT, PlainText))
FORMAT = detect(JSON_IN_TAGS, eos_token="<|end|>")
NOW = '{"name": "get_now", "arguments": {}}'
A_CALL = '{"name": "go", "arguments": {"x": 3}}'

candidates = st.sampled_from(
    [
        A_CALL,
        f"{A_CALL}\n{A_CALL}",
        f"{A_CALL}x",
        '{"name": "go"}',
        '{"name": "go", "arguments": {"y": 3}}',
        "",
        "x",
    ]
) | json_values.map(lambda value: json.dumps(value, ensure_ascii=False))


@given(written=candidates)
def test_a_union_has_the_texts_of_both_and_no_others(written: str) -> None:
    either = CALLS.match(written).complete or OBJECT.match(written).complete
    assert EITHER.match(written).complete == either
    if written and "\0" not in written:
        assert engine().match(EITHER, written).complete == either


@given(written=candidates, size=st.integers(1, 9))
def test_an_answer_is_read_in_the_format_that_it_is_in(written: str, size: int) -> None:
    stream = EitherReader(WAYS)
    deltas = [delta for at in range(0, len(written), size) for delta in stream.feed(written[at : at + size])]
    deltas += stream.close()
    if CALLS.match(written).complete:
        assert calls(deltas) == [("go", '{"x": 3}')] * written.count("go")
        assert not text(deltas)
    elif OBJECT.match(written).complete:
        assert (text(deltas), calls(deltas)) == (written, [])


def read(written: str) -> list[Delta]:
    stream = WholeJsonCall()
    assert stream.feed(written) == []
    return stream.close()


@given(
    arguments=st.dictionaries(st.text("ab", max_size=2), json_values, max_size=3),
    indent=st.none() | st.just(2),
)
def test_a_whole_call_is_read_in_any_layout(arguments: dict[str, Any], indent: int | None) -> None:
    deltas = read(json.dumps({"name": "go", "arguments": arguments}, indent=indent))
    assert [type(delta) for delta in deltas][::2] == [CallStarted, CallEnded]
    ((name, written),) = calls(deltas)
    assert (name, json.loads(written)) == ("go", arguments)


def test_a_final_answer_is_text_and_a_truncated_call_nothing() -> None:
    assert text(read('{"name": "final_answer", "arguments": {"message": "yes"}}')) == "yes"
    for written in ("", "[1]", '{"name": "go", "argu', '{"name": "final_answer", "arguments": {}}', "3"):
        assert read(written) == []


NAMES = st.sampled_from(["Marta", "build", "my-tool", "sin", "going", "fetch_go", ""])
#: Without markers, which mean something in any text.
PLAIN: st.SearchStrategy[Any] = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text('aZ_-. é\\n"{}', max_size=6),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("ab", max_size=2), inner, max_size=3),
    max_leaves=5,
)
VALUES = st.one_of(
    PLAIN,
    st.builds(
        lambda key, name, inner, value: {key: name, inner: value},
        st.sampled_from(["name", "function", "tool", "action"]),
        NAMES,
        st.sampled_from(["arguments", "args", "parameters", "input", "age"]),
        PLAIN,
    ),
    st.builds(
        lambda name: {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}, NAMES
    ),
)
PROSE = st.sampled_from(
    [
        "Here is the file:\n",
        "\n\nSave it as package.json.",
        "\n## Usage\n",
        " * first\n * second\n",
        "`npm i`",
        "\n",
    ]
)
PARTS = st.one_of(
    PROSE,
    VALUES.map(json.dumps),
    VALUES.map(lambda value: f"\n```json\n{json.dumps(value, indent=2)}\n```\n"),
)
READERS: tuple[Callable[[], AnswerReader], ...] = (
    lambda: TextCalls(TOOLS, parallel=True),
    lambda: TextCalls(TOOLS, parallel=False, optional=True),
    lambda: JsonCallStream(TOOLS, final_answer=False),
    lambda: JsonCallStream(TOOLS, final_answer=False, in_prose=True),
    lambda: FORMAT.stream(TOOLS),
    lambda: FORMAT.stream(TOOLS, in_prose=True),
)


@given(st.lists(PARTS, min_size=1, max_size=5).map("".join), st.integers(1, 40))
def test_what_names_no_offered_tool_is_text_and_unchanged(written: str, size: int) -> None:
    for new in READERS:
        reader = new()
        deltas = [d for at in range(0, len(written), size) for d in reader.feed(written[at : at + size])]
        deltas += reader.close()
        assert (text(deltas).rstrip(), calls(deltas)) == (written.rstrip(), [])


BROKEN = (
    '{"tool_calls":[[[',
    '{"toolCalls": [{"nam": "go"',
    '{"data": {"tool_calls": {}}}',
    '```json\n{"function_call": {"nam": "go"\n```',
    "{:tool_calls [{:name \\g}]}",
    '{:name "go" :arguments {:x 1/2}}',
    '{"tool_calls":',
    '{"tool_calls": null}',
    '{"choices": [{"message": {"tool_calls": [{"nam": "go"}]}}]}',
    '{"name":',
    '{"tool": ',
    "<tool_call>{",
    "<tool_call></tool_call>",
    "<function=go>",
    '<invoke name="go">',
    "[TOOL_CALLS]",
    "```tool\n???\n```",
    "tool: other\nargs",
    "Action:",
    "go(x=",
)


@pytest.mark.parametrize("written", BROKEN)
def test_what_begins_like_a_call_is_never_text(written: str) -> None:
    assert begins_call(written)
    for size in (1, 4, 99):
        reader = TextCalls(TOOLS, parallel=False)
        for at in range(0, len(written), size):
            assert reader.feed(written[at : at + size]) == []
        with pytest.raises(AnswerNotAllowedError):
            reader.close()
    reader = TextCalls(TOOLS, parallel=False, optional=True)
    assert text([*reader.feed(written), *reader.close()]) == written  # where a grammar may have all texts


@pytest.mark.parametrize(
    "written",
    [
        "tool_calls are lists.",
        '{"name": "Marta", "arguments": {}}',
        '{:name "Marta" :age 3}',
        '{"tools": [{"name": "go"}]}',
        '{"calls": 3, "tool_calls": 4}',
        'Write {"tool_calls": [ to begin.',
        "Action: we meet at nine.",
        "`<tool_call>` is the tag with which Hermes models begin a call.",
        "**<tool_call>**: the tag of Hermes.",
        "<invoke> is an element of a format.",
        "[TOOL_CALLS] is a control token.",
        '"<function_calls>" is another tag.',
        "Tool: hammer\nArgument: it is heavy",
        "Action: **Restart**\n\nArguments against it: none.",
        "Action: Restart\nArgentina wins",
        '{"a"' + " " * 200_000 + "x",
        "Action: x" + "\n" * 200_000 + "y",
        '{"name"' + "\n" * 100_000 + "x",
        "tool: a hammer",
        "f(x=2) is 4, and f(x=3) is 9",
        "<function> is a word in brackets.",
        "[tools] are lists",
        "```toolbox\nhammer\n```",
    ],
)
def test_other_texts_do_not_begin_like_a_call(written: str) -> None:
    assert not begins_call(written)
    reader = TextCalls(TOOLS, parallel=False)
    assert text([*reader.feed(written), *reader.close()]) == written


@given(st.lists(PARTS, min_size=1, max_size=3).map("".join))
def test_json_that_was_asked_for_does_not_begin_like_a_call(written: str) -> None:
    assert not begins_call(written)


@pytest.mark.parametrize(
    "written", ['{"name": "going", "arguments": {}}', '{"name": "go", "arguments": {"x": }}']
)
def test_where_a_call_is_required_or_broken_it_is_an_error(written: str) -> None:
    reader = TextCalls(TOOLS, parallel=False, required="going" in written)
    reader.feed(written)
    with pytest.raises(AnswerNotAllowedError):
        reader.close()


def test_reasoning_before_a_text_is_no_part_of_it() -> None:
    reader = TextCalls(TOOLS, parallel=False)
    written = '{"name": "Marta", "arguments": {}}'
    assert text([*reader.feed(f"<think>Well.</think>\n{written}"), *reader.close()]) == written


def test_rules_of_both_may_have_the_same_names() -> None:
    one, other = Grammar.parse('root ::= a\na ::= "x"'), Grammar.parse('root ::= a "!"\na ::= "y" root?')
    both = either_grammar(one, other)
    for written, complete in (("x", True), ("y!", True), ("yy!!", True), ("x!", False), ("yx", False)):
        assert both.match(written).complete is complete
        assert engine().match(both, written).complete is complete


@given(texts, st.booleans(), st.none() | texts, st.lists(st.integers(1, 7), min_size=1))
def test_a_final_answer_is_read_while_it_is_written(
    message: str, escaped: bool, reasoning: str | None, sizes: list[int]
) -> None:
    before = {} if reasoning is None else {"thought": reasoning}
    call = {**before, "name": "final_answer", "arguments": {"message": message}}
    rest = json.dumps(call, ensure_ascii=escaped)
    reader = FinalAnswerText()
    found = ""
    for size in sizes * len(rest):
        found += text(reader.feed(rest[:size]))
        rest = rest[size:]
    assert found == message


@pytest.mark.parametrize(
    "written", [NOW, '{"name": "write_files", "arguments": {"files": [{"content": "{}"}]}}', "Hello", "{}"]
)
def test_a_call_of_another_tool_is_no_final_answer(written: str) -> None:
    assert FinalAnswerText().feed(written) == []


@pytest.mark.parametrize(
    ("written", "shown"),
    [(" It is [1].", " It is [1]."), ("[1] says", "[1] says"), (NOW, ""), ('[ {"name"', ""), ("<tool>", "")],
)
def test_text_is_shown_unless_it_begins_like_a_call(written: str, shown: str) -> None:
    for size in (1, 3, 99):
        reader = SpokenText()
        pieces = [text(reader.feed(written[start : start + size])) for start in range(0, len(written), size)]
        assert "".join(pieces) == shown


@given(st.text(), st.integers(1, 50))
def test_a_clipped_text_is_short_and_a_short_text_whole(written: str, limit: int) -> None:
    clipped = clip(written, limit)
    assert len(clipped) <= limit
    assert clipped == written if len(written) <= limit else clipped[:-1] == written[: limit - 1]


CUT = (A_CALL[:-2], A_CALL[:-3], f"<tool_call>\n{A_CALL[:-2]}", f"[TOOL_CALLS][{A_CALL[:-2]}", "[go(x=3")


@pytest.mark.parametrize("written", CUT)
@pytest.mark.parametrize("optional", [False, True])
def test_a_call_that_the_model_has_not_ended_is_not_lost(written: str, optional: bool) -> None:
    def deltas(*, truncated: bool, required: bool = False) -> list[Delta]:
        reader = TextCalls(TOOLS, parallel=True, optional=optional, required=required)
        return [*reader.feed(written), *reader.close(truncated=truncated)]

    assert deltas(truncated=False) == [TextDelta(written)]
    assert not any(isinstance(delta, CallStarted) for delta in deltas(truncated=True))
    with pytest.raises(AnswerNotAllowedError):
        deltas(truncated=False, required=True)


def streamed(written: str, sizes: list[int]) -> str:
    reader, at, pieces = AnswerInText(POOL), 0, []
    for size in sizes * len(written):
        pieces.append(text(reader.feed(written[at : at + size])))
        at += size
    return "".join(pieces)


RENDERED = st.builds(render_tool_calls, call_lists, shape_names)
CHUNKS = st.lists(st.integers(1, 9), min_size=1, max_size=3)


@given(model_texts | RENDERED.map(lambda call: f"So:\n{call}\nDone.") | texts, CHUNKS)
def test_the_answer_in_a_text_is_streamed_up_to_a_call(written: str, sizes: list[int]) -> None:
    assume("</think>" not in written)  # alone, it ends reasoning that the template has opened
    shown, found = streamed(written, sizes), parse_tool_calls(written, POOL)
    answers = [found.content.strip()]
    if isinstance(found, ToolCalls):  # the message of a final answer, or prose around calls
        answers += [str(call.arguments.get("message")) for call in found.calls if call.name == "final_answer"]
    assert any(answer.startswith(shown) for answer in answers)


@given(call_lists, shape_names, CHUNKS)
def test_nothing_of_a_call_is_streamed_as_an_answer(made: Any, syntax: Any, sizes: list[int]) -> None:
    assume(all(call.name != "final_answer" for call in made))
    assert streamed(render_tool_calls(made, syntax), sizes) == ""
    assert streamed(f"So it is.\n{render_tool_calls(made, syntax)}", sizes) in ("So it is.", "")


@given(st.text("abc é.,\n", min_size=1), CHUNKS)
def test_a_text_without_a_call_is_streamed_whole(written: str, sizes: list[int]) -> None:
    assume(written.strip())
    whole = f"{written}!\n\nSo".strip()
    shown = streamed(whole, sizes)
    assert whole.startswith(shown)
    assert len(shown) >= len(written.strip()) / 2
