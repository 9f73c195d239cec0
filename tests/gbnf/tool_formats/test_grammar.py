"""The grammar of an answer in each family of formats, judged by llama.cpp's engine and jsonschema."""

from __future__ import annotations

import random
from dataclasses import replace
from typing import Any

import jsonschema
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gbnf.errors import GrammarError, PoolError, SchemaError
from gbnf.tool_formats import JsonArguments, Placeholder
from gbnf.tools import Tool
from support.effort import scaled
from support.oracle import accepts as complete
from support.oracle import engine
from support.random_texts import generate
from support.tool_formats import BARE, FAMILIES, HARMONY, IDS, KIMI, MISTRAL, SIGNS, TAGS, Family

WEATHER: dict[str, Any] = {
    "type": "object",
    "properties": {"city": {"enum": ["Paris", 'São "Paulo"']}, "days": {"type": "integer", "maximum": 5}},
    "required": ["city"],
    "additionalProperties": False,
}
NOTE: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "maxLength": 30},
        "tags": {"type": "array", "items": {"type": "string", "pattern": "^[a-z]+$"}, "maxItems": 3},
        "meta": {
            "type": "object",
            "properties": {"done": {"type": "boolean"}},
            "additionalProperties": False,
        },
    },
    "required": ["text"],
    "additionalProperties": False,
}
SCHEMAS: dict[str, Any] = {"get_weather": WEATHER, "get_weather_note": NOTE, "note": NOTE}
STRINGS = ("city", "text")
TOOLS = tuple(Tool(name, args=schema) for name, schema in SCHEMAS.items())
NAMES = sorted(SCHEMAS)

strings = st.lists(
    st.sampled_from(SIGNS) | st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8
)
texts = strings.map("".join).filter(lambda text: len(text) <= 30)
_notes = st.fixed_dictionaries(
    {"text": texts},
    optional={
        "tags": st.lists(st.text("abc", min_size=1, max_size=4), max_size=3),
        "meta": st.fixed_dictionaries({}, optional={"done": st.booleans()}),
    },
)
ARGUMENTS = {
    "get_weather": st.fixed_dictionaries(
        {"city": st.sampled_from(WEATHER["properties"]["city"]["enum"])},
        optional={"days": st.integers(-99, 5)},
    ),
    "get_weather_note": _notes,
    "note": _notes,
}


def _in_any_order(arguments: Any) -> st.SearchStrategy[Any]:
    return st.permutations(list(arguments.items())).map(dict)


calls = st.sampled_from(NAMES).flatmap(
    lambda name: st.tuples(st.just(name), ARGUMENTS[name].flatmap(_in_any_order))
)
families = st.sampled_from(FAMILIES)
SEEDS = st.integers(0, 2**32)


def fits(name: str, arguments: Any) -> bool:
    return name in SCHEMAS and jsonschema.Draft202012Validator(SCHEMAS[name]).is_valid(arguments)


@pytest.mark.slow
@settings(max_examples=scaled(60))
@given(families, st.lists(calls, min_size=1, max_size=6))
def test_every_list_of_valid_calls_is_accepted(family: Family, made: Any) -> None:
    made = made if family.has_parallel_calls else made[:1]
    text = family.write(made)
    parallel = family.form.grammar(TOOLS, tool_choice="required", parallel=True)
    assert complete(parallel, text)
    assert complete(family.form.grammar(TOOLS, parallel=True), text)
    assert complete(family.form.grammar(TOOLS), text) == (len(made) == 1)
    assert complete(family.form.grammar(TOOLS, tool_choice="required"), text) == (len(made) == 1)
    assert not complete(family.form.grammar(TOOLS, tool_choice="none"), text)
    for name in NAMES:
        expected = len(made) == 1 and made[0][0] == name
        assert complete(family.form.grammar(TOOLS, tool_choice=name, parallel=True), text) == expected


@pytest.mark.slow
@given(families, SEEDS, st.booleans(), st.sampled_from(["auto", "required", "none", *NAMES]))
def test_the_calls_of_a_derivation_are_valid(family: Family, seed: int, parallel: bool, choice: str) -> None:
    grammar = family.form.grammar(TOOLS, tool_choice=choice, parallel=parallel)
    text = generate(grammar.rules, random.Random(seed))
    assert complete(grammar, text)
    before, made = family.split(text, STRINGS)
    assert all(fits(name, arguments) for name, arguments in made)
    match choice:
        case "none":
            assert not made
            assert before.strip()
        case "auto":
            assert made or before.strip()
        case "required":
            assert made
            assert not before.strip()
        case name:
            assert [called for called, _ in made] == [name]
    assert parallel or len(made) <= 1


