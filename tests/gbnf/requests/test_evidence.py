"""What a request supports: values and arguments."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.requests.coverage import is_covered
from gbnf.requests.evidence import (
    ArgumentEvidence,
    Evidence,
    EvidenceUse,
    gather_evidence,
    with_stated_choices,
)
from gbnf.tools import Tool


def tool(*required: str, **properties: Any) -> Tool:
    args = {"type": "object", "properties": properties, "required": list(required)}
    return Tool.from_mapping({"name": "t", "description": "A tool.", "args": args})


UNIT = {"type": "string", "enum": ["celsius", "fahrenheit"]}
NIGHTS = {"type": "integer", "description": "How many nights the guest stays"}
BOOLEAN = {"type": "boolean"}


def evidence(request_: str, *tools: Tool, **options: Any) -> Evidence:
    found = gather_evidence(request_, tools, **options)
    assert found is not None
    return found


@pytest.mark.parametrize(
    ("request_", "supported"),
    [
        ("the circumference for a radius of 4 inches", {"unit"}),
        ("the circumference for a radius of 4", set()),
        ("compute 3 and 4, 5 times", set()),
        ("80000 sq ft, in December", {"unit", "month"}),
        ("4 m, in 1999", {"unit", "year"}),
        ("it may rain", set()),
    ],
)
def test_a_unit_a_month_and_a_year_support_their_arguments(request_: str, supported: set[str]) -> None:
    text = {"type": "string"}
    measured = tool(unit=text, month=text, year={"type": "integer"}, temperature_unit=UNIT)
    arguments = evidence(request_, measured).arguments["t"]
    assert {name for name, known in arguments.items() if known.is_supported} == supported


@pytest.mark.parametrize(
    ("request_", "unsupported", "choices"),
    [
        ("weather in Rome", {"unit", "nights", "breakfast"}, ()),
        ("weather in Rome in fahrenheit", {"nights", "breakfast"}, ("fahrenheit",)),
        ("a room for two nights for a guest", {"unit", "breakfast"}, ()),
        ("with breakfast, in any unit", {"nights"}, ()),
    ],
)
def test_an_optional_argument_needs_a_word_of_the_request(
    request_: str, unsupported: set[str], choices: tuple[str, ...]
) -> None:
    stay = tool("city", city={"type": "string"}, unit=UNIT, nights=NIGHTS, breakfast=BOOLEAN)
    found = evidence(request_, stay)
    arguments = found.arguments["t"]
    assert {name for name, each in arguments.items() if not each.is_supported} == unsupported
    assert arguments["unit"].choices == choices
    assert arguments["breakfast"].is_affirmed == ("breakfast" in request_)
    assert found.phrases == (("Rome",) if "Rome" in request_ else ())


@pytest.mark.parametrize(
    ("request_", "is_list", "choices"),
    [
        ("I am lightly active", False, ("lightly active",)),
        ("I am active", False, ("active",)),
        ("I am lightly active", True, ("lightly active", "very active")),
        ("very", False, ("very active",)),
        ("nothing", True, ()),
    ],
)
def test_the_choices_with_the_most_words_are_supported(
    request_: str, is_list: bool, choices: tuple[str, ...]
) -> None:
    level = {"type": "string", "enum": ["lightly active", "very active", "active"]}
    levels = tool(level={"type": "array", "items": level} if is_list else level)
    found = evidence(request_, levels).arguments["t"]["level"]
    assert (found.is_list, found.is_closed) == (is_list, True)
    assert set(found.choices) == {*choices, *(["active"] if "lightly active" in choices else [])}


@pytest.mark.parametrize(
    ("request_", "stated"),
    [
        ("roots of a and b", set()),
        ("roots in Celsius, by simpson", {"unit", "method"}),
        ("by the method of simp", set()),
        ("3 days, with details", {"days", "details"}),
        ("the days, without numbers", set()),
        ("3 hours", set()),
        ("in 2020", {"year"}),
        ("in 3020", set()),
    ],
)
def test_what_a_request_has_a_value_for(request_: str, stated: set[str]) -> None:
    given_ = tool(
        unit={"type": "string", "description": "Unit ('Celsius' or 'Kelvin'). Default is 'Kelvin'."},
        method={"type": "string", "enum": ["simpson", "trapezoid"]},
        days={"type": "integer"},
        details=BOOLEAN,
        year={"type": "integer"},
        note={"type": "string", "description": "The user's note, don't quote"},
    )
    arguments = evidence(request_, given_).arguments["t"]
    assert {name for name, each in arguments.items() if each.is_stated} == stated
    assert arguments["unit"].choices == (("Celsius",) if "unit" in stated else ())


@pytest.mark.parametrize(
    ("kind", "description", "numbers"),
    [
        ("number", "The rate", ("0.05", "2.5", "100")),
        ("number", "The rate in percent", ("5", "2.5", "100")),
        ("integer", "The rate", ("5", "100")),
        ("string", "The rate", ()),
    ],
)
def test_numbers_are_of_the_argument_s_type(kind: str, description: str, numbers: tuple[str, ...]) -> None:
    rate = tool(rate={"type": kind, "description": description})
    assert evidence("5% of 2.5 or of $100", rate).arguments["t"]["rate"].numbers == numbers
    rates = tool(rate={"type": "array", "items": {"type": kind}, "description": description})
    assert evidence("5% of 2.5 or of $100", rates).arguments["t"]["rate"].numbers == numbers


@pytest.mark.parametrize(
    ("schema", "choices"),
    [
        ({"type": "string", "format": "date"}, ("2026-03-05", "2026-04-01")),
        ({"type": "string", "description": "The day (DD/MM/YYYY)"}, ("05/03/2026", "01/04/2026")),
        ({"type": "string", "description": "As MM-DD-YYYY"}, ("03-05-2026", "04-01-2026")),
        ({"type": "string", "description": "The day"}, ()),
        ({"type": "integer", "format": "date"}, ()),
    ],
)
def test_dates_have_the_form_that_the_argument_describes(
    schema: dict[str, Any], choices: tuple[str, ...]
) -> None:
    found = evidence("from March 5th, 2026 to 2026-04-01", tool(day=schema)).arguments["t"]["day"]
    assert (found.choices, found.is_closed) == (choices, False)


def test_a_description_and_its_examples_are_no_values() -> None:
    described = "The city and state, e.g. San Francisco, CA"
    cities = tool(
        city={"type": "string", "description": described}, unit={"type": "string", "description": "By 'm'"}
    )
    arguments = evidence("weather in Rome", cities).arguments["t"]
    assert arguments["city"].avoided == (described, "San Francisco, CA", "San Francisco")
    assert arguments["unit"].avoided == ("By 'm'",)
    assert evidence("in san francisco, CA", cities).arguments["t"]["city"].avoided == (described,)


def test_another_call_takes_the_values_that_are_left() -> None:
    play = replace(tool(artist={"type": "string"}, minutes={"type": "integer"}), name="play")
    request_ = "play Sting for 20 minutes and Queen for 15 minutes"
    first = {"name": "play", "arguments": {"artist": "Sting", "minutes": 20}}
    second = {"name": "play", "arguments": {"artist": "Queen", "minutes": 15}}
    other = {"name": "play", "arguments": {"artist": "Abba"}}
    found = evidence(request_, play, done=[first])
    assert found.used == {"play": {"Sting", "20"}}
    assert (found.phrases, found.arguments["play"]["minutes"].numbers) == (("Queen",), ("15",))
    for done in ([first, second], [first, other], []):
        assert evidence(request_, play, done=done).used == {}


def test_what_earlier_calls_contain_is_left_out_while_others_are_left() -> None:
    done = [{"name": "t", "arguments": {"city": "Rome"}}]
    assert evidence("Is it warm in Rome and in Oslo?", done=done).phrases == ("Oslo",)
    assert evidence("Is it warm in Rome?", done=done).phrases == ("Rome",)
    found = evidence("Is it warm in Rome?", done=done, entries=("a.txt",))
    assert (found.phrases, found.entries) == (("Rome",), ("a.txt",))
    assert is_covered("Is it warm in Rome?", done)
    assert not is_covered("Is it warm in Rome and in Oslo?", done)
    assert not is_covered("Is it warm in Rome in 3 days?", done)
    assert is_covered("what time is it?", done)


@given(
    st.text(max_size=60),
    st.sets(st.sampled_from(["unit", "nights", "breakfast"])),
    st.sampled_from(["all", "values", "arguments"]),
)
def test_each_argument_has_its_evidence(request_: str, required: set[str], use: EvidenceUse) -> None:
    found = evidence(
        request_, tool(*required, unit=UNIT, nights=NIGHTS, breakfast=BOOLEAN), use=use
    ).arguments["t"]
    assert found.keys() == {"unit", "nights", "breakfast"}
    assert required <= {name for name, each in found.items() if each.is_supported}
    if use == "values":
        assert all(each.is_supported for each in found.values())
    if use == "arguments":
        assert set(found.values()) <= {ArgumentEvidence(True), ArgumentEvidence(False)}
    assert gather_evidence(request_, [], "none") is None


SOLVER = tool(
    root_type={"type": "string", "description": "Roots to find: 'real' or 'complex'. Default is 'real'."},
    kind={"type": "string", "description": "Either 'some' or 'all'. Default value is 'some'."},
    root={"type": "string", "description": "Such as 'C' or 'D'. Default is 'D'."},
    unit={"type": "string", "description": "Of the radius. Default is 'cm'."},
    scale={"type": "string", "enum": ["celsius", "fahrenheit", "kelvin"], "default": "celsius"},
)


@pytest.mark.parametrize(
    ("request_", "written", "meant"),
    [
        ("find complex roots", {"root_type": "real"}, {"root_type": "complex"}),
        ("find Complex roots", {"root_type": "real"}, {"root_type": "complex"}),
        ("find complex and real roots", {"root_type": "real"}, {"root_type": "real"}),
        ("find complex roots", {"root_type": "positive"}, {"root_type": "positive"}),
        ("find complex roots", {"other": "real"}, {"other": "real"}),
        ("find all roots", {"kind": "some"}, {"kind": "all"}),
        ("find all roots of a. Then those of b.", {"kind": "some"}, {"kind": "some"}),
        ("find all of some roots", {"kind": "some"}, {"kind": "some"}),
        ("what key is C# major?", {"root": "D"}, {"root": "D"}),
        ("a radius of 4 inches", {"unit": "cm"}, {"unit": "inches"}),
        ("a radius of 4 inches", {"unit": "in"}, {"unit": "in"}),
        ("4 inches and 3 feet", {"unit": "cm"}, {"unit": "cm"}),
        ("4 inches, not feet", {"unit": "cm"}, {"unit": "cm"}),
        ("in 3 days", {"unit": "cm"}, {"unit": "cm"}),
        ("a mass of 4 kg", {"unit": "cm"}, {"unit": "cm"}),
        ("the area in m, with a radius of 5 cm", {"unit": "m"}, {"unit": "m"}),
        ("the weather in fahrenheit", {"scale": "celsius"}, {"scale": "fahrenheit"}),
        ("the weather in kelvin", {"scale": "fahrenheit"}, {"scale": "fahrenheit"}),
        ("not in fahrenheit", {"scale": "celsius"}, {"scale": "celsius"}),
        ("from celsius to fahrenheit", {"scale": "celsius"}, {"scale": "celsius"}),
        ("", {"unit": "cm", "root_type": 3}, {"unit": "cm", "root_type": 3}),
    ],
)
def test_the_choice_that_a_request_states_is_meant(
    request_: str, written: dict[str, Any], meant: dict[str, Any]
) -> None:
    assert with_stated_choices(written, SOLVER, evidence(request_, SOLVER)) == meant
