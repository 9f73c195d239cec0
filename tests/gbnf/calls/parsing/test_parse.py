"""What small models write, and what it amounts to: one table for calls, one for answers, one for refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.calls import (
    CALL_SYNTAXES,
    CallStream,
    FinalAnswer,
    ToolCall,
    ToolCalls,
    parse_tool_calls,
    render_tool_calls,
)
from support.notations import edn
from support.pools import POOL, tool, valid_calls

POOL2 = (
    *POOL,
    tool("find_files", ("base_path",), base_path={"type": "string"}, limit={"type": "integer"}),
    tool("write_files", files={"type": "array", "items": {"type": "object"}}),
)


def read(text: str) -> ToolCalls:
    step = parse_tool_calls(text, POOL2)
    assert isinstance(step, ToolCalls)
    return step


def kinds(step: ToolCalls | FinalAnswer) -> set[str]:
    return {repair.kind for repair in step.repairs}


NOW: tuple[str, dict[str, Any]] = ("get_now", {})
FIND = ("find_files", {"base_path": ".", "limit": 5})
FILES = [{"path": "a.md", "content": "hi"}, {"path": "b.md"}]


@pytest.mark.parametrize(
    ("text", "syntax", "call", "repairs"),
    [
        ('```tool\n{"name": "get_now", "arguments": {}}\n```', "fenced", NOW, set()),
        ("```tool_code\nprint(default_api.get_now())\n```", "fenced", NOW, {"name"}),
        ("```tool\nget_now\n```", "fenced", NOW, set()),
        ("CALL get_now", "call", NOW, {"arguments"}),
        ("call get_now {}", "call", NOW, set()),
        ("```yaml\ntool: get_now\nargs: {}\n```", "yaml", NOW, {"wrapper"}),
        ("```yml\ntool: get_now\nargs: {}\n```", "yaml", NOW, {"wrapper"}),
        ('{"function": "get_now", "parameters": {}}', "bare", NOW, set()),
        ('{"name": "get_now", "input": {}}', "bare", NOW, set()),
        ('{"name": "get_now"}', "bare", NOW, {"arguments"}),
        ('[{"name": "get_now", "arguments": {}}]', "bare", NOW, set()),
        ('{"tool_call": {"name": "get_now", "arguments": {}}}', "bare", NOW, {"wrapper"}),
        ('{"name": "get_now", "arguments": {}, "why": "time"}', "bare", NOW, {"extra"}),
        ("{'name': 'get_now', 'arguments': {},}", "bare", NOW, {"json"}),
        ('{"name": "get_now", "arguments": {}\n\nI hope this helps.', "bare", NOW, {"json", "prose"}),
        ('{"id": "x", "function": {"name": "get_now", "arguments": "{}"}}', "openai", NOW, set()),
        ('{"function": {"name": "get_now", "arguments": {}}}', "openai", NOW, set()),
        ('Sure!\n```json\n{"tool": "Get-Now", "args": {}}\n```', "bare", NOW, {"wrapper", "name", "prose"}),
        ('<tool_call>{"name": "get_now", "arguments": {}}', "tagged", NOW, {"wrapper"}),
        ('[TOOL_CALLS][{"name": "get_now", "arguments": {}}]', "mistral", NOW, set()),
        ("result = get_now()", "python", NOW, set()),
        ("[get_now()]", "python", NOW, set()),
        ("`get_now()`", "python", NOW, {"wrapper"}),
        ("```python\nget_now()\n```", "python", NOW, {"wrapper"}),
        ("I should call it.</think>CALL get_now {}", "call", NOW, {"reasoning"}),
        ('{"name": "functions.get_now", "arguments": {}}', "bare", NOW, {"name"}),
        ("```tool\nfind_files\nbase_path: .\nlimit: 5\n```", "fenced", FIND, set()),
        ('```tool_call\nfind_files\n{"base_path": ".", "limit": 5}\n```', "fenced", FIND, set()),
        ('I will.\nCall: Find Files {"base_path": ".", "limit": 5}', "call", FIND, {"name", "prose"}),
        ('{"name": "find_files", "base_path": ".", "limit": 5}', "bare", FIND, set()),
        (
            '{"name": "find_files", "arguments": "{\\"base_path\\": \\".\\", \\"limit\\": 5}"}',
            "bare",
            FIND,
            {"arguments"},
        ),
        ('<function=find_files>{"base_path": ".", "limit": 5}</function>', "function", FIND, set()),
        ('[TOOL_CALLS]find_files[ARGS]{"base_path": ".", "limit": 5}', "mistral", FIND, set()),
        ("tool: find_files\nargs:\nbase_path: .\nlimit: 5", "yaml", FIND, {"arguments"}),
        ('find_files(".", 5)', "python", FIND, {"arguments"}),
        (
            "```tool\nwrite_note\ntitle: |\n  a: 1\n  b\n```",
            "fenced",
            ("write_note", {"title": "a: 1\nb"}),
            set(),
        ),
        ("```tool get_now\ntimezone: 5\n```", "fenced", ("get_now", {"timezone": "5"}), set()),
        ('```tool_call Find-Files\n{"base_path": ".", "limit": 5}\n```', "fenced", FIND, {"name"}),
        ("```call get_now\n```", "fenced", NOW, set()),
        ('```tool_code python\n{"name": "get_now", "arguments": {}}\n```', "fenced", NOW, set()),
        ('{"toolCalls": [{"name": "get_now", "arguments": {}}]}', "tool_calls", NOW, set()),
        ('{"data": {"tool_calls": [{"name": "get_now", "args": {}}]}}', "tool_calls", NOW, set()),
        ('{"functionCall": {"name": "get_now", "args": {}}}', "bare", NOW, {"wrapper"}),
        (
            '{:tool_calls [{:name "find_files" :arguments {:base_path "." :limit 5}}]}',
            "tool_calls",
            FIND,
            {"json"},
        ),
        ('{:name "find_files", :args {:base_path ".", :limit 5}}', "bare", FIND, {"json"}),
        ("```edn\n[{:tool :get_now :args {}}]\n```", "bare", NOW, {"json", "wrapper"}),
        ('<tool_call>{:name "get_now" :arguments {}}</tool_call>', "tagged", NOW, {"json"}),
        ("```tool\nget_now\ntimezone: 5\n```", "fenced", ("get_now", {"timezone": "5"}), set()),
        ('```tool\nget_now\ntimezone: "a: b"\n```', "fenced", ("get_now", {"timezone": "a: b"}), set()),
        ("```tool\nget_now\ntimezone: a: b\n```", "fenced", ("get_now", {"timezone": "a: b"}), set()),
        (
            "tool: write_files\nargs:\n  files:\n    - path: a.md\n      content: hi\n    - path: b.md\n",
            "yaml",
            ("write_files", {"files": FILES}),
            set(),
        ),
    ],
)
def test_calls(text: str, syntax: str, call: tuple[str, Any], repairs: set[str]) -> None:
    step = read(text)
    assert [(one.name, one.arguments, one.truncated) for one in step.calls] == [(*call, False)]
    assert step.syntax == syntax
    assert step.invalid == ()
    assert kinds(step) == repairs


WRITE = tool("write_file", path={"type": "string"}, content={"type": "string"})
POOL3 = (WRITE, tool("search", query={"type": "string"}), tool("read_file", path={"type": "string"}))


def tagged(*paths: str) -> list[str]:
    return [json.dumps({"name": "read_file", "arguments": {"path": path}}) for path in paths]


A, B, C = tagged("a", "b", "c")
TWO_FUNCTIONS = (
    "<tool_call>\n<function=read_file>\n<parameter=path>\na\n</parameter>\n</function>\n"
    "<function=read_file>\n<parameter=path>\nb\n</parameter>\n</function>\n</tool_call>"
)
READS = [("read_file", {"path": path}) for path in "abc"]


@pytest.mark.parametrize(
    ("text", "calls", "repairs"),
    [
        (
            "Action: search\nAction Input:\ncats and dogs\nObservation: meow",
            [("search", {"query": "cats and dogs"})],
            {"arguments", "prose"},
        ),
        (
            "Action: search\nAction Input:\n```python\ntry:\n    x = 1\nelse:\n    y\n```",
            [("search", {"query": "try:\n    x = 1\nelse:\n    y"})],
            {"arguments", "wrapper"},
        ),
        ("tool: search\nargs:\n  cats\n  dogs", [("search", {"query": "cats\ndogs"})], {"arguments"}),
        ("```tool\nsearch\ncats\n```", [("search", {"query": "cats"})], {"arguments"}),
        ("Action: write_file\nAction Input:\ncats", [], set()),  # which of its two is meant?
        ("Action: search\nAction Input:\n\nDone.", [("search", {})], {"arguments", "prose"}),
        (
            "```tool\nwrite_file\npath: R.md\ncontent:\n  ```sh\n  make\n  ```\n```",
            [("write_file", {"path": "R.md", "content": "```sh\nmake\n```"})],
            {"text"},
        ),
        (
            "```tool\nwrite_file\npath: R.md\ncontent: x\n  ```",
            [("write_file", {"path": "R.md", "content": "x"})],
            set(),
        ),
        (
            "<function=write_file><parameter=path>a<parameter=content>b <parameter=x></function>",
            [("write_file", {"path": "a", "content": "b <parameter=x>"})],
            {"wrapper"},
        ),
        (
            "<function=write_file><parameter=content>a </function> b</parameter></function>",
            [("write_file", {"content": "a </function> b"})],
            set(),
        ),
        ("<function=read_file><parameter=path>a<parameter=path>b</function>", [], {"wrapper"}),
        (f"<tool_call>{A}<tool_call>\n\nDone.", READS[:1], {"prose"}),
        ('An open {brace\nread_file(path="a")', READS[:1], {"prose"}),
        (f"[TOOL_CALLS]{A}\n{B}", READS[:2], {"wrapper"}),
        (
            TWO_FUNCTIONS,
            READS[:2],
            set(),
        ),
    ],
)
def test_calls_that_once_lost_arguments(text: str, calls: Any, repairs: set[str]) -> None:
    step = parse_tool_calls(text, POOL3)
    assert isinstance(step, ToolCalls)
    assert [(call.name, call.arguments) for call in step.calls if not call.truncated] == calls
    assert bool(step.invalid) == (not calls)
    assert kinds(step) - {"arguments"} == repairs - {"arguments"}
    assert calls or "truncated" not in kinds(step)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "You can call get_now() to know the time.",
        "Use `get_now()`, or `CALL get_now {}`.",
        "> CALL get_now {}\n\nis how one asks for the time.",
        'One writes "{"name": "get_now", "arguments": {}}" for it.',
        'The format is `{"name": "get_now", "arguments": {}}`.',
        "```python\nimport time\nget_now()\nprint(1)\n```",
        "```sh\nCALL get_now {}\n```",
        '{"answer": "CALL get_now {}"}',
        '{"text": "<tool_call>{\\"name\\": \\"get_now\\", \\"arguments\\": {}}</tool_call>"}',
        '{"name": "Anna", "age": 31}',
        "print(get_later())",
        "get_now() gives the time.",
        "call me back",
        "tool: a hammer",
        "int main() { return 0; }",
        '"get_now"',
        "name: Anna\nage: 31",
        '{:name "Anna" :age 31}',
        '{:text "{:name \\"get_now\\" :arguments {}}"}',
        '{:name "get_now" :arguments {:a 1/2}}',
        '{:name => "get_now", :arguments => {}}',
        "{: CALL me",
        '`{:name "get_now" :arguments {}}` is a call.',
        '{"data": {"calls": [{"name": "get_now", "arguments": {}}]}}',
        "```toolbox get_now\n```",
    ],
)
def test_answers_stay_as_they_are(text: str) -> None:
    assert parse_tool_calls(text, POOL2) == FinalAnswer(text)


@pytest.mark.parametrize(
    ("text", "name", "nearest"),
    [
        ('{"name": "get_nov", "arguments": {}}', "get_nov", "get_now"),
        ('CALL find_file {"base_path": "."}', "find_file", "find_files"),
        ("```tool\nget_time\nzone: UTC\n```", "get_time", "get_now"),
        ("tool: read_all\nargs:\n  path: a", "read_all", "files.read-all"),
        ("```tool get_time\nzone: UTC\n```", "get_time", "get_now"),
        ('{"data": {"toolCalls": [{"name": "get_nov", "arguments": {}}]}}', "get_nov", "get_now"),
        ('{:name "get_nov" :arguments {}}', "get_nov", "get_now"),
    ],
)
def test_invented_names_are_refused_with_the_nearest(text: str, name: str, nearest: str) -> None:
    step = read(text)
    assert step.calls == ()
    [invalid] = step.invalid
    assert (invalid.name, invalid.nearest) == (name, nearest)
    assert repr(nearest) in invalid.error


@pytest.mark.parametrize("syntax", [syntax.name for syntax in CALL_SYNTAXES])
def test_a_truncated_call_is_never_taken_for_a_complete_one(syntax: Any) -> None:
    whole = ToolCall("call_1", "write_note", {"title": "three words here", "tags": ["a b", "c"]})
    text = render_tool_calls(whole, syntax)
    for end in range(len(text)):
        step = parse_tool_calls(text[:end], POOL2)
        if (
            isinstance(step, FinalAnswer) or syntax == "yaml"
        ):  # the line protocol has no end marker; the backend reports truncation
            continue
        for call in step.calls:
            if not call.truncated:
                assert call.arguments in (whole.arguments, {}), text[:end]
                assert call.arguments or "{" not in text[:end], text[:end]


@given(valid_calls, st.booleans(), st.sampled_from([" ", ", ", "\n  "]))
def test_a_call_in_edn_is_the_call(call: ToolCall, listed: bool, space: str) -> None:
    one = edn({"name": call.name, "arguments": call.arguments}, space)
    text = f"{{:tool_calls [{one}]}}" if listed else one
    step = parse_tool_calls(f"So:\n{text}", POOL)
    assert isinstance(step, ToolCalls)
    assert (step.calls, step.content) == ((call,), "So:")


def test_a_truncated_call_is_marked_and_reported() -> None:
    for text in (
        '{"name": "find_files", "arguments": {"base_path": "/home/an',
        'CALL find_files {"base_path": "/home/an',
        'find_files(base_path="/home/an',
        '<tool_call>{"name": "find_files", "arguments": {"base_path": "/home/an',
        "```tool\nfind_files\nbase_path: /home/an",
        '{"function": {"name": "find_files", "arguments": "{\\"base_path\\": \\"/home/an"}}',
        "```tool find_files\nbase_path: /home/an",
        # the end of the second arguments is missing, although they are equal to the first so far
        '{"name": "find_files", "arguments": {"a": {}}, "b": {}, "arguments": {"a": {}',
    ):
        step = read(text)
        assert step.truncated, text
        assert [call.name for call in step.calls] == ["find_files"]
        assert "truncated" in kinds(step)


def test_values_in_lines_follow_the_schema_at_every_depth() -> None:
    entry = {"title": {"type": "string"}, "done": {"type": "boolean"}}
    save = tool("save", entries={"type": "array", "items": {"type": "object", "properties": entry}})
    step = parse_tool_calls("tool: save\nargs:\n  entries:\n    - title: 5\n      done: True\n", (save,))
    assert isinstance(step, ToolCalls)
    assert [call.arguments for call in step.calls] == [{"entries": [{"title": "5", "done": True}]}]


def test_the_first_shape_wins_and_the_others_are_listed() -> None:
    step = read('get_now()\n\nCALL find_files {"base_path": "."}')
    assert [call.name for call in step.calls] == ["find_files"]
    assert kinds(step) == {"ignored"}


def test_a_key_with_two_values_is_refused() -> None:
    step = read('{"name": "find_files", "arguments": {"base_path": "a", "base_path": "b"}}')
    assert step.calls == ()
    assert "twice" in step.invalid[0].error


def test_arguments_that_are_no_object_are_refused_or_go_to_the_only_one() -> None:
    assert read('{"name": "get_now", "arguments": "UTC"}').calls[0].arguments == {"timezone": "UTC"}
    step = read('{"name": "find_files", "arguments": ["a", "b"]}')
    assert "must be an object" in step.invalid[0].error


def test_two_names_that_are_spelled_alike_are_never_confused() -> None:
    pool = (tool("get_now"), tool("getnow"))
    assert isinstance(parse_tool_calls('{"name": "get_now", "arguments": {}}', pool), ToolCalls)
    step = parse_tool_calls('{"name": "Get Now", "arguments": {}}', pool)
    assert isinstance(step, ToolCalls)
    assert step.calls == ()


@pytest.mark.slow
def test_huge_and_hostile_texts_end() -> None:
    count = 20_000
    for text in (
        "{a",
        '{"name": ',
        "[{",
        "(",
        "get_now(",
        "<tool_call>{",
        "</think>",
        "```json\n",
        "CALL get_now {",
    ):
        assert parse_tool_calls(text * count, POOL2) is not None
    long = "x" * 200_000
    assert parse_tool_calls(long, POOL2).repairs[0].kind == "text"


def test_a_stream_emits_prose_at_once_and_withholds_a_call() -> None:
    stream = CallStream(POOL2)
    assert stream.feed("Let me look. ") == "Let me look. "
    assert stream.feed("It is <b>") == "It is <b>"
    assert stream.feed("<tool") == ""
    assert stream.feed('_call>{"name": "get_now", ') == ""
    assert stream.feed('"arguments": {}}</tool_call>') == ""
    assert isinstance(stream.close(), ToolCalls)
    stream = CallStream(POOL2)
    assert (stream.feed("\n<t"), stream.feed("> bold")) == ("", "\n<t> bold")
    stream = CallStream(POOL2, reasoning_opened=True)
    assert stream.feed("hm, get_now") == ""
    assert stream.feed("</think>It is noon.") == "It is noon."


def test_an_unknown_syntax_is_an_error() -> None:
    with pytest.raises(ValueError, match="Use one of fenced"):
        render_tool_calls(ToolCall("call_1", "get_now", {}), "xml")  # type: ignore[arg-type]  # that is the point


@pytest.mark.parametrize(
    "text",
    [
        "\n<parameter=timezone>",
        "\u2028```<think>",
        "```tool\n```tool\n",
        "x = get_now()",
        "```c\nx\n```\nCALL get_now {}",
        '[TOOL_CALLS][{}]{"name": "get_now", "arguments": {}}',
        '<tool_call>{"x": 1}{"name": "get_now", "arguments": {}}',
        '`{"name": "get_now", "arguments": {}}`',
        '<tool_call><tool_call>  {"name": "get_now", "arguments": {}}',
        '<tool_call>,<tool_call>  {"name": "get_now", "arguments": {}}</tool_call>',
        '<tool_call>{"x": 1}<tool_call>\nCALL get_now {}\na\n</tool_call> and so on, and so on',
        '`{"x": 1}0`<function=get_now>[{"name": "get_now", "arguments": {"a": "`"}}]',
        '`{"x":\n1}0`<function=get_now>[{"name": "get_now", "arguments": {"a": "`"}}]',
        '{"x":\n"`<b>"} 0 get_now {"name": "get_now", "arguments": {}}',
        '\n Sure, I will.\n```json\n{"name": "get_now", "arguments": {}}\n```\nThis is the time.',
    ],
)
def test_streams_that_once_showed_too_much(text: str) -> None:
    stream = CallStream(POOL2)
    for char in text:
        stream.feed(char)
    step = stream.close()
    assert step == parse_tool_calls(text, POOL2)
    assert step.content.startswith(stream.shown if isinstance(step, FinalAnswer) else stream.shown.rstrip())
