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

from gbnf_server.errors import BackendError
from gbnf_server.inference.kv_cache import KVCache, Logits, Slot, free
from gbnf_server.inference.native import NativeModel

GO_ON = threading.Event()
LENGTH = 2048


@pytest.fixture(scope="module")
def memory(tiny_model: Path) -> Iterator[KVCache]:
    model = NativeModel(tiny_model)
    made = KVCache(model, length=LENGTH, parallel=3, threads=1)
    yield made
    made.close()
    free(model, made.context, made.batch)


def taken(memory: KVCache, tokens: list[int]) -> tuple[int, int]:
    """The number of the sequence that a call with this prompt is given, and how much it need not evaluate."""
    slot = Slot()
    memory.register(slot)
    try:
        sequence, known = memory.acquire(slot, tokens)
        memory.evaluate(sequence, tokens[known:], GO_ON, [len(tokens) - known - 1])
        return sequence.seq_id, known
    finally:
        memory.release(slot)


def emptied(memory: KVCache) -> None:
    for sequence in memory._sequences:
        memory.roll_back(sequence, 0)
        sequence.last_used = 0.0


def test_a_call_is_given_the_sequence_that_shares_most(memory: KVCache) -> None:
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
def test_what_is_kept_changes_no_logit(memory: KVCache, prompts: list[list[int]], common: int) -> None:
    """Whatever was evaluated before in whichever sequence, the logits are those of a fresh one."""
    emptied(memory)
    found = []
    for prompt in [*prompts, prompts[-1]]:
        tokens = [5] * common + prompt
        slot = Slot()
        memory.register(slot)
        sequence, known = memory.acquire(slot, tokens)
        (logits,) = memory.evaluate(sequence, tokens[known:], GO_ON, [len(tokens) - known - 1])
        found.append(logits)
        assert sequence.cached_tokens == tokens
        memory.release(slot)
    emptied(memory)
    slot = Slot()
    memory.register(slot)
    sequence, known = memory.acquire(slot, tokens)
    assert known == 0
    (fresh,) = memory.evaluate(sequence, tokens, GO_ON, [len(tokens) - 1])
    memory.release(slot)
    np.testing.assert_allclose(found[-1], fresh, rtol=0, atol=0.05)  # batches round otherwise


def evaluated(memory: KVCache, tokens: list[int], steps: int) -> list[Logits]:
    """The logits behind a prompt, and behind each token that greedy decoding puts after it."""
    slot = Slot()
    memory.register(slot)
    sequence, known = memory.acquire(slot, tokens)
    found = []
    left = tokens[known:]
    for _ in range(steps):
        (logits,) = memory.evaluate(sequence, left, GO_ON, [len(left) - 1])
        found.append(logits.copy())
        left = [int(logits.argmax())]
    memory.release(slot)
    return found


@settings(max_examples=30)
@given(
    st.lists(st.lists(st.integers(0, 250), min_size=1, max_size=300), max_size=5),
    st.lists(st.integers(0, 250), min_size=1, max_size=300),
)
def test_what_is_forgotten_leaves_no_trace(
    memory: KVCache, prompts: list[list[int]], prompt: list[int]
) -> None:
    """To the last digit: what a bench prints must not depend on what ran before."""
    memory.clear_unused()
    fresh = evaluated(memory, prompt, 5)
    for earlier in [*prompts, prompt]:
        evaluated(memory, earlier, 3)
    memory.clear_unused()
    np.testing.assert_array_equal(evaluated(memory, prompt, 5), fresh)


def test_a_call_under_way_keeps_its_sequence(memory: KVCache) -> None:
    memory.clear_unused()
    tokens = list(range(40))
    expected = evaluated(memory, [*tokens, 7], 1)
    slot = Slot()
    memory.register(slot)
    sequence, known = memory.acquire(slot, tokens)
    memory.evaluate(sequence, tokens[known:], GO_ON, [len(tokens) - known - 1])
    memory.clear_unused()
    assert sequence.cached_tokens == tokens
    (logits,) = memory.evaluate(sequence, [7], GO_ON, [0])
    np.testing.assert_allclose(logits, expected[0], rtol=0, atol=0.05)  # batches round otherwise
    memory.release(slot)
    assert taken(memory, tokens)[1] == len(tokens) - 1


@pytest.mark.parametrize("size", [1, 3, 511, 512, 513, 514, 1023, 1025])
def test_the_logits_asked_for_come_from_one_batch(memory: KVCache, size: int) -> None:
    emptied(memory)
    tokens = [index % 250 for index in range(size)]
    asked = sorted({max(0, size - 3), size - 1})
    slot = Slot()
    memory.register(slot)
    sequence, _ = memory.acquire(slot, tokens)
    assert len(memory.evaluate(sequence, tokens, GO_ON, asked)) == len(asked)
    assert len(sequence.cached_tokens) == size
    memory.release(slot)


def test_what_is_stopped_is_not_evaluated(memory: KVCache) -> None:
    stop = threading.Event()
    stop.set()
    slot = Slot()
    memory.register(slot)
    sequence, _ = memory.acquire(slot, [9, 9, 9])
    with pytest.raises(BackendError, match="cancelled"):
        memory.evaluate(sequence, [9, 9], stop, [1])
    memory.release(slot)
    memory.release(slot)  # once more is fine


def test_sequences_see_nothing_of_each_other(memory: KVCache) -> None:
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
        slot = Slot()
        memory.register(slot)
        try:
            sequence, known = memory.acquire(slot, text[:10])
            found = memory.evaluate(sequence, text[known:10], GO_ON, [9 - known])
            for token in text[10:]:
                if token % 7 == 0:
                    memory.roll_back(sequence, len(sequence.cached_tokens) - 2)
                found += [logits.copy() for logits in memory.evaluate(sequence, [token], GO_ON, [0])]
            return found
        finally:
            memory.release(slot)

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(6) as threads:
        patch.setattr(memory, "_decode", counted)
        together = list(threads.map(go, texts))
    assert max(batches) > 1
    emptied(memory)
    for text, found in zip(texts, together, strict=True):
        emptied(memory)
        np.testing.assert_allclose(np.stack(found), np.stack(go(text)), rtol=0, atol=0.05)
