"""What a request supports: names to copy, enum values, arguments."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.tools import Tool
from gbnf.tools.evidence import gather_evidence


def tool(*required: str, **properties: Any) -> Tool:
    args = {"type": "object", "properties": properties, "required": list(required)}
    return Tool.from_mapping({"name": "t", "description": "A tool.", "args": args})


UNIT = {"type": "string", "enum": ["celsius", "fahrenheit"]}
NIGHTS = {"type": "integer", "description": "How many nights the guest stays"}
BOOLEAN = {"type": "boolean"}


@pytest.mark.parametrize(
    ("request_", "names"),
    [
        ("Weather in Tel Aviv, please", ["Tel Aviv"]),
        ("from Boston, MA to New York", ["Boston, MA", "Boston", "New York"]),
        ("what about gate A12? Thanks.", ["A12"]),
        ("who said 'to be or not'", ["to be or not"]),
        ('open "notes/a b.txt" now', ["notes/a b.txt"]),
        ("Find it. Then stop: Now!", []),
        ("A ticket to Rome", ["Rome"]),
        ("IBM rose by 5.5 on 2024-05-01, not on May 2", ["IBM", "2024-05-01"]),
        ("Find Michelangelo's David", ["Michelangelo's David"]),
        ("che tempo fa a Città di Castello", ["Città", "Castello"]),
    ],
)
def test_names_quotes_and_codes_may_be_copied(request_: str, names: list[str]) -> None:
    found = gather_evidence(request_, [])
    assert found is not None
    assert list(dict.fromkeys(found.phrases)) == names


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
    tools = [tool("city", city={"type": "string"}, unit=UNIT, nights=NIGHTS, breakfast=BOOLEAN)]
    found = gather_evidence(request_, tools)
    assert found is not None
    assert found.unsupported["t"] == unsupported
    assert found.phrases == (("Rome", *choices) if "Rome" in request_ else choices)
    assert found.affirmed["t"] == ({"breakfast"} if "breakfast" in request_ else set())


def test_the_choice_with_the_most_words_is_supported() -> None:
    levels = tool(level={"type": "string", "enum": ["active", "lightly active", "very active"]})
    found = gather_evidence("I am lightly active", [levels])
    assert found is not None
    assert set(found.phrases) == {"active", "lightly active"}


@given(st.text(max_size=60), st.sets(st.sampled_from(["unit", "nights", "breakfast"])))
def test_each_argument_is_supported_or_not(request_: str, required: set[str]) -> None:
    found = gather_evidence(request_, [tool(*required, unit=UNIT, nights=NIGHTS, breakfast=BOOLEAN)])
    assert found is not None
    assert required <= found.supported["t"]
    assert not found.supported["t"] & found.unsupported["t"]
    assert found.supported["t"] | found.unsupported["t"] == {"unit", "nights", "breakfast"}
    assert gather_evidence(request_, [], "none") is None
