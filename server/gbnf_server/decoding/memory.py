"""A model's memory: one context of llama.cpp, shared by several sequences of tokens.

Each call has a sequence (a `Row`) to itself, kept after the call for the next one that begins alike. What
must stay true:

- `Row.past` holds a prefix of what the context remembers of the sequence, and where the two may differ, an
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
from gbnf_server.llama import llama_cpp
from gbnf_server.native import NativeModel

Logits = npt.NDArray[np.float32]

_BATCH = 512  # tokens evaluated at once; between two batches Ctrl-C is heard
_NEGLIGIBLE = 32  # tokens that a sequence may lose before another one is taken instead
_PATIENCE = 0.2  # of the time of an evaluation: for so long one waits for others to join the next
_MOST_PATIENCE = 0.01  # seconds


@dataclass(eq=False, slots=True)
class Lease:
    """A call's claim on a sequence, so that whatever happens in between, it can be given back."""


@dataclass(eq=False)
class Row:
    """One sequence. `past`: its tokens that the context surely remembers; nothing else, if it is `exact`."""

    number: int
    past: list[int] = field(default_factory=list)
    exact: bool = True
    lease: Lease | None = None
    used: float = 0.0

    def shared(self, tokens: Sequence[int]) -> int:
        """How many tokens the two begin with in common."""
        return shared_length(self.past, tokens)


@dataclass(eq=False, slots=True)
class _Request:
    """Tokens to be evaluated at the end of a sequence, with the logits behind those at `asked`."""

    row: Row
    tokens: Sequence[int]
    asked: frozenset[int]
    logits: list[Logits] = field(default_factory=list)
    error: str = ""
    is_done: bool = False


def shared_length(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens the two begin with in common."""
    for index, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return index
    return min(len(one), len(other))


class Memory:
    """The context of a model for `parallel` sequences of up to `length` tokens. For several threads."""

    def __init__(self, model: NativeModel, *, length: int, parallel: int, threads: int) -> None:
        """Raises ModelLoadError where there is no room for it."""
        self._model, self.length, self.parallel = model, length, parallel
        self.context: Any = _new_context(model, length, parallel, threads)
        self._memory = llama_cpp.llama_get_memory(self.context)
        self.batch: Any = llama_cpp.llama_batch_init(_BATCH, 0, 1)
        self._rows = [Row(number) for number in range(parallel)]
        self._free = threading.Condition()
        self._lock = threading.Lock()
        self._turn = threading.Condition()
        self._waiting: list[_Request] = []
        self._is_decoding = False
        self._last_s = 0.0
        self._leases: set[Lease] = set()
        self._is_closed = False

    def enter(self, lease: Lease) -> None:
        """Keep the model from being freed until the lease is given back.

        Raises BackendError where the memory has been closed.
        """
        with self._free:
            if self._is_closed:
                raise BackendError(f"the model {self._model.name} has been closed. Load it again.")
            self._leases.add(lease)

    def take(self, lease: Lease, tokens: Sequence[int]) -> tuple[Row, int]:
        """Wait for a sequence, give it to the lease, and cut it to what it shares with `tokens`.

        Returns it with the number of tokens that need not be evaluated; one is always left to evaluate, its
        logits being what an answer begins with. Taken is the free sequence that shares most; one that would
        lose much by it is spared while another is empty, and what any sequence remembers of `tokens`, busy
        or free, is copied. The lease has entered.
        """
        with self._free:
            while not (free := [row for row in self._rows if row.lease is None]):
                self._free.wait()
            row = min(free, key=lambda each: _loss(each, tokens))
            row.lease = lease
        with self._lock:
            donor = max(self._rows, key=lambda each: (each.shared(tokens), each is row))
            common = min(donor.shared(tokens), len(tokens) - 1)
            if donor is not row and not self._model.forgets:
                row.exact = False
                row.past.clear()
                llama_cpp.llama_memory_seq_rm(self._memory, row.number, -1, -1)
                llama_cpp.llama_memory_seq_cp(self._memory, donor.number, row.number, 0, common)
                row.past += tokens[:common]
            self._cut(row, min(row.shared(tokens), common))
        return row, len(row.past)

    def give(self, lease: Lease) -> None:
        """Give back what the lease holds, if anything."""
        with self._free:
            self._leases.discard(lease)
            for row in self._rows:
                if row.lease is lease:
                    row.lease, row.used = None, time.monotonic()
            self._free.notify_all()

    def cut(self, row: Row, length: int) -> None:
        """Forget all but the first `length` tokens of the sequence; the context does so at its next turn."""
        row.exact = False
        del row.past[length:]

    def evaluate(
        self, row: Row, tokens: Sequence[int], stop: threading.Event, asked: Sequence[int]
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
            size = left if left <= _BATCH else min(_BATCH, asked[0] - first)
            here = frozenset(index - first for index in asked if index - first < size)
            request = _Request(row, tokens[first : first + size], here)
            self._run(request)
            if request.error:
                raise BackendError(request.error)
            first += size
            logits = request.logits
        return logits

    def forget(self) -> None:
        """Forget what free sequences remember: their next calls go the way that they go in a new context."""
        with self._free, self._lock:
            free = [row for row in self._rows if row.lease is None]
            for row in free:
                self._cut(row, 0)
            if len(free) == len(self._rows):  # the places in the context count too
                llama_cpp.llama_memory_clear(self._memory, False)

    def close(self) -> None:
        """Let nobody enter any more, and wait for those that have."""
        with self._free:
            self._is_closed = True
            while self._leases:
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
        until = time.monotonic() + min(_PATIENCE * self._last_s, _MOST_PATIENCE)
        busy = sum(row.lease is not None for row in self._rows)
        while len(self._waiting) < busy and (left := until - time.monotonic()) > 0:
            self._turn.wait(left)
        chosen, room = [request], _BATCH - len(request.tokens)
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
            row, start = request.row, len(request.row.past)
            if not row.exact:
                self._cut(row, start)
            assert len(row.past) == start, "a memory that can't be cut is cut at the start of a call only"
            row.exact = False
            for index, token in enumerate(request.tokens):
                batch.token[size], batch.pos[size] = token, start + index
                batch.n_seq_id[size], batch.seq_id[size][0] = 1, row.number
                batch.logits[size] = is_asked = index in request.asked
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
                request.row.past.extend(request.tokens)
                request.row.exact = True
            request.is_done = True

    def _logits(self, index: int) -> Logits:
        pointer = llama_cpp.llama_get_logits_ith(self.context, index)
        if not pointer:
            raise BackendError("llama.cpp gave no logits")
        return np.ctypeslib.as_array(pointer, shape=(self._model.size,))

    def _cut(self, row: Row, length: int) -> None:
        """Make the context remember just the first `length` tokens of the sequence. Under `_lock`."""
        del row.past[length:]
        if not llama_cpp.llama_memory_seq_rm(self._memory, row.number, length, -1):
            row.past.clear()  # recurrent memories cannot be cut: forget all
            llama_cpp.llama_memory_seq_rm(self._memory, row.number, -1, -1)
        row.exact = True


def _loss(row: Row, tokens: Sequence[int]) -> tuple[bool, int, float]:
    """The smallest is the sequence to take."""
    shared = row.shared(tokens)
    return len(row.past) - shared > _NEGLIGIBLE, -shared, row.used


def _new_context(model: NativeModel, length: int, parallel: int, threads: int) -> Any:
    params = llama_cpp.llama_context_default_params()
    params.n_ctx, params.n_seq_max = length * parallel, parallel
    params.n_batch = params.n_ubatch = _BATCH
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
