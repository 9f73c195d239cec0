"""What is known of the tokens of an answer, as values: usable without llama.cpp and numpy."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, TypeAlias

TokenKind: TypeAlias = Literal["sampled", "drafted", "forced", "end"]
"""How a token was chosen: by a step of the model; by one in a batch with others; by the grammar. "end" is the
token that ends the generation, and is no part of the text."""


@dataclass(frozen=True, slots=True)
class TokenLogprob:
    """A token's bytes, its log-probability, and those of the likeliest tokens in its place.

    Natural logarithms at temperature 1, before any constraint.
    """

    token: bytes
    logprob: float
    top: tuple[tuple[bytes, float], ...] = ()


def token_range(text: str, ends: Sequence[int], start: int, end: int) -> tuple[int, int, int]:
    """Return the first token of `text[start:end]`, the one after the last, and where the first begins.

    `ends`: 0, and for each token of the text the number of its bytes up to the end of the token.
    """
    first = bisect_right(ends, len(text[:start].encode())) - 1
    last = bisect_left(ends, len(text[:end].encode()))
    return first, last, len(text.encode()[: ends[first]].decode(errors="ignore"))


@dataclass(frozen=True, slots=True)
class ValueProbability:
    """How probable a value of a JSON answer was, where the grammar left a choice.

    `pointer`: the JSON Pointer of the value in the answer. `alternatives`: if they were few, the JSON texts
    of all values that were possible there, each with its probability, descending; their sum is 1.
    """

    pointer: str
    probability: float
    alternatives: tuple[tuple[str, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Candidate:
    """A token that the model found likely, and what refused it, if anything did."""

    token: bytes
    probability: float
    refused_by: Literal["grammar", "limit", "repetition"] | None = None


@dataclass(frozen=True, slots=True)
class TracedToken:
    """A token of an answer. `at_s`: seconds from the start of decoding; `left`: tokens left before it.

    `probability`: that of the model before the mask; `allowed_probability`: the sum over all tokens that the
    grammar allows, so that the token's probability after the mask is the quotient of the two. Both are None
    for forced tokens, for which the model is not asked. `candidates`: the likeliest tokens, descending.
    `bonus`: what evidence has added to the token's logit.
    """

    token: bytes
    kind: TokenKind
    at_s: float
    left: int
    probability: float | None = None
    allowed_probability: float | None = None
    candidates: tuple[Candidate, ...] = ()
    bonus: float = 0.0


@dataclass(frozen=True, slots=True)
class Truncation:
    """Which of the allowed tokens may be sampled, in llama.cpp's order: `top_k`, `top_p`, `min_p`.

    0, 1.0 and 0.0 keep all. Probabilities are those at temperature 1, as in llama.cpp's default chain. Raises
    ValueError for a value out of range.
    """

    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0

    def __post_init__(self) -> None:
        if self.top_k < 0:
            raise ValueError(f"top_k is {self.top_k}; it must be the number of tokens to keep, or 0 for all")
        if not 0 < self.top_p <= 1:
            raise ValueError(f"top_p is {self.top_p}; it must be above 0, and at most 1, which keeps all")
        if not 0 <= self.min_p <= 1:
            raise ValueError(f"min_p is {self.min_p}; it must be between 0, which keeps all, and 1")

    @property
    def keeps_all(self) -> bool:
        """Whether nothing is truncated."""
        return not self.top_k and self.top_p == 1 and self.min_p == 0
