"""Answers in lines: whatever decorates them, the values are those that were written. Oracle: jsonschema."""

from __future__ import annotations

import calendar
import datetime as dt
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from gbnf.calls.validation import validate_call
from gbnf.protocols.field_lines import FieldLines, fits_lines
from gbnf.protocols.protocol import UnreadableCallError
from gbnf.tools import Tool
from support.effort import scaled

WORDS = st.text(alphabet="abdkmàß字", min_size=3, max_size=8)
TEXTS = st.lists(WORDS, min_size=2, max_size=5).map(" ".join)
NUMBERS = st.floats(-1e6, 1e6, allow_nan=False).map(lambda value: round(value, 3) + 0.0)
SCALARS: tuple[tuple[dict[str, Any], st.SearchStrategy[Any]], ...] = (
    ({"type": "integer"}, st.integers(-(10**9), 10**9)),
    ({"type": "integer", "minimum": 1, "maximum": 3}, st.integers(1, 3)),
    ({"type": "number"}, NUMBERS),
    ({"type": "boolean"}, st.booleans()),
    ({"enum": ["spam", "ham", "not sure"]}, st.sampled_from(["spam", "ham", "not sure"])),
    ({"enum": [1, 2, 10]}, st.sampled_from([1, 2, 10])),
    ({"type": "string"}, TEXTS),
    ({"type": ["string", "null"]}, TEXTS | st.none()),
    ({"anyOf": [{"type": "integer"}, {"type": "null"}]}, st.integers(0, 99) | st.none()),
)
DATES = (
    "{day.day} {month} {day.year}",
    "by {day:%d} {month} {day.year}",
    "{month} {day.day}, {day.year}",
    "il {day.day} {month} {day.year}",
    "**{day:%Y/%m/%d}**.",
    "{day:%Y-%m-%d}",
)
ITALIAN_MONTHS = [
    "gennaio",
    "febbraio",
    "marzo",
    "aprile",
    "maggio",
    "giugno",
    "luglio",
    "agosto",
    "settembre",
    "ottobre",
    "novembre",
    "dicembre",
]
NAMES = ("best", "reason_why", "Total", "isPaid")


def tool(properties: dict[str, Any], **more: Any) -> Tool:
    args = {"type": "object", "properties": properties, "required": list(properties)} | more
    return Tool.from_mapping({"name": "judge", "description": "Judge the poems.", "args": args})


