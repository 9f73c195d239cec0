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

from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

from gbnf.grammar.code_points import first_bytes
from gbnf.grammar.forced_continuation import ForcedContinuation
from gbnf_server.inference.kv_cache import shared_prefix_length
from gbnf_server.inference.native import NativeModel

_MOST_DRAFTS = 32


@dataclass(frozen=True, slots=True)
class Jump:
    """`tokens`: the whole answer's, as far as they are certain. `text`: what they add to it.

    `kept`: how many of the answer's tokens are still the first ones. `drafts`: what likely follows, each
    token with whether the model has to choose it; else it is certain, once those before it are chosen.
    """

    tokens: list[int]
    text: str
    kept: int
    drafts: list[tuple[int, bool]]


def jump(
    model: NativeModel, tokens: Sequence[int], text: str, forced_continuation: ForcedContinuation
) -> Jump | None:
    """Go on from an answer, its tokens and its text, along a course; None where nothing is gained."""
    if not forced_continuation.text:
        return Jump(list(tokens), "", len(tokens), []) if forced_continuation.ends else None
    whole = model.tokenize_exactly(text + forced_continuation.text)
    if whole is None:
        return None
    if forced_continuation.ends:
        return Jump(whole, forced_continuation.text, shared_prefix_length(tokens, whole), [])
    offsets = list(accumulate((len(model.piece(token)) for token in whole), initial=0))
    raw = (text + forced_continuation.text).encode()
    begun = len(text.encode())
    choices: list[tuple[int, int]] = []  # in bytes: up to where all is settled, and the choice
    for place, possible in forced_continuation.choices:
        at = begun + len(forced_continuation.text[:place].encode())
        choices.append((model.stable_length(raw[:at], offsets, first_bytes(possible)), at))
    certain = max(
        count for count, at in enumerate(offsets) if at <= choices[0][0] and not _is_inside(raw, at)
    )
    if offsets[certain] <= begun:
        if whole[: len(tokens)] != list(tokens):
            return None
        certain = len(tokens)
    likely = [
        (token, not _is_settled(offsets[index], offsets[index + 1], choices))
        for index, token in enumerate(whole[certain : certain + _MOST_DRAFTS], certain)
    ]
    added = raw[begun : offsets[certain]].decode()
    return Jump(whole[:certain], added, shared_prefix_length(tokens, whole[:certain]), likely)


def _is_settled(start: int, end: int, choices: Sequence[tuple[int, int]]) -> bool:
    """Whether a token between these bytes is the same whatever the next choice is."""
    index = bisect_left(choices, start, key=lambda choice: choice[1])
    return index < len(choices) and end <= choices[index][0]


def _is_inside(raw: bytes, offset: int) -> bool:
    """Whether a character goes on at the offset."""
    return offset < len(raw) and raw[offset] & 0b1100_0000 == 0b1000_0000
