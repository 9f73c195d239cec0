"""Intents that involve people: forms, choices, undo, other providers, locations, and emails of any text."""

from __future__ import annotations

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
    subject_of,
    written,
)
from training.source import Source
from training.wording import LISTS, fixed, listed, worded


def get_inputs(random: Source, _first: int) -> Part:
    """Return a request to ask the person a question, and sometimes to save the answer."""
    kind = random.random()
    if kind < 0.5:
        options = [v.noun(random) for _ in range(random.choice((2, 3, 3, 4)))]
        asked = worded(random, "ask_choice", o=listed(options, random))
        value = random.choice(options)
        step = choice(fixed(random, "choice"), "choice", fixed(random, "which_one"), value, None, options)
    else:
        noun = (
            v.noun(random)
            if random.random() < 0.6
            else f"{v.noun(random)} {random.choice(LISTS['fields'][random.language])}"
        )
        value, field, prompt = v.text(random), "text", f"{noun}?"
        asked = worded(random, "ask_text", n=noun)
        if kind > 0.85:
            wishes = random.either(("I want", "I like", "we need", "I need"), ("voglio", "mi piace", "serve"))
            article = "the" if random.language == "en" else random.choice(("il", "la"))
            sentence = f"{random.choice(wishes)} {article} {v.noun(random)}"
            value, field, prompt = random.choice(("yes", "no")), "yes_no", f"{sentence}?"
            asked = worded(random, "ask_yes", t=sentence)
        dialog = [{"var": "answer", "prompt": prompt, "schema": {"kind": field}}]
        step = Step(
            "get_inputs",
            {"title": fixed(random, "question"), "dialog": dialog},
            {"values": {"answer": value == "yes" if field == "yes_no" else value}, "entries": [value]},
        )
    said = fixed(random, "chose" if kind < 0.5 else "answered", x=value)
    if random.random() < 0.3:
        path = v.file_path(random)
        clause = worded(random, "ask_write", ask=asked, p=v.shown(random, path))
        return Part(clause, (step, written([path], [value])), f"{said} {fixed(random, 'wrote', x=path)}")
    return Part(asked, (step,), said)


def find_choose(random: Source, first: int) -> Part:
    """Return a request to find files, let the person choose one, and use it."""
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
    clause = worded(random, "find_choose", **slots)
    value = random.choice(found.entries)
    choose = choice(fixed(random, "files"), "file", fixed(random, "which_file"), value, first)
    if verb == "email":
        clause = f"{clause} {random.either('to', 'a')} {listed(to, random)}"
        last, said = sent(random, to, "File", step=first + 1), sent_said(random, to)
    elif verb in ("read", "open"):
        last, said = read_step(random, {"from_step": first + 1}, [value])
    else:
        last = Step("delete_files", {"from_step": first + 1}, {"entries": [value]})
        said = fixed(random, "trashed", x=value)
    return Part(clause, (found.step, choose, last), said)


def undo_last_turn(random: Source, _first: int) -> Part:
    shapes = ("removed folder '{p}'", "removed '{p}'", "restored '{p}'")
    undone = [random.choice(shapes).format(p=v.file_path(random)) for _ in range(random.choice((1, 1, 2)))]
    said = fixed(random, "undone", x=spoken(undone))
    return Part(worded(random, "undo"), (Step("undo_last_turn", {}, {"entries": undone}),), said)


def find_drive(random: Source, _first: int) -> Part:
    """Return a request to search Google Drive."""
    query = " ".join(v.noun(random) for _ in range(random.choice((1, 1, 2, 3))))
    found = [f"{v.noun(random)}.{random.choice(v.EXTENSIONS)}" for _ in range(random.choice((1, 2, 3)))]
    step = Step("find_files_google_workspace", {"query": query}, {"entries": found, "count": len(found)})
    said = found_said(random, found)
    return Part(worded(random, "drive", q=quoted(random, query)), (step,), said)