@settings(max_examples=scaled(50))
@given(families, SEEDS)
def test_every_prefix_of_an_answer_is_live(family: Family, seed: int) -> None:
    grammar = family.form.grammar(TOOLS, parallel=True)
    text = generate(grammar.rules, random.Random(seed), budget=80)
    prefixes = [text[:end] for end in range(len(text))]
    assert all(match.accepted for match in engine().match_many(grammar, prefixes))


@settings(max_examples=scaled(50))
@given(families, calls, calls, st.sampled_from(["auto", "required"]))
def test_other_arguments_are_refused(family: Family, call: Any, other: Any, choice: str) -> None:
    grammar = family.form.grammar(TOOLS, tool_choice=choice)
    name, arguments = call
    spoilt = [
        (name, arguments | {"extra": 1}),
        (name, {}),
        ("unknown", arguments),
        (name + "x", arguments),
        (name[:-1], arguments),
    ]
    if isinstance(family.form.arguments, JsonArguments):
        spoilt += [(name, dict.fromkeys(arguments)), (name, [arguments])]
    if other[1].keys() != arguments.keys():
        spoilt.append((name, other[1]))
    if "text" in arguments:
        spoilt += [(name, {"text": "x" * 31}), (name, {"text": "", "tags": ["A"]})]
    for made in spoilt:
        if not fits(*made):
            assert not complete(grammar, family.write([made])), made


@settings(max_examples=scaled(40))
@given(families, calls)
def test_truncated_and_continued_calls_are_refused(family: Family, call: Any) -> None:
    grammar = family.form.grammar(TOOLS, tool_choice="required", parallel=True)
    text = family.write([call])
    stripped = text.lstrip()  # whitespace before it is optional
    assert not any(
        match.complete for match in engine().match_many(grammar, [text[:at] for at in range(len(text))])
    )
    assert complete(grammar, "\n\n" + stripped)
    assert not complete(grammar, "\n\n\n\n" + stripped)
    assert not complete(grammar, text + " and")
    assert not complete(grammar, "Sure: " + text)


#: Texts that nearly are markers.
NEAR = (
    "<tool_", "<<tool_call", "<tool_call", "tool_call>", "[TOOL_CALL", "[[TOOL_CALLS", "<|tool_calls_section",
    "to=function", "<|START_ACTIO", '{"name"', "<｜tool▁calls▁begin", ">>", "<cal", "<tool_calls>", "<think",
    "[", "<", "{", "Hello", " ", "\n", "é", "<|", "<|im_end",
)  # fmt: skip
near_texts = st.lists(st.sampled_from(NEAR), min_size=1, max_size=6).map("".join)


def reserved(family: Family) -> list[str]:
    """The texts that no answer's text contains."""
    form = family.form
    tags = (form.reasoning.begin, form.reasoning.end) if form.reasoning else ()
    around = (form.text.end, form.text.before_calls or "")
    others = ("<|channel|>commentary",) if family is HARMONY else ()
    found = [text.strip() for text in (form.marker, *tags, *form.end_of_turn, *around, *others)]
    return [text for text in found if text]


def framed(family: Family, text: str) -> str:
    return family.form.text.begin + text + family.form.text.end


@pytest.mark.slow
@given(families, near_texts | texts)
def test_text_is_any_without_the_marker(family: Family, text: str) -> None:
    expected = bool(text.strip(" \t\r\n")) and not any(mark in text for mark in reserved(family))
    for choice in ("none", "auto"):
        assert complete(family.form.grammar(TOOLS, tool_choice=choice), framed(family, text)) == expected
    assert not complete(family.form.grammar(TOOLS, tool_choice="required"), framed(family, text))


