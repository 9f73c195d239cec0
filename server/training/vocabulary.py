"""The values in requests: names, paths, addresses, texts, dates, sums.

They are many and random, so that a model has to copy them instead of memorizing. Words are drawn from the
source's half of each list (`training.source`): those of training never occur in held-out traces.
"""

from __future__ import annotations

import re
import tomllib
from datetime import date, timedelta
from functools import cache
from importlib.resources import files
from typing import Any

from training import odd_values
from training.source import Source
from training.wording import LISTS, listed, word

_LISTS: dict[str, Any] = tomllib.loads((files(__package__) / "vocabulary.toml").read_text("utf-8"))
_ITALIAN: dict[str, list[str]] = _LISTS["it"]
FOLDERS = {"en": tuple(_LISTS["folders"]), "it": tuple(_ITALIAN["folders"])}
FILES = {"en": tuple(_LISTS["files"]), "it": tuple(_ITALIAN["files"])}
THINGS = {"en": tuple(_LISTS["things"]), "it": tuple(_ITALIAN["things"])}
MONTHS = {"en": tuple(_LISTS["months"]), "it": tuple(_ITALIAN["months"])}
PLACES, NAMES, DOMAINS = (tuple(_LISTS[key]) for key in ("places", "names", "domains"))
EXTENSIONS, OCCASIONS, ROLES = (tuple(_LISTS[key]) for key in ("extensions", "occasions", "roles"))
OCCASIONS_IT = tuple((noun, gender) for gender in "mf" for noun in _ITALIAN[f"occasions_{gender}"])
ROLES_IT, WEEKDAYS_IT = tuple(_ITALIAN["roles"]), tuple(_ITALIAN["weekdays"])
IMPOSSIBLE: dict[str, list[str]] = _LISTS["impossible"]
DECOYS: dict[str, list[str]] = _LISTS["decoys"]
AGAIN_SHARE = 0.1
ODD_SHARE = 0.15
"""Share of the values in training that consist of the tokenizer's pieces."""


@cache
def words(language: str = "en") -> tuple[str, ...]:
    """Return the common words that values consist of, without the reserved ones."""
    name = "words.txt" if language == "en" else "words_it.txt"
    lines = (files(__package__) / name).read_text("utf-8").split("\n")
    return tuple(
        line for line in lines if line and not line.startswith("#") and not odd_values.reserved().search(line)
    )


@cache
def _any_words() -> tuple[str, ...]:
    """Return all words, also those of requests: pieces of invented words, never words by themselves."""
    package = files(__package__)
    names = ("wordings.toml", "wordings_it.toml", "vocabulary.toml", "words.txt", "words_it.txt")
    text = " ".join((package / name).read_text("utf-8") for name in names)
    return tuple(sorted(set(re.findall(r"[a-zàèéìòù]{2,9}", text.lower()))))


def pseudo_word(random: Source) -> str:
    """Return an invented word, of syllables or of two words, which a model can only copy.

    In training it may be of words, since a piece that requests use in another sense ("minutes") must be
    copied too.
    """
    while True:
        if not random.held_out and random.random() < 0.25:
            text = random.choice(_any_words()) + random.choice(_any_words())
        elif not random.held_out and random.random() < 0.6:
            text = odd_values.glued(random)
        else:
            text = "".join(
                random.choice(_LISTS["onsets"])
                + random.choice(_LISTS["vowels"])
                + random.choice(_LISTS["codas"])
                for _ in range(random.choice((1, 2, 2, 2, 3)))
            )
        if len(text) > 2 and random.draws(text) and not odd_values.reserved().search(text):
            return text


def noun(random: Source) -> str:
    """Return a word: mostly one of the language, sometimes one of the other language, or an invented one.

    In training a word is sometimes repeated, so that its position decides and not its novelty.
    """
    said = random.again(AGAIN_SHARE) or _noun(random)
    random.recent.append(said)
    return said


def _noun(random: Source) -> str:
    if not random.held_out and random.random() < ODD_SHARE:
        return odd_values.word(random)
    kind = random.random()
    if kind < 0.22:
        return pseudo_word(random)
    other = "it" if random.language == "en" else "en"
    return random.word(words(random.language if kind < 0.85 else other))


def stem(random: Source, known: tuple[str, ...]) -> str:
    """Return the name of a file or folder, without extension: sometimes a usual one, mostly not."""
    said = random.again(AGAIN_SHARE) or _stem(random, known)
    random.recent.append(said)
    return said


def _stem(random: Source, known: tuple[str, ...]) -> str:
    if not random.held_out and random.random() < ODD_SHARE:
        return odd_values.stem(random)
    kind = random.random()
    if kind < 0.2:
        text = random.word(known)
    elif kind < 0.5:
        text = noun(random)
    elif kind < 0.64:
        text = pseudo_word(random)
    elif kind < 0.77:
        text = f"{noun(random)}{random.choice('-_')}{noun(random)}"
    elif kind < 0.85:
        first = random.choice((random.word(known), noun(random)))
        text = f"{first}{random.choice(('-', '_', ''))}{number_text(random)}"
    elif kind < 0.92:
        text = random.word(PLACES)
    else:
        text = noun(random).capitalize()
    return text if not odd_values.reserved().search(text) else _stem(random, known)


