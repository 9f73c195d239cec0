"""Output contracts in lines: what is rendered, derived, and said by a model."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st

from fuzz_targets.common import SEEDS, Target, accepts
from gbnf.calls.parsing.tool_names import fold
from gbnf.contracts import (
    Contract,
    InvalidAnswer,
    LinesField,
    ParsedAnswer,
    TextField,
    choice,
    lines,
    number,
    pick,
    text,
)
from support.random_texts import generate

_WORDS_SAID = st.text("abcdefghijklmnopqrstuvwxyzàéß日 ,.:-1<>/=*_`", min_size=1, max_size=12)
_OPTIONS = (
    st.sampled_from(["yes", "no", "A", "B2", "dark red", "Café", "in part", "best: yes", "1", "2 a"])
    | _WORDS_SAID
)
_LINE_FIELDS = st.one_of(
    st.tuples(st.just("pick"), st.integers(1, 120)),
    st.tuples(st.just("text"), st.sampled_from([1, 8, 30, 400])),
    st.tuples(st.just("whole"), st.integers(-40, 40), st.integers(0, 300)),
    st.tuples(st.just("number"), st.integers(-40, 40), st.integers(0, 300), st.integers(1, 12)),
    st.tuples(st.just("choice"), st.lists(_OPTIONS, min_size=1, max_size=3)),
    st.tuples(st.just("lines"), st.integers(1, 4)),
    st.tuples(st.just("rest"), st.sampled_from([8, 30])),
)
_LABELS = ["best", "reason", "haiku", "how_many", "mood", "x", "_", "a1"]
_SIGNS = [
    "1", "2.", "3) ", "<best>", "<think>", "</think>", "```", "\n", "best:", "yes", "**no**", "- ", "4,5",
    "A:\n", "reason:", "\r", "\u2028", "−1", "1e5", "1,000.5", "> ", "\t", "\0", "<x>", "->", "None",
    "Sure:\n",
]  # fmt: skip


@st.composite
def _line_cases(draw: st.DrawFn) -> dict[str, Any]:
    labels = draw(st.lists(st.sampled_from(_LABELS), min_size=1, max_size=4, unique=True))
    fields = {label: list(draw(_LINE_FIELDS)) for label in labels}
    values = {label: draw(_value_of(field)) for label, field in fields.items()}
    answer = draw(st.text(max_size=40) | st.lists(st.sampled_from(_SIGNS), max_size=10).map("".join))
    return {"fields": fields, "values": values, "answer": answer, "seed": draw(SEEDS)}


def _value_of(field: list[Any]) -> st.SearchStrategy[Any]:
    match field:
        case ["pick", most]:
            return st.integers(1, most)
        case ["whole", low, span]:
            return st.integers(low, low + span)
        case ["number", low, span, _]:
            return st.integers(low * 2, (low + span) * 2).map(lambda halves: halves / 2)
        case ["choice", options]:
            return st.sampled_from(options)
        case ["lines", count]:
            return st.lists(_WORDS_SAID, min_size=count, max_size=count)
        case ["rest", _]:
            return st.lists(_WORDS_SAID, min_size=1, max_size=3).map("\n".join)
        case _:
            return _WORDS_SAID


def _field(field: list[Any]) -> Any:
    match field:
        case ["pick", most]:
            return pick(most)
        case ["whole", low, span]:
            return number(low, low + span, whole=True)
        case ["number", low, span, decimals]:
            return number(low, low + span, decimals=decimals)
        case ["choice", options]:
            return choice(options)
        case ["lines", count]:
            return lines(count, limit=30)
        case ["rest", limit]:
            return text(rest=True, limit=limit)
        case [_, limit]:
            return text(limit=limit)


def check_lines(case: Mapping[str, Any]) -> str:
    """What is rendered is in the grammar and is read back; what is derived is read; no text raises."""
    try:
        contract = Contract(**{label: _field(field) for label, field in case["fields"].items()})
    except ValueError:
        return "no contract"
    grammar = contract.grammar
    contract.prompt("it")
    derived = generate(contract.grammar.rules, random.Random(case["seed"]), budget=100)
    assert accepts(grammar, derived), f"the engine refuses the derived {derived!r}"
    for constrained in (False, True):
        outcome = contract.parse(derived, constrained=constrained)
        assert isinstance(outcome, ParsedAnswer), f"derived {derived!r}, held={constrained}: {outcome}"
        _assert_within(contract, outcome)
    for truncated in (False, True):
        outcome = contract.parse(case["answer"], truncated=truncated)
        assert outcome.raw == case["answer"], "the raw text is changed"
        if isinstance(outcome, InvalidAnswer):
            assert outcome.reason, "an abstention without a reason"
        else:
            _assert_within(contract, outcome)
    try:
        said = contract.render(case["values"])
    except ValueError:
        return "not rendered"
    assert accepts(grammar, said), f"the engine refuses the rendered {said!r}"
    outcome = contract.parse(said, constrained=True)
    assert isinstance(outcome, ParsedAnswer), f"rendered {said!r}: {outcome}"
    if any(_labelled(label, value) for label, value in case["values"].items()):
        return "labelled"  # readers leave a field's own label out, and what it hid may be no line
    for label, value in case["values"].items():
        same = _bare(outcome[label]) == _bare(value)
        assert same, f"rendered {said!r}, {label} is read as {outcome[label]!r}"
    again = contract.parse(contract.render(outcome.values), constrained=True)
    assert isinstance(again, ParsedAnswer), f"{outcome.values} is written and read as {again}"
    assert again.values == outcome.values, f"{outcome.values} is written and read as {again.values}"
    return "rendered"


def _labelled(label: str, value: Any) -> bool:
    """Whether a text begins with its field's label."""
    return isinstance(value, str) and ":" in value and fold(value.partition(":")[0]) == fold(label)


def _bare(value: Any) -> Any:
    """A value without the spaces and signs around its lines, which readers leave out."""
    match value:
        case str():
            return [line.strip(" \t*_`>-") for line in value.split("\n")]
        case list():
            return [_bare(line) for line in value]
        case _:
            return value


def _assert_within(contract: Contract, outcome: ParsedAnswer) -> None:
    for name, field in contract.fields.items():
        value = outcome[name]
        match field:
            case LinesField(count):
                assert len(value) == count, f"{name}: {value!r}"
            case TextField():
                assert value, f"{name} is empty"
            case _ if hasattr(field, "options"):
                assert value in field.options, f"{name}: {value!r}"
            case _:
                low, high = getattr(field, "low", None), getattr(field, "high", None)
                low = field.minimum if low is None else low  # type: ignore[union-attr]  # a Number then
                high = field.maximum if high is None else high  # type: ignore[union-attr]  # as above
                assert low <= value <= high, f"{name}: {value!r}"


LINES = Target("lines", _line_cases(), check_lines)
