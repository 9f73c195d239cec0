"""Steps and parts: what requests and plans consist of.

A part is a clause of a request, with the steps that carry it out. An intent, in the `*_intents` modules, is a
function `(random) -> Part`; `from_step` counts the steps of the part. To extend the requests, add wordings to
`more_wordings.toml`, words to `vocabulary.toml`, or an intent to `lists.toml`. Invariants: every call is
valid against the bundled manifests, with its arguments in declared order; every value occurs in the request
or in an earlier result, or follows from a fixed rule (`markdown` -> `*.md`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any
from unicodedata import normalize

from training.source import Source
from training.vocabulary import address, draw
from training.wording import LISTS, fixed


@dataclass(frozen=True, slots=True)
class Step:
    """One call and its outcome: a result, or the error message for the model.

    `said`: the sentence of the answer about it, empty where the next one says it all.
    """

    name: str
    arguments: dict[str, Any]
    result: dict[str, Any] | None
    said: str = ""
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A clause of a request, and its steps."""

    clause: str
    steps: tuple[Step, ...]


def last_said(clause: str, *steps: Step) -> Part:
    """Return a part, of whose steps the answer says only the last."""
    return Part(clause, (*(replace(step, said="") for step in steps[:-1]), steps[-1]))


def count_text(random: Source, number: int) -> str:
    """Return a number in digits or as a word."""
    counts: list[str] = LISTS["counts"][random.language]
    return counts[number] if number < len(counts) and random.random() < 0.5 else str(number)


def spoken(values: Sequence[str], most: int = 5) -> str:
    """Return a list as answers write it: at most `most` values, then an ellipsis."""
    return ", ".join(values[:most]) + (" …" if len(values) > most else "")


def shortened(text: str) -> str:
    """Return the first twelve words of a text."""
    pieces = text.split(" ")
    return text if len(pieces) <= 14 else " ".join(pieces[:12]) + " …"


def subject_of(text: str) -> str:
    """Return the subject of a message whose request names none.

    Its text, or the first four words of a longer one.
    """
    pieces = text.split(" ")
    return text if len(pieces) <= 6 else " ".join(pieces[:4])


def quoted(random: Source, text: str, shares: tuple[int, int, int] = (62, 30, 8)) -> str:
    """Return a text as it is written in requests. `shares`: of bare ones, and of both kinds of quotes."""
    mark = random.choices(("", '"', "'"), shares)[0]
    return text if mark in text else f"{mark}{text}{mark}"


def shown(random: Source, path: str) -> str:
    """Return a path as requests write it: mostly as it is; else absolute, with its end mark, or in quotes."""
    made = draw(random, "{shown_path}", path=path)
    return path if "." in path and made.endswith("/") else made


def recipients(random: Source) -> list[str]:
    """Return one or two addresses, or "me"."""
    if random.random() < 0.22:
        return ["me"]
    return [address(random) for _ in range(random.choices((1, 2), (8, 1))[0])]


def created(random: Source, path: str, *more: str) -> Step:
    """Return the call that creates folders, with its result."""
    paths = [path, *more]
    return Step(
        "create_dirs", {"paths": paths}, {"entries": paths}, fixed(random, "created", x=spoken(paths))
    )


def written(random: Source, texts: dict[str, str]) -> Step:
    """Return the call that writes files, by their paths, with its result."""
    found = [{"path": path, "content": content} for path, content in texts.items()]
    said = fixed(random, "wrote", x=spoken(list(texts)))
    return Step("write_files", {"files": found}, {"entries": list(texts)}, said)


def read(random: Source, arguments: dict[str, Any], paths: Sequence[str]) -> Step:
    """Return the call that reads files, with its result; the answer quotes the first two."""
    texts = [draw(random, "{long_text}" if random.random() < 0.05 else "{text}") for _ in paths]
    pairs = list(zip(paths, texts, strict=True))[:2]
    said = "; ".join(fixed(random, "says", p=path, x=shortened(text)) for path, text in pairs)
    result = {"entries": texts, "paths": list(paths)}
    return Step("read_files", arguments, result, said + (" …" if len(paths) > 2 else ""))


def trashed(random: Source, arguments: dict[str, Any], paths: Sequence[str]) -> Step:
    """Return the call that deletes files, with its result."""
    said = fixed(random, "trashed", x=spoken(paths))
    return Step("delete_files", arguments, {"entries": list(paths)}, said)


def sent(
    random: Source, to: Sequence[str], subject: str, *, body: str | None = None, step: int | None = None
) -> Step:
    """Return the call that sends an email, with its result. Its text is `body` or the entries of `step`."""
    arguments: dict[str, Any] = {"to": list(to), "subject": subject}
    arguments |= {"body": body} if body is not None else {"from_step": step}
    plain = normalize("NFKD", subject).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:40].strip("-") or "message"
    day = draw(random, "{day}").replace("-", "")
    file = f"outbox/{day}T{random.randint(0, 23):02}{random.randint(0, 59):02}00-{slug}.eml"
    own = draw(random, "[me@localhost|me@example.com|{address}]")
    result = {"sent_to": [own if each == "me" else each for each in to], "file": file}
    said = fixed(random, "sent_me") if list(to) == ["me"] else fixed(random, "sent", x=spoken(to))
    return Step("send_messages", arguments, result, said)


def choice(
    random: Source, title: str, kind: str, prompt: str, value: str, *, options: Sequence[str] = ()
) -> Step:
    """Return the call that asks for a choice of `options`, or of the entries of the part's first step."""
    schema = {"kind": "choice", "options": list(options)} if options else {"kind": "choice"}
    arguments: dict[str, Any] = {
        "title": title,
        "dialog": [{"var": kind, "prompt": fixed(random, prompt), "schema": schema}],
    }
    if not options:
        arguments["from_step"] = 1
    said = fixed(random, "chose", x=value)
    return Step("get_inputs", arguments, {"values": {kind: value}, "entries": [value]}, said)
