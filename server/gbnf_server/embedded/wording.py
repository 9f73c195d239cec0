"""A small language for wordings: `[make|create] [a|the|] folder {path}`.

Square brackets choose one of their alternatives (they nest; an empty one means nothing), braces are slots.
What must stay true: expanding is pure (all chance comes from the generator passed in), slots are filled
last, so that brackets and braces inside a value are only text, and runs of spaces left by empty choices are
closed.
"""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from random import Random

Node: TypeAlias = "str | tuple[tuple[Node, ...], ...]"
"""Literal text, or a choice between sequences of nodes."""

_FOUND: dict[str, Any] = tomllib.loads((files(__package__) / "wordings.toml").read_text("utf-8"))
W: dict[str, list[str]] = {key: value for key, value in _FOUND.items() if isinstance(value, list)}
"""The wordings of each intent."""
WHICH: list[tuple[str, str]] = list(_FOUND["which"].items())
WHICH_USUAL = WHICH[0]
KINDS: dict[str, list[str]] = _FOUND["kinds"]
SUMS: list[tuple[str, str]] = list(_FOUND["sums"].items())
ZONES: dict[str, str] = _FOUND["zones"]
PERIODS: dict[str, list[str]] = _FOUND["periods"]
DURATIONS: dict[str, int] = _FOUND["durations"]

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


def _choose(nodes: Sequence[Node], random: Random) -> str:
    return "".join(
        node if isinstance(node, str) else _choose(node[int(random.random() * len(node))], random)
        for node in nodes
    )


def word(templates: Sequence[str], random: Random, slots: Mapping[str, str]) -> str:
    """One wording of one of the templates, its slots filled."""
    template = templates[int(random.random() * len(templates))]
    text = _SPACES.sub(" ", _choose(_parse(template), random)).strip()
    return _BEFORE_MARK.sub(r"\1", text).format_map(slots)


def closed(text: str) -> str:
    """The text without the gaps that empty slots left."""
    return _BEFORE_MARK.sub(r"\1", _SPACES.sub(" ", text)).strip()


def listed(values: Sequence[str], random: Random) -> str:
    """`a`, `a and b`, `a, b and c` or `a, b, c`, as people write lists."""
    if len(values) == 1:
        return values[0]
    last = random.choice((" and ", " and ", " and ", ", ", ", and "))
    if last == ", and " and len(values) == 2:
        last = " and "
    return ", ".join(values[:-1]) + last + values[-1]
