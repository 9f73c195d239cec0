"""Intents that end in an email: of dictated text, or of files written, found or read."""

from __future__ import annotations

from training import vocabulary as v
from training.file_intents import find, found_said, read_step
from training.parts import Part, Step, quoted, recipients, sent, sent_said, subject_of, written
from training.source import Source
from training.wording import fixed, listed, worded


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
