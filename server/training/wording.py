"""How requests and answers are put: `[make|create] [a|the|] folder {path}` (`forms`).

Invariants: a wording is a pure function of the generator; runs of spaces from empty choices are collapsed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from training.forms import expanded, read_toml
from training.source import Source

LISTS = read_toml(__package__, "lists.toml")
FIRST = {"en": read_toml(__package__, "wordings.toml"), "it": read_toml(__package__, "wordings_it.toml")}
"""Lists and tables by language, of which the held-out suite was drawn: it must not change."""
_LATER = {
    "en": read_toml(__package__, "more_wordings.toml"),
    "it": read_toml(__package__, "more_wordings_it.toml"),
}
_ALL = {
    language: {
        key: [*first, *_LATER[language].get(key, ())]
        if isinstance(first, list)
        else {**first, **_LATER[language].get(key, {})}
        for key, first in found.items()
    }
    for language, found in FIRST.items()
}

TYPO_SHARE, FILLER_SHARE = 0.03, 0.06
"""Shares of the wordings in training that are mistyped (values never are) or have an additional word."""
_GAP = re.compile(r"(?<=[a-zàèéìòù]) (?=[a-zàèéìòù])")
_LONG_WORD = re.compile(r"(?<![{\w'])[a-zA-Zàèéìòù]{5,}(?![\w}'])")
_SPACES = re.compile(r" {2,}")
_BEFORE_MARK = re.compile(r" +([,?!:;]|\.(?= |$))")


def wordings(random: Source, key: str) -> Any:
    """Return the wordings of an intent, or a table, that this source draws from."""
    return (FIRST if random.held_out else _ALL)[random.language][key]


def word(templates: Sequence[str], random: Source, slots: Mapping[str, Any]) -> str:
    """Return one wording of one of the templates, with its slots filled."""
    for _ in range(80):
        template = templates[int(random.random() * len(templates))]
        text = _SPACES.sub(" ", expanded(template, random)).strip()
        if not text or random.draws(text):
            break
    if not random.held_out and text:
        changed = mistyped(random, text) if random.random() < TYPO_SHARE else text
        changed = filled(random, changed) if random.random() < FILLER_SHARE else changed
        text = changed if random.draws(changed) else text
    return _BEFORE_MARK.sub(r"\1", text).format_map(slots)


def worded(random: Source, key: str, /, **slots: str) -> str:
    """Return one of the wordings of an intent, with its slots filled."""
    return word(wordings(random, key), random, slots)


def mistyped(random: Source, text: str) -> str:
    """Return the wording with one of its longer words mistyped.

    A letter left out, doubled, or two exchanged.
    """
    words = list(_LONG_WORD.finditer(text))
    if not words:
        return text
    found = random.choice(words)
    at = random.randrange(found.start() + 1, found.end() - 1)
    first, second = text[at], text[at + 1]
    typed = random.choice((second + first, second, first * 2 + second)) if first != second else first
    return text[:at] + typed + text[at + 2 :]


def filled(random: Source, text: str) -> str:
    """Return the wording with an additional word inside that does not change its meaning."""
    gaps = [found.start() for found in _GAP.finditer(text)]
    if not gaps:
        return text
    at = random.choice(gaps)
    return f"{text[:at]} {random.choice(LISTS['fillers'][random.language])}{text[at:]}"


def closed(text: str) -> str:
    """Return the text without the gaps of empty slots."""
    return _BEFORE_MARK.sub(r"\1", _SPACES.sub(" ", text)).strip()


def fixed(random: Source, key: str, **slots: object) -> str:
    """Return a text that the model itself writes, such as a title or a sentence of an answer."""
    text: str = FIRST[random.language]["fixed"][key]
    return text.format_map(slots)


def listed(values: Sequence[str], random: Source) -> str:
    """Return `a`, `a and b`, `a, b and c` or `a, b, c`."""
    if len(values) == 1:
        return values[0]
    last = random.choice(random.either((" and ",) * 3 + (", ", ", and "), (" e ",) * 3 + (", ",)))
    return ", ".join(values[:-1]) + (" and " if last == ", and " and len(values) == 2 else last) + values[-1]
