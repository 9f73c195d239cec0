"""The end of a value in a text, and the value of JSON that a model wrote wrong."""

from __future__ import annotations

import json
import re
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gbnf.calls.parsing.lenient_json import REPAIR_LIMIT, closing, extent, load
from gbnf.strict_json import InvalidJsonError
from support.json_values import SIMPLE, nested
from support.notations import edn

VALUES = nested(SIMPLE | st.text(), st.text(max_size=4))
CONTAINERS = st.lists(VALUES, max_size=4) | st.dictionaries(st.text(max_size=4), VALUES, max_size=4)


@given(CONTAINERS, st.text(max_size=10), st.sampled_from([None, 1]))
def test_the_extent_of_json_is_what_the_decoder_of_json_reads(value: Any, after: str, indent: Any) -> None:
    text = json.dumps(value, indent=indent, ensure_ascii=False)
    assert extent(text + after, 0) == (len(text), "")


@given(CONTAINERS, st.data())
def test_a_truncated_value_is_open_and_can_be_closed(value: Any, data: st.DataObject) -> None:
    text = json.dumps([value])
    prefix = text[: data.draw(st.integers(1, len(text) - 1))]
    found = extent(prefix, 0)
    assert not found.closed
    assert found.end == len(prefix)
    closed = prefix + closing(found.open)
    if not found.open.endswith('"'):  # else an escape may be truncated, and takes the quote
        assert extent(closed, 0) == (len(closed), "")


@pytest.mark.parametrize(
    ("text", "python", "end", "opened"),
    [
        ("{'a]': 1} x", False, 9, ""),
        ("[it's] x", False, 6, ""),  # an apostrophe opens no string in JSON
        ("[1, // ]\n 2] x", False, 12, ""),
        ("[1, # ]\n 2] x", False, 11, ""),
        ("[1 // ]", False, 7, "["),
        ("[1, /* ] */ 2] x", False, 14, ""),
        ("[1, /* ]", False, 8, "["),
        ('["http://a]b"] x', False, 14, ""),
        ("[a//b] x", False, 6, ""),  # no comment within a word
        ('[{"a": (1] x', False, 10, ""),
        ("[1) 2] x", False, 6, ""),
        ('["a\\"] x', False, 8, '["'),
        ("['a\\'] x", True, 8, "['"),
    ],
)
def test_brackets_in_strings_and_comments_do_not_count(
    text: str, python: bool, end: int, opened: str
) -> None:
    assert extent(text, 0, python=python) == (end, opened)


@given(VALUES)
def test_strict_json_is_never_repaired(value: Any) -> None:
    assert load(json.dumps(value)) == (value, ())


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": 1,}', {"a": 1}),
        ("{'a': 'b'}", {"a": "b"}),
        ('{a: "b"}', {"a": "b"}),
        ('{"a": True, "b": None}', {"a": True, "b": None}),
        ('["a" "b"]', ["a", "b"]),
        ('["a\nb"]', ["a\nb"]),
        ("[1, /* two */ 2]", [1, 2]),
        ("[NaN]", ["NaN"]),
        ('{"a": [1, 2', {"a": [1, 2]}),
        ('{"a": {"a": "a: 1"}, "b": [{"a": 1}],}', {"a": {"a": "a: 1"}, "b": [{"a": 1}]}),
        ('{"t": [“a, b”, “42”], “o”: ‘null’}', {"t": ["a, b", "42"], "o": "null"}),
        ('[‘it\\’s’, “say "]"”, don’t]', ["it’s", 'say "]"', "don’t"]),
        ('{"a": 3 "b": true\n "c": [1 [2]]}', {"a": 3, "b": True, "c": [1, [2]]}),
        (r'{\"a\": \"say \\\"hi\\\"\\n\", "b": \"\\\\\"}', {"a": 'say "hi"\n', "b": "\\"}),
        (r'["C:\Users\me\x.txt", "C:\apps", "\d+\n"]', [r"C:\Users\me\x.txt", r"C:\apps", "\\d+\n"]),
    ],
)
def test_a_repaired_value_names_its_repairs(text: str, value: Any) -> None:
    found = load(text)
    assert found.value == value
    assert [repair.kind for repair in found.repairs] == ["json"]
    assert found.repairs[0].detail


DAMAGE = (
    "trailing comma", "single quotes", "comment", "end", "commas", "every comma", "breaks", "“”", "‘’",
    "escaped",
)  # fmt: skip
EXACT = ("“”", "‘’", "escaped")


@given(st.dictionaries(st.sampled_from("abc"), VALUES, min_size=1, max_size=3), st.data())
def test_repaired_json_is_the_value_or_an_error(value: dict[str, Any], data: st.DataObject) -> None:
    """Quotes, commas, comments and the last brackets may be wrong: what is between them is kept."""
    written = json.dumps(value, ensure_ascii=False)
    damage = data.draw(st.sampled_from(DAMAGE))
    parts = re.split(r'"((?:\\.|[^"\\])*)"', written)  # every second one is the inside of a string
    if damage == "trailing comma":
        written = written[:-1] + ",}"
    elif damage == "single quotes":
        written = repr(value)
    elif damage == "comment":
        written = written[:-1] + "// one\n}"
    elif damage == "end":
        written = written.rstrip("]}")
    elif damage == "commas":
        written = written.replace('", ', '" ')
    elif damage == "every comma":
        written = "".join(f'"{part}"' if at % 2 else part.replace(",", "") for at, part in enumerate(parts))
    elif damage in ("“”", "‘’"):
        assume(not set(written) & set("“”‘’"))
        written = "".join(damage[0] + part + damage[1] if at % 2 else part for at, part in enumerate(parts))
    elif damage == "escaped":
        written = json.dumps(written, ensure_ascii=False)[1:-1]
    else:
        written = written.replace("\\n", "\n") if "\\\\" not in written else written
        written = written[:-1] + ",}"
    try:
        found = load(written).value
    except InvalidJsonError:
        assert damage not in EXACT, written
        return
    assert json.dumps(found) == json.dumps(value), written


