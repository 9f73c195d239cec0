"""Jump-forward decoding: the tokens of forced text, and which of them are final.

    answer so far   {"                        tokens  {"
    forced          name":                            {"   name
    drafts           "                                {"   name   ":   <space>"

The tokens are those of the whole text's tokenization, so the last sampled tokens may be replaced by ones that
include forced text. Final are the tokens that are the same whatever follows: at the end of the forced text, a
token might merge with the next character. The tokens from there on are *drafts*: they are evaluated along
with the final ones, but the model then samples each among all that the grammar allows, and a draft that it
does not sample is rolled back. Optional spaces can be guessed in the same way.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import NamedTuple

from gbnf.grammar.code_points import first_bytes
from gbnf.grammar.forced_continuation import ForcedContinuation
from gbnf_server.inference.kv_cache import shared_prefix_length
from gbnf_server.inference.native import NativeModel

_MOST_DRAFTS = 32


class Draft(NamedTuple):
    """A likely next token.

    `asks`: the model has to sample it; otherwise it is final once those before it are sampled. `is_guessed`:
    it includes text that the grammar does not force.
    """

    token: int
    asks: bool
    is_guessed: bool = False


@dataclass(frozen=True, slots=True)
class Jump:
    """The final `tokens` of the answer after a jump, and the `text` that they add to it.

    `kept`: how many tokens of the answer before stay. `drafts`: the likely next tokens.
    """

    tokens: list[int]
    text: str
    kept: int
    drafts: list[Draft]


def jump(
    model: NativeModel,
    tokens: Sequence[int],
    text: str,
    forced_continuation: ForcedContinuation,
    control_texts: Collection[str] = (),
) -> Jump | None:
    """Extend an answer, given as tokens and text, by forced text; None if that saves nothing.

    `control_texts`: the texts that stand for control tokens in this answer.
    """
    if not forced_continuation.text:
        return Jump(list(tokens), "", len(tokens), []) if forced_continuation.ends else None
    whole = model.tokenize_exactly(text + forced_continuation.text, control_texts)
    if whole is None:
        return None
    if forced_continuation.ends:
        return Jump(whole, forced_continuation.text, shared_prefix_length(tokens, whole), [])
    offsets = list(accumulate((len(model.piece(token)) for token in whole), initial=0))
    raw = (text + forced_continuation.text).encode()
    started = len(text.encode())
    choices = [
        (started + len(forced_continuation.text[:position].encode()), possible)
        for position, possible in forced_continuation.choices
    ]

    def stable_length(choice: int) -> int:
        at, possible = choices[choice]
        return model.stable_length(raw[:at], offsets, first_bytes(possible))

    stable = stable_length(0)
    certain = max(count for count, at in enumerate(offsets) if at <= stable and not _is_inside(raw, at))
    if offsets[certain] <= started:
        if whole[: len(tokens)] != list(tokens):
            return None
        certain = len(tokens)
    positions = [at for at, _ in choices]

    def is_final(start: int, end: int) -> bool:
        """Return whether a token between these bytes is the same whatever the next choice is."""
        following = bisect_left(positions, start)
        return following < len(choices) and end <= positions[following] and end <= stable_length(following)

    likely = [
        Draft(token, not is_final(offsets[index], offsets[index + 1]))
        for index, token in enumerate(whole[certain : certain + _MOST_DRAFTS], certain)
    ]
    added = raw[started : offsets[certain]].decode()
    return Jump(whole[:certain], added, shared_prefix_length(tokens, whole[:certain]), likely)


def _is_inside(raw: bytes, offset: int) -> bool:
    """Return whether the offset is inside a character."""
    return offset < len(raw) and raw[offset] & 0b1100_0000 == 0b1000_0000
