"""Sequences of the KV cache: which one a call gets, what it keeps, and the size of a batch."""

from __future__ import annotations

import signal
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf_server.llama.bindings import llama_cpp
from gbnf_server.llama.cancellation import Cancellation
from gbnf_server.llama.kv_cache import CachedSequence, KVCache, Logits, Slot, _Evaluation, free
from gbnf_server.llama.native import NativeModel
from gbnf_server.system.errors import BackendError
from support.effort import scaled

GO_ON = Cancellation()
LENGTH = 2048


@pytest.fixture(scope="module")
def kv_cache(tiny_model: Path) -> Iterator[KVCache]:
    model = NativeModel(tiny_model)
    made = KVCache(model, length=LENGTH, parallel=3, threads=1)
    yield made
    made.close()
    free(model, made.context, made.batch)


def taken(kv_cache: KVCache, tokens: list[int], salt: str = "") -> tuple[int, int]:
    """Return the number of the sequence for a prompt, and its cached tokens."""
    with kv_cache.slot() as slot:
        sequence, known = kv_cache.acquire(slot, tokens, GO_ON, salt)
        kv_cache.evaluate(sequence, tokens[known:], GO_ON, [len(tokens) - known - 1])
        return sequence.seq_id, known


@contextmanager
def acquired(kv_cache: KVCache, tokens: list[int]) -> Iterator[CachedSequence]:
    with kv_cache.slot() as slot:
        yield kv_cache.acquire(slot, tokens, GO_ON)[0]


def emptied(kv_cache: KVCache) -> None:
    for sequence in kv_cache._sequences:
        kv_cache.roll_back(sequence, 0)
        sequence.last_used = 0.0


def test_a_call_gets_the_sequence_with_the_longest_shared_prefix(kv_cache: KVCache) -> None:
    emptied(kv_cache)
    tools = list(range(60, 160))
    one, other = [*tools, *range(50)], [*tools, *range(50, 0, -1)]
    first, known = taken(kv_cache, one)
    assert known == 0
    second, known = taken(kv_cache, other)
    assert (known, second != first) == (100, True)
    assert taken(kv_cache, [*one, 7, 8]) == (first, 150)
    assert taken(kv_cache, [*other, 7, 8]) == (second, 150)
    third, known = taken(kv_cache, [*tools, 1, 2, 3])
    assert (known, third not in {first, second}) == (100, True)
    assert taken(kv_cache, [*one, 7, 8, 9])[1] == 152


def test_calls_of_different_salts_share_nothing(kv_cache: KVCache) -> None:
    emptied(kv_cache)
    tokens = list(range(100))
    for salt in ("a", "b", "c", "d"):
        for known in (0, 99):
            assert taken(kv_cache, tokens, salt)[1] == known


def test_a_cancelled_call_does_not_wait_for_a_sequence(kv_cache: KVCache) -> None:
    stop = Cancellation()
    with acquired(kv_cache, [1]), acquired(kv_cache, [2]), acquired(kv_cache, [3]):
        slot = Slot()
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(kv_cache.acquire, slot, [4], stop)
            stop.set()
            with pytest.raises(BackendError, match="cancelled"):
                waiting.result()
        kv_cache.release(slot)


@settings(max_examples=scaled(40))
@given(
    st.lists(st.lists(st.integers(0, 3), min_size=1, max_size=12), min_size=1, max_size=8),
    st.integers(0, 600),
)
def test_what_is_kept_changes_no_logit(kv_cache: KVCache, prompts: list[list[int]], common: int) -> None:
    """Whatever was evaluated before in whichever sequence, the logits are those of a fresh one."""
    emptied(kv_cache)
    for prompt in [*prompts, prompts[-1]]:
        (found,) = evaluated(kv_cache, [5] * common + prompt, 1)
    emptied(kv_cache)
    (fresh,) = evaluated(kv_cache, [5] * common + prompts[-1], 1)
    np.testing.assert_allclose(found, fresh, rtol=0, atol=0.2)  # batches round otherwise


