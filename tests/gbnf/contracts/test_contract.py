"""Answers as small models give them, and the prompt that asks for them."""

from __future__ import annotations

from typing import Any

import pytest

from gbnf.contracts import Contract, Field, InvalidAnswer, ParsedAnswer, choice, lines, number, pick, text
from support.oracle import engine

JUDGE = Contract(best=pick(3), reason=text())
TITLED = Contract(title=text(), body=text(rest=True))
RATED = Contract(title=text(), rating=number(0, 10), body=text(rest=True))
SURE = Contract(yes=choice(["yes", "no"]), why=text(rest=True))


def said(contract: Contract, answer: str) -> Any:
    outcome = contract.parse(answer)
    return dict(outcome.values) if isinstance(outcome, ParsedAnswer) else outcome.field


@pytest.mark.parametrize(
    "line",
    ["1", "1.", "1)", " 1 ", "1:", "1 - my pick", "1 – my pick", "1. the first", "#1", "Option 1", "Best: 1",
     "**1**", "- 1", "best: **1**", "Answer: 1", "1 -", "> 1", "`1`"],
)  # fmt: skip
def test_picks(line: str) -> None:
    assert said(Contract(best=pick(3)), line) == {"best": 1}


@pytest.mark.parametrize(
    "line", ["0", "4", "one", "1 or 2", "1, 2", "12", "-1", "", "the first", "1st", "1/3", "1.5"]
)
def test_no_picks(line: str) -> None:
    outcome = Contract(best=pick(3)).parse(line)
    assert isinstance(outcome, InvalidAnswer)
    assert (outcome.raw, outcome.field) == (line, "best")


@pytest.mark.parametrize(
    ("field", "line", "value"),
    [
        (number(0, 10), "4,5", 4.5),
        (number(0, 5000), "1,000", 1000),
        (number(0, 10), "about 4 km.", 4),
        (number(-5, 5), "\u22123", -3),
        (number(-5, 5), "\u2212 3", -3),
        (number(-5, 5), "about \u20133.5", -3.5),
        (number(-5, 5), "so \u2013 3", 3),
        (number(0, 10, whole=True), "4.0", 4),
        (number(0, 10, out_of_range="clamp"), "11", 10),
        (number(0, 10, out_of_range="clamp"), "-1", 0),
        (choice(["yes", "no"]), "Yes.", "yes"),
        (choice(["yes", "no"]), "no - it is too late", "no"),
        (choice(["dark red", "red"]), "Dark-Red", "dark red"),
        (text(), "a < b, they say", "a < b, they say"),
        (text(), "x: a tag", "a tag"),
        (text(), "__init__.py", "__init__.py"),
        (text(), "_it rhymes_", "it rhymes"),
        (text(), "__X:__ it rhymes", "it rhymes"),
        (text(), "__it rhymes__ well", "it rhymes well"),
        (choice(["x: y", "z"]), "x: y", "x: y"),
        (choice(["x: y", "z"]), "x: z", "z"),
        (text(rest=True), "one\n\ntwo\n", "one\n\ntwo"),
        (lines(2), "1. an old pond\n2. a frog", ["an old pond", "a frog"]),
        (lines(2), "- an old pond\n\n- a frog", ["an old pond", "a frog"]),
        (lines(2), "Here it is:\nan old pond\na frog", ["an old pond", "a frog"]),
        (lines(1), "1. an old pond", ["1. an old pond"]),
    ],
)
def test_values(field: Field, line: str, value: Any) -> None:
    assert said(Contract(x=field), line) == {"x": value}


@pytest.mark.parametrize(
    ("field", "line"),
    [
        (number(0, 10), "11"),
        (number(0, 10), "4 or 5"),
        (number(0, 10), "4\u20135"),
        (number(0, 10), "\u22124"),
        (text(), "x: <x>"),
        (number(0, 10), "1.2.3"),
        (number(0, 10, whole=True), "4.5"),
        (choice(["yes", "no"]), "yes and no"),
        (text(), ""),
        (text(), "<x>"),
        (text(rest=True), "  \n "),
        (lines(3), "one\ntwo"),
        (lines(2), "<x 1>\n<x 2>"),
    ],
)
def test_abstentions(field: Field, line: str) -> None:
    outcome = Contract(x=field).parse(line)
    assert isinstance(outcome, InvalidAnswer)
    assert outcome.reason.startswith("x: ")
    assert outcome.raw == line


@pytest.mark.parametrize(
    ("answer", "notes"),
    [
        ("2\nIt rhymes.", 0),
        ("<think>1 or 2?\n1\n</think>\n2\nIt rhymes.", 1),
        ("```\n2\nIt rhymes.\n```", 1),
        ("Sure! Here is my answer:\n\n2\nIt rhymes.", 1),
        ("Best: 2\n\nReason: It rhymes.", 0),
        ("2\nReason:\nIt rhymes.", 0),
        ("2 - the second\nIt rhymes.\nLet me know!", 2),
    ],
)
def test_text_around_an_answer_is_ignored_and_listed(answer: str, notes: int) -> None:
    outcome = JUDGE.parse(answer)
    assert isinstance(outcome, ParsedAnswer)
    assert dict(outcome.values) == {"best": 2, "reason": "It rhymes."}
    assert len(outcome.notes) == notes


