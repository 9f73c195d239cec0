"""Rendered text as pieces: tags, single characters, and slots; what two sequences of them share."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import NamedTuple, TypeAlias

from gbnf.compiler.notations import Part, Placeholder

Pieces: TypeAlias = tuple[Part, ...]
"""Slots, tags (`<…>`, or `<…` up to a slot) and other characters, one each: no tag is ever split."""

CONTROL_TEXT = re.compile(
    r"\]<\][^\s<>\[\]]{1,40}\[>\[|<[^<>\s=\"]{1,60}>|\[/?[A-Z][A-Z_]{1,40}\]|\[e~\[|\]~b\]"
)
"""The texts that models have as control tokens, by their looks."""
_PIECE = re.compile(r"<[^<>\n]*>?|.", re.DOTALL)


def split_pieces(text: str, slots: Iterable[tuple[str, Placeholder]] = ()) -> Pieces:
    """Return the pieces of a text in which each string of `slots` stands for its slot."""
    slot_of = dict(slots)
    if not slot_of:
        return tuple(_PIECE.findall(text))
    names = "|".join(re.escape(name) for name in sorted(slot_of, key=len, reverse=True))
    pieces: list[Part] = []
    for index, part in enumerate(re.split(f"({names})", text)):
        if index % 2:
            pieces.append(slot_of[part])
        else:
            pieces += _PIECE.findall(part)
    return tuple(pieces)


def join_pieces(pieces: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts of pieces: neighbouring texts become one."""
    parts: list[Part] = []
    for piece in pieces:
        if isinstance(piece, str) and parts and isinstance(parts[-1], str):
            parts[-1] += piece
        else:
            parts.append(piece)
    return tuple(parts)


def literal(pieces: Sequence[Part]) -> str | None:
    """Return the text of pieces, None if there are slots among them."""
    return None if any(isinstance(piece, Placeholder) for piece in pieces) else "".join(map(str, pieces))


def text_of(pieces: Iterable[Part]) -> str:
    """Return pieces as text, with the character U+0001 for each slot."""
    return "".join(piece if isinstance(piece, str) else "\1" for piece in pieces)


def common_prefix(first: Sequence[Part], second: Sequence[Part]) -> int:
    """Return how many pieces both begin with."""
    same = takewhile(lambda pair: pair[0] == pair[1], zip(first, second, strict=False))
    return sum(1 for _ in same)


def common_suffix(first: Sequence[Part], second: Sequence[Part]) -> int:
    """Return how many pieces both end with."""
    return common_prefix(first[::-1], second[::-1])


class Repeated(NamedTuple):
    """What stands around several things: `head` and `tail` around each, `separator` between them."""

    begin: Pieces
    head: Pieces
    tail: Pieces
    separator: Pieces
    end: Pieces


def repeated(before: Pieces, between: Pieces, after: Pieces, *, spaces: bool = False) -> Repeated:
    """Return what is repeated of the pieces around things: before the first, between two, after the last.

    `spaces`: also whitespace where the head begins and where the tail ends.
    """
    head = between[len(between) - common_suffix(before, between) :]
    head = head if spaces else head[leading_space(head) :]
    rest = between[: len(between) - len(head)]
    tail = rest[: common_prefix(rest, after)]
    tail = tail if spaces else tail[: len(tail) - leading_space(tail[::-1])]
    return Repeated(before[: len(before) - len(head)], head, tail, rest[len(tail) :], after[len(tail) :])


def leading_space(pieces: Sequence[Part]) -> int:
    """Return how many pieces at the beginning are whitespace."""
    return sum(1 for _ in takewhile(lambda piece: isinstance(piece, str) and piece.isspace(), pieces))