def evaluated(kv_cache: KVCache, tokens: list[int], steps: int) -> list[Logits]:
    """The logits behind a prompt, and behind each token that greedy decoding puts after it."""
    found = []
    with kv_cache.slot() as slot:
        sequence, known = kv_cache.acquire(slot, tokens, GO_ON)
        left = tokens[known:]
        for _ in range(steps):
            (logits,) = kv_cache.evaluate(sequence, left, GO_ON, [len(left) - 1])
            found.append(logits.copy())
            left = [int(logits.argmax())]
        assert sequence.cached_tokens[: len(tokens)] == tokens
    return found


@settings(max_examples=scaled(30))
@given(
    st.lists(st.lists(st.integers(0, 250), min_size=1, max_size=300), max_size=5),
    st.lists(st.integers(0, 250), min_size=1, max_size=300),
)
def test_cleared_sequences_do_not_affect_later_logits(
    kv_cache: KVCache, prompts: list[list[int]], prompt: list[int]
) -> None:
    """To the last digit: what a bench prints must not depend on what ran before."""
    kv_cache.clear_unused()
    fresh = evaluated(kv_cache, prompt, 5)
    for earlier in [*prompts, prompt]:
        evaluated(kv_cache, earlier, 3)
    kv_cache.clear_unused()
    np.testing.assert_array_equal(evaluated(kv_cache, prompt, 5), fresh)


def test_a_call_under_way_keeps_its_sequence(kv_cache: KVCache) -> None:
    kv_cache.clear_unused()
    tokens = list(range(40))
    expected = evaluated(kv_cache, [*tokens, 7], 1)
    kv_cache.clear_unused()
    with acquired(kv_cache, tokens) as sequence:
        kv_cache.evaluate(sequence, tokens, GO_ON, [len(tokens) - 1])
        kv_cache.clear_unused()
        assert sequence.cached_tokens == tokens
        (logits,) = kv_cache.evaluate(sequence, [7], GO_ON, [0])
        np.testing.assert_allclose(logits, expected[0], rtol=0, atol=0.2)  # batches round otherwise
    assert taken(kv_cache, tokens)[1] == len(tokens) - 1


@pytest.mark.parametrize("size", [1, 511, 512, 513, 514, 1025])
def test_the_logits_asked_for_come_from_one_batch(kv_cache: KVCache, size: int) -> None:
    emptied(kv_cache)
    tokens = [index % 250 for index in range(size)]
    asked = sorted({max(0, size - 3), size - 1})
    with acquired(kv_cache, tokens) as sequence:
        assert len(kv_cache.evaluate(sequence, tokens, GO_ON, asked)) == len(asked)
        assert len(sequence.cached_tokens) == size


def test_what_is_stopped_is_not_evaluated(kv_cache: KVCache) -> None:
    stop = Cancellation()
    stop.set()
    with kv_cache.slot() as slot:
        sequence, _ = kv_cache.acquire(slot, [9, 9, 9], GO_ON)
        with pytest.raises(BackendError, match="cancelled"):
            kv_cache.evaluate(sequence, [9, 9], stop, [1])
        kv_cache.release(slot)  # once more is fine


def cancelling(patch: pytest.MonkeyPatch, stop: Cancellation) -> list[int]:
    """Let each evaluation set `stop` once it has begun, and return the list of the statuses."""
    statuses, decode = list[int](), llama_cpp.llama_decode

    def cancelled(*arguments: Any) -> int:
        stop.set()
        statuses.append(decode(*arguments))
        return statuses[-1]

    patch.setattr(llama_cpp, "llama_decode", cancelled)
    return statuses


def test_a_cancelled_evaluation_ends_in_the_middle(kv_cache: KVCache) -> None:
    """It evaluates no further batch, and the next call starts afresh."""
    emptied(kv_cache)
    tokens = [index % 250 for index in range(1500)]
    (expected,) = evaluated(kv_cache, tokens[:700], 1)
    emptied(kv_cache)
    stop = Cancellation()
    with pytest.MonkeyPatch.context() as patch, acquired(kv_cache, tokens) as sequence:
        statuses = cancelling(patch, stop)
        with pytest.raises(BackendError, match="cancelled"):
            kv_cache.evaluate(sequence, tokens, stop, [1499])
    assert statuses == [2]  # aborted
    assert sequence.cached_tokens == []
    (logits,) = evaluated(kv_cache, tokens[:700], 1)
    np.testing.assert_array_equal(logits, expected)