@given(st.lists(st.text("abfnrtuxUN0dé. ", min_size=1, max_size=9), min_size=1, max_size=4))
@example(["Users", "new"])
@example(["x41", "U0001F600", "apps"])
def test_a_path_of_windows_is_kept_or_refused(names: list[str]) -> None:
    assume(names[0][0] not in "bfnrtu" and all(name.strip() == name for name in names))
    path = "\\".join(["C:", *names])
    try:
        found = load(f'["in {path}",]').value
    except InvalidJsonError:
        return
    if " " not in path:
        assert found == [f"in {path}"]


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a": "x", "n": 3\n</tool_call>', {"a": "x", "n": 3}),
        ('{"a": "x", "n": tr\n</tool_call>\nDone, "a"', {"a": "x", "n": "tr"}),
        ('{"t": [3</tool_call>\nHe said "x', {"t": [3]}),
        ('{"a": “x", “b', {"a": 'x", “b'}),
        (r"{\"a\": \"x \\\"y", {"a": 'x "y'}),
    ],
)
def test_a_truncated_value_ends_at_an_end_tag_or_inside_a_string(text: str, value: Any) -> None:
    assert load(text, truncated=True).value == value


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        "{'a': 1, 'a': 2}",
        '{"a": 1, a: 2}',
        '{"a": "x" "a": "y"}',
        '{"a": {"b": 1}, /* "a" */ "a": 2,}',
        '[{"a": 1 "a": 2}]',
        "// x",
        '["\\ud800"]',
        '["\\ud800\n"]',
        "[1e999,]",
        "[" * 20_000,
        "{'a': " + "x" * REPAIR_LIMIT,
        '{"a": "say "hi" now"}',
        '{"a": <|"|>Rome<|"|>}',
        '{"a":}',
        '{"name": "{"name": "b", "c": {"d": 1}}',
        '{"a": “x", "b": 1}', '["a”]', "[“a”b”]", "[‘it’s’]", "[a “b” c]", "[`x`]", "[b'x']",
        '["say "" now"]', '["a',
        "[1 2 3]", "[true 1]", '["x", ...]', '["x", y …]', '{"n": 3\n</tool_call>}',
        r'{\"a": 1}', r'{\"a\": \"say "hi"\"}',
        r'["\x41",]', r'["\U0001F600",]', r'["\N{DASH}",]', r'["\a",]', r'["C:\Users\new",]',
    ],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_what_cannot_be_repaired_is_an_error(text: str) -> None:
    with pytest.raises(InvalidJsonError):
        load(text)


MAPS = st.dictionaries(st.from_regex(r"[a-z][\w-]{0,5}", fullmatch=True), VALUES, min_size=1, max_size=4)


@given(MAPS | st.lists(MAPS, min_size=1, max_size=2), st.sampled_from([" ", ", ", "\n", " ,"]))
def test_edn_is_the_value_that_was_written(value: Any, space: str) -> None:
    found = load(edn(value, space))
    assert (found.value, [each.kind for each in found.repairs]) == (value, ["json"])
    assert json.dumps(found.value) == json.dumps(value)  # of the same types


@pytest.mark.parametrize(
    "text",
    [
        "{:a}", "{:a 1", "{:a 1]", "{:a [1}", "{:a 1}}",
        "{:a 1} {:b 2}", "{:a 1 :a 2}", "{:a 1 1 2}", "{:a 1/2}", "{:a open files b}", "{:a None}",
        "{:a True}", '{:a (str "x" y)}', "{:a hello b 3}", "{:a #{1)}", "{:a (1]}",
        '{:a "x}', r'{:a "\ud800"}', "{:a 1} x", "{:a \\c}", "{:a NaN}", "{:a :}",
        "{:a " + "[" * 9_000 + "]" * 9_000 + "}", "[{:a 1} }",
    ],
    ids=lambda text: text[:12],
)  # fmt: skip
def test_what_is_no_edn_is_an_error(text: str) -> None:
    with pytest.raises(InvalidJsonError):
        load(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("{:name read_file :arguments {:path a.md}}", {"name": "read_file", "arguments": {"path": "a.md"}}),
        ("{:a 1N, :b 1.5M, :c -2}", {"a": 1, "b": 1.5, "c": -2}),
        ('{:a #{1 2}, :b (1 "x;" [nil]) ; the end }\n}', {"a": [1, 2], "b": [1, "x;", [None]]}),
        ("{:a true :b :c-d :e null}", {"a": True, "b": "c-d", "e": None}),
    ],
)
def test_values_of_edn_that_json_has_otherwise(text: str, value: Any) -> None:
    assert load(text).value == value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ('{"a":', {}),
        ('{"a"', {}),
        ('{"a": 1, "b":', {"a": 1}),
        ('{"a": {"b":', {"a": {}}),
        ("[1, [", [1, []]),
    ],
)
def test_what_a_truncated_text_ends_inside_is_left_out(text: str, value: Any) -> None:
    assert load(text, truncated=True).value == value