def location(random: Source, _first: int) -> Part:
    place = random.word(v.PLACES).capitalize()
    step = Step("request_location_from_user", {}, {"location": place, "entries": [place]})
    return Part(
        worded(random, "where", n=v.noun(random)),
        (step,),
        fixed(random, "place", x=place),
    )


def send_messages(random: Source, _first: int) -> Part:
    to, text = recipients(random), v.text(random)
    shown = {"a": listed(to, random), "t": text, "q": quoted(random, text)}
    if random.random() < 0.22:
        noun = v.noun(random)
        slots = {"w": noun, "w2": v.noun(random), "W": noun.capitalize()}
        subject = worded(random, "short_subjects", **slots)
        clause = worded(random, "send_subject", **shown, s=subject, sq=quoted(random, subject))
    else:
        subject = subject_of(text)
        clause = worded(random, "send" if to != ["me"] else "send_me", **shown)
    return Part(clause, (sent(random, to, subject, body=text),), sent_said(random, to))


def write_send(random: Source, _first: int) -> Part:
    path, content, to = v.file_path(random), v.text(random), recipients(random)
    write = worded(random, "write", t=quoted(random, content), p=v.shown(random, path))
    clause = worded(random, "write_send", write=write, a=listed(to, random))
    steps = (written([path], [content]), sent(random, to, subject_of(content), body=content))
    return Part(clause, steps, f"{fixed(random, 'wrote', x=path)} {sent_said(random, to)}")


def find_send(random: Source, first: int) -> Part:
    found, to = find(random, empty=0.06), recipients(random)
    slots = {"f": found.what, "fn": found.bare, "i": found.where, "a": listed(to, random)}
    subject = fixed(random, "files") if found.base == "." else fixed(random, "files_in", x=found.base)
    if random.random() < 0.25:
        clause = worded(random, "find_read_send", **slots)
        if found.entries:
            step, _ = read_step(random, {"from_step": first}, found.entries)
            return Part(
                clause, (found.step, step, sent(random, to, subject, step=first + 1)), sent_said(random, to)
            )
        return Part(clause, (found.step,), fixed(random, "none_found"))
    clause = worded(random, "find_send", **slots)
    if not found.entries:
        return Part(clause, (found.step,), fixed(random, "none_found"))
    return Part(
        clause,
        (found.step, sent(random, to, subject, step=first)),
        f"{found_said(random, found.entries)} {sent_said(random, to)}",
    )


def read_send(random: Source, first: int) -> Part:
    path, to = v.file_path(random), recipients(random)
    step, _ = read_step(random, {"paths": [path]}, [path])
    clause = worded(random, "read_send", p=v.shown(random, path), a=listed(to, random))
    return Part(clause, (step, sent(random, to, path, step=first)), sent_said(random, to))


def known_file(random: Source, first: int) -> Part:
    """Return a file that is known by a word only, "the report".

    It has to be found before it can be read or sent.
    """
    stem = v.noun(random) if random.random() < 0.7 else random.word(v.FILES[random.language])
    english = (("the", "in the"), ("the", "in the"), ("my", "in my"), ("the file about", "in the file about"))
    italian = (("il", "nel"), ("il", "nel"), ("la", "nella"), ("il file", "nel file"))
    article, inside = random.choice(random.either(english, italian))
    slots = {"fs": f"{article} {stem}", "ins": f"{inside} {stem}"}
    folder = f"{v.folder(random)}/" if random.random() < 0.4 else ""
    entries = [f"{folder}{stem}.{random.choice(v.EXTENSIONS)}"] if random.random() < 0.92 else []
    found = {"entries": entries, "count": len(entries)}
    step = Step("find_files", {"base_path": ".", "pattern": f"*{stem}*"}, found)
    to = recipients(random) if random.random() < 0.6 else []
    clause = worded(random, "known_send" if to else "known_read", **slots, a=listed(to or ["me"], random))
    if not entries:
        return Part(clause, (step,), fixed(random, "none_found"))
    reading, said = read_step(random, {"from_step": first}, entries)
    if not to:
        return Part(clause, (step, reading), said)
    return Part(clause, (step, reading, sent(random, to, stem, step=first + 1)), sent_said(random, to))