def text_of(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


def read(judge: Tool, text: str) -> dict[str, Any]:
    parsed = FieldLines(tool=judge).read(text, (judge,))
    assert parsed.call["name"] == judge.name
    arguments: dict[str, Any] = parsed.call["arguments"]
    return arguments


@st.composite
def records(draw: st.DrawFn) -> tuple[Tool, dict[str, Any]]:
    """A tool whose arguments fit lines, and arguments."""
    chosen = draw(st.lists(st.sampled_from(SCALARS), min_size=1, max_size=4))
    properties = {name: schema for name, (schema, _) in zip(NAMES, chosen, strict=False)}
    values = {name: draw(strategy) for name, (_, strategy) in zip(NAMES, chosen, strict=False)}
    if draw(st.booleans()):
        schema, strategy = draw(st.sampled_from([each for each in SCALARS if "null" not in str(each[0])]))
        properties["items"] = {"type": "array", "items": schema}
        values["items"] = draw(st.lists(strategy, min_size=2, max_size=4))
    return tool(properties), values


def lines_of(values: dict[str, Any]) -> list[str]:
    parts = [part for value in values.values() for part in (value if isinstance(value, list) else [value])]
    return [text_of(part) for part in parts]


def labelled(values: dict[str, Any], label: str) -> str:
    parts = []
    for name, value in values.items():
        items = [f"- {text_of(item)}" for item in value] if isinstance(value, list) else [text_of(value)]
        parts.append(label.format(name) + (" " if len(items) == 1 else "\n") + "\n".join(items))
    return "\n".join(parts)


@given(records(), st.data())
@settings(max_examples=scaled(300))
def test_what_is_written_in_any_form_is_read(
    record: tuple[Tool, dict[str, Any]], data: st.DataObject
) -> None:
    judge, values = record
    assert fits_lines(judge)
    lines = lines_of(values)
    forms = {
        "lines": "\n".join(lines),
        "with empty lines": "\n\n".join(f"  {line} " for line in lines),
        "in a code block": "\n".join(["```", *lines, "```"]),
        "in quotes": "\n".join(f'"{line}"' for line in lines),
        "bold": "\n".join(f"**{line}**" for line in lines),
        "with a preface": "\n".join(["Here is my answer:", *lines]),
        "labels": labelled(values, "{}:"),
        "bold labels": labelled(values, "**{}:**"),
        "labels in a list": labelled(values, "- {}:"),
        "labels after a preface": "Sure, this is it.\n" + labelled(values, "{}:"),
        "labels in capitals": labelled({name.upper(): value for name, value in values.items()}, "{} ="),
        "JSON": json.dumps(values),
        "JSON in a code block": f"```json\n{json.dumps(values, indent=1)}\n```",
        "on one line": "; ".join(labelled(values, "{}:").splitlines()),
        "a placeholder filled in": f"<{'; '.join(labelled(values, '{}:').splitlines())}>",
        "a call": json.dumps({"name": "judge", "arguments": values}),
    }
    form = data.draw(st.sampled_from(list(forms)))
    if "preface" in form and len(values) == 1 and "items" not in values:
        return  # the preface may be the value
    if form in ("on one line", "a placeholder filled in") and (len(values) == 1 or "items" in values):
        return  # which is a line, or has some
    assert read(judge, forms[form]) == values, form


@given(records())
@settings(max_examples=scaled(50))
def test_what_is_shown_to_the_model_is_read(record: tuple[Tool, dict[str, Any]]) -> None:
    judge, values = record
    given_values = {name: value for name, value in values.items() if value is not None}
    protocol = FieldLines(tool=judge)
    message = protocol.call_message({"name": "judge", "arguments": given_values}, 1)
    if len(given_values) == len(values):
        assert read(judge, message["content"]) == values


@given(
    records(),
    st.text()
    | st.lists(
        st.sampled_from(
            [
                "best: 2",
                "- x",
                "1.",
                "{",
                "<best: x>",
                "items:",
                "3",
                "Total: 4",
                "reason why: x",
                "is paid: yes",
            ]
        )
    ).map("\n".join),
)
@settings(max_examples=scaled(300))
def test_any_text_is_refused_or_read(record: tuple[Tool, dict[str, Any]], text: str) -> None:
    judge, _ = record
    try:
        parsed = FieldLines(tool=judge).read(text, (judge,))
    except UnreadableCallError:
        return
    is_valid = Draft202012Validator(judge.args).is_valid(parsed.call["arguments"])
    assert validate_call(parsed.call, (judge,)).ok == is_valid


@given(records(), st.data())
@settings(max_examples=scaled(100))
def test_a_copied_placeholder_is_no_value(record: tuple[Tool, dict[str, Any]], data: st.DataObject) -> None:
    judge, values = record
    prompt = FieldLines(tool=judge).prompt("en")
    placeholders = [line for line in prompt.splitlines() if line.startswith("<")]
    placeholder = data.draw(st.sampled_from(placeholders))
    lines = lines_of(values)
    lines[data.draw(st.integers(0, len(lines) - 1))] = placeholder
    label = placeholder[1:].partition(":")[0]
    for text in ("\n".join(lines), "\n".join([*lines, f"{label}: {placeholder}"])):
        with pytest.raises(UnreadableCallError, match="placeholder"):
            read(judge, text)


@pytest.mark.parametrize("reason", ["   ", "...", " … ", "<…>", "<...>"])
@pytest.mark.parametrize(
    "form",
    [
        "2\n{}",
        '{{"best": 2, "reason": "{}"}}',
        '{{"name": "judge", "arguments": {{"best": 2, "reason": "{}"}}}}',
        'CALL judge {{"best": 2, "reason": "{}"}}',
    ],
)
def test_what_says_nothing_is_no_value(form: str, reason: str) -> None:
    try:
        parsed = FieldLines(tool=JUDGE).read(form.format(reason), (JUDGE,))
    except UnreadableCallError:
        return
    assert not validate_call(parsed.call, (JUDGE,)).ok


@given(
    st.lists(st.integers(-99, 999), min_size=2, max_size=4), st.sampled_from([" ", ", ", ";"]), st.booleans()
)
def test_numbers_may_be_on_one_line(numbers: list[int], separator: str, is_named: bool) -> None:
    judge = tool({f"field{index}": {"type": "integer"} for index in range(len(numbers))})
    text = "START " * is_named + separator.join(map(str, numbers))
    assert [*read(judge, text).values()] == numbers


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("1,200", {"price": 1200}),
        ("3,5", {"price": 3.5}),
    ],
)
def test_one_number_is_not_split(text: str, values: dict[str, Any]) -> None:
    number = {"type": "number"}
    shop = tool({"price": number, "discount": number}, required=["price"])
    assert read(shop, text) == values


