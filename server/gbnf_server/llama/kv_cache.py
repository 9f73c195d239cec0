"""The KV cache of one llama.cpp context, shared by several sequences.

Each call has a sequence (`CachedSequence`) of its own, which stays in the cache for the next call with the
same prefix. Invariants:

- `CachedSequence.cached_tokens` is a prefix of what the cache has of the sequence. Where the two may differ,
  an evaluation first rolls back the cache. So whatever interrupts a call (an error, Ctrl-C, a cancellation),
  the next one starts from a known state.
- The context is used only under `_lock`. Calls that arrive at about the same time are evaluated in one batch,
  by one of their threads: several sequences take little longer than one.
- No sequence is longer than `length`, so that all fit.
- A call shares prefixes only with calls of the same salt: what it finds cached tells nothing of others.
- Each sequence has cells of its own: a token would attend to those of all sequences otherwise, which takes
  twice as long for eight of them. A common prefix is copied.
- With `batches_alone`, each batch has the tokens of one sequence. So a sequence that starts empty is computed
  the same, whatever others do.
"""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import numpy.typing as npt

from gbnf_server.llama.bindings import llama_cpp
from gbnf_server.llama.cancellation import AbortFlag, Cancellation
from gbnf_server.llama.native import NativeModel
from gbnf_server.system.errors import BackendError, ModelLoadError

Logits = npt.NDArray[np.float32]

_BATCH_SIZE = 512  # tokens evaluated at once
_SIGNAL_S = 0.2  # within which a signal is handled
_INSTANT = 8  # tokens whose evaluation is not interrupted: Python handles Ctrl-C after it
_ABORTED = 2  # the status of an evaluation that the abort callback has ended
_NEGLIGIBLE = 32  # cached tokens that a sequence may lose before another one is preferred, or copied
_WAIT_FRACTION = 0.2  # of the last evaluation's time, to wait for other calls to join the batch
_MAX_WAIT_S = 0.01  # seconds
_LOOK_S = 0.1  # seconds after which a call that waits for a sequence looks whether it is cancelled


@dataclass(eq=False, slots=True)
class Slot:
    """A call's right to one sequence, which it can release whatever interrupts it."""


@dataclass(eq=False)
class CachedSequence:
    """One sequence. `cached_tokens`: tokens that are in the cache; if `is_synchronized`, it has no others.

    `salt`: that of the call that evaluated them.
    """

    seq_id: int
    salt: str = ""
    cached_tokens: list[int] = field(default_factory=list)
    is_synchronized: bool = True
    slot: Slot | None = None
    last_used: float = 0.0

    def shared_prefix(self, tokens: Sequence[int], salt: str) -> int:
        """Return the number of tokens that both begin with; 0 for another salt."""
        return shared_prefix_length(self.cached_tokens, tokens) if salt == self.salt else 0


@dataclass(eq=False, slots=True)
class _Evaluation:
    """Tokens to evaluate at the end of a sequence, and the logits after those at `output_positions`.

    Its thread evaluates the next batch if `leads`; otherwise it waits for `called`, which another one
    releases when it `is_done`, or is to lead.
    """

    sequence: CachedSequence
    tokens: Sequence[int]
    output_positions: frozenset[int]
    stop: Cancellation
    logits: list[Logits] = field(default_factory=list)
    error: BackendError | None = None
    is_done: bool = False
    leads: bool = False
    called: threading.Lock = field(default_factory=threading.Lock)


def shared_prefix_length(first: Sequence[int], second: Sequence[int]) -> int:
    """Return the number of tokens that both begin with."""
    for index, (left, right) in enumerate(zip(first, second, strict=False)):
        if left != right:
            return index
    return min(len(first), len(second))