@pytest.mark.parametrize(
    ("contract", "answer", "values"),
    [
        (TITLED, "Things to buy:\nmilk\neggs", {"title": "Things to buy:", "body": "milk\neggs"}),
        (TITLED, "title: Here it is:\nbody: milk\neggs", {"title": "Here it is:", "body": "milk\neggs"}),
        (TITLED, "Here is the list:\nTo buy\nmilk", {"title": "To buy", "body": "milk"}),
        (TITLED, "Ecco la lista:\nDa comprare\nlatte", {"title": "Da comprare", "body": "latte"}),
        (TITLED, "Title:\nTo buy\nmilk", {"title": "To buy", "body": "milk"}),
        (SURE, "yes\nno\nmaybe", {"yes": "yes", "why": "no\nmaybe"}),
        (SURE, "Yes:\nno\nmaybe", {"yes": "no", "why": "maybe"}),
        (RATED, "title: Things to buy:\n5\nmilk", {"title": "Things to buy:", "rating": 5, "body": "milk"}),
        (RATED, "Title\n5\nmilk\neggs", {"title": "Title", "rating": 5, "body": "milk\neggs"}),
        (
            Contract(answer=text(rest=True)),
            "Here is what I found:\na.md",
            {"answer": "Here is what I found:\na.md"},
        ),
    ],
)
def test_what_may_be_a_field_is_kept(contract: Contract, answer: str, values: dict[str, Any]) -> None:
    outcome = contract.parse(answer)
    assert isinstance(outcome, ParsedAnswer)
    assert dict(outcome.values) == values


def test_nothing_is_dropped_from_a_constrained_answer() -> None:
    for said in ("Here is the list:\nTo buy\nmilk", "Title:\nTo buy\nmilk"):
        outcome = TITLED.parse(said, constrained=True)
        assert isinstance(outcome, ParsedAnswer)
        assert outcome["title"] == said.split("\n")[0]


def test_a_truncated_answer_loses_its_last_line() -> None:
    assert isinstance(JUDGE.parse("2\nIt rhy", truncated=True), InvalidAnswer)
    assert isinstance(JUDGE.parse("2\nIt rhymes.\nMore", truncated=True), ParsedAnswer)
    assert isinstance(
        Contract(best=pick(30)).parse("1", truncated=True), InvalidAnswer
    )  # it may be the 1 of 12


def test_the_prompt() -> None:
    contract = Contract(best=pick(3), mood=choice(["glad", "sad"]), haiku=lines(2), how_far=number(0, 9.5))
    assert contract.prompt() == (
        "Answer with exactly 5 lines, in this order and nothing else. "
        "Put your own words in place of each <…>:\n\n"
        "<best: a number from 1 to 3>\n"
        "<mood: one of glad, sad>\n"
        "<haiku 1>\n"
        "<haiku 2>\n"
        "<how far: a number from 0 to 9.5>"
    )
    assert "una riga" in Contract(best=text()).prompt("it")
    assert "at least 2 lines" in Contract(best=pick(2), why=text(rest=True)).prompt()


@pytest.mark.parametrize(
    "make",
    [
        lambda: pick(0),
        lambda: pick(3, 2),
        lambda: number(2, 1),
        lambda: number(0.5, 2, whole=True),
        lambda: number(0, 1, decimals=0),
        lambda: choice([]),
        lambda: choice(["a", "A"]),
        lambda: choice(["a\nb"]),
        lambda: lines(0),
        lambda: text(limit=0),
        Contract,
        lambda: Contract(a=text(rest=True), b=text()),
    ],
)
def test_contracts_that_ask_for_nothing_are_errors(make: Any) -> None:
    with pytest.raises(ValueError):
        make()


@pytest.mark.parametrize(
    ("field", "value"),
    [
        (pick(3), 4),
        (number(0, 0.99999999), 0.9999999),
        (number(0, 1), 2),
        (number(0, 1), float("nan")),
        (number(0, 3, whole=True), 1.5),
        (choice(["yes", "no"]), "maybe"),
        (text(), "- a list"),
        (text(), "x: <x>"),
        (text(), "two\nlines"),
        (text(limit=3), "four"),
        (text(rest=True), "a\n# b"),
        (text(rest=True), "a\n" * 50),
        (lines(2), ["one"]),
    ],
)
def test_what_the_grammar_can_not_spell_is_not_written(field: Field, value: Any) -> None:
    with pytest.raises(ValueError, match="cannot be rendered: it must be"):
        Contract(x=field).render({"x": value})


@pytest.mark.parametrize("line", ["1< ", "1<", "a < b <  ", "1 =>  "])
def test_a_line_that_was_read_is_written_again(line: str) -> None:
    contract = Contract(best=text(limit=8))
    read = contract.parse(contract.render({"best": line}), constrained=True)
    assert isinstance(read, ParsedAnswer)
    again = contract.render(read.values)
    assert engine().match(contract.grammar, again).complete
    assert contract.parse(again, constrained=True) == ParsedAnswer(read.values, again)
