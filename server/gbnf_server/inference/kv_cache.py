"""A model's memory: one context of llama.cpp, shared by several sequences of tokens.

Each call has a sequence (a `CachedSequence`) to itself, kept after the call for the next one that begins alike. What
must stay true:

- `CachedSequence.past` holds a prefix of what the context remembers of the sequence, and where the two may differ, an
  evaluation first cuts the context back to it. So whatever interrupts a call (an error, Ctrl-C, a
  cancellation), the next one goes on from a state that is known.
- The context is touched only under `_lock`. Calls that come at about the same time are evaluated in one
  batch, by one of them: several sequences cost little more than one.
- No sequence grows beyond `length`, so that there is room for all.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gbnf_server.errors import BackendError, ModelLoadError
from gbnf_server.inference.bindings import llama_cpp
from gbnf_server.inference.native import NativeModel

Logits = npt.NDArray[np.float32]

_BATCH_SIZE = 512  # tokens evaluated at once; between two batches Ctrl-C is heard
_NEGLIGIBLE = 32  # tokens that a sequence may lose before another one is taken instead
_WAIT_FRACTION = 0.2  # of the time of an evaluation: for so long one waits for others to join the next
_MAX_WAIT_S = 0.01  # seconds


@dataclass(eq=False, slots=True)
class Slot:
    """A call's claim on a sequence, so that whatever happens in between, it can be given back."""


@dataclass(eq=False)
class CachedSequence:
    """One sequence. `cached_tokens`: its tokens that the context surely remembers; nothing else, if it is `is_synchronized`."""

    seq_id: int
    cached_tokens: list[int] = field(default_factory=list)
    is_synchronized: bool = True
    slot: Slot | None = None
    last_used: float = 0.0

    def shared_prefix(self, tokens: Sequence[int]) -> int:
        """How many tokens the two begin with in common."""
        return shared_prefix_length(self.cached_tokens, tokens)


@dataclass(eq=False, slots=True)
class _Request:
    """Tokens to be evaluated at the end of a sequence, with the logits behind those at `asked`."""

    sequence: CachedSequence
    tokens: Sequence[int]
    output_positions: frozenset[int]
    logits: list[Logits] = field(default_factory=list)
    error: str = ""
    is_done: bool = False


