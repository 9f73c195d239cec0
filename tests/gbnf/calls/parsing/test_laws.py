"""Laws for every call and every text."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.calls import CallStream, FinalAnswer, ToolCalls, parse_tool_calls, render_tool_calls
from gbnf.calls.parsing import streaming as stream_module
from gbnf.calls.parsing.parser import REASONING_END, Scanner
from support.effort import one_in
from support.pools import FRAGMENTS, POOL, call_lists, model_texts, shape_names, tool, valid_calls

NAMES = {tool.name for tool in POOL}


@given(call_lists, shape_names)
def test_rendered_calls_are_read_back_in_order_with_nothing_repaired(calls: Any, syntax: Any) -> None:
    assert parse_tool_calls(render_tool_calls(calls, syntax), POOL) == ToolCalls(tuple(calls), syntax)


@given(
    valid_calls, shape_names, st.sampled_from(["Sure!\n", '<think>hm {"name": 1}</think>', "\n\n", "a\n\n"])
)
def test_text_before_a_call_changes_only_the_repairs(call: Any, syntax: Any, before: Any) -> None:
    step = parse_tool_calls(f"{before}{render_tool_calls(call, syntax)}\n\nThat is all.\n", POOL)
    assert isinstance(step, ToolCalls)
    assert (step.calls, step.syntax) == ((call,), syntax)
    kinds = {repair.kind for repair in step.repairs}
    assert kinds == {"prose"} | ({"reasoning"} if "<think>" in before else set())


@given(call_lists, st.data())
def test_calls_behind_tags_without_an_end_are_all_read(calls: Any, data: Any) -> None:
    text = ""
    for call in calls:
        written = json.dumps({"name": call.name, "arguments": call.arguments})
        opening = data.draw(st.sampled_from(["<tool_call>\n", "<tool_call>"])) if not text else ""
        opening = opening or data.draw(
            st.sampled_from(["\n<tool_call>\n", "</tool_call>\n<tool_call>", "\n"])
        )
        text += opening + written
    step = parse_tool_calls(text + data.draw(st.sampled_from(["", "</tool_call>", "\n<tool_call>"])), POOL)
    assert isinstance(step, ToolCalls)
    assert (step.calls, step.syntax) == (tuple(calls), "tagged")
    assert {repair.kind for repair in step.repairs} <= {"wrapper"}


BELOW = (" {}", "\n{}", "\n\n{}", "\n  {}", "\n```json\n{}\n```", " ```\n{}\n```", "\n\n```json\n{}\n```")


@given(valid_calls, st.sampled_from(BELOW), st.sampled_from(["", "\n", "\n\nObservation: none"]))
def test_action_input_may_start_on_the_same_or_the_next_line(call: Any, below: Any, after: Any) -> None:
    written = below.format(json.dumps(call.arguments))
    step = parse_tool_calls(f"Action: {call.name}\nAction Input:{written}{after}", POOL)
    assert isinstance(step, ToolCalls)
    assert (step.calls, step.syntax) == ((call,), "yaml")


WRITER = (tool("write", a={"type": "string"}, b={"type": "string"}, c={"type": "string"}),)
block_lines = st.lists(
    st.sampled_from(["```", "```sh", "make", "  deeper", "", "a: x", "- one", "why: |", "````"]), max_size=6
).map(lambda lines: ["First:", *lines, "End."])


@given(
    block_lines,
    st.sampled_from(["```tool\nwrite\n{}\nb: x\n```", "```yaml\ntool: write\nargs:\n{}\n  b: x\n```"]),
)
def test_a_fence_inside_a_text_of_lines_belongs_to_it(lines: Any, block: Any) -> None:
    margin = "  " if "args" in block else ""
    text = "\n".join([f"{margin}a: |", *(f"{margin}  {line}" for line in lines)])
    step = parse_tool_calls(block.format(text), WRITER)
    assert isinstance(step, ToolCalls)
    assert [(call.arguments, call.truncated) for call in step.calls] == [
        ({"a": "\n".join(lines), "b": "x"}, False)
    ]


values = st.text(st.characters(categories=["L", "N", "Zs"], include_characters="<>/=\n"), max_size=12).filter(
    lambda text: text == text.strip("\n") and text[:1] != "'"
)


@given(st.lists(st.tuples(values, st.booleans()), min_size=1, max_size=3), st.sampled_from(["", "\n"]))
def test_parameters_without_an_end_tag_end_at_the_next(given_now: Any, brk: Any) -> None:
    text = "".join(
        f"<parameter={key}>{brk}{value}{brk}{'</parameter>' * ended}{brk}"
        for key, (value, ended) in zip("abc", given_now, strict=False)
    )
    step = parse_tool_calls(f"<function=write>{brk}{text}</function>", WRITER)
    assert isinstance(step, ToolCalls)
    expected = {key: value for key, (value, _) in zip("abc", given_now, strict=False)}
    assert [
        ({key: value.strip() for key, value in call.arguments.items()}, call.truncated) for call in step.calls
    ] == [({key: value.strip() for key, value in expected.items()}, False)]
    assert len(step.repairs) == sum(not ended for _, ended in given_now)


@given(model_texts)
def test_any_text_is_a_step(text: Any) -> None:
    step = parse_tool_calls(text, POOL)
    if isinstance(step, FinalAnswer):
        assert step.reasoning or step.content == text
        return
    assert step.calls or step.invalid
    assert {call.name for call in step.calls} <= NAMES
    assert all(invalid.nearest is None or invalid.nearest in NAMES for invalid in step.invalid)
    if any(call.truncated for call in step.calls):
        assert "truncated" in {repair.kind for repair in step.repairs}


@given(st.text(st.characters(categories=["L", "N", "Zs"], include_characters=",.!?\n"), max_size=200))
def test_a_text_without_a_sign_of_a_call_is_an_answer_unchanged(text: Any) -> None:
    assert parse_tool_calls(text, ()) == FinalAnswer(text)


ACTIONS = (
    "Action: get_now\nAction Input:", "\nObservation:", "UTC", "\n", "```json\n", "{}", "<tool_call>",
    "<function=get_now>", "<parameter=timezone>", "</function>", "timezone: |\n", "  ```",
    "```tool\nget_now\n",
)  # fmt: skip
actions = st.lists(st.sampled_from([*ACTIONS, *ACTIONS, *FRAGMENTS]), max_size=12).map("".join)


LONG_TEXTS = {
    "prose": "All is well, and it goes on. ",
    "lines": "One line.\n",
    "spaces": " ",
    "blank lines": "\n",
    "a word": "word",
    "a quotation": "> and so on ",
    "quotations": "> so\n",
    "code": "a = `b`\n",
    "inline code": "see `a` and ",
    "an unclosed tick": "and so on ",
    "signs of objects": "{ [ { ",
    "objects": '{"a": [1]} ',
    "an open object": '"a": [1, 2], ',
    "tags": "<b> and ",
    "names": "get_now ",
    "a call's line": "get_now and ",
    "thoughts": "<think>so</think>\nyes\n",
    "unclosed thoughts": "so it is. ",
}
BEFORE = {
    "code": "```c\n", "an unclosed tick": "A ` is ", "an open object": '{"name": "get_now", "arguments": {',
    "a call's line": "CALL ", "unclosed thoughts": "<think>",
}  # fmt: skip


@pytest.mark.parametrize(("size", "reasoning_opened"), [(1, False), (7, True)])
@pytest.mark.parametrize("kind", one_in(6, LONG_TEXTS))
def test_a_stream_takes_linear_work(
    kind: str, reasoning_opened: bool, size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The work is counted in characters: those that are joined, searched, and scanned."""
    text = BEFORE.get(kind, "") + LONG_TEXTS[kind] * (10_000 // len(LONG_TEXTS[kind]))
    work = 0
    segments = Scanner.segments

    def scanned(scanner: Scanner, text: str, at: int = 0, *, ends: bool = True) -> Any:
        nonlocal work
        work += len(text)
        return segments(scanner, text, at, ends=ends)

    class Ends:
        def search(self, text: str) -> Any:
            nonlocal work
            work += len(text)
            return REASONING_END.search(text)

    monkeypatch.setattr(stream_module, "REASONING_END", Ends())
    monkeypatch.setattr(Scanner, "segments", scanned)
    stream = CallStream(POOL, reasoning_opened=reasoning_opened)
    given_now = [stream.feed(text[at : at + size]) for at in range(0, len(text), size)]
    assert work < 30 * len(text)
    assert "".join(given_now) == stream.shown
    monkeypatch.undo()
    step = stream.close()
    if not reasoning_opened:
        assert isinstance(step, FinalAnswer) or kind == "an open object"
        assert step.content.startswith(stream.shown)


PIECES_OF_CALLS = [
    ("<tool_call>\n<function=write>\n<parameter=", " "),
    ("<tool_call>\n<function=write>\n<parameter=a", " "),
    ("<tool_call>\n<function=write>\n<parameter=", " a"),
    ("<tool_call>\n<function=write>\n<parameter=a", ' b="c"'),
    ("<tool_call>\n<function=write>\n<parameter=a>", "</parameter> "),
    ("<tool_call>\n<function=write>\n", "<parameter=a>"),
    ("<tool_call>write<arg_key>", " "),
    ("<tool_call>\n<function=", " "),
    ("<function=write", " "),
    ("", '<|tool_call>call:write{a:<|"|>x<|"|>}<tool_call|>'),
    ("", "<start_function_call>call:write{a:<escape>x<escape>}<end_function_call>"),
]


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("begin", "piece"), PIECES_OF_CALLS)
def test_a_piece_that_repeats_takes_linear_work(begin: str, piece: str) -> None:
    step = parse_tool_calls(begin + piece * (120_000 // len(piece)), WRITER)
    assert isinstance(step, FinalAnswer) or not step.invalid or "<parameter" in begin


@given(
    st.data(),
    model_texts
    | actions
    | st.builds(render_tool_calls, call_lists, shape_names).map(lambda text: f"\n So:\n{text}\nDone."),
)
def test_a_stream_shows_no_call_and_ends_like_the_whole_text(data: Any, text: Any) -> None:
    stream, left = CallStream(POOL), text
    while left:
        size = data.draw(st.integers(1, 12) | st.integers(13, 80))
        before = stream.shown
        given_now = stream.feed(left[:size])
        assert stream.shown == before + given_now
        left = left[size:]
    step = stream.close()
    assert step == parse_tool_calls(text, POOL)
    if "</think>" in text.partition("<think>")[0] or "</think>" in text.rpartition("</think>")[0]:
        return  # reasoning that a template opened is recognised by its end tag alone
    if isinstance(step, FinalAnswer):
        assert step.content.startswith(stream.shown)
    else:
        assert step.content.startswith(stream.shown.rstrip())
