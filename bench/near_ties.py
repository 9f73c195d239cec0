"""How close two different greedy answers to one request are: whether a near tie explains the difference."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import takewhile
from math import inf
from typing import Any
from unittest.mock import patch

from gbnf_server.llama.decoder import token_logprob
from gbnf_server.llama.token_values import TokenLogprob

_COUNT = 1000
_ENDS = (b"<|im_end|>", b"<|endoftext|>", b"<reponame>")  # SmolLM2's tokens that end an answer


@contextmanager
def more_logprobs() -> Iterator[None]:
    """Return many alternatives to each token, where a request asks for any.

    Where a grammar refuses all likely tokens, the ones that it allows are not among the first 20.
    """

    def more(model: Any, logits: Any, token: int, _: int) -> TokenLogprob:
        return token_logprob(model, logits, token, _COUNT)

    with patch("gbnf_server.llama.decoder.token_logprob", more):
        yield


def gap(first: Sequence[TokenLogprob], second: Sequence[TokenLogprob]) -> float:
    """Return the difference of the logits of the first two tokens that differ, infinity if it is unknown.

    It is that of the first answer, or of the longer one where the other has ended there. Texts may differ
    later than tokens, where one was split otherwise.
    """
    for a, b in zip(first, second, strict=False):
        if a.token != b.token:
            return a.logprob - dict(a.top).get(b.token, -inf)
    longer = max(first, second, key=len)[min(len(first), len(second)) :]
    if not longer:
        return inf
    return abs(longer[0].logprob - max(dict(longer[0].top).get(end, -inf) for end in _ENDS))


def changes(one: Sequence[TokenLogprob], other: Sequence[TokenLogprob]) -> Iterator[float]:
    """Yield how far each gap between the two likeliest tokens changes, up to where the answers differ."""
    for left, right in takewhile(_begin_alike, zip(one, other, strict=False)):
        logprobs = dict(right.top)
        shared = [(logprob, logprobs[piece]) for piece, logprob in left.top[:2] if piece in logprobs]
        if len(shared) == 2:
            (first, first_other), (second, second_other) = shared
            yield abs((first - second) - (first_other - second_other))


def _begin_alike(pair: tuple[TokenLogprob, TokenLogprob]) -> bool:
    return pair[0].token == pair[1].token
