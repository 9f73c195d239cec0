"""Intents that need the person, and the ways out: forms, choices, undo, other providers, places."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training import vocabulary as v
from training.file_intents import Found, find, found_said, read_step
from training.parts import (
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
from training.wording import fixed, listed, word, wordings

if TYPE_CHECKING:
    from training.source import Source


FIELDS = {"en": ("name", "number", "date"), "it": ("nome", "numero", "data")}


def get_inputs(random: Source, first: int) -> Part:
    """Return a generated part of a request: get inputs."""
    del first
    kind = random.random()
    if kind < 0.5:
        options = [v.noun(random) for _ in range(random.choice((2, 3, 3, 4)))]
        asked = word(wordings(random, "ask_choice"), random, {"o": listed(options, random)})
        value = random.choice(options)
        step = choice(fixed(random, "choice"), "choice", fixed(random, "which_one"), value, None, options)
    else:
        noun = (
            v.noun(random)
            if random.random() < 0.6
            else f"{v.noun(random)} {random.choice(FIELDS[random.language])}"
        )
        value, field, prompt, asked = (
            v.text(random),
            "text",
            f"{noun}?",
            word(wordings(random, "ask_text"), random, {"n": noun}),
        )
        if kind > 0.85:
            wishes = (
                ("I want", "I like", "we need", "I need")
                if random.language == "en"
                else ("voglio", "mi piace", "serve")
            )
            article = "the" if random.language == "en" else random.choice(("il", "la"))
            sentence = f"{random.choice(wishes)} {article} {v.noun(random)}"
            value, field, prompt, asked = (
                random.choice(("yes", "no")),
                "yes_no",
                f"{sentence}?",
                word(wordings(random, "ask_yes"), random, {"t": sentence}),
            )
        dialog = [{"var": "answer", "prompt": prompt, "schema": {"kind": field}}]
        step = Step(
            "get_inputs",
            {"title": fixed(random, "question"), "dialog": dialog},
            {"values": {"answer": value == "yes" if field == "yes_no" else value}, "entries": [value]},
        )
    said = fixed(random, "chose" if kind < 0.5 else "answered", x=value)
    if random.random() < 0.3:
        path = v.file_path(random)
        clause = word(wordings(random, "ask_write"), random, {"ask": asked, "p": v.shown(random, path)})
        return Part(clause, (step, written([path], [value])), f"{said} {fixed(random, 'wrote', x=path)}")
    return Part(asked, (step,), said)


def find_choose(random: Source, first: int) -> Part:
    """Return a generated part of a request: find choose."""
    found: Found = find(random, empty=0)
    verb = random.choice(("read", "open", "delete", "remove", "email"))
    italian = {
        "read": "leggilo",
        "open": "aprilo",
        "delete": "cancellalo",
        "remove": "eliminalo",
        "email": "mandalo",
    }
    to = recipients(random)
    slots = {
        "f": found.what,
        "fn": found.bare,
        "i": found.where,
        "verb": italian[verb] if random.language == "it" else verb,
    }
    clause = word(wordings(random, "find_choose"), random, slots)
    value = random.choice(found.entries)
    choose = choice(fixed(random, "files"), "file", fixed(random, "which_file"), value, first)
    if verb == "email":
        clause = f"{clause} {'a' if random.language == 'it' else 'to'} {listed(to, random)}"
        last, said = sent(random, to, "File", step=first + 1), sent_said(random, to)
    elif verb in ("read", "open"):
        last, said = read_step(random, {"from_step": first + 1}, [value])
    else:
        last = Step("delete_files", {"from_step": first + 1}, {"entries": [value]})
        said = fixed(random, "trashed", x=value)
    return Part(clause, (found.step, choose, last), said)


def undo_last_turn(random: Source, first: int) -> Part:
    """Return a generated part of a request: undo last turn."""
    del first
    shapes = ("removed folder '{p}'", "removed '{p}'", "restored '{p}'")
    undone = [random.choice(shapes).format(p=v.file_path(random)) for _ in range(random.choice((1, 1, 2)))]
    said = fixed(random, "undone", x=spoken(undone))
    return Part(
        word(wordings(random, "undo"), random, {}), (Step("undo_last_turn", {}, {"entries": undone}),), said
    )


def find_drive(random: Source, first: int) -> Part:
    """Return a generated part of a request: find drive."""
    del first
    query = " ".join(v.noun(random) for _ in range(random.choice((1, 1, 2, 3))))
    found = [f"{v.noun(random)}.{random.choice(v.EXTENSIONS)}" for _ in range(random.choice((1, 2, 3)))]
    step = Step("find_files_google_workspace", {"query": query}, {"entries": found, "count": len(found)})
    said = found_said(random, found)
    return Part(word(wordings(random, "drive"), random, {"q": quoted(random, query)}), (step,), said)


def location(random: Source, first: int) -> Part:
    """Return a generated part of a request: location."""
    del first
    place = random.word(v.PLACES).capitalize()
    step = Step("request_location_from_user", {}, {"location": place, "entries": [place]})
    return Part(
        word(wordings(random, "where"), random, {"n": v.noun(random)}),
        (step,),
        fixed(random, "place", x=place),
    )
