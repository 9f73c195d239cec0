"""Jumping over forced text: the tokens of what must come next, and which of them are certain.

    answer so far   {"                        tokens  {"
    forced          name":                            {"   name
    likely           "                                {"   name   ":   <space>"

The tokens are those that the tokenizer gives for the whole text, so what the model has sampled last may be
taken back and merged with what is forced. Certain are those that stay the same whatever follows: where the
forced text ends, the last of its tokens might merge with the next character. From there on the tokens are
only *drafts*: they are evaluated along with the certain ones, but the model then chooses at each of them
among all that the grammar allows, and a draft that it does not choose is forgotten. So can be guessed, too,
that a space will stand where one may.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from gbnf_server.decoding.memory import shared_length
from gbnf_server.native import NativeModel

_MOST_DRAFTS = 24  # each costs its share of an evaluation, with logits


@dataclass(frozen=True, slots=True)
class Jump:
    """`tokens`: the whole answer's, as far as they are certain. `text`: what they add to it.

    `kept`: how many of the answer's tokens are still the first ones. `drafts`: what likely follows.
    """

    tokens: list[int]
    text: str
    kept: int
    drafts: list[int]


def jump(
    model: NativeModel, tokens: Sequence[int], text: str, forced: str, likely: str, *, ends: bool
) -> Jump | None:
    """Go on from an answer, its tokens and its text; None where nothing is gained.

    `likely` is a guess of what follows `forced`; where that `ends` the answer, nothing does.
    """
    if not forced:
        return Jump(list(tokens), "", len(tokens), []) if ends else None
    raw = (text + forced).encode()
    whole = model.spelling(text + forced + likely)
    if whole is None:
        return None
    if ends:
        return Jump(whole, forced, shared_length(tokens, whole), [])
    offsets = list(accumulate((len(model.piece(token)) for token in whole), initial=0))
    begun = len(text.encode())
    settled = model.settled(raw, [at for at in offsets if at < len(raw)])
    certain = max(count for count, at in enumerate(offsets) if at <= settled and not _is_inside(raw, at))
    if offsets[certain] > begun:
        added = raw[begun : offsets[certain]].decode()
        kept = shared_length(tokens, whole[:certain])
        return Jump(whole[:certain], added, kept, whole[certain : certain + _MOST_DRAFTS])
    if whole[: len(tokens)] != list(tokens):
        return None
    return Jump(list(tokens), "", len(tokens), whole[len(tokens) : len(tokens) + _MOST_DRAFTS])


def _is_inside(raw: bytes, offset: int) -> bool:
    """Whether a character goes on at the offset."""
    return offset < len(raw) and raw[offset] & 0b1100_0000 == 0b1000_0000
