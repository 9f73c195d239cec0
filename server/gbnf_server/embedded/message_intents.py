"""Intents that end in an email: of what is said, written, found or read."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gbnf_server.embedded import vocabulary as v
from gbnf_server.embedded.file_intents import find, found_said, read_step
from gbnf_server.embedded.parts import Part, quoted, recipients, sent, sent_said, subject_of, written
from gbnf_server.embedded.wording import W, listed, word

if TYPE_CHECKING:
    from random import Random


def send_messages(random: Random, first: int) -> Part:
    del first
    to, text = recipients(random), v.text(random)
    shown = {"a": listed(to, random), "t": text, "q": quoted(random, text)}
    if random.random() < 0.22:
        noun = v.noun(random)
        slots = {"w": noun, "w2": v.noun(random), "W": noun.capitalize()}
        subject = word(W["short_subjects"], random, slots)
        clause = word(W["send_subject"], random, shown | {"s": subject, "sq": quoted(random, subject)})
    else:
        subject = subject_of(text)
        clause = word(W["send"] if to != ["me"] else W["send_me"], random, shown)
    return Part(clause, (sent(to, subject, body=text),), sent_said(to))


def write_send(random: Random, first: int) -> Part:
    del first
    path, content, to = v.file_path(random), v.text(random), recipients(random)
    write = word(W["write"], random, {"t": quoted(random, content), "p": path})
    clause = word(W["write_send"], random, {"write": write, "a": listed(to, random)})
    steps = (written([path], [content]), sent(to, subject_of(content), body=content))
    return Part(clause, steps, f"Wrote {path}. {sent_said(to)}")


def find_send(random: Random, first: int) -> Part:
    found, to = find(random, empty=0.06), recipients(random)
    slots = {"f": found.what, "fn": found.bare, "i": found.where, "a": listed(to, random)}
    subject = "Files" if found.base == "." else f"Files in {found.base}"
    if random.random() < 0.25:
        clause = word(W["find_read_send"], random, slots)
        if found.entries:
            step, _ = read_step(random, {"from_step": first}, found.entries)
            return Part(clause, (found.step, step, sent(to, subject, step=first + 1)), sent_said(to))
        return Part(clause, (found.step,), "Found no files.")
    clause = word(W["find_send"], random, slots)
    if not found.entries:
        return Part(clause, (found.step,), "Found no files.")
    return Part(
        clause, (found.step, sent(to, subject, step=first)), f"{found_said(found.entries)} {sent_said(to)}"
    )


def read_send(random: Random, first: int) -> Part:
    path, to = v.file_path(random), recipients(random)
    step, _ = read_step(random, {"paths": [path]}, [path])
    clause = word(W["read_send"], random, {"p": path, "a": listed(to, random)})
    return Part(clause, (step, sent(to, path, step=first)), sent_said(to))
