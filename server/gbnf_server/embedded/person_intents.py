"""Intents that need the person, and the ways out: forms, choices, undo, other providers, places."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gbnf_server.embedded import vocabulary as v
from gbnf_server.embedded.file_intents import Found, find, read_step
from gbnf_server.embedded.parts import (
    Part,
    Step,
    choice,
    quoted,
    recipients,
    sent,
    sent_said,
    spoken,
    written,
)
from gbnf_server.embedded.wording import W, listed, word

if TYPE_CHECKING:
    from random import Random


def get_inputs(random: Random, first: int) -> Part:
    del first
    kind = random.random()
    if kind < 0.5:
        options = [v.noun(random) for _ in range(random.choice((2, 3, 3, 4)))]
        asked = word(W["ask_choice"], random, {"o": listed(options, random)})
        value = random.choice(options)
        step = choice("Choice", "choice", "Which one do you prefer?", value, None, options)
    else:
        noun = (
            v.noun(random)
            if random.random() < 0.6
            else f"{v.noun(random)} {random.choice(('name', 'number', 'date'))}"
        )
        value, field, prompt, asked = (
            v.text(random),
            "text",
            f"{noun}?",
            word(W["ask_text"], random, {"n": noun}),
        )
        if kind > 0.85:
            sentence = f"{random.choice(('I want', 'I like', 'we need', 'I need'))} the {v.noun(random)}"
            value, field, prompt, asked = (
                random.choice(("yes", "no")),
                "yes_no",
                f"{sentence}?",
                word(W["ask_yes"], random, {"t": sentence}),
            )
        dialog = [{"var": "answer", "prompt": prompt, "schema": {"kind": field}}]
        step = Step(
            "get_inputs",
            {"title": "Question", "dialog": dialog},
            {"values": {"answer": value}, "entries": [value]},
        )
    said = f"You chose {value}." if kind < 0.5 else f"You answered: {value}."
    if random.random() < 0.3:
        path = v.file_path(random)
        clause = word(W["ask_write"], random, {"ask": asked, "p": path})
        return Part(clause, (step, written([path], [value])), f"{said} Wrote {path}.")
    return Part(asked, (step,), said)


def find_choose(random: Random, first: int) -> Part:
    found: Found = find(random, empty=0)
    verb = random.choice(("read", "open", "delete", "remove", "email"))
    to = recipients(random)
    slots = {"f": found.what, "fn": found.bare, "i": found.where, "verb": verb}
    clause = word(W["find_choose"], random, slots)
    value = random.choice(found.entries)
    choose = choice("Files", "file", "Which file do you want?", value, first)
    if verb == "email":
        clause = f"{clause} to {listed(to, random)}"
        last, said = sent(to, "File", step=first + 1), sent_said(to)
    elif verb in ("read", "open"):
        last, said = read_step(random, {"from_step": first + 1}, [value])
    else:
        last = Step("delete_files", {"from_step": first + 1}, {"entries": [value]})
        said = f"Moved {value} to the trash."
    return Part(clause, (found.step, choose, last), said)


def undo_last_turn(random: Random, first: int) -> Part:
    del first
    shapes = ("removed folder '{p}'", "removed '{p}'", "restored '{p}'")
    undone = [random.choice(shapes).format(p=v.file_path(random)) for _ in range(random.choice((1, 1, 2)))]
    said = f"Undone: {spoken(undone)}."
    return Part(word(W["undo"], random, {}), (Step("undo_last_turn", {}, {"entries": undone}),), said)


def find_drive(random: Random, first: int) -> Part:
    del first
    query = " ".join(v.noun(random) for _ in range(random.choice((1, 1, 2, 3))))
    found = [f"{v.noun(random)}.{random.choice(v.EXTENSIONS)}" for _ in range(random.choice((1, 2, 3)))]
    step = Step("find_files_google_workspace", {"query": query}, {"entries": found, "count": len(found)})
    said = f"Found {len(found)} file{'s' if len(found) > 1 else ''}: {spoken(found)}."
    return Part(word(W["drive"], random, {"q": quoted(random, query)}), (step,), said)


def location(random: Random, first: int) -> Part:
    del first
    place = random.choice(v.PLACES).capitalize()
    step = Step("request_location_from_user", {}, {"location": place, "entries": [place]})
    return Part(word(W["where"], random, {"n": v.noun(random)}), (step,), f"You are in {place}.")
