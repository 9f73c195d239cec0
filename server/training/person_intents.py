"""Intents that involve people: forms, choices, undo, other providers, locations, and emails of any text."""

from __future__ import annotations

from training.file_intents import Found, find, find_step
from training.parts import (
    Part,
    Step,
    choice,
    last_said,
    quoted,
    read,
    recipients,
    sent,
    shown,
    spoken,
    subject_of,
    trashed,
    written,
)
from training.source import Source
from training.vocabulary import draw
from training.wording import fixed, listed, worded


def _question(random: Source) -> tuple[str, Step]:
    """Return a wish to be asked something, and the call that asks."""
    kind = random.random()
    if kind < 0.5:
        options = [draw(random, "{noun}") for _ in range(random.choice((2, 3, 3, 4)))]
        asked, value = worded(random, "ask_choice", o=listed(options, random)), random.choice(options)
        return asked, choice(random, fixed(random, "choice"), "choice", "which_one", value, options=options)
    if kind < 0.85:
        about = draw(random, "[{noun}|{noun}|{noun}|{noun} {field}|{noun} {field}]")
        value, field, asked = draw(random, "{text}"), "text", worded(random, "ask_text", n=about)
    else:
        about = draw(random, "{wish}")
        value, field, asked = random.choice(("yes", "no")), "yes_no", worded(random, "ask_yes", t=about)
    dialog = [{"var": "answer", "prompt": f"{about}?", "schema": {"kind": field}}]
    arguments = {"title": fixed(random, "question"), "dialog": dialog}
    result = {"values": {"answer": value == "yes" if field == "yes_no" else value}, "entries": [value]}
    return asked, Step("get_inputs", arguments, result, fixed(random, "answered", x=value))


def get_inputs(random: Source) -> Part:
    """Return a request to ask the person a question, and sometimes to save the answer."""
    asked, step = _question(random)
    if random.random() >= 0.3:
        return Part(asked, (step,))
    path, (value,) = draw(random, "{file_path}"), (step.result or {})["entries"]
    clause = worded(random, "ask_write", ask=asked, p=shown(random, path))
    return Part(clause, (step, written(random, {path: value})))


def find_choose(random: Source) -> Part:
    """Return a request to find files, let the person choose one, and use it."""
    found = find(random, empty=0)
    verb, said = draw(random, "{verb_for_one}").split("/")
    clause = worded(random, "find_choose", **found.slots, verb=said)
    value = random.choice(found.entries)
    choose = choice(random, fixed(random, "files"), "file", "which_file", value)
    if verb == "email":
        to = recipients(random)
        clause = f"{clause} {random.either('to', 'a')} {listed(to, random)}"
        last = sent(random, to, "File", step=2)
    else:
        last = (read if verb == "read" else trashed)(random, {"from_step": 2}, [value])
    return found.then(clause, choose, last)


def undo_last_turn(random: Source) -> Part:
    undone = [draw(random, "{undone}") for _ in range(random.choice((1, 1, 2)))]
    said = fixed(random, "undone", x=spoken(undone))
    return Part(worded(random, "undo"), (Step("undo_last_turn", {}, {"entries": undone}, said),))


def find_drive(random: Source) -> Part:
    """Return a request to search Google Drive."""
    query = draw(random, "[{noun}|{noun}|{noun} {noun}|{noun} {noun} {noun}]")
    found = [draw(random, "{noun}.{extension}") for _ in range(random.choice((1, 2, 3)))]
    step = find_step(random, {"query": query}, found, name="find_files_google_workspace")
    return Part(worded(random, "drive", q=quoted(random, query)), (step,))


def location(random: Source) -> Part:
    place = draw(random, "{Place}")
    result = {"location": place, "entries": [place]}
    step = Step("request_location_from_user", {}, result, fixed(random, "place", x=place))
    return Part(worded(random, "where", n=draw(random, "{noun}")), (step,))


def send_messages(random: Source) -> Part:
    to, text = recipients(random), draw(random, "{text}")
    slots = {"a": listed(to, random), "t": text, "q": quoted(random, text)}
    if random.random() < 0.22:
        noun = draw(random, "{noun}")
        subject = worded(random, "short_subjects", w=noun, w2=draw(random, "{noun}"), W=noun.capitalize())
        clause = worded(random, "send_subject", **slots, s=subject, sq=quoted(random, subject))
    else:
        subject = subject_of(text)
        clause = worded(random, "send" if to != ["me"] else "send_me", **slots)
    return Part(clause, (sent(random, to, subject, body=text),))


def write_send(random: Source) -> Part:
    path, text, to = draw(random, "{file_path}"), draw(random, "{text}"), recipients(random)
    write = worded(random, "write", t=quoted(random, text), p=shown(random, path))
    clause = worded(random, "write_send", write=write, a=listed(to, random))
    return Part(clause, (written(random, {path: text}), sent(random, to, subject_of(text), body=text)))


def find_send(random: Source) -> Part:
    found, to = find(random, empty=0.06), recipients(random)
    slots = found.slots | {"a": listed(to, random)}
    base = found.slots["b"]
    subject = fixed(random, "files" if base == "." else "files_in", x=base)
    if random.random() < 0.25:
        clause = worded(random, "find_read_send", **slots)
        step = read(random, {"from_step": 1}, found.entries)
        return found.then(clause, step, sent(random, to, subject, step=2))
    clause = worded(random, "find_send", **slots)
    return Part(clause, (found.step, sent(random, to, subject, step=1))[: 2 if found.entries else 1])


def read_send(random: Source) -> Part:
    path, to = draw(random, "{file_path}"), recipients(random)
    clause = worded(random, "read_send", p=shown(random, path), a=listed(to, random))
    return last_said(clause, read(random, {"paths": [path]}, [path]), sent(random, to, path, step=1))


def known_file(random: Source) -> Part:
    """Return a file that is known by a word only, "the report".

    It has to be found before it can be read or sent.
    """
    stem = draw(random, "{noun}" if random.random() < 0.7 else "{usual_file}")
    article, inside = draw(random, "{articles_of_a_file}").split("/")
    folder = draw(random, "{folder}/") if random.random() < 0.4 else ""
    entries = (f"{folder}{stem}.{draw(random, '{extension}')}",) if random.random() < 0.92 else ()
    slots = {"fs": f"{article} {stem}", "ins": f"{inside} {stem}"}
    found = Found(slots, find_step(random, {"base_path": ".", "pattern": f"*{stem}*"}, entries), entries)
    to = recipients(random) if random.random() < 0.6 else []
    clause = worded(random, "known_send" if to else "known_read", **slots, a=listed(to or ["me"], random))
    steps = (read(random, {"from_step": 1}, entries), *([sent(random, to, stem, step=2)] if to else []))
    return found.then(clause, *steps)
