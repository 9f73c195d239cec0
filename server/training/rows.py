"""Conversations for a pass of a model, which sees each by itself.

Some begin with the same tokens, such as a system message, which are there once, before all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

Conversation: TypeAlias = list[tuple[int, float]]
"""Tokens, each with its weight in the loss: 0 if the model does not learn it."""


@dataclass(frozen=True, slots=True)
class Rows:
    """Conversations as arrays of one length.

    `places`: of the tokens in their conversation. `parts`: the number of the conversation, from 1; 0 for the
    tokens that all begin with. `weights`: of the tokens in the loss.
    """

    tokens: NDArray[np.int64]
    places: NDArray[np.int64]
    parts: NDArray[np.int64]
    weights: NDArray[np.float64]

    @property
    def sizes(self) -> list[int]:
        """The number of tokens of each part."""
        sizes: list[int] = np.bincount(self.parts).tolist()
        return sizes


def rows_of(conversations: Iterable[Conversation], most: int, prefix: Sequence[int] = ()) -> Rows:
    """Return the first conversation, and those after it that fit into `most` tokens with `prefix`."""
    found = [(token, place, 0, 0.0) for place, token in enumerate(prefix)]
    for part, said in enumerate(conversations, 1):
        if len(found) + len(said) > most and part > 1:
            break
        found += [(token, place, part, weight) for place, (token, weight) in enumerate(said, len(prefix))]
    return Rows(*map(np.array, zip(*found, strict=True)))