def cancelled_together(kv_cache: KVCache) -> tuple[list[_Evaluation], list[int]]:
    """Evaluate two calls in one batch, the first of which is cancelled; return them and the statuses."""
    stop = Cancellation()
    with (
        pytest.MonkeyPatch.context() as patch,
        acquired(kv_cache, [3] * 40) as one,
        acquired(kv_cache, [3] * 40) as other,
    ):
        statuses = cancelling(patch, stop)
        requests = [
            _Evaluation(sequence, [3] * 40, frozenset([39]), each)
            for sequence, each in ((one, stop), (other, Cancellation()))
        ]
        kv_cache._decode(requests)
    return requests, statuses


def test_a_cancelled_call_ends_no_other(kv_cache: KVCache) -> None:
    """Of two calls in one batch, the other one is evaluated again."""
    emptied(kv_cache)
    (expected,) = evaluated(kv_cache, [3] * 40, 1)
    emptied(kv_cache)
    requests, _ = cancelled_together(kv_cache)
    assert [request.is_done for request in requests] == [True, True]
    assert requests[0].error is not None
    assert requests[1].error is None
    np.testing.assert_allclose(requests[1].logits[0], expected, rtol=0, atol=0.2)  # batches round otherwise


def test_a_batch_of_recurrent_states_is_not_ended_for_one_of_its_calls(
    kv_cache: KVCache, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The states of the others could not be rolled back."""
    monkeypatch.setattr(kv_cache._model, "has_recurrent_state", True)
    emptied(kv_cache)
    assert cancelled_together(kv_cache)[1] == [0]


def test_an_interrupt_ends_the_evaluation(kv_cache: KVCache, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C reaches the main thread while llama.cpp computes."""
    emptied(kv_cache)
    monkeypatch.setattr(NativeModel, "is_small", False)
    statuses, decode, main = list[int](), llama_cpp.llama_decode, threading.main_thread().ident
    aborted = threading.Event()
    set_flag = kv_cache._abort.set

    def set_and_tell() -> None:
        set_flag()
        aborted.set()

    monkeypatch.setattr(kv_cache._abort, "set", set_and_tell)

    def interrupted(*arguments: Any) -> int:
        assert main is not None
        signal.pthread_kill(main, signal.SIGINT)
        aborted.wait()
        statuses.append(decode(*arguments))
        return statuses[-1]

    monkeypatch.setattr(llama_cpp, "llama_decode", interrupted)
    with acquired(kv_cache, [5] * 1200) as sequence, pytest.raises(KeyboardInterrupt):
        kv_cache.evaluate(sequence, [5] * 1200, GO_ON, [1199])
    monkeypatch.undo()
    assert statuses == [2]  # aborted
    assert taken(kv_cache, [5] * 1200)[1] == 0


def test_sequences_see_nothing_of_each_other(kv_cache: KVCache) -> None:
    """Threads that go on token by token, often in one batch, get the logits that each gets alone."""
    emptied(kv_cache)
    random = np.random.default_rng(3)
    texts = [random.integers(0, 250, 60).tolist() for _ in range(6)]
    batches: list[int] = []
    decode = kv_cache._decode

    def counted(requests: Any) -> None:
        batches.append(len(requests))
        decode(requests)

    def go(text: list[int]) -> list[Logits]:
        with kv_cache.slot() as slot:
            sequence, known = kv_cache.acquire(slot, text[:10], GO_ON)
            found = kv_cache.evaluate(sequence, text[known:10], GO_ON, [9 - known])
            for token in text[10:]:
                if token % 7 == 0:
                    kv_cache.roll_back(sequence, len(sequence.cached_tokens) - 2)
                found += [logits.copy() for logits in kv_cache.evaluate(sequence, [token], GO_ON, [0])]
            return found

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(6) as threads:
        patch.setattr(kv_cache, "_decode", counted)
        together = list(threads.map(go, texts))
    assert max(batches) > 1
    emptied(kv_cache)
    for text, found in zip(texts, together, strict=True):
        emptied(kv_cache)
        np.testing.assert_allclose(np.stack(found), np.stack(go(text)), rtol=0, atol=0.2)
