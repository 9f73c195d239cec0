"""A small language for wordings: `[make|create] [a|the|] folder {path}`.

Square brackets choose one of their alternatives (they nest, and may be empty); braces are slots. Invariants:
expansion is a pure function of the generator; slots are filled last, so that brackets and braces inside a
value are only text; runs of spaces from empty choices are collapsed.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from functools import lru_cache
from importlib.resources import files
from typing import Any, TypeAlias

from training.source import Source

Node: TypeAlias = "str | tuple[tuple[Node, ...], ...]"
"""Literal text, or a choice between sequences of nodes."""

LISTS: dict[str, Any] = tomllib.loads((files(__package__) / "lists.toml").read_text("utf-8"))
_FOUND: dict[str, dict[str, Any]] = {
    language: tomllib.loads((files(__package__) / name).read_text("utf-8"))
    for language, name in (("en", "wordings.toml"), ("it", "wordings_it.toml"))
}
W: dict[str, dict[str, list[str]]] = {
    language: {key: value for key, value in found.items() if isinstance(value, list)}
    for language, found in _FOUND.items()
}
"""The wordings of each intent, by language, for training and for the held-out half."""
_LATER: dict[str, dict[str, Any]] = {
    language: tomllib.loads((files(__package__) / name).read_text("utf-8"))
    for language, name in (("en", "more_wordings.toml"), ("it", "more_wordings_it.toml"))
}
"""Wordings for training only: they are newer than the held-out suite, which must not change."""
_ALL: dict[str, dict[str, list[str]]] = {
    language: {key: [*base, *_LATER[language].get(key, ())] for key, base in found.items()}
    for language, found in W.items()
}


def wordings(random: Source, key: str) -> list[str]:
    """Return the wordings of an intent that this source draws from."""
    return (W if random.held_out else _ALL)[random.language][key]


def _tables(key: str) -> dict[str, dict[str, Any]]:
    return {language: found[key] for language, found in _FOUND.items()}


WHICH: dict[str, list[tuple[str, str]]] = {
    language: list(table.items()) for language, table in _tables("which").items()
}
KINDS: dict[str, dict[str, list[str]]] = _tables("kinds")
SUMS: dict[str, list[tuple[str, str]]] = {
    language: list(table.items()) for language, table in _tables("sums").items()
}
LATER_SUMS: dict[str, list[tuple[str, str]]] = {
    language: [*SUMS[language], *found["sums"].items()] for language, found in _LATER.items()
}
ZONES: dict[str, dict[str, str]] = _tables("zones")
PERIODS: dict[str, dict[str, list[str]]] = _tables("periods")
PARTS_OF_DAY: dict[str, dict[str, list[str]]] = _tables("parts")
DURATIONS: dict[str, dict[str, int]] = _tables("durations")
_FIXED: dict[str, dict[str, str]] = _tables("fixed")

TYPO_SHARE, FILLER_SHARE = 0.03, 0.06
"""Shares of the wordings in training that are mistyped (values never are) or have an additional word."""
_GAP = re.compile(r"(?<=[a-zàèéìòù]) (?=[a-zàèéìòù])")
_LONG_WORD = re.compile(r"(?<![{\w'])[a-zA-Zàèéìòù]{5,}(?![\w}'])")
_SPACES = re.compile(r" {2,}")
_BEFORE_MARK = re.compile(r" +([,?!:;]|\.(?= |$))")


@lru_cache(maxsize=4096)
def _parse(template: str) -> tuple[Node, ...]:
    nodes, end = _sequence(template, 0)
    if end != len(template):
        raise ValueError(f"unbalanced ']' at {end} in the wording {template!r}: close what you open")
    return nodes


def _sequence(template: str, start: int) -> tuple[tuple[Node, ...], int]:
    nodes: list[Node] = []
    text = start
    position = start
    while position < len(template) and template[position] not in "]|":
        if template[position] != "[":
            position += 1
            continue
        nodes.append(template[text:position])
        branches: list[tuple[Node, ...]] = []
        while True:
            branch, position = _sequence(template, position + 1)
            branches.append(branch)
            if position >= len(template):
                raise ValueError(f"unclosed '[' in the wording {template!r}: add a ']'")
            if template[position] == "]":
                break
        nodes.append(tuple(branches))
        position += 1
        text = position
    nodes.append(template[text:position])
    return tuple(nodes), position


def _choose(nodes: Sequence[Node], random: Source) -> str:
    return "".join(
        node if isinstance(node, str) else _choose(node[int(random.random() * len(node))], random)
        for node in nodes
    )


def word(templates: Sequence[str], random: Source, slots: Mapping[str, Any]) -> str:
    """Return one wording of one of the templates, with its slots filled."""
    for _ in range(80):
        template = templates[int(random.random() * len(templates))]
        text = _SPACES.sub(" ", _choose(_parse(template), random)).strip()
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
    words = [found for found in _LONG_WORD.finditer(text) if text[found.start() - 1 : found.start()] != "{"]
    if not words:
        return text
    found = random.choice(words)
    at = random.randrange(found.start() + 1, found.end() - 1)
    typed = random.choice((text[at + 1], "", text[at] * 2)) if text[at] != text[at + 1] else ""
    swapped = typed == text[at + 1]
    return text[:at] + (text[at + 1] + text[at] if swapped else typed) + text[at + 1 + swapped :]


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
    return _FIXED[random.language][key].format_map(slots)


def listed(values: Sequence[str], random: Source) -> str:
    """Return `a`, `a and b`, `a, b and c` or `a, b, c`."""
    if len(values) == 1:
        return values[0]
    english, italian = (" and ", " and ", " and ", ", ", ", and "), (" e ", " e ", " e ", ", ")
    last = random.choice(random.either(english, italian))
    if last == ", and " and len(values) == 2:
        last = " and "
    return ", ".join(values[:-1]) + last + values[-1]