def number_text(random: Source) -> str:
    """Return digits as in names: a year, a short number, a date."""
    kind = random.random()
    if kind < 0.4:
        return str(random.randint(1990, 2035))
    return str(random.randint(1, 99)) if kind < 0.9 else day(random)


def folder(random: Source) -> str:
    """Return a folder's relative path, 1-3 levels."""
    levels = random.choice((1, 1, 1, 1, 2, 2, 2, 3))
    if not random.held_out and random.random() < 0.06:
        levels = 4
    known = FOLDERS[random.language]
    return "/".join(stem(random, known if level == 0 else (*known, *PLACES)) for level in range(levels))


def file_name(random: Source) -> str:
    """Return a file's name with its extension."""
    return f"{stem(random, FILES[random.language])}.{random.choice(EXTENSIONS)}"


def file_path(random: Source) -> str:
    """Return a file's relative path."""
    name = file_name(random)
    return name if random.random() < 0.4 else f"{folder(random)}/{name}"


def shown(random: Source, path: str) -> str:
    """Return a path as requests write it: mostly as it is; else absolute, with its end mark, or in quotes."""
    kind = random.random()
    if kind < 0.86:
        return path
    if kind < 0.92:
        return f"/{path}"
    if kind < 0.95 and "." not in path:
        return f"{path}/"
    return random.choice((f'"{path}"', f"'{path}'", f'"{path}"', f"`{path}`"))


def address(random: Source) -> str:
    """Return an email address."""
    if not random.held_out and random.random() < ODD_SHARE:
        return odd_values.address(random, DOMAINS)
    kind = random.random()
    if kind < 0.4:
        user = random.word(NAMES)
    elif kind < 0.65:
        user = f"{random.word(NAMES)}{random.choice('..._-')}{noun(random)}"
    elif kind < 0.85:
        user = noun(random)
    else:
        user = f"{random.word(NAMES)}{random.randint(1, 99)}"
    domain = (
        random.choice(DOMAINS)
        if random.random() < 0.6
        else f"{noun(random)}.{random.choice((*DOMAINS, 'x.fr', 'x.de', 'x.dev')).split('.')[-1]}"
    )
    text = f"{user}@{domain}"
    return text if not odd_values.reserved().search(text) else address(random)


def text(random: Source) -> str:
    """Return the content of a file or a message: 1-20 words, as people dictate them."""
    if not random.held_out and random.random() < ODD_SHARE:
        return odd_values.text(random, lambda: noun(random))
    kind = random.random()
    if kind < 0.22:
        things, all_words = THINGS[random.language], words(random.language)
        pool = things if random.random() < 0.5 else all_words
        named = [random.word(pool) for _ in range(random.randint(1, 4))]
        if not random.held_out and random.random() < 0.6:
            named = [random.choice(named) for _ in range(random.randint(2, 6))]
        return listed(named, random)
    if kind < 0.45:
        return " ".join(noun(random) for _ in range(random.randint(1, 6)))
    if kind < 0.52:
        joint = random.choice(random.either((", ", " and ", "; ", ". "), (", ", " e ", "; ")))
        return joint.join(_sentence(random) for _ in range(2))
    made = _sentence(random)
    change = random.random()
    if change < 0.14:
        made = made[:1].upper() + made[1:]
    elif change < 0.17:
        said = made.split(" ")
        place = random.randrange(len(said))
        said[place] = f'"{said[place]}"'
        made = " ".join(said)
    elif change < 0.2:
        end = random.choice(("!", "?", "...", " :)", ".", " (!)"))
        made += end if random.held_out else end.strip()  # requests close a gap before a mark
    return made


def _sentence(random: Source) -> str:
    template = random.choice(LISTS["sentences"][random.language])
    for _ in range(template.count("{w}")):
        template = template.replace("{w}", noun(random), 1)
    name = random.word(NAMES)
    slots = {
        "n": str(random.randint(1, 30)),
        "name": name.capitalize() if random.random() < 0.4 else name,
        "place": random.word(PLACES).capitalize() if random.random() < 0.5 else random.word(PLACES),
    }
    made = word((template,), random, slots)
    return made if not odd_values.reserved().search(made) else _sentence(random)


def long_text(random: Source) -> str:
    """Return the content of an older file: several sentences or lines."""
    joiner = random.choice((". ", "\n", "\n- ", "; "))
    return joiner.join(text(random) for _ in range(random.randint(2, 4)))


def day(random: Source) -> str:
    """Return a date, YYYY-MM-DD."""
    return (date(2024, 1, 1) + timedelta(days=random.randint(0, 2200))).isoformat()