@settings(max_examples=scaled(50))
@given(families, near_texts.filter(str.strip), calls, st.sampled_from(["", "\n", "\n\n", "   "]))
def test_text_may_come_before_calls(family: Family, text: str, call: Any, between: str) -> None:
    grammar, form = family.form.grammar(TOOLS), family.form
    before, written = form.text.before_calls, family.write([call])
    said = form.text.begin + text + between
    whole = said + (before or "") + (written if (before or "").strip() else written.lstrip())
    assume(not any(mark in text for mark in reserved(family)))
    assume(form.marker not in whole[: whole.index(form.marker, len(said)) + len(form.marker) - 1])
    match = engine().match(grammar, whole)
    assert match.complete == (before is not None)
    if match.complete:
        assert [name for name, _ in family.split(whole, STRINGS)[1]] == [call[0]]


@settings(max_examples=scaled(50))
@given(families, st.sampled_from(["", "why <tool_call> not?", "\n[TOOL_CALLS]x", "a </think"]), calls)
def test_reasoning_comes_first(family: Family, thought: str, call: Any) -> None:
    form, reasoning = family.form, family.form.reasoning
    direct, answer = framed(family, "Hello"), family.write([call])
    for choice in ("auto", "required"):
        grammar = form.grammar(TOOLS, tool_choice=choice, reasoning=True)
        if reasoning is None:
            assert str(grammar) == str(form.grammar(TOOLS, tool_choice=choice))
            continue
        is_open = reasoning.prompt == "open"
        inside = (thought if is_open else reasoning.begin + thought) + reasoning.end
        assert complete(grammar, inside + answer)
        assert complete(grammar, inside + direct) == (choice == "auto")
        assert complete(grammar, answer) != is_open
        assert complete(grammar, direct) == (choice == "auto" and not is_open)
        assert not complete(grammar, inside)
        assert not complete(grammar, inside + inside + answer)
        assert not complete(form.grammar(TOOLS, tool_choice=choice), inside + answer)


@given(families)
def test_a_final_answer_is_a_call(family: Family) -> None:
    text = family.write([("final_answer", {"message": "Done."})])
    assert complete(family.form.grammar(TOOLS, tool_choice="required", final_answer=True), text)
    assert complete(family.form.grammar((), tool_choice="final_answer", final_answer=True), text)
    assert not complete(family.form.grammar(TOOLS, tool_choice="required"), text)


@pytest.mark.parametrize("family", FAMILIES, ids=repr)
def test_steps_are_offered(family: Family) -> None:
    properties = {"from": {"type": "integer", "fills": "path"}}
    tool = Tool("open_file", args={"type": "object", "properties": properties, "required": ["from"]})
    grammar = family.form.grammar([tool], steps=(2, 13), tool_choice="required")
    assert complete(grammar, family.write([("open_file", {"from": 13})]))
    assert not complete(grammar, family.write([("open_file", {"from": 1})]))
    with pytest.raises(PoolError, match="earlier step"):
        family.form.grammar([tool])


def test_calls_are_numbered_in_sequence() -> None:
    grammar = KIMI.form.grammar(TOOLS, parallel=True)
    one = ("get_weather", {"city": "Paris"})
    text = KIMI.write([one] * 12)
    assert complete(grammar, text)
    assert not complete(grammar, text.replace(":1<", ":2<"))
    assert not complete(grammar, text.replace(":0<", ":1<"))
    assert not complete(KIMI.form.grammar(TOOLS), KIMI.write([one]).replace(":0<", ":7<"))
    counted_from_one = replace(
        KIMI.form,
        head=tuple(
            Placeholder("index", 1) if isinstance(part, Placeholder) and part.kind == "index" else part
            for part in KIMI.form.head
        ),
    )
    assert complete(counted_from_one.grammar(TOOLS), KIMI.write([one]).replace(":0<", ":1<"))


@pytest.mark.parametrize("id_", ["short", "much_too_long", 'a"bcdefgh', "abcdefgh]"])
def test_ids_have_the_pattern(id_: str) -> None:
    text = IDS.write([("get_weather", {"city": "Paris"})])
    assert complete(IDS.form.grammar(TOOLS), text)
    assert not complete(IDS.form.grammar(TOOLS), text.replace("call00000", id_))


