"""Intents about folders and files: making, writing, reading, deleting, finding."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from training.parts import (
    Part,
    Step,
    count_text,
    created,
    last_said,
    quoted,
    read,
    shown,
    spoken,
    trashed,
    written,
)
from training.source import Source
from training.vocabulary import draw
from training.wording import fixed, listed, word, worded, wordings

_ON_PAPER = re.compile(r"(print|stampa)\b(?!.*\b(contents?|text|contenuto|testo) (of|di)\b)")


def _all_shown(random: Source, paths: Sequence[str]) -> str:
    return listed([shown(random, path) for path in paths], random)


def create_dirs(random: Source) -> Part:
    kind = random.random()
    paths = [draw(random, "{folder}")]
    if kind < 0.18:
        paths += [draw(random, "{folder}") for _ in range(random.choice((1, 1, 2, 3)))]
        count = count_text(random, len(paths))
        clause = worded(random, "folders", p=_all_shown(random, paths), n=count)
    elif kind < 0.3:
        parent, leaf = paths[0], draw(random, "{folder_stem}")
        paths = [f"{parent}/{leaf}"]
        clause = worded(random, "folder_in", leaf=leaf, parent=shown(random, parent))
    else:
        clause = worded(random, "folder", p=shown(random, paths[0]))
    return Part(clause, (created(random, *paths),))


def write_files(random: Source) -> Part:
    kind = random.random()
    path, content = draw(random, "{file_path}"), draw(random, "{text}")
    texts = {path: content}
    if kind < 0.05:
        texts = {"notes.txt": content}
        clause = worded(random, "note", t=content)
    elif kind < 0.13:
        path2, content2 = draw(random, "{file_path}"), draw(random, "{text}")
        texts[path2] = content2
        t, t2 = quoted(random, content), quoted(random, content2)
        clause = worded(random, "write_two", t=t, t2=t2, p=path, p2=path2)
    else:
        clause = worded(random, "write", t=quoted(random, content), p=shown(random, path))
    return Part(clause, (written(random, texts),))


def create_then_write(random: Source) -> Part:
    """Return a folder, and a file in it; its whole path is said in two of three, as in first requests."""
    parent, leaf, content = (draw(random, each) for each in ("{folder}", "{file_name}", "{text}"))
    path, t = f"{parent}/{leaf}", quoted(random, content)
    if random.random() < 1 / 3:
        create = worded(random, "folder", p=shown(random, parent))
        clause = worded(random, "write_inside", create=create, leaf=leaf, t=t)
    else:
        create, write = worded(random, "folder", p=parent), worded(random, "write", t=t, p=path)
        clause = worded(random, "create_write", create=create, write=write)
    return Part(clause, (created(random, parent), written(random, {path: content})))


def _reading(random: Source, key: str, **slots: str) -> str:
    """Return a wish to read.

    In training never "print FILE": that is paper's business, and no tool does it.
    """
    while True:
        clause = worded(random, key, **slots)
        if random.held_out or not _ON_PAPER.match(clause):
            return clause


def read_files(random: Source) -> Part:
    paths = [draw(random, "{file_path}") for _ in range(random.choice((1, 1, 1, 1, 2)))]
    clause = _reading(random, "read", p=_all_shown(random, paths))
    return Part(clause, (read(random, {"paths": paths}, paths),))


def delete_files(random: Source) -> Part:
    template = "{file_path}" if random.random() < 0.75 else "{folder}"
    paths = [draw(random, template) for _ in range(random.choice((1, 1, 1, 2)))]
    clause = worded(random, "delete", p=_all_shown(random, paths))
    return Part(clause, (trashed(random, {"paths": paths}, paths),))


@dataclass(frozen=True, slots=True)
class Found:
    """A description of files, as slots of wordings, and the step that finds them."""

    slots: dict[str, str]
    step: Step
    entries: tuple[str, ...]

    def then(self, clause: str, *steps: Step) -> Part:
        """Return a part that uses the files, if there are any."""
        return last_said(clause, self.step, *(steps if self.entries else ()))


def _entry(random: Source, base: str, pattern: str, known: str) -> str:
    name = pattern.replace("*", known if random.random() < 0.3 else draw(random, "{file_stem}"))
    if pattern == "*" or (pattern.endswith("*") and random.random() < 0.9):
        name = f"{name}.{draw(random, '{extension}')}"
    folder = "" if base == "." else f"{base}/"
    return folder + draw(random, "[{folder_stem}/||||]") + name


def find(random: Source, *, empty: float = 0.1) -> Found:
    """Files described in words, and the call that finds them; with probability `empty` there are none."""
    which = list(wordings(random, "which").items())
    template, pattern = which[0] if random.random() < 0.4 else random.choice(which)
    kinds = wordings(random, "kinds")
    known = draw(random, "{kind_in_plural}") if pattern == "{plural}" else random.choice(tuple(kinds))
    slots = {"e": draw(random, "{searched_extension}"), "s": draw(random, "{file_stem}")}
    slots["g"] = draw(random, "{glob}", **slots)
    patterns = kinds[known] if pattern in ("{kind}", "{plural}") else [pattern.format_map(slots)]
    if pattern == "{kind}" and random.random() < 0.07:
        other = random.choice([each for each in kinds if len(kinds[each]) == 1 and kinds[each] != patterns])
        patterns = [*patterns, *kinds[other]]
        known = f"{known} {draw(random, '{and}')} {other}"
    what = word((template,), random, {"k": known, **slots})
    if random.random() < 0.2:
        base, where = ".", worded(random, "everywhere")
    else:
        base = draw(random, "{folder}")
        where = worded(random, "in", b=shown(random, base))
    arguments: dict[str, Any] = {"base_path": base}
    arguments |= {"pattern": patterns[0]} if len(patterns) == 1 else {"patterns": patterns}
    count = 0 if random.random() < empty else random.choice((1, 1, 1, 1, 2, 2, 2, 3, 4))
    made = {_entry(random, base, random.choice(patterns), draw(random, "{noun}")) for _ in range(count)}
    entries = tuple(sorted(made))
    bare = what
    for article in ("all the ", "every one of the ", "the ", "all ", "every ", "tutti i ", "i ", "tutto "):
        bare = bare.removeprefix(article)
    step = find_step(random, arguments, entries)
    return Found({"f": what, "fn": bare, "i": where, "b": base}, step, entries)


def find_step(
    random: Source, arguments: dict[str, Any], entries: Sequence[str], *, name: str = "find_files"
) -> Step:
    """Return a call that finds files, with its result."""
    key = ("none_found", "found_one", "found")[min(len(entries), 2)]
    said = fixed(random, key, n=len(entries), x=spoken(entries))
    return Step(name, arguments, {"entries": list(entries), "count": len(entries)}, said)


def find_files(random: Source) -> Part:
    found = find(random)
    is_folder = found.step.arguments.get("pattern") == "*" and found.slots["b"] != "."
    templates = [each for each in wordings(random, "find") if "{f" in each or is_folder]
    return Part(word(templates, random, found.slots), (found.step,))


def find_read(random: Source) -> Part:
    found = find(random, empty=0.08)
    clause = _reading(random, "find_read", **found.slots)
    return found.then(clause, read(random, {"from_step": 1}, found.entries))


def find_delete(random: Source) -> Part:
    found = find(random, empty=0.08)
    if found.step.arguments.get("pattern", "*.")[-1:] != "*" and found.slots["f"].startswith("*"):
        return find_delete(random)
    templates = [
        each for each in wordings(random, "find_delete") if "{b}" not in each or found.slots["b"] != "."
    ]
    return found.then(word(templates, random, found.slots), trashed(random, {"from_step": 1}, found.entries))
