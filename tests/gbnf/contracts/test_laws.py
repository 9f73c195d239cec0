"""Grammar and parser agree, with llama.cpp's engine as judge; no text raises."""

from __future__ import annotations

import random
import re
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from gbnf.contracts import (
    ChoiceField,
    Contract,
    Field,
    InvalidAnswer,
    LinesField,
    NumberField,
    ParsedAnswer,
    PickField,
    TextField,
    choice,
    lines,
    number,
    pick,
    text,
)
from support.oracle import engine
from support.random_texts import generate

fields: st.SearchStrategy[Field] = st.one_of(
    st.builds(pick, st.integers(1, 120)),
    st.builds(lambda limit: text(limit=limit), st.sampled_from([30, 40])),
    st.builds(
        lambda low, span: number(low, low + span, whole=True), st.integers(-30, 30), st.integers(0, 300)
    ),
    st.builds(
        lambda low, span, out_of_range: number(
            low / 4, (low + span) / 4, out_of_range=out_of_range, decimals=3
        ),
        st.integers(-30, 30),
        st.integers(0, 300),
        st.sampled_from(["refuse", "clamp"]),
    ),
    st.sampled_from(
        [
            choice(["yes", "no"]),
            choice(["red", "dark red", "Café"]),
            choice(["A", "B2", "in part"]),
            choice(["best: yes", "Mood: no"]),
        ]
    ),
    st.builds(lambda count: lines(count, limit=30), st.integers(1, 4)),
)
names = st.lists(
    st.sampled_from(["best", "reason", "haiku", "how_many", "mood"]), min_size=1, max_size=4, unique=True
)
contracts = names.flatmap(
    lambda chosen: st.tuples(*[fields for _ in chosen], st.booleans()).map(
        lambda drawn: Contract(
            **dict(zip(chosen, drawn[:-1], strict=True)),
            **({"rest": text(rest=True, limit=30)} if drawn[-1] else {}),
        )
    )
)

words = st.lists(
    st.text("abcdefghijklmnopqrstuvwxyzàéß日", min_size=1, max_size=6), min_size=1, max_size=4
).map(" ".join)
spoken_lines = words | st.sampled_from(
    [
        "Here is my answer:",
        "Things to buy:",
        "best",
        "Reason",
        "haiku:",
        "how many",
        "A.",
        "yes",
        "none:",
        "x: y",
    ]
)


def values_of(field: Field) -> st.SearchStrategy[Any]:
    match field:
        case PickField(low, high):
            return st.integers(low, high)
        case NumberField(minimum, maximum, _, True):
            return st.integers(int(minimum), int(maximum))
        case NumberField(minimum, maximum):
            return st.integers(int(minimum * 4), int(maximum * 4)).map(lambda quarters: quarters / 4)
        case ChoiceField(options):
            return st.sampled_from(options)
        case LinesField(count):
            return st.lists(spoken_lines, min_size=count, max_size=count)
        case TextField(True):
            return st.lists(spoken_lines, min_size=1, max_size=3).map("\n".join)
        case TextField():
            return spoken_lines


@given(contracts, st.integers(0, 10**6))
def test_every_text_of_the_grammar_is_taken_by_the_engine_and_parses_to_a_value(
    contract: Any, seed: Any
) -> None:
    said = generate(contract.grammar.rules, random.Random(seed), budget=150)
    assert engine().match(contract.grammar, said).complete
    for constrained in (False, True):
        outcome = contract.parse(said, constrained=constrained)
        assert isinstance(outcome, ParsedAnswer), outcome
        for name, field in contract.fields.items():
            assert_holds(field, outcome[name])


def assert_holds(field: Field, value: Any) -> None:
    match field:
        case PickField(low, high):
            assert low <= value <= high
        case NumberField(minimum, maximum, _, whole):
            assert minimum <= value <= maximum
            assert not whole or isinstance(value, int)
        case ChoiceField(options):
            assert value in options
        case LinesField(count):
            assert len(value) == count
            assert all(value)
        case TextField():
            assert value


@given(st.data(), contracts)
def test_values_are_written_read_and_in_the_grammar(data: Any, contract: Any) -> None:
    values = {name: data.draw(values_of(field)) for name, field in contract.fields.items()}
    said = contract.render(values)
    assert contract.parse(said, constrained=True) == ParsedAnswer(values, said)
    judgement = engine().match(contract.grammar, said[:60] if len(said) > 300 else said)
    assert judgement.accepted
    assert judgement.complete or len(said) > 300


SIGNS = st.sampled_from([*"ab_:<>/=- *`", "x: ", "<x>", "->", "</a>", "\n", "é"])


@given(st.lists(SIGNS, min_size=1, max_size=10).map("".join), st.booleans())
def test_a_text_is_written_where_the_grammar_has_it_and_then_parses(said: Any, rest: Any) -> None:
    contract = Contract(x=text(rest=rest, limit=8))
    try:
        written = contract.render({"x": said})
    except ValueError:
        assert not engine().match(contract.grammar, said).complete
        return
    assert written == said
    assert engine().match(contract.grammar, said).complete
    assert isinstance(contract.parse(said), ParsedAnswer)


@given(
    st.floats(-2, 2), st.floats(0, 1), st.integers(1, 8), st.floats(0, 1), st.sampled_from([1.0, 0.99999999])
)
def test_a_number_is_written_as_the_grammar_has_it(
    low: Any, span: Any, decimals: Any, part: Any, scale: Any
) -> None:
    field = number(round(low, 3), round(low, 3) + round(span, 3) * scale, decimals=decimals)
    value = min(field.minimum + part * (field.maximum - field.minimum), field.maximum)
    contract = Contract(x=field)
    try:
        said = contract.render({"x": value})
    except ValueError:
        assert float(f"{value:.{decimals}f}") not in (value, field.minimum, field.maximum)
        return
    assert abs(float(said) - value) <= 10**-decimals
    assert engine().match(contract.grammar, said).complete


PIECES = (
    "1",
    "2.",
    "3) ",
    "<best>",
    "<think>",
    "</think>",
    "```",
    "\n",
    "best:",
    "yes",
    "**no**",
    "- ",
    "4,5",
    "A:\n",
)
answers = st.text(st.characters(), max_size=80) | st.lists(st.sampled_from(PIECES), max_size=10).map("".join)


@given(contracts, answers, st.booleans())
def test_any_answer_is_a_valid_value_or_an_abstention(contract: Any, said: Any, truncated: Any) -> None:
    outcome = contract.parse(said, truncated=truncated)
    assert outcome.raw == said
    if isinstance(outcome, InvalidAnswer):
        assert outcome.reason
        assert outcome.field in contract.fields
        return
    for name, field in contract.fields.items():
        assert_holds(field, outcome[name])


@given(contracts)
def test_the_prompt_shows_placeholders_that_are_no_answer(contract: Any) -> None:
    prompt = contract.prompt()
    format_lines = prompt.split("\n\n", 1)[1].split("\n")
    assert all(re.match(r"<[^<>]+>", line) for line in format_lines)
    assert isinstance(contract.parse(re.sub(r" \(as many.*", "", "\n".join(format_lines))), InvalidAnswer)
