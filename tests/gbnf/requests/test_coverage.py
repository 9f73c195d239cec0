"""Further calls of a request that lists values, and what of it calls have."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.calls.validation import validate_call
from gbnf.requests.coverage import has_values_for_another, takes_more, uncovered_values, with_values_left
from gbnf.tools import Tool


def tool(*required: str, **properties: Any) -> Tool:
    args = {"type": "object", "properties": properties, "required": list(required)}
    return Tool.from_mapping({"name": "t", "description": "A tool.", "args": args})


BOOLEAN = {"type": "boolean"}
PLAY = tool("artist", artist={"type": "string"}, minutes={"type": "integer"}, loud=BOOLEAN)
VALUE = tool(
    "pay", "rate", "years", pay={"type": "integer"}, rate={"type": "number"}, years={"type": "integer"}
)
METAL = tool("metal", metal={"type": "string", "enum": ["gold", "silver", "iron"]}, at={"type": "string"})
TAX = tool(city={"type": "string"}, state={"type": "string"}, amount={"type": "number"})
PROTEIN = tool(protein={"type": "string"})
HEMOGLOBIN = "the sequence of human HbA1c, normal hemoglobin, and rat hemoglobin and their models"
SONGS = "songs of Taylor Swift and Maroon 5, for 20 minutes and 15 minutes"


@pytest.mark.parametrize(
    ("one", "request_", "done", "left"),
    [
        (PLAY, SONGS, [{"artist": "Taylor Swift", "minutes": 20}], {"artist": ["Maroon 5"], "minutes": [15]}),
        (PLAY, SONGS, [{"artist": "Taylor Swift"}], {"artist": ["Maroon 5"]}),
        (
            PLAY,
            SONGS,
            [{"artist": "Taylor Swift", "minutes": 20}, {"artist": "Maroon 5", "minutes": 15}],
            None,
        ),
        (PLAY, SONGS, [], None),
        (PLAY, SONGS, [{"artist": "Abba", "minutes": 3}], None),
        (
            VALUE,
            "1000 a year at 5 for 10, 20 and 30 years",
            [{"pay": 1000, "rate": 5, "years": 10}],
            {"years": [20, 30]},
        ),
        (
            VALUE,
            "1000 at 5 for 10 years, then 20 years",
            [{"pay": 1000, "rate": 5, "years": 10}],
            {"years": [20]},
        ),
        (VALUE, "1000 at 5 for 10 years, with 7 fees", [{"pay": 1000, "rate": 5, "years": 10}], None),
        (VALUE, "a pay of $10 for 2 years, then $20", [{"pay": 10, "years": 2}], {"pay": [20]}),
        (
            tool(a={"type": "integer"}, b={"type": "integer"}),
            "sides of 3 and 4, 5 and 12",
            [{"b": 4, "a": 3}],
            {"a": [5], "b": [12]},
        ),
        (PLAY, "songs in Berlin and Madrid's clubs", [{"artist": "Berlin"}], {"artist": ["Madrid"]}),
        (METAL, "the price of gold, silver and iron", [{"metal": "gold"}], {"metal": ["silver", "iron"]}),
        (METAL, "the price of gold and tell me why", [{"metal": "gold"}], None),
        (METAL, "the price of gold and tin", [{"metal": "gold"}], None),  # which it does not know
        (METAL, "gold in Rome and Oslo", [{"metal": "gold", "at": "Rome"}], {"at": ["Oslo"]}),
        (
            PROTEIN,
            HEMOGLOBIN,
            [{"protein": "HbA1c"}],
            {"protein": ["normal hemoglobin", "rat hemoglobin"]},
        ),
        (PROTEIN, HEMOGLOBIN, [{"protein": "normal hemoglobin"}], {"protein": ["HbA1c", "rat hemoglobin"]}),
        (PROTEIN, HEMOGLOBIN, [{"protein": "hemoglobin"}], None),
        (PROTEIN, "food near home, Rome, offering vegan and red wine", [{"protein": "Rome"}], None),
        (
            TAX,
            "tax: $30.45 in Chicago, Illinois, $52.33 in Sacramento, California and $11 in Portland, Oregon",
            [{"city": "Sacramento, California", "state": "California", "amount": 52.33}],
            {"amount": [30.45, 11]},  # Sacramento is no state that is left
        ),
    ],
)
def test_another_call_takes_what_is_listed_with_the_values_of_the_last(
    one: Tool, request_: str, done: list[dict[str, Any]], left: dict[str, list[Any]] | None
) -> None:
    calls = [{"name": "t", "arguments": arguments} for arguments in done]
    found = with_values_left(one, request_, calls)
    if left is None:
        assert found is one
    else:
        [*_, added] = found.args["allOf"]
        assert added == {
            "properties": {name: {"enum": each} for name, each in left.items()},
            "required": list(left),
        }
    assert with_values_left(replace(one, name="other"), request_, calls).name == "other"


@given(
    st.lists(
        st.sampled_from(["Rome", "Oslo", "Turin", "10", "20", "5 m", "6 m"]),
        min_size=1,
        max_size=5,
        unique=True,
    ),
    st.sampled_from([" and ", ", ", " or ", " with "]),
    st.data(),
)
def test_another_call_is_a_call_of_its_tool_and_takes_more(
    values: list[str], between: str, data: st.DataObject
) -> None:
    one = tool(at={"type": "string"}, size={"type": "integer"})
    request_ = f"the weather of {between.join(values)}"
    first = {"at": data.draw(st.sampled_from(values)), "size": data.draw(st.sampled_from([5, 10, 99]))}
    done = [{"name": "t", "arguments": first}]
    found = with_values_left(one, request_, done)
    if found is one:
        return
    names = found.args["allOf"][-1]["properties"]
    call = {
        "name": "t",
        "arguments": {name: data.draw(st.sampled_from(each["enum"])) for name, each in names.items()},
    }
    assert takes_more(request_, call, done)
    assert validate_call(call, [found]).ok
    assert validate_call(call, [one]).ok
    assert not validate_call(done[0], [found]).ok


@pytest.mark.parametrize(
    ("request_", "done", "call", "more"),
    [
        ("shops in San Francisco and Chicago", [{"at": "San Francisco, CA"}], {"at": "Chicago, IL"}, True),
        ("shops in San Francisco", [{"at": "San Francisco"}], {"at": "San Francisco, CA"}, False),
        (
            "from Rome to Oslo and back to Rome",
            [{"a": "Rome", "b": "Oslo"}],
            {"a": "Oslo", "b": "Rome"},
            True,
        ),
        ("a charge of 2 at 0.5 and 2 m", [{"q": 2, "at": 0.5}], {"q": 2, "at": 2.0}, True),
        ("a charge of 2 at 0.5 m", [{"q": 2, "at": 0.5}], {"q": 2, "at": 0.5}, False),
        ("the folder x", [{"paths": ["x"]}], {"paths": ["a place for things"]}, False),
    ],
)
def test_a_call_takes_more_if_one_of_its_arguments_does(
    request_: str, done: list[dict[str, Any]], call: dict[str, Any], more: bool
) -> None:
    earlier = [{"name": "t", "arguments": arguments} for arguments in done]
    assert takes_more(request_, {"name": "t", "arguments": call}, earlier, by_argument=True) is more
    assert more or not takes_more(request_, {"name": "t", "arguments": call}, earlier)


def test_a_value_that_another_argument_had_is_new_for_an_argument_only() -> None:
    earlier = [{"name": "t", "arguments": {"a": 3, "b": 4}}]
    call = {"name": "t", "arguments": {"a": 4, "b": 3}}
    assert not takes_more("sides of 3 and 4", call, earlier)
    assert takes_more("sides of 3 and 4", call, earlier, by_argument=True)


@pytest.mark.parametrize(
    ("request_", "done", "known", "needed"),
    [
        ("5 Tesla for 4 s, then for 10 s", [{"b": 5, "s": 4}], "", True),
        ("5 Tesla for 4 s, then for 10 s", [{"b": 5, "s": 4}, {"b": 5, "s": 10}], "", False),
        ("the Pythagorean Theorem for 3 and 4", [{"a": 3}], "the Pythagorean theorem", True),
        ("the Pythagorean Theorem for 3", [{"a": 3}], "the Pythagorean theorem", False),
        ("tea in Rome and Oslo", [{"at": "Rome"}], "", True),
        ("tea in Rome and Oslo", [{"at": "Rome"}, {"at": "Oslo"}], "", False),
        ("1 m of silk from Oslo and wool", [{"at": "Oslo"}], "", True),
        (
            "a house in Rome, 90 m, and in Oslo, 80 m",
            [{"at": "Rome", "m": 90}, {"at": "Oslo", "m": 80}],
            "",
            False,
        ),
    ],
)
def test_another_call_needs_values_like_those_of_the_last(
    request_: str, done: list[dict[str, Any]], known: str, needed: bool
) -> None:
    calls = [{"name": "t", "arguments": arguments} for arguments in done]
    assert has_values_for_another(request_, calls, known) is needed


@given(st.lists(st.sampled_from(["Rome", "Oslo", "Turin", "Lima"]), min_size=1, unique=True))
def test_what_all_calls_have_needs_no_other(cities: list[str]) -> None:
    calls = [{"name": "t", "arguments": {"at": city}} for city in cities]
    request_ = f"tea in {', '.join(cities[:-1])} and {cities[-1]}".replace("in  and", "in")
    assert [has_values_for_another(request_, calls[:done], "") for done in range(1, len(calls) + 1)] == [
        *[True] * (len(calls) - 1),
        False,
    ]


def test_how_many_calls_there_are_is_a_number_of_the_request() -> None:
    calls = [{"name": "t", "arguments": {"radius": radius}} for radius in (5, 7)]
    assert uncovered_values("the area of two circles, of radius 5 and 7", calls) == ()
    assert uncovered_values("the area of two circles, of radius 5 and 7", calls[:1]) == ("7", "2")


def test_a_number_in_a_quote_is_a_part_of_the_quote() -> None:
    call = {"name": "t", "arguments": {"content": "two tickets"}}
    assert uncovered_values("write 'two tickets'", [call]) == ()
    assert uncovered_values("write 'two tickets' 3 times", [call]) == ("3",)


def test_a_number_is_left_unless_it_is_used_in_another_form() -> None:
    one = tool(feet={"type": "number"}, kilograms={"type": "number"})
    request_ = "6 feet and 80 kg, also 5.6 feet and 60 kg"
    calls = [{"name": "t", "arguments": {"feet": 6.0, "kilograms": 80}}]
    values = with_values_left(one, request_, calls).args["allOf"][-1]["properties"]
    assert values == {"feet": {"enum": [5.6]}, "kilograms": {"enum": [60]}}
    calls.append({"name": "t", "arguments": {"feet": 5.6, "kilograms": 60}})
    assert with_values_left(one, request_, calls) is one
