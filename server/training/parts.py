"""Steps and parts: what requests and plans consist of.

A part is a clause of a request, with the steps that carry it out and their sentence in the final answer. An
intent, in the `*_intents` modules, is a function `(random, first) -> Part`, `first` being the number of the
part's first step. To extend the requests, add wordings to `wordings.toml`, words to `vocabulary.toml`, or an
intent to `traces.PARTS`. Invariants: every call is valid against the bundled manifests, with its arguments in
declared order; every value occurs in the request or in an earlier result, or follows from a fixed rule
(`markdown` -> `*.md`).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from unicodedata import normalize

from training import vocabulary as v
from training.source import Source
from training.wording import LISTS, fixed


@dataclass(frozen=True, slots=True)
class Step:
    """One call and its outcome: a result, or the error message for the model."""

    name: str
    arguments: dict[str, Any]
    result: dict[str, Any] | None
    error: str | None = None


@dataclass(frozen=True, slots=True)
class Part:
    """A clause of a request, its steps, and its sentence in the answer."""

    clause: str
    steps: tuple[Step, ...]
    said: str


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


def quoted(random: Source, text: str) -> str:
    """Return a text as it is written in requests: bare, or in quotes."""
    kind = random.random()
    if '"' in text or kind < 0.62:
        return text
    return f'"{text}"' if kind < 0.92 or "'" in text else f"'{text}'"


def written(paths: Sequence[str], contents: Sequence[str]) -> Step:
    """Return the call that writes files, with its result."""
    pairs = zip(paths, contents, strict=True)
    found = [{"path": path, "content": content} for path, content in pairs]
    return Step("write_files", {"files": found}, {"entries": list(paths)})


def sent_said(random: Source, to: Sequence[str]) -> str:
    """Return the sentence of an answer that names the recipients."""
    return fixed(random, "sent_me") if list(to) == ["me"] else fixed(random, "sent", x=spoken(to))


def recipients(random: Source) -> list[str]:
    """Return one or two addresses, or "me"."""
    if random.random() < 0.22:
        return ["me"]
    return [v.address(random) for _ in range(random.choice((1, 1, 1, 1, 1, 1, 1, 1, 2)))]


def sent(
    random: Source, to: Sequence[str], subject: str, *, body: str | None = None, step: int | None = None
) -> Step:
    """Return the call that sends an email, with its result. Its text is `body` or the entries of `step`."""
    arguments: dict[str, Any] = {"to": list(to), "subject": subject}
    arguments |= {"body": body} if body is not None else {"from_step": step}
    plain = normalize("NFKD", subject).encode("ascii", "ignore").decode()
    slug = re.sub(r"[^a-z0-9]+", "-", plain.lower()).strip("-")[:40].strip("-") or "message"
    day = v.day(random).replace("-", "")
    file = f"outbox/{day}T{random.randint(0, 23):02}{random.randint(0, 59):02}00-{slug}.eml"
    own = random.choice(("me@localhost", "me@example.com", v.address(random)))
    reached = [own if address == "me" else address for address in to]
    return Step("send_messages", arguments, {"sent_to": reached, "file": file})


def choice(
    title: str, variable: str, prompt: str, value: str, first: int | None, options: Sequence[str] = ()
) -> Step:
    """Return the call that asks for a choice of `options` or of the entries of step `first`."""
    schema: dict[str, Any] = {"kind": "choice"}
    if options:
        schema["options"] = list(options)
    arguments: dict[str, Any] = {
        "title": title,
        "dialog": [{"var": variable, "prompt": prompt, "schema": schema}],
    }
    if first is not None:
        arguments["from_step"] = first
    return Step("get_inputs", arguments, {"values": {variable: value}, "entries": [value]})