def test_other_heads_are_read() -> None:
    text = '<|channel|>commentary to=functions.note <|constrain|>json<|message|>{"text": "x"}'
    for choice in ("auto", "required", "note"):
        assert complete(HARMONY.form.grammar(TOOLS, tool_choice=choice), text)
    assert not complete(HARMONY.form.grammar(TOOLS, tool_choice="get_weather"), text)
    after = "<|channel|>final<|message|>Hi<|end|><|start|>assistant" + text
    assert complete(HARMONY.form.grammar(TOOLS), after)


def test_names_that_cannot_be_read_back_are_left_out() -> None:
    odd = Tool("a[ARGS]b", args=NOTE)
    grammar = MISTRAL.form.grammar([*TOOLS, odd])
    assert [finding.tool for finding in grammar.report if finding.kind == "left_out"] == [odd.name]
    assert not complete(grammar, MISTRAL.write([(odd.name, {"text": ""})]))
    assert complete(TAGS.form.grammar([odd]), TAGS.write([(odd.name, {"text": ""})]))
    quoted = Tool('say "hi"', args=NOTE)
    assert complete(TAGS.form.grammar([quoted]), TAGS.write([(quoted.name, {"text": ""})]))
    for strict, tools in ((True, [*TOOLS, odd]), (False, [odd])):
        with pytest.raises(PoolError, match="rename"):
            MISTRAL.form.grammar(tools, strict=strict)


def test_a_tool_that_cannot_be_compiled_is_left_out() -> None:
    impossible = Tool("never", args={"type": "object", "properties": {"x": False}, "required": ["x"]})
    grammar = TAGS.form.grammar([*TOOLS, impossible])
    assert ("never", "left_out") in {(finding.tool, finding.kind) for finding in grammar.report}
    assert grammar.exact
    for arguments in ({"strict": True}, {"tool_choice": "never"}):
        with pytest.raises(SchemaError):
            TAGS.form.grammar([*TOOLS, impossible], **arguments)


def test_errors_name_what_is_wrong() -> None:
    with pytest.raises(PoolError, match="'other' is none of the tools: get_weather, get_weather_note, note"):
        TAGS.form.grammar(TOOLS, tool_choice="other")
    with pytest.raises(PoolError, match="the pool is empty"):
        TAGS.form.grammar(())
    assert complete(TAGS.form.grammar((), tool_choice="none"), "Hello")
    with pytest.raises(PoolError, match="the name 'note'"):
        TAGS.form.grammar([*TOOLS, TOOLS[2]])
    unmarked = replace(BARE.form, head=(Placeholder("name"), "("), tail=(")",), marker="")
    with pytest.raises(GrammarError, match="text could be told from calls"):
        unmarked.grammar(TOOLS)
    assert complete(unmarked.grammar(TOOLS, tool_choice="required"), 'note({"text": ""})')


def test_names_of_rules_do_not_collide() -> None:
    tools = [
        Tool(name, args={"type": "object", "properties": {"id": NOTE, "rest": NOTE, "2": NOTE}})
        for name in ("call", "calls", "text", "text_rest", "call_id", "root")
    ]
    for family in FAMILIES:
        grammar = family.form.grammar(tools, parallel=True)
        for tool in tools:
            assert complete(grammar, family.write([(tool.name, {"id": {"text": "x"}})]))


def test_the_same_grammar_is_compiled_once() -> None:
    assert TAGS.form.grammar(list(TOOLS)) is TAGS.form.grammar(TOOLS)
    assert str(TAGS.form.grammar(TOOLS)) != str(TAGS.form.grammar(TOOLS[::-1]))


def test_a_marker_that_overlaps_itself_is_found_once() -> None:
    form = replace(MISTRAL.form, head=("aXa", Placeholder("name"), "[ARGS]"), marker="aXa")
    grammar = form.grammar(TOOLS)
    call = 'aXanote[ARGS]{"text": ""}'
    assert complete(grammar, "b" + call)
    assert not complete(grammar, "aX" + call)  # the first marker would begin at the first character
    assert complete(grammar, "aX")


@pytest.mark.parametrize("name", ["auto", "required", "none"])
def test_a_tool_may_not_be_named_as_the_choice(name: str) -> None:
    tools = [*TOOLS, Tool(name, args=NOTE)]
    with pytest.raises(PoolError, match="rename the tool"):
        TAGS.form.grammar(tools, tool_choice=name)
    for choice in {"auto", "required", "none"} - {name}:
        TAGS.form.grammar(tools, tool_choice=choice)
