"""Intents about folders and files: making, writing, reading, deleting, finding."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from training import vocabulary as v
from training.parts import Part, Step, count_text, quoted, shortened, spoken, written
from training.source import Source
from training.wording import KINDS, WHICH, fixed, listed, word, worded, wordings

_ON_PAPER = re.compile(r"(print|stampa)\b(?!.*\b(contents?|text|contenuto|testo) (of|di)\b)")


def _all_shown(random: Source, paths: Sequence[str]) -> str:
    return listed([v.shown(random, path) for path in paths], random)


def create_dirs(random: Source, _first: int) -> Part:
    kind = random.random()
    if kind < 0.18:
        paths = [v.folder(random) for _ in range(random.choice((2, 2, 3, 4)))]
        clause = worded(
            random,
            "folders",
            p=_all_shown(random, paths),
            n=count_text(random, len(paths)),
        )
    elif kind < 0.3:
        parent, leaf = v.folder(random), v.stem(random, v.FOLDERS[random.language])
        paths = [f"{parent}/{leaf}"]
        clause = worded(random, "folder_in", leaf=leaf, parent=v.shown(random, parent))
    else:
        paths = [v.folder(random)]
        clause = worded(random, "folder", p=v.shown(random, paths[0]))
    return Part(
        clause,
        (Step("create_dirs", {"paths": paths}, {"entries": paths}),),
        fixed(random, "created", x=spoken(paths)),
    )


def write_files(random: Source, _first: int) -> Part:
    kind = random.random()
    contents = [v.text(random)]
    paths = [v.file_path(random)]
    if kind < 0.05:
        paths = ["notes.txt"]
        clause = worded(random, "note", t=contents[0])
    elif kind < 0.13:
        contents.append(v.text(random))
        paths.append(v.file_path(random))
        shown = [quoted(random, text) for text in contents]
        clause = worded(random, "write_two", t=shown[0], t2=shown[1], p=paths[0], p2=paths[1])
    else:
        clause = worded(random, "write", t=quoted(random, contents[0]), p=v.shown(random, paths[0]))
    return Part(clause, (written(paths, contents),), fixed(random, "wrote", x=spoken(paths)))


def create_then_write_inside(random: Source, _first: int) -> Part:
    parent, leaf, content = v.folder(random), v.file_name(random), v.text(random)
    create = worded(random, "folder", p=v.shown(random, parent))
    clause = worded(random, "write_inside", create=create, leaf=leaf, t=quoted(random, content))
    path = f"{parent}/{leaf}"
    steps = (Step("create_dirs", {"paths": [parent]}, {"entries": [parent]}), written([path], [content]))
    return Part(clause, steps, f"{fixed(random, 'created', x=parent)} {fixed(random, 'wrote', x=path)}")


def create_then_write_path(random: Source, _first: int) -> Part:
    """Return a folder, and a file whose whole path is said: the shape of first requests."""
    parent, leaf, content = v.folder(random), v.file_name(random), v.text(random)
    path = f"{parent}/{leaf}"
    write = worded(random, "write", t=quoted(random, content), p=path)
    clause = worded(random, "create_write", create=worded(random, "folder", p=parent), write=write)
    steps = (Step("create_dirs", {"paths": [parent]}, {"entries": [parent]}), written([path], [content]))
    return Part(clause, steps, f"{fixed(random, 'created', x=parent)} {fixed(random, 'wrote', x=path)}")


def read_said(random: Source, paths: Sequence[str], texts: Sequence[str]) -> str:
    """Return the sentence of an answer that quotes the first two files."""
    pairs = zip(paths[:2], texts[:2], strict=True)
    said = "; ".join(fixed(random, "says", p=path, x=shortened(text)) for path, text in pairs)
    return said + (" …" if len(paths) > 2 else "")


def read_step(random: Source, arguments: dict[str, Any], paths: Sequence[str]) -> tuple[Step, str]:
    """Return the call that reads files with its result, and the sentence of the answer."""
    texts = [v.long_text(random) if random.random() < 0.05 else v.text(random) for _ in paths]
    return Step("read_files", arguments, {"entries": texts, "paths": list(paths)}), read_said(
        random, paths, texts
    )


def _reading(random: Source, key: str, slots: Mapping[str, str]) -> str:
    """Return a wish to read.

    In training never "print FILE": that is paper's business, and no tool does it.
    """
    while True:
        clause = worded(random, key, **slots)
        if random.held_out or not _ON_PAPER.match(clause):
            return clause


def read_files(random: Source, _first: int) -> Part:
    paths = [v.file_path(random) for _ in range(random.choice((1, 1, 1, 1, 2)))]
    clause = _reading(random, "read", {"p": _all_shown(random, paths)})
    step, said = read_step(random, {"paths": paths}, paths)
    return Part(clause, (step,), said)


def delete_files(random: Source, _first: int) -> Part:
    make = v.file_path if random.random() < 0.75 else v.folder
    paths = [make(random) for _ in range(random.choice((1, 1, 1, 2)))]
    step = Step("delete_files", {"paths": paths}, {"entries": paths})
    return Part(
        worded(random, "delete", p=_all_shown(random, paths)),
        (step,),
        fixed(random, "trashed", x=spoken(paths)),
    )


@dataclass(frozen=True, slots=True)
class Found:
    """A description of files and the step that finds them."""

    what: str
    bare: str
    where: str
    base: str
    step: Step
    entries: tuple[str, ...]


def _entry(random: Source, base: str, pattern: str, known: str) -> str:
    name = pattern.replace("*", known if random.random() < 0.3 else v.stem(random, v.FILES[random.language]))
    if pattern == "*" or (pattern.endswith("*") and random.random() < 0.9):
        name = f"{name}.{random.choice(v.EXTENSIONS)}"
    folder = "" if base == "." else f"{base}/"
    return folder + (f"{v.stem(random, v.FOLDERS[random.language])}/" if random.random() < 0.2 else "") + name


def find(random: Source, *, empty: float = 0.1, base: str | None = None) -> Found:
    """Files described in words, and the call that finds them; with probability `empty` there are none."""
    which = WHICH[random.language]
    template, kind = which[0] if random.random() < 0.4 else random.choice(which)
    kinds = KINDS[random.language]
    known = random.choice(tuple(kinds))
    if kind == "kind_plural":
        known = random.choice(random.either(("image", "pdf", "PDF", "log", "image"), ("pdf", "log", "PDF")))
    extension = random.choice((*v.EXTENSIONS, "pdf", "tmp", "docx", v.pseudo_word(random)[:3]))
    stem = v.stem(random, v.FILES[random.language])
    glob = random.choice(
        (f"*.{extension}", f"{stem}*", f"{stem}.*", f"*{stem}*", f"{stem}-*.{extension}", f"*.{extension}")
    )
    patterns = {
        "kind": kinds[known],
        "kind_plural": kinds[known],
        "extension": (f"*.{extension}",),
        "prefix": (f"{stem}*",),
        "infix": (f"*{stem}*",),
        "glob": (glob,),
        "all": ("*",),
    }[kind]
    if kind == "kind" and random.random() < 0.07:
        other = random.choice(
            [name for name in kinds if len(kinds[name]) == 1 and kinds[name] != kinds[known]]
        )
        patterns = (*kinds[known], *kinds[other])
        known = f"{known} {random.either('and', 'e')} {other}"
    what = word((template,), random, {"k": known, "e": extension, "s": stem, "g": glob})
    base = base or ("." if random.random() < 0.2 else v.folder(random))
    if base == ".":
        everywhere = random.either("[in the workspace|everywhere|]", "[nello spazio di lavoro|ovunque|]")
        where = word(("", everywhere), random, {})
    else:
        where = worded(random, "in", b=v.shown(random, base))
    arguments: dict[str, Any] = {"base_path": base}
    arguments |= {"pattern": patterns[0]} if len(patterns) == 1 else {"patterns": list(patterns)}
    count = 0 if random.random() < empty else random.choice((1, 1, 1, 1, 2, 2, 2, 3, 4))
    entries = tuple(
        sorted({_entry(random, base, random.choice(patterns), v.noun(random)) for _ in range(count)})
    )
    step = Step("find_files", arguments, {"entries": list(entries), "count": len(entries)})
    bare = what
    for article in ("all the ", "every one of the ", "the ", "all ", "every ", "tutti i ", "i ", "tutto "):
        bare = bare.removeprefix(article)
    return Found(what, bare, where, base, step, entries)


def found_said(random: Source, entries: Sequence[str]) -> str:
    """Return the sentence of an answer that lists found files."""
    if not entries:
        return fixed(random, "none_found")
    key = "found" if len(entries) > 1 else "found_one"
    return fixed(random, key, n=len(entries), x=spoken(entries))


def _whole_folder(template: str, found: Found) -> bool:
    return "{f" in template or (found.step.arguments.get("pattern") == "*" and found.base != ".")


def find_files(random: Source, _first: int) -> Part:
    found = find(random)
    templates = tuple(template for template in wordings(random, "find") if _whole_folder(template, found))
    slots = {"f": found.what, "fn": found.bare, "i": found.where, "b": found.base}
    return Part(word(templates, random, slots), (found.step,), found_said(random, found.entries))


def find_read(random: Source, first: int) -> Part:
    found = find(random, empty=0.08)
    clause = _reading(random, "find_read", {"f": found.what, "i": found.where})
    if not found.entries:
        return Part(clause, (found.step,), fixed(random, "none_found"))
    step, said = read_step(random, {"from_step": first}, found.entries)
    return Part(clause, (found.step, step), said)


def find_delete(random: Source, first: int) -> Part:
    found = find(random, empty=0.08)
    if found.step.arguments.get("pattern", "*.")[-1:] != "*" and found.what.startswith("*"):
        return find_delete(random, first)
    templates = wordings(random, "find_delete") if found.base != "." else wordings(random, "find_delete")[:3]
    clause = word(templates, random, {"f": found.what, "i": found.where, "b": found.base})
    if not found.entries:
        return Part(clause, (found.step,), fixed(random, "none_found"))
    step = Step("delete_files", {"from_step": first}, {"entries": list(found.entries)})
    return Part(clause, (found.step, step), fixed(random, "trashed", x=spoken(found.entries)))
