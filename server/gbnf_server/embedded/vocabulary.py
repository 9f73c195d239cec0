"""The values that requests speak of: names, paths, addresses, texts, dates, sums.

They are many and random, so that a model trained on them has to copy instead of remembering. Whatever
contains one of the reserved words of the held-out requests is never drawn: those values stay unseen.
"""

from __future__ import annotations

import re
import tomllib
from datetime import date, timedelta
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING

from gbnf_server.embedded.wording import listed, word

if TYPE_CHECKING:
    from random import Random

_LISTS: dict[str, list[str]] = tomllib.loads((files(__package__) / "vocabulary.toml").read_text("utf-8"))
FOLDERS, FILES, PLACES, NAMES = (tuple(_LISTS[key]) for key in ("folders", "files", "places", "names"))
DOMAINS, EXTENSIONS, THINGS = (tuple(_LISTS[key]) for key in ("domains", "extensions", "things"))
OCCASIONS, ROLES, MONTHS = (tuple(_LISTS[key]) for key in ("occasions", "roles", "months"))
SENTENCES = (
    "the {w} [is|was] [late|ready|closed|open|broken|cancelled|here]",
    "[buy|bring|get|fetch|order] [the|some|a|] {w} [and {w}|]",
    "I [will be|am] [late|there at {n}|in {place}|on holiday|out today]",
    "[we|they] [meet|leave|start|arrive|eat] at {n}",
    "the [meeting|train|call|lunch|party|lesson|flight] [is|starts|leaves] at {n}",
    "the [meeting|train|party|dinner] is [moved|postponed] to [monday|tuesday|friday|{n}]",
    "remember [to call|to thank|] {name}",
    "call [{name}|the {w}|the bank|the doctor|home] [tomorrow|today|at {n}|]",
    "thank you for the {w}",
    "see you [tomorrow|on monday|soon|at {n}]",
    "[pay|send|check|sign|finish|review] the {w} [before|by] [monday|friday|noon|{n}]",
    "hello [world|{name}|from {place}|everyone|]",
    "[don't|do not] forget the {w}",
    "it's {w} time",
    "{name} [likes|needs|wants|has] [the|a] {w}",
    "[dear|hi] {name}, the {w} is [fine|here|ready]",
    "version {n}.{n} of the {w}",
    "{w} {w}",
    "{w} {w} {w}",
    "{w}",
    "the {w} {w} of {place}",
    "all good",
    "water the {w}",
    "we won the {w}",
    "happy birthday {name}",
    "the report is [ready|done|attached]",
    "the [budget|offer|contract|plan|order] is [approved|signed|ready|accepted]",
    "{w}: {n}",
)


@cache
def reserved() -> re.Pattern[str]:
    """Matches every word kept for the held-out requests (`reserved` in `held_out.toml`)."""
    words = tomllib.loads((files(__package__) / "held_out.toml").read_text("utf-8"))["reserved"]
    return re.compile("|".join(re.escape(word) for word in words), re.IGNORECASE)


@cache
def words() -> tuple[str, ...]:
    """The common words that values are made of, without the reserved ones."""
    lines = (files(__package__) / "words.txt").read_text("utf-8").split("\n")
    return tuple(line for line in lines if line and not line.startswith("#") and not reserved().search(line))


def pseudo_word(random: Random) -> str:
    """A pronounceable word that exists nowhere, 2-3 syllables: only copying helps."""
    while True:
        text = "".join(
            random.choice(_LISTS["onsets"]) + random.choice(_LISTS["vowels"]) + random.choice(_LISTS["codas"])
            for _ in range(random.choice((1, 2, 2, 3)))
        )
        if len(text) > 2 and not reserved().search(text):
            return text


def noun(random: Random) -> str:
    """A word: mostly a real one."""
    return random.choice(words()) if random.random() < 0.85 else pseudo_word(random)


def stem(random: Random, known: tuple[str, ...]) -> str:
    """The name of a file or folder, without extension: sometimes a usual one, mostly not."""
    kind = random.random()
    if kind < 0.32:
        text = random.choice(known)
    elif kind < 0.62:
        text = random.choice(words())
    elif kind < 0.74:
        text = pseudo_word(random)
    elif kind < 0.79:
        text = f"{noun(random)}{random.choice('-_')}{noun(random)}"
    elif kind < 0.84:
        text = f"{random.choice((*known, noun(random)))}{random.choice(('-', '_', ''))}{number_text(random)}"
    elif kind < 0.91:
        text = random.choice(PLACES)
    else:
        text = noun(random).capitalize()
    return text if not reserved().search(text) else stem(random, known)


def number_text(random: Random) -> str:
    """Digits as they stand in names: a year, a short number, a date."""
    kind = random.random()
    if kind < 0.4:
        return str(random.randint(1990, 2031))
    return str(random.randint(1, 99)) if kind < 0.95 else day(random)


def folder(random: Random) -> str:
    """A folder's relative path, 1-3 levels."""
    levels = random.choice((1, 1, 1, 1, 2, 2))
    return "/".join(stem(random, FOLDERS if level == 0 else (*FOLDERS, *PLACES)) for level in range(levels))


def file_name(random: Random) -> str:
    """A file's name with its extension."""
    return f"{stem(random, FILES)}.{random.choice(EXTENSIONS)}"


def file_path(random: Random) -> str:
    """A file's relative path."""
    name = file_name(random)
    return name if random.random() < 0.4 else f"{folder(random)}/{name}"


def address(random: Random) -> str:
    """An email address."""
    kind = random.random()
    if kind < 0.5:
        user = random.choice(NAMES)
    elif kind < 0.7:
        user = f"{random.choice(NAMES)}.{noun(random)}"
    elif kind < 0.85:
        user = noun(random)
    else:
        user = f"{random.choice(NAMES)}{random.randint(1, 99)}"
    domain = (
        random.choice(DOMAINS)
        if random.random() < 0.75
        else f"{noun(random)}.{random.choice(DOMAINS).split('.')[-1]}"
    )
    text = f"{user}@{domain}"
    return text if not reserved().search(text) else address(random)


def text(random: Random) -> str:
    """What is written in a file or a message: 1-12 words, as people dictate them."""
    kind = random.random()
    if kind < 0.3:
        pool = THINGS if random.random() < 0.5 else words()
        return listed([random.choice(pool) for _ in range(random.randint(1, 3))], random)
    if kind < 0.45:
        return " ".join(noun(random) for _ in range(random.randint(1, 4)))
    template = random.choice(SENTENCES)
    for _ in range(template.count("{w}")):
        template = template.replace("{w}", noun(random), 1)
    slots = {"n": str(random.randint(1, 30)), "name": random.choice(NAMES), "place": random.choice(PLACES)}
    made = word((template,), random, slots)
    if random.random() < 0.12:
        made = made[:1].upper() + made[1:]
    return made if not reserved().search(made) else text(random)


def long_text(random: Random) -> str:
    """What an older file may hold: several sentences or lines."""
    joiner = random.choice((". ", "\n", "\n- ", "; "))
    return joiner.join(text(random) for _ in range(random.randint(2, 4)))


def day(random: Random) -> str:
    """A date, YYYY-MM-DD."""
    return (date(2024, 1, 1) + timedelta(days=random.randint(0, 2200))).isoformat()