@pytest.mark.parametrize("text", ["START 5 6 7", "the sum of 3 and 4, 12", "Found 3 matches: 4, 5", "1,200"])
def test_other_numbers_of_a_line_are_not_those_of_fields(text: str) -> None:
    pair = tool({"low": {"type": "integer"}, "high": {"type": "integer"}})
    parsed = FieldLines(tool=pair).read(text, (pair,))
    assert not validate_call(parsed.call, (pair,)).ok


@pytest.mark.parametrize("value", ["<", "<=>", "<>"])
def test_signs_of_an_enumeration_are_no_placeholder(value: str) -> None:
    assert read(tool({"sign": {"enum": ["<", "<=>", "<>", "=="]}}), value) == {"sign": value}


@pytest.mark.parametrize("body", ["Dear Bob,\ntitle: Foo", "<title>Foo</title>\n<p>x", "<body>"])
def test_texts_of_a_call_are_as_they_are(body: str) -> None:
    post = tool({"title": {"type": "string"}, "body": {"type": "string"}})
    values = {"title": "Hi", "body": body}
    assert read(post, json.dumps({"name": "judge", "arguments": values})) == values


PICK = tool({"value": {"type": "integer", "minimum": 1, "maximum": 3}})
JUDGE = tool({"best": {"type": "integer", "minimum": 1, "maximum": 3}, "reason": {"type": "string"}})
POEM = tool({"value": {"type": "array", "items": {"type": "string"}, "minItems": 3, "maxItems": 3}})
LABEL = tool({"value": {"enum": ["spam", "ham"]}})
TOTAL = tool({"total": {"type": "number"}})
BOOL = tool({"value": {"type": "boolean"}})
CODE = tool({"code": {"type": "string"}})
TAGS = tool({"tags": {"type": "array", "items": {"type": "string"}}})
CHECK = tool({"summary": {"type": "string"}, "ok": {"type": "boolean"}})
BILL = tool(
    {"customer": {"type": "string"}, "total": {"type": "number"}, "note": {"type": "string"}},
    required=["customer", "total"],
)


