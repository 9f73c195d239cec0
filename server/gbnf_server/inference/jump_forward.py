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

from gbnf.grammar.code_points import first_bytes
from gbnf.grammar.forced_continuation import ForcedContinuation
from gbnf_server.inference.kv_cache import shared_prefix_length
from gbnf_server.inference.native import NativeModel

_MOST_DRAFTS = 32


@dataclass(frozen=True, slots=True)
class Jump:
    """The final `tokens` of the answer after a jump, and the `text` that they add to it.

    `kept`: how many tokens of the answer before stay. `drafts`: the likely next tokens, each with whether the
    model has to sample it; otherwise it is final once those before it are sampled.
    """

    tokens: list[int]
    text: str
    kept: int
    drafts: list[tuple[int, bool]]


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
    choices: list[tuple[int, int]] = []  # byte offsets: up to where the tokens are final, and of the choice
    for position, possible in forced_continuation.choices:
        at = started + len(forced_continuation.text[:position].encode())
        choices.append((model.stable_length(raw[:at], offsets, first_bytes(possible)), at))
    certain = max(
        count for count, at in enumerate(offsets) if at <= choices[0][0] and not _is_inside(raw, at)
    )
    if offsets[certain] <= started:
        if whole[: len(tokens)] != list(tokens):
            return None
        certain = len(tokens)
    likely = [
        (token, not _is_final(offsets[index], offsets[index + 1], choices))
        for index, token in enumerate(whole[certain : certain + _MOST_DRAFTS], certain)
    ]
    added = raw[started : offsets[certain]].decode()
    return Jump(whole[:certain], added, shared_prefix_length(tokens, whole[:certain]), likely)


def _is_final(start: int, end: int, choices: Sequence[tuple[int, int]]) -> bool:
    """Return whether a token between these bytes is the same whatever the next choice is."""
    index = bisect_left(choices, start, key=lambda choice: choice[1])
    return index < len(choices) and end <= choices[index][0]


def _is_inside(raw: bytes, offset: int) -> bool:
    """Return whether the offset is inside a character."""
    return offset < len(raw) and raw[offset] & 0b1100_0000 == 0b1000_0000