def shared_prefix_length(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens the two begin with in common."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))


class KVCache:
    """The context of a model for `parallel` sequences of up to `length` tokens. For several threads."""

    def __init__(self, model: NativeModel, *, length: int, parallel: int, threads: int) -> None:
        """Raises ModelLoadError where there is no room for it."""
        self._model, self.length, self.parallel = model, length, parallel
        self.context: Any = _new_context(model, length, parallel, threads)
        self._memory = llama_cpp.llama_get_memory(self.context)
        self.batch: Any = llama_cpp.llama_batch_init(_BATCH_SIZE, 0, 1)
        self._sequences = [CachedSequence(seq_id) for seq_id in range(parallel)]
        self._free = threading.Condition()
        self._lock = threading.Lock()
        self._turn = threading.Condition()
        self._waiting: list[_Request] = []
        self._is_decoding = False
        self._last_s = 0.0
        self._slots: set[Slot] = set()
        self._is_closed = False

    def register(self, slot: Slot) -> None:
        """Keep the model from being freed until the lease is given back.

        Raises BackendError where the memory has been closed.
        """
        with self._free:
            if self._is_closed:
                raise BackendError(f"the model {self._model.name} has been closed. Load it again.")
            self._slots.add(slot)

    def acquire(self, slot: Slot, tokens: Sequence[int]) -> tuple[CachedSequence, int]:
        """Wait for a sequence, give it to the lease, and cut it to what it shares with `tokens`.

        Returns it with the number of tokens that need not be evaluated; one is always left to evaluate, its
        logits being what an answer begins with. Taken is the free sequence that shares most; one that would
        lose much by it is spared while another is empty, and what any sequence remembers of `tokens`, busy
        or free, is copied. The lease has entered.
        """
        with self._free:
            while not (free := [sequence for sequence in self._sequences if sequence.slot is None]):
                self._free.wait()
            sequence = min(free, key=lambda each: _eviction_cost(each, tokens))
            sequence.slot = slot
        with self._lock:
            donor = max(self._sequences, key=lambda each: (each.shared_prefix(tokens), each is sequence))
            common = min(donor.shared_prefix(tokens), len(tokens) - 1)
            if donor is not sequence and not self._model.has_recurrent_state:
                sequence.is_synchronized = False
                sequence.cached_tokens.clear()
                llama_cpp.llama_memory_seq_rm(self._memory, sequence.seq_id, -1, -1)
                llama_cpp.llama_memory_seq_cp(self._memory, donor.seq_id, sequence.seq_id, 0, common)
                sequence.cached_tokens += tokens[:common]
            self._roll_back(sequence, min(sequence.shared_prefix(tokens), common))
        return sequence, len(sequence.cached_tokens)

    def release(self, slot: Slot) -> None:
        """Give back what the lease holds, if anything."""
        with self._free:
            self._slots.discard(slot)
            for sequence in self._sequences:
                if sequence.slot is slot:
                    sequence.slot, sequence.last_used = None, time.monotonic()
            self._free.notify_all()

    def roll_back(self, sequence: CachedSequence, length: int) -> None:
        """Forget all but the first `length` tokens of the sequence; the context does so at its next turn."""
        sequence.is_synchronized = False
        del sequence.cached_tokens[length:]

    def evaluate(
        self,
        sequence: CachedSequence,
        tokens: Sequence[int],
        stop: threading.Event,
        output_positions: Sequence[int],
    ) -> list[Logits]:
        """Evaluate tokens at the end of a sequence; the logits behind those at the indices `asked`, rising.

        With one sequence they are a view that lasts until the next evaluation. Those asked for lie within a
        batch. Raises BackendError where llama.cpp fails, or `stop` is set before a batch.
        """
        logits: list[Logits] = []
        first = 0
        while first < len(tokens):
            if stop.is_set():
                raise BackendError("the call was cancelled")
            left = len(tokens) - first
            size = left if left <= _BATCH_SIZE else min(_BATCH_SIZE, output_positions[0] - first)
            here = frozenset(index - first for index in output_positions if index - first < size)
            request = _Request(sequence, tokens[first : first + size], here)
            self._run(request)
            if request.error:
                raise BackendError(request.error)
            first += size
            logits = request.logits
        return logits

    def clear_unused(self) -> None:
        """Forget what free sequences remember: their next calls go the way that they go in a new context."""
        with self._free, self._lock:
            free = [sequence for sequence in self._sequences if sequence.slot is None]
            for sequence in free:
                self._roll_back(sequence, 0)
            if len(free) == len(self._sequences):  # the places in the context count too
                llama_cpp.llama_memory_clear(self._memory, False)

    def close(self) -> None:
        """Let nobody enter any more, and wait for those that have."""
        with self._free:
            self._is_closed = True
            while self._slots:
                self._free.wait()

    def _run(self, request: _Request) -> None:
        """Have a request done: by this thread, together with others that wait, or by another thread."""
        if self.parallel == 1:
            with self._lock:
                self._decode([request])
            return
        leads = False
        try:
            with self._turn:
                self._waiting.append(request)
                self._turn.notify_all()
                while self._is_decoding and not request.is_done:
                    self._turn.wait()
                if request.is_done:
                    return
                leads = self._is_decoding = True
                chosen = self._gather(request)
            with self._lock:
                begun = time.monotonic()
                self._decode(chosen)
                self._last_s = time.monotonic() - begun
        finally:
            with self._turn:
                self._waiting.remove(request)
                if leads:
                    self._is_decoding = False
                    self._turn.notify_all()

    def _gather(self, request: _Request) -> list[_Request]:
        """The request and what others ask for, as far as it fits into a batch. Under `_turn`."""
        until = time.monotonic() + min(_WAIT_FRACTION * self._last_s, _MAX_WAIT_S)
        busy = sum(sequence.slot is not None for sequence in self._sequences)
        while len(self._waiting) < busy and (left := until - time.monotonic()) > 0:
            self._turn.wait(left)
        chosen, room = [request], _BATCH_SIZE - len(request.tokens)
        for other in self._waiting:
            if other is not request and not other.is_done and len(other.tokens) <= room:
                chosen.append(other)
                room -= len(other.tokens)
        return chosen

    def _decode(self, requests: Sequence[_Request]) -> None:
        """Evaluate the requests in one batch. Under `_lock`."""
        batch, size = self.batch, 0
        outputs: list[tuple[_Request, int]] = []
        for request in requests:
            sequence, start = request.sequence, len(request.sequence.cached_tokens)
            if not sequence.is_synchronized:
                self._roll_back(sequence, start)
            assert len(sequence.cached_tokens) == start, (
                "a memory that can't be cut is cut at the start of a call only"
            )
            sequence.is_synchronized = False
            for index, token in enumerate(request.tokens):
                batch.token[size], batch.pos[size] = token, start + index
                batch.n_seq_id[size], batch.seq_id[size][0] = 1, sequence.seq_id
                batch.logits[size] = is_asked = index in request.output_positions
                if is_asked:
                    outputs.append((request, size))
                size += 1
        batch.n_tokens = size
        status = llama_cpp.llama_decode(self.context, batch)
        if status and len(requests) > 1:
            for request in requests:  # each gets its own chance
                self._decode([request])
            return
        if status:
            requests[0].error = f"llama.cpp could not evaluate {size} tokens (status {status})"
        for request, index in outputs if not status else ():
            logits = self._logits(index)
            request.logits.append(logits if self.parallel == 1 else logits.copy())
        for request in requests:
            if not status:
                request.sequence.cached_tokens.extend(request.tokens)
                request.sequence.is_synchronized = True
            request.is_done = True

    def _logits(self, index: int) -> Logits:
        pointer = llama_cpp.llama_get_logits_ith(self.context, index)
        if not pointer:
            raise BackendError("llama.cpp gave no logits")
        return np.ctypeslib.as_array(pointer, shape=(self._model.size,))

    def _roll_back(self, sequence: CachedSequence, length: int) -> None:
        """Make the context remember just the first `length` tokens of the sequence. Under `_lock`."""
        del sequence.cached_tokens[length:]
        if not llama_cpp.llama_memory_seq_rm(self._memory, sequence.seq_id, length, -1):
            sequence.cached_tokens.clear()  # recurrent memories cannot be cut: forget all
            llama_cpp.llama_memory_seq_rm(self._memory, sequence.seq_id, -1, -1)
        sequence.is_synchronized = True


def _eviction_cost(sequence: CachedSequence, tokens: Sequence[int]) -> tuple[bool, int, float]:
    """The smallest is the sequence to take."""
    shared_prefix = sequence.shared_prefix(tokens)
    return len(sequence.cached_tokens) - shared_prefix > _NEGLIGIBLE, -shared_prefix, sequence.last_used


def _new_context(model: NativeModel, length: int, parallel: int, threads: int) -> Any:
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_seq_max = length * parallel, parallel
    params.n_batch = params.n_ubatch = _BATCH_SIZE
    params.kv_unified = True  # sequences that begin alike share what they remember
    params.n_threads = params.n_threads_batch = threads
    params.no_perf = True
    context = llama_cpp.llama_init_from_model(model.handle, params)
    if not context:
        raise ModelLoadError(
            f"{model.path}: no context of {length} tokens could be made for {parallel} at once. Is there "
            "memory? Try a shorter one."
        )
    return context


def free(model: NativeModel, context: ctypes.c_void_p, batch: Any) -> None:
    """Free a context and then its model, in the order that llama.cpp asks for."""
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    model.close()
