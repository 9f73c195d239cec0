"""The constraint of one answer: the allowed tokens, and the text that the grammar forces.

Two engines create them, llama.cpp and llguidance (`grammar_engines`). Invariants:

- `accept` is called only with a token that `allows` has just allowed and that does not end the generation:
  llama.cpp aborts the process otherwise.
- Our own automaton is an optimization; the engine decides. What the automaton takes for the forced end
  of the text goes through the engine token by token; if the engine refuses it, the state does not change, and
  nothing is forced any more.
- The bytes must be UTF-8. llama.cpp alone does not ensure that: it accepts overlong forms, so that where "😀"
  and "日" are both allowed, a model may write "日" in four bytes that no decoder accepts.
"""

from __future__ import annotations

import codecs
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

import numpy as np
import numpy.typing as npt

from gbnf import Grammar
from gbnf.grammar import forced_continuation as forcing
from gbnf.grammar.forced_continuation import ForcedContinuation, Guess
from gbnf.grammar.match import MatchState
from gbnf_server.llama.cancellation import Cancellation
from gbnf_server.llama.native import NativeModel

TokenIds = npt.NDArray[np.int64]
TokenMask = npt.NDArray[np.bool_]
_Given = ParamSpec("_Given")
_Found = TypeVar("_Found")

_KEPT = 32  # grammars


def timed(method: Callable[Concatenate[Any, _Given], _Found]) -> Callable[Concatenate[Any, _Given], _Found]:
    """Add the time that a method takes to the constraint's `seconds`."""

    @wraps(method)
    def measured(self: Constraint, /, *args: _Given.args, **kwargs: _Given.kwargs) -> _Found:
        started = time.perf_counter()
        try:
            return method(self, *args, **kwargs)
        finally:
            self.seconds += time.perf_counter() - started

    return measured


def decode_prefix(raw: bytes) -> tuple[str, bytes]:
    """Return the characters, and the bytes of an incomplete one at the end."""
    text, used = codecs.utf_8_decode(raw, "strict", False)
    return text, raw[used:]


class Utf8Decoder:
    """Decodes tokens to text, and checks that their bytes are UTF-8.

    `incomplete_bytes`: those of an incomplete character at the end.
    """

    def __init__(self, model: NativeModel) -> None:
        self._model = model
        self.incomplete_bytes = b""

    def accepts(self, token: int) -> bool:
        """Return whether the text may continue with the token."""
        piece = self._model.piece(token)
        if piece.isascii() and not self.incomplete_bytes:
            return True
        try:
            _, incomplete = decode_prefix(self.incomplete_bytes + piece)
        except UnicodeDecodeError:
            return False
        # surrogates are not UTF-8, but the decoder refuses them only at the third byte
        return not (incomplete[:1] == b"\xed" and incomplete[1:2] > b"\x9f")

    def accepted(self, tokens: TokenIds, allowed: TokenMask) -> TokenMask:
        """Return for each token whether it is allowed, and `accepts` it."""
        for index in np.flatnonzero(allowed):
            allowed[index] = self.accepts(int(tokens[index]))
        return allowed

    def decode(self, token: int) -> str:
        """Advance by a token that `accepts` has accepted; return the characters that it completes."""
        text, self.incomplete_bytes = decode_prefix(self.incomplete_bytes + self._model.piece(token))
        return text


class Constraint(ABC):
    """The state of a grammar engine in one answer, and of the grammar's automaton at the text so far.

    `seconds`: the time it has taken so far. `stop`: cancels the call, also between two parts of a long
    question to the engine.
    """

    def __init__(self, model: NativeModel, grammar: Grammar) -> None:
        self.seconds = 0.0
        self.stop = Cancellation()
        self._model = model
        self._utf8 = Utf8Decoder(model)
        self._pending_text = ""  # characters after the text of `_state`
        self._state: MatchState | None = grammar.matcher.start()

    @abstractmethod
    def allows(self, token: int) -> bool:
        """Return whether the token may come next (one that ends the generation: whether the text may end)."""

    @abstractmethod
    def candidates(self) -> TokenIds | None:
        """Return a superset of the allowed tokens, found quickly; None for the whole vocabulary."""

    @abstractmethod
    def allowed(self, tokens: TokenIds) -> TokenMask:
        """Return `allows` for each token, in one call."""

    @abstractmethod
    def accept(self, token: int) -> None:
        """Advance by a token that `allows` has just allowed, and that does not end the generation."""

    @abstractmethod
    def _accept_all(self, tokens: list[int]) -> bool:
        """Advance by the tokens if the engine accepts them all; otherwise change nothing."""

    def state(self) -> MatchState | None:
        """Return the state of our automaton after the text's whole characters; None if it is unknown."""
        if self._pending_text and self._state is not None:
            self._state = self._state.advance(self._pending_text)
        self._pending_text = ""
        return self._state

    @property
    def incomplete_bytes(self) -> bytes:
        """The bytes of an incomplete character after them."""
        return self._utf8.incomplete_bytes

    @timed
    def forced_continuation(self, *, spaced: bool, guess: Guess | None = None) -> ForcedContinuation | None:
        """Return the forced text, None if unknown, and a guess of what follows.

        `spaced`: guess that optional spaces are written. `guess`: see `forced_continuation`.
        """
        state = None if self._utf8.incomplete_bytes else self.state()
        return None if state is None else forcing.forced_continuation(state, spaced=spaced, guess=guess)

    @timed
    def accept_text(self, text: str) -> bool:
        """Advance by the forced end of the text if the engine accepts it; otherwise change nothing."""
        tokens = self._model.tokenize_exactly(text)
        accepted = tokens is not None and self._accept_all(tokens)
        if accepted:
            self._pending_text += text
        else:
            self.forget_state()  # nothing is forced from here on
        return accepted

    def forget_state(self) -> bool:
        """Do without our automaton, of which the engine allowed no token; return whether it was used."""
        was_used, self._state = self._state is not None, None
        return was_used


class GrammarEngine(ABC):
    """Creates the constraints of answers, over one model's vocabulary. Thread-safe.

    A grammar is parsed once: the next answer with the same grammar starts from a copy.
    """

    def __init__(self, model: NativeModel) -> None:
        self._model = model
        self._parsed = lru_cache(_KEPT)(self._parse)
        self._lock = threading.Lock()

    def constraint(self, grammar: Grammar, stop: Cancellation | None = None) -> Constraint:
        """Return a constraint for one answer, which `stop` cancels. Raises GrammarRefusedError."""
        started = time.perf_counter()
        stop = stop or Cancellation()
        stop.begin("the grammar engine reads a grammar")
        parsed = self._parsed(grammar)  # without the lock: it may take long, and others shall not wait for it
        with self._lock:
            constraint = self._start(parsed, grammar)
        constraint.stop, constraint.seconds = stop, time.perf_counter() - started
        return constraint

    @abstractmethod
    def _parse(self, grammar: Grammar) -> Any: ...

    @abstractmethod
    def _start(self, parsed: Any, grammar: Grammar) -> Constraint: ...