@pytest.mark.parametrize(
    ("judge", "text", "values"),
    [
        *(
            (PICK, text, {"value": 2})
            for text in (
                "2", "2.", "2)", "2 -", "2 - my pick", "#2", "**2**", "Option 2", "Option 2: frog", "Poem 2.",
                "value: 2", "**Value:** 2", "best: 2", "The best is 2.", "I pick number 2", '{"value": 2}',
                '{"value": "2"}', "```\n2\n```", "Here is my answer:\n2", "- 2", "(2)", "Answer: 2",
            )
        ),
        (JUDGE, "2\nIt is vivid.", {"best": 2, "reason": "It is vivid."}),
        (JUDGE, "2\nIt is vivid.\nAnd short.", {"best": 2, "reason": "It is vivid.\nAnd short."}),
        (JUDGE, '<best: 2; reason: "It is vivid; short."', {"best": 2, "reason": "It is vivid; short."}),
        (JUDGE, "2 - It is vivid.", {"best": 2, "reason": "It is vivid."}),
        (JUDGE, "2. It is vivid.", {"best": 2, "reason": "It is vivid."}),
        (JUDGE, "1. 2\n2. It is vivid.", {"best": 2, "reason": "It is vivid."}),
        (JUDGE, "Best: 2\nReason: because: it is", {"best": 2, "reason": "because: it is"}),
        (JUDGE, "2\nreason: It is vivid.", {"best": 2, "reason": "It is vivid."}),
        (JUDGE, "best: 2\nIt is vivid.", {"best": 2, "reason": "It is vivid."}),
        (POEM, "an old pond\na frog\nsplash", {"value": ["an old pond", "a frog", "splash"]}),
        (POEM, "1. a b\n2. c d\n3. e f", {"value": ["a b", "c d", "e f"]}),
        (POEM, '["a b", "c d", "e f"]', {"value": ["a b", "c d", "e f"]}),
        (PICK, "<value: integer, 2>", {"value": 2}),
        (JUDGE, "<best: 2>\n<reason: string, It is vivid.>", {"best": 2, "reason": "It is vivid."}),
        (JUDGE, "<best: integer, 2>\n<reason: Vivid, and short", {"best": 2, "reason": "Vivid, and short"}),
        (BILL, "<customer: Ada>\n<total: 12 EUR>\n", {"customer": "Ada", "total": 12}),
        (JUDGE, 'Here:\n```json\n{"best": 2, "reason": "vivid"}\n```\nDone.', {"best": 2, "reason": "vivid"}),
        (JUDGE, "<best>2</best>\n<reason>vivid</reason>", {"best": 2, "reason": "vivid"}),
        (JUDGE, "best:2\nreason:vivid", {"best": 2, "reason": "vivid"}),
        (JUDGE, "**Best**\n2\n**Reason**\nvivid", {"best": 2, "reason": "vivid"}),
        (TOTAL, "12,50 €", {"total": 12.5}),
        (TOTAL, "-$12.50", {"total": -12.5}),
        (TOTAL, "−12.50", {"total": -12.5}),
        (TOTAL, "about -3", {"total": -3}),
        (TOTAL, "£1,120.50", {"total": 1120.5}),
        (CODE, "def f(x):\n    return x\n\nf(2)", {"code": "def f(x):\n    return x\n\nf(2)"}),
        (CODE, "```python\nx = 1\ny = 2\n```", {"code": "x = 1\ny = 2"}),
        (CODE, "x = 1\ncode = 2", {"code": "x = 1\ncode = 2"}),
        (CODE, "code: x = 1\ny = 2", {"code": "x = 1\ny = 2"}),
        (CODE, "The moon:\nit shines\nbright", {"code": "The moon:\nit shines\nbright"}),
        (TAGS, "none", {"tags": []}),
        (TAGS, "tags: Washington, D.C.", {"tags": ["Washington, D.C."]}),
        (TAGS, '["red", "green"]', {"tags": ["red", "green"]}),
        (CHECK, "It is\non time\nno", {"summary": "It is\non time", "ok": False}),
        (LABEL, "Spam.", {"value": "spam"}),
        (LABEL, "This is spam, surely.", {"value": "spam"}),
        (BILL, "Ada\n£1,120.50\nnone", {"customer": "Ada", "total": 1120.5}),
        (BILL, "customer: Ada\ntotal: 12", {"customer": "Ada", "total": 12}),
        (BILL, "Ada\n12 EUR\npaid late", {"customer": "Ada", "total": 12, "note": "paid late"}),
    ],
)  # fmt: skip
def test_forms_of_models_are_read(judge: Tool, text: str, values: dict[str, Any]) -> None:
    assert read(judge, text) == values


