"""Training rows: as many conversations as fit, each of which attends to itself only.

Invariants: rows are a pure function of the generator; only the assistant's tokens have a loss.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

import numpy as np

from training.source import Source
from training.traces import Trace, trace

ANSWER_WEIGHT = 0.4
"""Loss weight of the last turn: an answer is long, and a clumsy one does less harm than a wrong call."""
ROW = 640
"""Tokens of a row; longer conversations are skipped."""


@dataclass(slots=True)
class Rows:
    """A batch: (B, T) tokens, the loss weight of each *next* token, and the conversation of each token.

    Padding belongs to conversation 0.
    """

    tokens: np.ndarray
    weights: np.ndarray
    members: np.ndarray


def conversation_tokens(encode: Callable[[str], list[int]], made: Trace) -> tuple[list[int], list[float]]:
    """Return a trace's tokens, and the loss weight of each."""
    ids: list[int] = []
    weights: list[float] = []
    turns = [("system", made.system()), *made.turns()]
    says = 0
    for place, (role, content) in enumerate(turns):
        piece = encode(f"<|{role}|>{content}<|end|>")
        ids += piece
        own = 0.0
        if role == "assistant":
            says += 1
            last = place == len(turns) - 1
            own = 0.0 if says <= made.given else ANSWER_WEIGHT if last and made.steps else 1.0
        weights += [0.0, *[own] * (len(piece) - 1)]  # the role mark is part of the prompt
    return ids, weights


def rows(random: Random, encode: Callable[[str], list[int]], count: int) -> Rows:
    """Return `count` rows of `ROW` tokens: the longest conversations first, each in the row that it fits
    best."""
    source = Source(random.getrandbits(64))
    waiting: list[tuple[list[int], list[float]]] = []
    total = 0
    while total < ROW * count * 1.03:
        made_tokens = conversation_tokens(encode, trace(source))
        if len(made_tokens[0]) <= ROW:
            waiting.append(made_tokens)
            total += len(made_tokens[0])
    waiting.sort(key=lambda task: len(task[0]), reverse=True)
    shape = (count, ROW)
    made = Rows(np.zeros(shape, np.int64), np.zeros(shape, np.float32), np.zeros(shape, np.int64))
    filled, members = [0] * count, [0] * count
    for ids, weights in waiting:
        fitting = [row for row in range(count) if filled[row] + len(ids) <= ROW]
        if not fitting:
            continue
        row = max(fitting, key=filled.__getitem__)
        start, end = filled[row], filled[row] + len(ids)
        members[row] += 1
        made.tokens[row, start:end] = ids
        made.weights[row, start : end - 1] = weights[1:]
        made.members[row, start:end] = members[row]
        filled[row] = end
    return made
