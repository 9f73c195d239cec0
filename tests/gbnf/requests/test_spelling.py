"""Texts, numbers and lists of a call as its request has them."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.requests.spelling import as_requested
from support.json_values import json_values

NOTE = 'save "pay the gardener" as a note in todo/garden.md'
TAXES = "the tax on $30.45 in Chicago, Illinois and $52 in Sacramento, California"
EVENTS = "gym on 2026-11-23 at 07:00, then dinner with Leo on 2026-11-24 at 20:30"
LIST = "write milk and bread to shopping.txt"
HELLO = "save the text hello world to hello_world.txt"
TRIP = "create the folder trips/rome, write passport and tickets to trips/rome/packing.txt"


@pytest.mark.parametrize(
    ("request_", "written", "meant"),
    [
        ("save oats to lists/shop.txt", {"path": "shop.txt"}, {"path": "lists/shop.txt"}),
        ("save oats to lists/shop.txt and shop.txt", {"path": "shop.txt"}, {"path": "shop.txt"}),
        (
            "save buy oats to shop.txt",
            {"files": [{"path": "shop.txt", "content": "Buy oats to shop.txt"}]},
            {"files": [{"path": "shop.txt", "content": "buy oats"}]},
        ),
        (
            NOTE,
            {"path": "todo/garden.md", "content": NOTE},
            {"path": "todo/garden.md", "content": "pay the gardener"},
        ),
        ("type 'pen' in list.xml", {"content": "<pen/>"}, {"content": "pen"}),
        ("type 'red pen' in list.xml", {"content": "<a>red pen</a>"}, {"content": "red pen"}),
        ("write 'pen' as an element to list.xml", {"content": "<pen/>"}, {"content": "<pen/>"}),
        (NOTE, {"content": "Pay The Gardener"}, {"content": "pay the gardener"}),
        (NOTE, {"content": "pay her"}, {"content": "pay her"}),
        ("write the text oats and honey to a.txt", {"t": "oats\nhoney"}, {"t": "oats and honey"}),
        ("write the text oats and honey to a.txt", {"t": "oats"}, {"t": "oats"}),  # a word of it
        ("write the text oats and honey to a.txt", {"t": "oats, honey, rye"}, {"t": "oats, honey, rye"}),
        ("write oats and honey to a.txt", {"t": "oats\nhoney"}, {"t": "oats and honey"}),
        ("write a poem about honey to a.txt", {"t": "honey, honey"}, {"t": "honey, honey"}),
        ("write a poem about honey", {"t": "poem\nabout honey"}, {"t": "poem\nabout honey"}),  # to nowhere
        (TRIP, {"t": "Passport and tickets for Rome"}, {"t": "passport and tickets"}),
        (LIST, {"t": "Milk and bread are great choices."}, {"t": "milk and bread"}),
        (LIST, {"t": "The milk and bread"}, {"t": "The milk and bread"}),
        ("salva il testo latte e pane in a.txt", {"t": "La testo latte e pane"}, {"t": "latte e pane"}),
        ("save the words big blue whale in a.txt", {"t": 'It is "big blue whale".'}, {"t": "big blue whale"}),
        ("write a long letter to a.txt", {"t": "A long letter\nDear Ada"}, {"t": "A long letter\nDear Ada"}),
        ("write notes about Rome to a.txt", {"t": "Notes about Rome\nOld"}, {"t": "Notes about Rome\nOld"}),
        (LIST, {"t": "Milk and bread\n- white bread"}, {"t": "Milk and bread\n- white bread"}),
        (LIST, {"t": "Milk and bread: for Ada"}, {"t": "Milk and bread: for Ada"}),
        (
            HELLO,
            {"path": "hello_world.txt", "t": "It says hello world"},
            {"path": "hello_world.txt", "t": "hello world"},
        ),
        (HELLO, {"t": "Hello world\n\nThis is a test file."}, {"t": "hello world"}),
        (HELLO, {"t": "Hello world, Ada\nBye"}, {"t": "Hello world, Ada\nBye"}),
        ("write dear Ada to a.txt", {"t": "Dear Ada, how are you?"}, {"t": "Dear Ada, how are you?"}),
        ("write call notes to a.txt", {"title": "Call notes review"}, {"title": "Call notes review"}),
        ("scrivi due poesie su a.txt", {"t": "Due poesie sono qui"}, {"t": "Due poesie sono qui"}),
        ("put the line count of a.txt in b.txt", {"t": "Count of a.txt: ten"}, {"t": "Count of a.txt: ten"}),
        (
            TAXES,
            {"city": "Oslo, Illinois", "state": "Illinois"},
            {"city": "Oslo, Illinois", "state": "Illinois"},
        ),
        (TAXES, {"city": "Chicago, Illinois", "state": "Illinois"}, {"city": "Chicago", "state": "Illinois"}),
        (TAXES, {"city": "Chicago, Illinois"}, {"city": "Chicago, Illinois"}),
        (TRIP, {"t": "Passport and tickets: 2"}, {"t": "Passport and tickets: 2"}),
        (
            "write the known price to p.txt",
            {"t": "The known price: 21 txt"},
            {"t": "The known price: 21 txt"},
        ),
        (EVENTS, {"at": ["2026-11-23T07:00", "2026-11-23T17:00"]}, {"at": ["2026-11-23T07:00"]}),
        (
            EVENTS,
            {"at": ["2026-11-23T07:00", "2026-11-24T20:30"]},
            {"at": ["2026-11-23T07:00", "2026-11-24T20:30"]},
        ),
        (EVENTS, {"at": ["2027-01-01", "2027-01-02"]}, {"at": ["2027-01-01", "2027-01-02"]}),
        (
            "before I forget it: put call the plumber into a.txt",
            {"t": "Before I forget it: put call the plumber into a.txt."},
            {"t": "call the plumber"},
        ),
        *(
            (request_, {"t": text}, {"t": text})
            for request_, text in [
                ("make list.md, it should have oats and milk in it", "# List"),
                ("make a.txt, it should contain meet at 8.30 pm", "meet at 8.30 pm"),
                ("make a.txt, it should say I am out. Back on Monday.", "I am out. Back on Monday."),
                ("make a.md, it should have a title Project Zebra", "Project Zebra"),
                ("make a.json, it should contain name Ann and age 30", '{"name": "Ann", "age": 30}'),
                ("write 'write tests to tests/test_a.py' to todo.md", "write tests to tests/test_a.py"),
                ("remind me at 9 to save the invoice to march.pdf", "save the invoice to march.pdf, at 9"),
                ("write oats to a.txt", "Shall I write oats to a.txt or to b.txt?"),
                ("add the comment '# write x to out.txt' to run.py", "# write x to out.txt\nprint(1)"),
            ]
        ),
        ("the factorials of 5,10 and 15", {"n": 510}, {"n": 5}),
        ("the factorials of 5,10 and 510", {"n": 510}, {"n": 510}),
        ("5,100 euro", {"n": 5100}, {"n": 5100}),
        ("at 18:00", {"at": "2026-11-24T18:00:00Z"}, {"at": "2026-11-24T18:00"}),
        ("at 18:00 UTC", {"at": "2026-11-24T18:00:00Z"}, {"at": "2026-11-24T18:00:00Z"}),
        (
            "block it from 14:00 to 16:30",
            {"starts": ["2026-11-22T14:00", "2026-11-22T16:30"]},
            {"starts": ["2026-11-22T14:00/2026-11-22T16:30"]},
        ),
        ("at 14:00 and at 16:30", {"starts": ["T14:00", "T16:30"]}, {"starts": ["T14:00", "T16:30"]}),
        ("mail ann@example.com", {"to": ["ann@example.com", "me"]}, {"to": ["ann@example.com"]}),
        ("action films", {"genres": ["action", "sci-fi"]}, {"genres": ["action", "sci-fi"]}),
        ("read b.txt", {"paths": ["b.txt", "known.txt"]}, {"paths": ["b.txt", "known.txt"]}),
        ("", {"a": "", "b": None, "c": 1, "d": [], "e": {}}, {"a": "", "b": None, "c": 1, "d": [], "e": {}}),
    ],
)
def test_texts_are_written_as_the_request_spells_them(
    request_: str, written: dict[str, Any], meant: dict[str, Any]
) -> None:
    assert as_requested(written, request_, '["known.txt"]') == meant
    assert as_requested(meant, request_, '["known.txt"]') == meant


@pytest.mark.parametrize(
    ("request_", "written", "meant"),
    [
        ("what is 18 % of 250?", "18 / 250", "18 / 100 * 250"),
        ("what is 18% of $250?", "250 * 18", "18 / 100 * 250"),
        ("18 percent of 2.5", "18 % 2.5", "18 / 100 * 2.5"),
        ("quanto è il 20 per cento di 80?", "20 / 80", "20 / 100 * 80"),
        ("quanto fa 48 per 17?", "48 / 17", "48 * 17"),
        ("how much is 48 times 17", "48 + 17", "48 * 17"),
        ("100 minus 7.5", "7.5 - 100", "100 - 7.5"),
        ("12 diviso per 5", "5 / 12", "12 / 5"),
        ("quanto è 9896 ** 5?", "9896 * 5", "9896 ** 5"),
        ("2 ^ 10", "2 * 10", "2 ** 10"),
        ("10 plus 4975 times 4, into a.txt", "10 + 4975", "10 + 4975 * 4"),
        ("3 × 4 ÷ 5", "3 + 4", "3 * 4 / 5"),
        # as the model has it: with other numbers, or of a request that says more
        ("what is 18 % of 250?", "0.18 * 250", None),
        ("what is 18 % of 250?", "18 / 100 * 250", None),
        ("what is 12*31?", "12 * 31", None),
        ("minus 5 plus 3", "-5 + 3", None),
        ("what is -5 plus 3?", "-5 + 3", None),
        ("half of 8 plus 4", "8 / 2 + 4", None),
        ("18 % of 250 plus 3", "18 + 250", None),
        ("twice 5 plus 3", "2 * 5 + 3", None),
        ("(2 + 3) * 4", "(2 + 3) * 4", None),
        ("10 plus 5 times 4", "10 + 20", None),  # the second of two steps
        ("1 + 2 or 3 + 4", "1 - 2", None),
        ("2 + 3,5", "2 - 3", None),
        ("100 + 20 %", "100 * 20", None),
        ("from 3-4 + 5/6", "3 * 5", None),
        # of a number that is there twice, nobody knows which is meant
        ("what is 10 + 5 and 10 - 5?", "10 - 5", None),
        ("compute 20 + 4 and 20 / 4", "20 / 4", None),
        ("compute (2 + 3) * 2", "(2 + 3) * 2", None),
        ("100 * 12 - 100", "100 * 12 - 100", None),
        ("quanto fa 7 per 7 più 2", "7 * 7 + 2", None),
        ("split 4 + 8 euros among 4 people", "(4 + 8) / 4", None),
        ("the average of 2 + 4", "(2 + 4) / 2", None),
        ("il triplo di 3 + 4", "3 * (3 + 4)", None),
        ("quanto è 9896 ** 5, e proponi spazi di 15 minuti", "9896 * 5", "9896 ** 5"),
        ("10 + 5 + 2, in 3 parts", "10 + 5", None),
        ("what is 20 % off 80?", "80 - 20", None),
        ("100 plus 20 %", "100 * 20", None),
        ("drive 50 per 2 hours", "50 / 2", None),
        ("what is 18 % of 250?", "18 of 250", None),
    ],
)
def test_a_calculation_in_words_is_the_one_that_the_request_has(
    request_: str, written: str, meant: str | None
) -> None:
    expected = {"expression": written if meant is None else meant}
    assert as_requested({"expression": written}, request_) == expected


@given(st.text(max_size=80), st.dictionaries(st.text(max_size=4), json_values, max_size=4))
def test_nothing_changes_but_texts_lists_and_joined_numbers(request_: str, arguments: dict[str, Any]) -> None:
    changed = as_requested(arguments, request_)
    assert changed.keys() == arguments.keys()
    for key, value in arguments.items():
        if not isinstance(value, str | list | dict) and str(value) not in request_.replace(",", ""):
            assert changed[key] == value
    if not request_:
        assert changed == arguments