@pytest.mark.parametrize(
    ("judge", "text"),
    [
        (PICK, "17"),
        (PICK, "two"),
        (PICK, "1 or 2, I cannot say which"),
        (PICK, "They are all good."),
        (PICK, '{"value": '),
        (JUDGE, "2"),
        (JUDGE, "It is vivid.\nbest: 2"),
        (PICK, "Not 1, but 3"),
        (PICK, "I don't like 2"),
        (PICK, "Poem 1 is dull, poem 2 is nice"),
        (PICK, "2 oppure 3"),
        (PICK, "1-2"),
        (PICK, "2,5"),
        (JUDGE, "I like all of them.\n2\nIt is vivid."),
        (JUDGE, "Best: 2, Reason: vivid"),
        (TOTAL, "1.120,50 euro"),
        (TOTAL, "1 234.50"),
        (TOTAL, "12.5%"),
        (TOTAL, "2 million"),
        (TOTAL, "12:30"),
        (TOTAL, "12.50-15.00"),
        (TOTAL, "2026-07-01"),
        (BOOL, "Not true"),
        (BOOL, "It depends on context"),
        (BOOL, "Step 1 failed"),
        (LABEL, "This is not spam"),
        (LABEL, "Non è spam"),
        (LABEL, "anti-spam"),
        (LABEL, "spam/ham"),
        (LABEL, "spam or ham"),
        (LABEL, '{"label": "spam"}'),
        (POEM, "an old pond\na frog leaps in"),
    ],
)
def test_what_has_not_the_values_is_refused(judge: Tool, text: str) -> None:
    try:
        parsed = FieldLines(tool=judge).read(text, (judge,))
    except UnreadableCallError:
        return
    assert not Draft202012Validator(judge.args).is_valid(parsed.call["arguments"])
    assert not validate_call(parsed.call, (judge,)).ok


@given(st.dates(min_value=dt.date(1900, 1, 1)), st.sampled_from(DATES), st.booleans())
def test_a_date_in_words_is_read(day: dt.date, form: str, is_labelled: bool) -> None:
    month = (ITALIAN_MONTHS if form.startswith("il") else calendar.month_name[1:])[day.month - 1]
    text = form.format(day=day, month=month)
    judge = tool({"due": {"type": "string", "format": "date"}, "total": {"type": "number"}})
    values = read(judge, f"due: {text}\ntotal: 17" if is_labelled else f"{text}\n17")
    assert values == {"due": str(day), "total": 17}


@pytest.mark.parametrize(
    "text",
    [
        "5 to 8 March 2026",
        "not 5 March 2026",
        "before 5 March 2026",
        "the day after 5 March 2026",
        "5 March 2026 or later",
        "unknown (letter of 5 March 2026)",
        "between March and 5 April 2026",
        "2026/02/03 or the day before",
        "5 March",
        "5/3/2026",
        "soon",
    ],
)
def test_what_is_not_one_date_is_no_date(text: str) -> None:
    day = tool({"due": {"type": "string", "format": "date"}})
    parsed = FieldLines(tool=day).read(text, (day,))
    assert parsed.call["arguments"] == {"due": text}
    assert not validate_call(parsed.call, (day,)).ok


def test_truncated_lines_are_refused() -> None:
    with pytest.raises(UnreadableCallError, match="limit"):
        FieldLines(tool=JUDGE).read("2\nIt is viv", (JUDGE,), truncated=True)


@pytest.mark.parametrize(
    ("properties", "fits"),
    [
        ({"a": {"type": "array", "items": {"type": "integer"}}, "b": {"type": "string"}}, True),
        ({"a": {"type": "array"}}, False),
        ({"a": {"type": "object"}}, False),
        ({"a": {"type": "array", "items": {"type": "object"}}}, False),
        ({name: {"type": "array", "items": {"type": "string"}} for name in "ab"}, False),
        ({"a": {"$ref": "#/$defs/size"}}, True),
        ({"a": True}, False),
        ({}, False),
    ],
)
def test_lines_are_for_scalars_and_one_list_of_them(properties: dict[str, Any], *, fits: bool) -> None:
    assert fits_lines(tool(properties, **{"$defs": {"size": {"enum": ["s", "m"]}}})) == fits
