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
        ("compute 12*31", "find three free slots of 15 minutes tomorrow"),
        ("write an email to bob@example.com, subject 'hi', body 'lunch at 1'", "delete a.txt"),
        ("create the folder docs/and", "delete the file d/e"),
        ("crea la cartella ricette", "scrivi 'pane e olio' nel file ricette/cena.txt"),
        ("read a.txt and mail it to bob@example.com", "add 'dentist' to my calendar on 2026-12-03 at 15:30"),
        ('save this in a.txt: "one, then two"', 'save this in b.txt: "three"'),
        ("read notes/rome.md", "read notes/oslo.md"),
        ("please create the folder a/b", "delete c.txt"),
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
        "read a.txt, and write a summary to d.txt",
        "read a.txt, and write 'it says' plus the text to d.txt",
        "open agenda.txt and forward the text to team@example.com",
        "find a free slot tomorrow and book a visit with Marta",
        "find the log files in data and delete them, and 2 more",
        "write 'create the folder a/b, delete c/d.txt' to e.txt",
        "email bob@example.com, subject 'hi 5', message 'create the folder a/b'",
        "mail 'hi' to bob@example.com, and cc ann@example.com",
        "read contacts.txt and send the text 'hi' to Anna by mail",
        "add lunch on 3 December at 13:00 and for 45 minutes",
        "leggi a.txt e mandalo a bob@example.com",
        "trova i file csv in data e cancellali, e scrivilo in c.txt",
        "crea la cartella a/b e mettici il file c.txt",
        "ask me which wine to buy, red white or sparkling, and note my pick in wine.txt",
        # what depends on a condition or an order, is forbidden, corrected or left to choose
        "do not delete a.txt and write 'x' to b.txt",
        "if a.txt exists, delete b.txt and create the folder c/d",
        "delete everything in a/b but keep a/b/c.txt and create d/e",
        "create the folder a/b, nobody should delete docs/a.txt",
        "delete all in old/, keep old/a.txt",
        "cancella tutti i file in docs/, salvo docs/a.txt",
        "delete old/a.txt, no wait, delete old/b.txt",
        "delete old/a.txt, or delete old/b.txt",
        "delete old/a.txt when notes/b.txt exists, and create the folder a/b",
        "delete notes/a.txt, first mail notes/a.txt to bob@example.com",
        "delete notes/a.txt, after you have read notes/a.txt",
        "under projects/x: create the folder a/b, write 'hi' to c.txt, delete d/e.txt",
        "in the folder trips, create the folder rome/a and write 'x' to list.txt",
        # what is said to somebody, written or asked
        "tell bob@example.com to delete a.txt and write 'x' to b.txt",
        "mail bob@example.com: please delete old/a.txt, create the folder backup/2024",
        "email bob@example.com that he should clean up. Delete old/a.txt. Create the folder backup/2024.",
        "send bob@example.com a message saying delete the file old/a.txt, then create the folder b/c",
        "remind ann@example.com to delete old/a.txt, and mail 'x' to bob@example.com",
        "write to todo.txt: call mom, delete old/a.txt, mail 'x' to bob@example.com",
        "note buy milk, delete old/a.txt",
        "put this in plan.md: create the folder a/b, write 'x' to c.txt, and delete d/e.txt",
        "create the file todo.txt with the lines buy milk, delete old/a.txt",
        "write a script clean.sh that deletes old/a.txt, and creates the folder b/c",
        "remind me tomorrow at 9 to send the report to bob@example.com, and delete old/a.txt",
        "manda una mail a bob@example.com dicendogli di leggere a.txt, e cancella old/b.txt",
        "di' a bob@example.com di cancellare il file old/a.txt, poi scrivi 'ok' in b.txt",
        "scrivi in todo.txt: cancella old/a.txt, manda 'x' a bob@example.com",
        "how do I delete old/a.txt, and create the folder b/c?",
        "I deleted old/a.txt, and created the folder b/c",
        "bob wrote: delete old/a.txt, create the folder b/c",
        # quotes of other kinds, and code
        'write "first line\ndelete old/a.txt, and create the folder b/c" to a.txt',
        "write ‘hi, delete old/a.txt, and create the folder b/c’ to c.txt",
        "write <p>read this, delete old/a.txt</p> to a.html",
        'write print("x"); delete("a/b.txt") to a.py',
        'write 5" screws, delete old/a.txt, 6" nails to list.txt',
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
