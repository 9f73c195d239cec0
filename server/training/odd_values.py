"""Values for training only, concatenated from the tokenizer's letter tokens (`pieces.txt`).

The model does not copy a token that never was a part of a value in training, however well it copies others.
So each letter token, and each mark that values may contain, has to occur in all kinds of values. Invariants:
no value has a word of the held-out half as a word of its own, and none contains a reserved word.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files

from training.source import Source
from training.wording import LISTS

_WORD = re.compile(r"[^\W\d_]+")


@dataclass(frozen=True, slots=True)
class Pieces:
    """The tokens that values are concatenated from.

    Of `every` one, `long` are those of four letters or more, mostly words that requests use in another sense;
    `spaced` are another token where a space stands in front, so that copying them is more than repeating.
    """

    every: tuple[str, ...]
    long: tuple[str, ...]
    spaced: tuple[str, ...]


@cache
def pieces() -> Pieces:
    """Return the pieces of `pieces.txt`."""
    lines = (files(__package__) / "pieces.txt").read_text("utf-8").split("\n")
    found = [line for line in lines if line and not line.startswith("#")]
    every = tuple(line for line in found if not line.startswith(" "))
    long = tuple(piece for piece in every if len(piece) > 3)
    return Pieces(every, long, tuple(line[1:] for line in found if line.startswith(" ")))


@cache
def reserved() -> re.Pattern[str]:
    """Return a pattern of every word that no trace has."""
    lists = tomllib.loads((files(__package__) / "vocabulary.toml").read_text("utf-8"))
    return re.compile("|".join(map(re.escape, lists["reserved"])), re.IGNORECASE)


def _fits(random: Source, text: str) -> bool:
    return not reserved().search(text) and all(map(random.draws, [text, *_WORD.findall(text)]))


def glued(random: Source) -> str:
    """One to four pieces; mostly in small letters, now and then one of them again and again."""
    known = pieces()
    while True:
        parts = [random.choice(known.every) for _ in range(random.choice((1, 1, 2, 2, 2, 2, 3, 3, 4)))]
        kind = random.random()
        if kind < 0.3:
            parts[0] = random.choice(known.spaced)
        elif kind < 0.5:
            parts[0] = random.choice(known.long)
        elif kind < 0.6:
            parts[-1] = random.choice(known.long)
        elif kind < 0.62:
            parts = [random.choice(parts)] * random.randint(2, 4) + parts[1:2]
        made = "".join(parts)
        shape = random.random()
        if shape < 0.6:
            made = made.lower()
        elif shape < 0.8:
            made = made[:1].upper() + made[1:].lower()
        elif shape < 0.83:
            made = made.upper()
        if random.random() < 0.02:
            made += random.choice(LISTS["foreign"])
        if len(made) > 1 and _fits(random, made):
            return made


def word(random: Source) -> str:
    """Return a word of pieces, now and then with digits."""
    made = glued(random)
    return f"{made}{_digits(random)}" if random.random() < 0.06 else made


def _digits(random: Source) -> str:
    return "".join(random.choice("0123456789") for _ in range(random.choice((1, 1, 2, 2, 3, 4, 4, 5, 6))))


def stem(random: Source) -> str:
    """Return the name of a file or folder: one to three words and numbers, joined by marks."""
    made = word(random)
    for _ in range(random.choice((0, 0, 0, 1, 1, 2))):
        following = _digits(random) if random.random() < 0.25 else word(random)
        made += random.choice(("-", "_", "-", "_", ".", "")) + following
    if random.random() < 0.04:
        made = f"{_digits(random)}{random.choice(('-', '_', ''))}{made}"
    return made if _fits(random, made) else stem(random)


def address(random: Source, domains: Sequence[str]) -> str:
    """Return an email address."""
    user = (
        ".".join(word(random) for _ in range(random.choice((1, 1, 1, 2))))
        if random.random() < 0.7
        else stem(random)
    )
    domain = (
        random.choice(domains)
        if random.random() < 0.4
        else ".".join(glued(random) for _ in range(random.choice((2, 2, 2, 3))))
    )
    made = f"{user}@{domain}"
    return made if made.isascii() and made.count("..") == 0 else address(random, domains)


def text(random: Source, noun: Callable[[], str]) -> str:
    """One to sixteen words, usual and of pieces, with numbers, capitals and marks among and after them."""
    made = ""
    count = random.choice((1, 2, 2, 3, 3, 4, 4, 5, 6, 7, 8, 10, 12, 16))
    marks = random.choice((0.0, 0.0, 0.06, 0.25))
    for place in range(count):
        kind = random.random()
        if kind < 0.08:  # short words, that requests and texts have in common
            each = random.word(random.choice((pieces().long, pieces().spaced))).lower()
        elif kind < 0.5:
            each = word(random)
        elif kind < 0.9:
            each = noun()
        else:
            each = _number(random)
        if random.random() < 0.04:
            each = f'"{each}"'
        made += (
            each
            if place == 0
            else (random.choice(LISTS["between"]) if random.random() < marks else " ") + each
        )
    if random.random() < 0.25:
        made = made[:1].upper() + made[1:]
    if random.random() < 0.2:
        made += random.choice(LISTS["ends"])
    return made if _fits(random, made) else text(random, noun)


def _number(random: Source) -> str:
    kind = random.random()
    if kind < 0.5:
        return _digits(random)
    if kind < 0.7:
        return f"{random.randint(0, 23)}:{random.randint(0, 59):02}"
    if kind < 0.85:
        return f"{random.randint(0, 999)}{random.choice('.,')}{random.randint(0, 99):02}"
    shape: str = random.choice(LISTS["numbers"])
    return shape.format(random.randint(1, 99), random.randint(1, 9999))
