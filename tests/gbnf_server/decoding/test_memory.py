"""Sequences of one memory: which a call is given, what it keeps, and how long a batch may be."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf_server.decoding.memory import Lease, Logits, Memory, free
from gbnf_server.errors import BackendError
from gbnf_server.native import NativeModel

GO_ON = threading.Event()
LENGTH = 2048


@pytest.fixture(scope="module")
def memory(tiny_model: Path) -> Iterator[Memory]:
    model = NativeModel(tiny_model)
    made = Memory(model, length=LENGTH, parallel=3, threads=1)
    yield made
    made.close()
    free(model, made.context, made.batch)


def taken(memory: Memory, tokens: list[int]) -> tuple[int, int]:
    """The number of the sequence that a call with this prompt is given, and how much it need not evaluate."""
    lease = Lease()
    memory.enter(lease)
    try:
        row, known = memory.take(lease, tokens)
        memory.evaluate(row, tokens[known:], GO_ON, [len(tokens) - known - 1])
        return row.number, known
    finally:
        memory.give(lease)


def emptied(memory: Memory) -> None:
    for row in memory._rows:
        memory.cut(row, 0)
        row.used = 0.0


def test_a_call_is_given_the_sequence_that_shares_most(memory: Memory) -> None:
    emptied(memory)
    tools = list(range(60, 160))
    one, other = [*tools, *range(50)], [*tools, *range(50, 0, -1)]
    first, known = taken(memory, one)
    assert known == 0
    second, known = taken(memory, other)
    assert (known, second != first) == (100, True)
    assert taken(memory, [*one, 7, 8]) == (first, 150)
    assert taken(memory, [*other, 7, 8]) == (second, 150)
    third, known = taken(memory, [*tools, 1, 2, 3])
    assert (known, third not in {first, second}) == (100, True)
    assert taken(memory, [*one, 7, 8, 9])[1] == 152


@settings(max_examples=40)
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=8),
    st.integers(0, 600),
)
def test_what_is_kept_changes_no_logit(memory: Memory, prompts: list[list[int]], common: int) -> None:
    """Whatever was evaluated before in whichever sequence, the logits are those of a fresh one."""
    emptied(memory)
    found = []
    for prompt in [*prompts, prompts[-1]]:
        tokens = [5] * common + prompt
        lease = Lease()
        memory.enter(lease)
        row, known = memory.take(lease, tokens)
        (logits,) = memory.evaluate(row, tokens[known:], GO_ON, [len(tokens) - known - 1])
        found.append(logits)
        assert row.past == tokens
        memory.give(lease)
    emptied(memory)
    lease = Lease()
    memory.enter(lease)
    row, known = memory.take(lease, tokens)
    assert known == 0
    (fresh,) = memory.evaluate(row, tokens, GO_ON, [len(tokens) - 1])
    memory.give(lease)
    np.testing.assert_allclose(found[-1], fresh, rtol=0, atol=0.05)  # batches round otherwise


def evaluated(memory: Memory, tokens: list[int], steps: int) -> list[Logits]:
    """The logits behind a prompt, and behind each token that greedy decoding puts after it."""
    lease = Lease()
    memory.enter(lease)
    row, known = memory.take(lease, tokens)
    found = []
    left = tokens[known:]
    for _ in range(steps):
        (logits,) = memory.evaluate(row, left, GO_ON, [len(left) - 1])
        found.append(logits.copy())
        left = [int(logits.argmax())]
    memory.give(lease)
    return found


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.integers(0, 250), min_size=1, max_size=300), max_size=5),
    st.lists(st.integers(0, 250), min_size=1, max_size=300),
)
def test_what_is_forgotten_leaves_no_trace(
    memory: Memory, prompts: list[list[int]], prompt: list[int]
) -> None:
    """To the last digit: what a bench prints must not depend on what ran before."""
    memory.forget()
    fresh = evaluated(memory, prompt, 5)
    for earlier in [*prompts, prompt]:
        evaluated(memory, earlier, 3)
    memory.forget()
    np.testing.assert_array_equal(evaluated(memory, prompt, 5), fresh)


def test_a_call_under_way_keeps_its_sequence(memory: Memory) -> None:
    memory.forget()
    tokens = list(range(40))
    expected = evaluated(memory, [*tokens, 7], 1)
    lease = Lease()
    memory.enter(lease)
    row, known = memory.take(lease, tokens)
    memory.evaluate(row, tokens[known:], GO_ON, [len(tokens) - known - 1])
    memory.forget()
    assert row.past == tokens
    (logits,) = memory.evaluate(row, [7], GO_ON, [0])
    np.testing.assert_allclose(logits, expected[0], rtol=0, atol=0.05)  # batches round otherwise
    memory.give(lease)
    assert taken(memory, tokens)[1] == len(tokens) - 1


@pytest.mark.parametrize("size", [1, 3, 511, 512, 513, 514, 1023, 1025])
def test_the_logits_asked_for_come_from_one_batch(memory: Memory, size: int) -> None:
    emptied(memory)
    tokens = [index % 250 for index in range(size)]
    asked = sorted({max(0, size - 3), size - 1})
    lease = Lease()
    memory.enter(lease)
    row, _ = memory.take(lease, tokens)
    assert len(memory.evaluate(row, tokens, GO_ON, asked)) == len(asked)
    assert len(row.past) == size
    memory.give(lease)


def test_what_is_stopped_is_not_evaluated(memory: Memory) -> None:
    stop = threading.Event()
    stop.set()
    lease = Lease()
    memory.enter(lease)
    row, _ = memory.take(lease, [9, 9, 9])
    with pytest.raises(BackendError, match="cancelled"):
        memory.evaluate(row, [9, 9], stop, [1])
    memory.give(lease)
    memory.give(lease)  # once more is fine


def test_sequences_see_nothing_of_each_other(memory: Memory) -> None:
    """Threads that go on token by token, often in one batch, get the logits that each gets alone."""
    emptied(memory)
    random = np.random.default_rng(3)
    texts = [random.integers(0, 250, 60).tolist() for _ in range(6)]
    batches: list[int] = []
    decode = memory._decode

    def counted(requests: Any) -> None:
        batches.append(len(requests))
        decode(requests)

    def go(text: list[int]) -> list[Logits]:
        lease = Lease()
        memory.enter(lease)
        try:
            row, known = memory.take(lease, text[:10])
            found = memory.evaluate(row, text[known:10], GO_ON, [9 - known])
            for token in text[10:]:
                if token % 7 == 0:
                    memory.cut(row, len(row.past) - 2)
                found += [logits.copy() for logits in memory.evaluate(row, [token], GO_ON, [0])]
            return found
        finally:
            memory.give(lease)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(6) as threads:
        patch.setattr(memory, "_decode", counted)
        together = list(threads.map(go, texts))
    assert max(batches) > 1
    emptied(memory)
    for text, found in zip(texts, together, strict=True):
        emptied(memory)
        np.testing.assert_allclose(np.stack(found), np.stack(go(text)), rtol=0, atol=0.05)
