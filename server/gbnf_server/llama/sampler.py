"""Sample the next token from the logits, among the tokens that a constraint allows.

The result is the same as with a mask over the whole vocabulary, without computing one:

- Each token gets a key that does not depend on the constraint; the allowed token with the greatest key is
  sampled. Greedy, the key is the logit. At a temperature T it is logit / T - ln E with E exponential: in any
  set, so also in the allowed one, a token has the greatest key with its probability in the softmax over that
  set (the Gumbel-max trick).
- So tokens are tried in the order of their keys. The first is nearly always allowed. Otherwise, tokens that
  cannot begin the next character are excluded, and the rest is tried in growing batches of the greatest keys.
- A truncation (`top_k`, `top_p`, `min_p`) applies to the allowed tokens: they are enumerated in the order of
  the logits as far as necessary, and the keys are drawn among the ones it keeps.
- A filter, such as the token budget's, is asked in the same order, so that few tokens are.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np
import numpy.typing as npt

from gbnf_server.llama.constraint import Constraint, TokenIds
from gbnf_server.llama.token_values import Truncation

Logits = npt.NDArray[np.float32]
Keys = npt.NDArray[np.float32] | npt.NDArray[np.float64]
Ordered = npt.NDArray[np.float64]
TokenFilter = Callable[[int], bool]

_WIDTHS = (64, 1024, 16384)  # of the batches in which tokens are tried; the last batch is the rest


def count_kept(truncation: Truncation, logits: Ordered, rest: Ordered) -> int | None:
    """Return how many tokens a truncation keeps; None if `logits` is too short to determine that.

    `logits`: the logits of the first allowed tokens, descending, at least one. `rest`: those of all other
    tokens that may be allowed, none of them greater.
    """
    if truncation.top_k and len(logits) >= truncation.top_k:
        logits, rest = logits[: truncation.top_k], rest[:0]
    weights = np.exp(logits - logits[0])
    before = np.cumsum(weights) - weights
    likely = int(np.count_nonzero(weights >= truncation.min_p))
    least = most = len(logits)
    if truncation.top_p < 1:  # of the mass of the allowed tokens, which is known up to that of `left`
        mass = weights.sum()
        least = int(np.count_nonzero(before < truncation.top_p * mass))
        most = int(np.count_nonzero(before < truncation.top_p * (mass + np.exp(rest - logits[0]).sum())))
    least, most = min(least, likely), min(most, likely)
    return least if least == most and (least < len(logits) or not len(rest)) else None


class Sampler:
    """Samples tokens: the likeliest at temperature 0, otherwise at random by their probabilities.

    `seed` -1 is a random one, as in llama.cpp.
    """

    def __init__(self, temperature: float, seed: int, truncation: Truncation | None = None) -> None:
        if not temperature >= 0 or temperature == np.inf:
            raise ValueError(f"temperature is {temperature}; it must be a number, at least 0")
        if seed < -1:
            raise ValueError(f"seed is {seed}; it must be at least 0, or -1 for a random one")
        self._temperature = temperature
        self._truncation = truncation or Truncation()
        self._random = np.random.default_rng(None if seed == -1 else seed)

    def sample(
        self, logits: Logits, constraint: Constraint | None, fits: TokenFilter | None = None
    ) -> int | None:
        """Return an allowed token, None if there is none. Raises ValueError if a logit is NaN.

        `fits`: a filter of the tokens that the constraint allows.
        """
        if self._temperature == 0:
            return _greatest(logits, constraint, fits)
        if self._truncation.keeps_all:
            return _greatest(self._keys(logits), constraint, fits)
        tokens = self._truncated(logits, constraint, fits)
        return None if tokens is None else int(tokens[np.argmax(self._keys(logits[tokens]))])

    def _keys(self, logits: Logits) -> npt.NDArray[np.float64]:
        noise = self._random.standard_exponential(len(logits))  # in float32 it would be 0 too often
        np.log(noise, out=noise)
        return np.subtract(logits / np.float64(self._temperature), noise, out=noise)

    def _truncated(
        self, logits: Logits, constraint: Constraint | None, fits: TokenFilter | None = None
    ) -> TokenIds | None:
        """Return the allowed tokens that the truncation keeps."""
        if fits is not None:
            unfiltered = self._truncated(logits, constraint)
            if unfiltered is None or all(fits(int(token)) for token in unfiltered):  # nearly always
                return unfiltered
        tokens = np.empty(0, dtype=np.int64)
        for allowed, rest in _batches(logits, constraint):
            if fits is not None:
                allowed = allowed[[fits(int(token)) for token in allowed]]  # noqa: PLW2901  # the ones that fit
            tokens = np.concatenate([tokens, allowed])
            if len(tokens):
                count = count_kept(
                    self._truncation, logits[tokens].astype(np.float64), rest.astype(np.float64)
                )
                if count is not None:
                    return tokens[:count]
        return None


def _greatest(keys: Keys, constraint: Constraint | None, fits: TokenFilter | None) -> int | None:
    """Return the allowed token with the greatest key, None if there is none."""
    greatest = int(keys.argmax())
    if np.isnan(keys[greatest]):
        raise ValueError("a logit is NaN")
    if (constraint is None or constraint.allows(greatest)) and (fits is None or fits(greatest)):
        return greatest
    batches = (map(int, allowed) for allowed, _ in _batches(keys, constraint))
    return next((token for batch in batches for token in batch if fits is None or fits(token)), None)


def _batches(keys: Keys, constraint: Constraint | None) -> Iterator[tuple[TokenIds, Keys]]:
    """Yield the allowed tokens by descending keys, in growing batches, each with the keys of the rest."""
    tokens = constraint.candidates() if constraint is not None else None
    if tokens is None:
        tokens = np.arange(len(keys))
    keys_left = keys[tokens]
    tokens, keys_left = tokens[keys_left > -np.inf], keys_left[keys_left > -np.inf]
    for width in (*_WIDTHS, len(keys_left)):
        if not len(keys_left):
            return
        if width < len(keys_left):
            split = np.argpartition(keys_left, len(keys_left) - width)
            top, rest = split[-width:], split[:-width]
        else:
            top, rest = np.arange(len(keys_left)), np.arange(0)
        top.sort()  # equal keys by token, as a mask and an argmax would have it
        top = top[np.argsort(-keys_left[top], kind="stable")]
        batch, tokens, keys_left = tokens[top], tokens[rest], keys_left[rest]
        yield batch if constraint is None else batch[constraint.allowed(batch)], keys_left
