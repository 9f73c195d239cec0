"""Training rows: one tool list, then as many tasks as fit, so that the cost of the tool list is shared.

What must stay true: rows are a pure function of the generator; only what the assistant says is learnt.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np

from gbnf_server.embedded import vocabulary as v
from gbnf_server.embedded.chat import END
from gbnf_server.embedded.traces import pool_for, pool_prompt, trace

if TYPE_CHECKING:
    from random import Random

    from tokenizers import Tokenizer

    from gbnf_server.embedded.traces import Trace

Stage = Literal["copy", "short", "plans"]
ANSWER_WEIGHT = 0.5
"""Of the last turn: an answer is long, and a clumsy one does less harm than a wrong call."""
COPY_LENGTH = 128
"""Tokens of a row while learning to copy; longer rows hold fewer beginnings for the same price."""


@dataclass(slots=True)
class Rows:
    """A batch: (B, T) tokens, loss weights of each *next* token, and how many tokens are no padding."""

    tokens: np.ndarray
    weights: np.ndarray
    used: int = 0


def _tokens(tokenizer: Tokenizer, text: str) -> list[int]:
    return list(tokenizer.encode(text, add_special_tokens=False).ids)


def _turns(tokenizer: Tokenizer, turns: list[tuple[str, str]]) -> tuple[list[int], list[float]]:
    ids: list[int] = []
    weights: list[float] = []
    for place, (role, content) in enumerate(turns):
        piece = _tokens(tokenizer, f"<|{role}|>{content}{END}")
        ids += piece
        own = 0.0 if role != "assistant" else 1.0 if place < len(turns) - 1 else ANSWER_WEIGHT
        weights += [0.0, *[own] * (len(piece) - 1)]  # the role mark is given, never said
    return ids, weights


def _copying(random: Random, tokenizer: Tokenizer) -> tuple[list[int], list[float]]:
    """Something said, and said again: values of requests, or tokens that mean nothing."""
    if random.random() < 0.5:
        start, middle, end = (_tokens(tokenizer, mark) for mark in ("<|user|>", f"{END}<|assistant|>", END))
        size = tokenizer.get_vocab_size()
        value = [random.randrange(6, size) for _ in range(random.randint(4, 24))]
        ids = [*start, *value, *middle, *value, *end]
        return ids, [0.0] * (len(ids) - len(value) - 1) + [1.0] * (len(value) + 1)
    make = random.choice((v.text, v.folder, v.file_path, v.address, v.noun, v.day, v.text))
    values = [make(random) for _ in range(random.choice((1, 1, 2, 3)))]
    chosen = values if random.random() < 0.5 else [random.choice(values)]
    shown = '{"' + '", "'.join(chosen) + '"}'
    return _turns(tokenizer, [("user", ", ".join(values)), ("assistant", shown)])


def rows(random: Random, tokenizer: Tokenizer, stage: Stage, count: int, length: int = 640) -> Rows:
    """`count` rows of `length` tokens; shorter ones, as many tokens in all, while learning to copy."""
    if stage == "copy":
        count, length = count * length // COPY_LENGTH, COPY_LENGTH
    made = Rows(np.zeros((count, length), np.int64), np.zeros((count, length), np.float32))
    for row in range(count):
        _fill(random, tokenizer, stage, made, row, length)
    return made


def _fill(random: Random, tokenizer: Tokenizer, stage: Stage, made: Rows, row: int, length: int) -> None:
    tasks: list[tuple[list[int], list[float]]] = []
    needed: frozenset[str] = frozenset()
    room = length if stage == "copy" else length - 170
    while room > 0:  # the last task is cut where the row ends
        if stage == "copy":
            task = _copying(random, tokenizer)
        else:
            made_trace: Trace = trace(random, parts=1 if stage == "short" else None)
            task = _turns(tokenizer, made_trace.turns())
            needed |= {step.name for step in made_trace.steps}
        room -= len(task[0])
        tasks.append(task)
    system: list[int] = []
    if stage == "plans":
        system = _tokens(tokenizer, f"<|system|>{pool_prompt(pool_for(random, needed))}{END}")
    elif stage == "short":
        system = _tokens(tokenizer, f"<|system|>{pool_prompt(tuple(sorted(needed)))}{END}")
    ids = [*system, *(token for task, _ in tasks for token in task)][:length]
    weights = [*([0.0] * len(system)), *(weight for _, task in tasks for weight in task)][:length]
    made.tokens[row, : len(ids)] = ids
    made.weights[row, : len(ids) - 1] = weights[1:]
    made.used += len(ids)