class KVCache:
    """The context of a model, for `parallel` sequences of up to `length` tokens. Thread-safe."""

    def __init__(
        self, model: NativeModel, *, length: int, parallel: int, threads: int, batches_alone: bool = False
    ) -> None:
        """Create the context. Raises ModelLoadError if there is not enough memory."""
        self._model, self.length, self.parallel = model, length, parallel
        self._batches_alone = batches_alone
        self._abort = AbortFlag()
        params = llama_cpp.llama_context_default_params()
        params.n_ctx, params.n_seq_max = length * parallel, parallel
        params.n_batch = params.n_ubatch = _BATCH_SIZE
        params.kv_unified = False  # otherwise each token attends to the cells of all sequences
        params.n_threads = params.n_threads_batch = threads
        params.no_perf = True
        params.abort_callback = self._abort.callback(llama_cpp.ggml_abort_callback)
        params.abort_callback_data = self._abort.address
        self.context: Any = llama_cpp.llama_init_from_model(model.handle, params)
        if not self.context:
            raise ModelLoadError(
                f"{model.path}: cannot create a context of {length} tokens for {parallel} at once. Is there "
                "enough memory? Try a shorter one."
            )
        model.adapt(self.context)
        self._memory = llama_cpp.llama_get_memory(self.context)
        self.batch: Any = llama_cpp.llama_batch_init(_BATCH_SIZE, 0, 1)
        self._sequences = [CachedSequence(seq_id) for seq_id in range(parallel)]
        self._free = threading.Condition()
        self._lock = threading.Lock()
        self._turn = threading.Condition()
        self._waiting: list[_Evaluation] = []
        self._is_decoding = False
        self._last_s = 0.0
        self._slots: set[Slot] = set()
        self._is_closed = False

    @contextmanager
    def slot(self) -> Iterator[Slot]:
        """Keep the model from being freed in this context. Raises BackendError after `close`."""
        slot = Slot()
        try:
            with self._free:
                if self._is_closed:
                    raise BackendError(f"the model {self._model.name} is closed. Load it again.")
                self._slots.add(slot)
            yield slot
        finally:
            self.release(slot)

    def acquire(
        self, slot: Slot, tokens: Sequence[int], stop: Cancellation, salt: str = ""
    ) -> tuple[CachedSequence, int]:
        """Wait for a free sequence, assign it to the slot, and roll it back to what it shares with `tokens`.

        Returns the sequence and the number of cached tokens; at least one is left to evaluate, for its
        logits. Picks the free sequence with the longest shared prefix, but prefers an empty one to one that
        would lose many tokens, and copies the longest prefix that any sequence has, if it is much longer.
        Prefixes of another `salt` are not shared. Raises BackendError if `stop` is set.
        """
        with self._free:
            while not (free := [sequence for sequence in self._sequences if sequence.slot is None]):
                stop.begin("")
                self._free.wait(_LOOK_S)
            stop.begin("a sequence of the KV cache is prepared")

            def cost(sequence: CachedSequence) -> tuple[bool, int, float]:
                shared = sequence.shared_prefix(tokens, salt)
                return len(sequence.cached_tokens) - shared > _NEGLIGIBLE, -shared, sequence.last_used

            sequence = min(free, key=cost)
            sequence.slot = slot
        with self._lock:
            donor = max(self._sequences, key=lambda candidate: candidate.shared_prefix(tokens, salt))
            gain = donor.shared_prefix(tokens, salt) - sequence.shared_prefix(tokens, salt)
            if gain > _NEGLIGIBLE and not self._model.has_recurrent_state:
                sequence.is_synchronized = False
                sequence.cached_tokens.clear()
                llama_cpp.llama_memory_seq_rm(self._memory, sequence.seq_id, -1, -1)
                # llama.cpp copies whole sequences only; `_roll_back` removes the rest
                llama_cpp.llama_memory_seq_cp(self._memory, donor.seq_id, sequence.seq_id, -1, -1)
                sequence.cached_tokens += donor.cached_tokens
                sequence.salt = salt
            self._roll_back(sequence, min(sequence.shared_prefix(tokens, salt), len(tokens) - 1))
            sequence.salt = salt
        return sequence, len(sequence.cached_tokens)

    def release(self, slot: Slot) -> None:
        """Release the slot and its sequence, if it has one."""
        with self._free:
            self._slots.discard(slot)
            for sequence in self._sequences:
                if sequence.slot is slot:
                    sequence.slot, sequence.last_used = None, time.monotonic()
            self._free.notify_all()

    def roll_back(self, sequence: CachedSequence, length: int) -> None:
        """Roll back the sequence to its first `length` tokens; the cache follows at the next evaluation."""
        sequence.is_synchronized = False
        del sequence.cached_tokens[length:]

    def evaluate(
        self,
        sequence: CachedSequence,
        tokens: Sequence[int],
        stop: Cancellation,
        output_positions: Sequence[int],
    ) -> list[Logits]:
        """Evaluate tokens at the end of a sequence; return the logits after those at `output_positions`.

        The positions are ascending indices into `tokens`, all in one batch. With `parallel` 1, the logits are
        a view that is valid until the next evaluation. Raises BackendError if llama.cpp fails, or `stop` is
        set.
        """
        logits: list[Logits] = []
        first = 0
        while first < len(tokens):
            remaining = len(tokens) - first
            size = remaining if remaining <= _BATCH_SIZE else min(_BATCH_SIZE, output_positions[0] - first)
            here = frozenset(index - first for index in output_positions if index - first < size)
            request = _Evaluation(sequence, tokens[first : first + size], here, stop)
            stop.begin(f"{size} tokens are evaluated")
            self._run(request)
            if request.error is not None:
                raise request.error
            first += size
            logits = request.logits
        return logits

    def clear_unused(self) -> None:
        """Clear the free sequences: their next calls compute the same as in a new context."""
        with self._free, self._lock:
            free = [sequence for sequence in self._sequences if sequence.slot is None]
            for sequence in free:
                self._roll_back(sequence, 0)
            if len(free) == len(self._sequences):  # the cells of the cache matter too
                llama_cpp.llama_memory_clear(self._memory, False)

    def close(self) -> None:
        """Refuse new slots, and wait until all are released."""
        with self._free:
            self._is_closed = True
            while self._slots:
                self._free.wait()

    def _run(self, request: _Evaluation) -> None:
        """Evaluate a request: in this thread, together with other waiting requests, or in another thread."""
        if self.parallel == 1:
            with self._lock:
                self._decode([request])
            return
        chosen: Sequence[_Evaluation] = ()
        try:
            with self._turn:
                self._waiting.append(request)
                request.leads, self._is_decoding = not self._is_decoding, True
                if not request.leads:
                    request.called.acquire()
                    self._turn.notify()  # only a thread that gathers waits there
            if not request.leads:
                request.called.acquire()
            if request.leads:
                with self._turn:
                    chosen = self._gather(request)
                with self._lock:
                    started = time.monotonic()
                    self._decode(chosen)
                    self._last_s = time.monotonic() - started
        finally:
            with self._turn:
                self._waiting.remove(request)
                for other in chosen:
                    if other is not request and other.is_done:
                        other.called.release()
                if request.leads:  # the thread of the next waiting request leads, if there is one
                    following = next((request for request in self._waiting if not request.is_done), None)
                    self._is_decoding = following is not None
                    if following is not None:
                        following.leads = True
                        following.called.release()

    def _gather(self, request: _Evaluation) -> list[_Evaluation]:
        """Return the request and waiting ones that fit into the same batch. Under `_turn`."""
        if self._batches_alone:
            return [request]
        until = time.monotonic() + min(_WAIT_FRACTION * self._last_s, _MAX_WAIT_S)
        busy = sum(sequence.slot is not None for sequence in self._sequences)
        while len(self._waiting) < busy and (seconds_left := until - time.monotonic()) > 0:
            self._turn.wait(seconds_left)
        chosen, free = [request], _BATCH_SIZE - len(request.tokens)
        for other in self._waiting:
            if other is not request and not other.is_done and len(other.tokens) <= free:
                chosen.append(other)
                free -= len(other.tokens)
        return chosen

    def _decode(self, requests: Sequence[_Evaluation]) -> None:
        """Evaluate the requests in one batch, except for cancelled ones. Under `_lock`."""
        self._abort.clear()
        # a recurrent state cannot be rolled back for the others
        is_abortable = len(requests) == 1 or not self._model.has_recurrent_state
        for request in requests:
            request.stop.evaluation = self._abort if is_abortable else None
            if request.stop.is_set():
                request.error = request.stop.error
            elif not self._synchronize(request.sequence):
                request.error = BackendError("another call interrupted this one. Repeat it.")
            else:
                continue
            request.stop.evaluation, request.is_done = None, True
        requests = [request for request in requests if not request.is_done]
        if not requests:
            return
        batch, size = self.batch, 0
        outputs: list[tuple[_Evaluation, int]] = []
        for request in requests:
            sequence, start = request.sequence, len(request.sequence.cached_tokens)
            sequence.is_synchronized = False
            for index, token in enumerate(request.tokens):
                batch.token[size], batch.pos[size] = token, start + index
                batch.n_seq_id[size], batch.seq_id[size][0] = 1, sequence.seq_id
                batch.logits[size] = has_output = index in request.output_positions
                if has_output:
                    outputs.append((request, size))
                size += 1
        batch.n_tokens = size
        try:
            status = self._evaluate_batch(size)
        finally:
            for request in requests:
                request.stop.evaluation = None
        if status == _ABORTED:
            self._decode(requests)  # those that are not cancelled
            return
        if status and len(requests) > 1:
            for request in requests:  # one of them may be the reason
                self._decode([request])
            return
        if status:
            requests[0].error = BackendError(f"llama.cpp could not evaluate {size} tokens (status {status})")
        for request, index in outputs if not status else ():
            logits = self._logits(index)
            request.logits.append(logits if self.parallel == 1 else logits.copy())
        for request in requests:
            if not status:
                request.sequence.cached_tokens.extend(request.tokens)
                request.sequence.is_synchronized = True
            request.is_done = True

    def _evaluate_batch(self, size: int) -> int:
        """Evaluate the batch of so many tokens, return llama.cpp's status; Ctrl-C ends it.

        Python handles Ctrl-C in the main thread only, between two of its instructions. A signal that arrives
        just before a wait does not end it, so each wait is short.
        """
        is_main = threading.current_thread() is threading.main_thread()
        if size <= _INSTANT or self._model.is_small or not is_main:
            return int(llama_cpp.llama_decode(self.context, self.batch))
        begins, ended = threading.Event(), threading.Event()
        statuses: list[int] = []

        def evaluate() -> None:
            begins.wait()
            try:
                if not is_abandoned:
                    statuses.append(llama_cpp.llama_decode(self.context, self.batch))
            finally:
                ended.set()

        is_abandoned = False
        try:
            threading.Thread(target=evaluate, daemon=True).start()
            begins.set()
            while not ended.wait(_SIGNAL_S):
                pass
        except BaseException:
            self._abort.set()
            is_abandoned = not begins.is_set()  # interrupted before or while the thread was started
            begins.set()
            while not (is_abandoned or ended.is_set()):
                with suppress(KeyboardInterrupt):
                    ended.wait()
            raise
        return statuses[0]

    def _logits(self, index: int) -> Logits:
        pointer = llama_cpp.llama_get_logits_ith(self.context, index)
        if not pointer:
            raise BackendError("llama.cpp gave no logits")
        return np.ctypeslib.as_array(pointer, shape=(self._model.size,))

    def _synchronize(self, sequence: CachedSequence) -> bool:
        """Return whether the cache has the sequence's tokens, and no others. Under `_lock`."""
        length = len(sequence.cached_tokens)
        if not sequence.is_synchronized:
            self._roll_back(sequence, length)
        return len(sequence.cached_tokens) == length

    def _roll_back(self, sequence: CachedSequence, length: int) -> None:
        """Roll back sequence and cache to the first `length` tokens. Under `_lock`."""
        del sequence.cached_tokens[length:]
        if not llama_cpp.llama_memory_seq_rm(self._memory, sequence.seq_id, length, -1):
            sequence.cached_tokens.clear()  # a recurrent state cannot be rolled back: clear it
            llama_cpp.llama_memory_seq_rm(self._memory, sequence.seq_id, -1, -1)
        sequence.is_synchronized = True


def free(model: NativeModel, context: ctypes.c_void_p, batch: Any) -> None:
    """Free a context and then its model, in the order that llama.cpp requires."""
    llama_cpp.llama_batch_free(batch)
    llama_cpp.llama_free(context)
    model.close()
