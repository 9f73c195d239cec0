"""The parts of a request that are carried out one after the other."""

from __future__ import annotations

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.requests.parts import parts_of
from support.pools import BUNDLED

SUITES = Path(__file__).parents[3] / "bench" / "suites"


@pytest.mark.parametrize(
    "parts",
    [
        ("create the folder trips/rome", "write 'two tickets' to trips/rome/list.txt"),
        ("create a folder named invoices", "read notes/rome.md", "delete old/a.txt and old/b.txt"),
        ("what is 12*31?", "find three free slots of 15 minutes tomorrow"),
        ("write an email to bob@example.com, subject 'hi', body 'lunch at 1'", "delete a.txt"),
        ("send a mail to anna@example.com and bob@example.com saying hello", "create the folder y2026"),
        ("crea la cartella ricette", "scrivi 'pane e olio' nel file ricette/cena.txt"),
        ("read a.txt and mail it to bob@example.com", "add 'dentist' to my calendar on 2026-12-03 at 15:30"),
        ('save this in a.txt: "one, then two"', 'save this in b.txt: "three"'),
        ("create the folder x", "b.txt should read 'x'"),
        ("read notes/rome.md", "read notes/oslo.md"),
    ],
)
@pytest.mark.parametrize("link", [" and ", ", ", ". Then ", " and then ", "; "])
def test_parts_that_stand_for_themselves_are_divided(parts: tuple[str, ...], link: str) -> None:
    divided = parts_of(link.join(parts), BUNDLED)
    assert tuple(part.removesuffix(".") for part in divided) == parts


@pytest.mark.parametrize(
    "request_",
    [
        "",
        "what time is it?",
        "delete a.txt, b.txt and c.txt",
        "read a.txt and write it to b.txt",
        "read a.txt and b.txt and write the sum to c.txt",
        "open agenda.txt and forward the text to team@example.com",
        "find a free slot tomorrow and book a visit with Marta",
        "find the log files in data and delete them, and 2 more",
        "do not delete a.txt and write 'x' to b.txt",
        "if a.txt exists, delete b.txt and create the folder c/d",
        "delete everything in a/b but keep a/b/c.txt and create d/e",
        "write 'create the folder a/b, delete c/d.txt' to e.txt",
        "email bob@example.com, subject 'hi 5', message 'create the folder a/b'",
        "write to a@example.com and b@example.com that the folder 5 is full",
        "add lunch on 3 December at 13:00 and for 45 minutes",
        "leggi a.txt e mandalo a bob@example.com",
        "trova i file csv in data e cancellali, e scrivilo in c.txt",
        "crea la cartella a/b e mettici il file c.txt",
        "ask me which wine to buy, red white or sparkling, and note my pick in wine.txt",
    ],
)
def test_what_belongs_together_is_not_divided(request_: str) -> None:
    assert parts_of(request_, BUNDLED) == (request_,)


def suite_requests() -> list[str]:
    suites = (tomllib.loads(path.read_text("utf-8")) for path in sorted(SUITES.glob("*.toml")))
    return [case["query"] for suite in suites for case in suite["cases"]]


@given(
    st.one_of(
        st.sampled_from(suite_requests()),
        st.lists(st.sampled_from(suite_requests()), min_size=2, max_size=12).map(", then ".join),
        st.text(st.sampled_from("ae \"'.,;?/@1and then create folder delete"), max_size=80),
        st.text(max_size=60),
    )
)
def test_the_parts_are_the_request_in_its_order_but_for_what_joins_them(request_: str) -> None:
    parts = parts_of(request_, BUNDLED)
    assert 1 <= len(parts) <= 8
    end = 0
    joints = []
    for part in parts:
        start = request_.index(part, end)
        joints.append(request_[end:start])
        end = start + len(part)
    joints.append(request_[end:])
    words = {
        word for joint in joints for word in joint.casefold().replace(",", " ").replace(";", " ").split()
    }
    assert words <= {"and", "then", "also", "e", "ed", "poi", "anche"}
    if len(parts) == 1:
        assert parts == (request_,)


@given(st.sampled_from(["create the folder a/b and ", ", then ", "'", "it ", "a.txt "]), st.integers(1, 2000))
def test_a_long_request_takes_little_time(piece: str, times: int) -> None:
    parts_of(piece * times, BUNDLED)
