"""The constraint of one answer: the allowed tokens, and the text that the grammar forces.

Two engines create constraints, llama.cpp (here) and llguidance (`llguidance_engine`). Invariants:

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
import time
from typing import Protocol

import numpy as np
import numpy.typing as npt

from gbnf import Grammar
from gbnf.grammar import forced_continuation as forcing
from gbnf.grammar.code_points import first_bytes
from gbnf.grammar.forced_continuation import ForcedContinuation, Guess
from gbnf.grammar.match import MatchState
from gbnf_server.llama.cancellation import Cancellation
from gbnf_server.llama.native import NativeGrammar, NativeModel

TokenIds = npt.NDArray[np.int64]
TokenMask = npt.NDArray[np.bool_]


class Constraint(Protocol):
    """The state of a grammar engine in one answer.

    `seconds`: the time it has taken so far. `stop`: cancels the call, also between two parts of a long
    question to the engine.
    """

    seconds: float
    stop: Cancellation

    def allows(self, token: int) -> bool:
        """Return whether the token may come next (one that ends the generation: whether the text may end)."""
        ...

    def candidates(self) -> TokenIds | None:
        """Return a superset of the allowed tokens, found quickly; None for the whole vocabulary."""
        ...

    def allowed(self, tokens: TokenIds) -> TokenMask:
        """Return `allows` for each token, in one call."""
        ...

    def accept(self, token: int) -> None:
        """Advance by a token that `allows` has just allowed, and that does not end the generation."""
        ...

    def state(self) -> MatchState | None:
        """Return the state of our automaton after the text's whole characters; None if it is unknown."""
        ...

    @property
    def incomplete_bytes(self) -> bytes:
        """The bytes of an incomplete character after them."""
        ...

    def forced_continuation(self, *, spaced: bool, guess: Guess | None = None) -> ForcedContinuation | None:
        """Return the forced text, None if unknown, and a guess of what follows.

        `spaced`: guess that optional spaces are written. `guess`: see `forced_continuation`.
        """
        ...

    def accept_text(self, text: str) -> bool:
        """Advance by the forced end of the text if the engine accepts it; otherwise change nothing."""
        ...

    def forget_state(self) -> bool:
        """Do without our automaton, of which the engine allowed no token; return whether it was used."""
        ...


class Utf8Decoder:
    """Decodes tokens to text, and checks that their bytes are UTF-8; a character may be incomplete."""

    def __init__(self, model: NativeModel) -> None:
        self._model = model
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")

    @property
    def incomplete_bytes(self) -> bytes:
        """The bytes of an incomplete character at the end."""
        return self._decoder.getstate()[0]

    def accepts(self, token: int) -> bool:
        """Return whether the text may continue with the token."""
        piece = self._model.piece(token)
        if piece.isascii() and not self.incomplete_bytes:
            return True
        state = self._decoder.getstate()
        try:
            self._decoder.decode(piece)
            incomplete = self._decoder.getstate()[0]
        except UnicodeDecodeError:
            return False
        finally:
            self._decoder.setstate(state)
        # surrogates are not UTF-8, but the decoder refuses them only at the third byte
        return not (incomplete[:1] == b"\xed" and incomplete[1:2] > b"\x9f")

    def decode(self, token: int) -> str:
        """Advance by a token that `accepts` has accepted; return the characters that it completes."""
        return self._decoder.decode(self._model.piece(token))


class ConstraintBase:
    """The common part of constraints: the automaton of the grammar, at the text so far."""

    def __init__(self, model: NativeModel, grammar: Grammar) -> None:
        self.seconds = 0.0
        self.stop = Cancellation()
        self._model = model
        self._utf8 = Utf8Decoder(model)
        self._pending_text = ""  # characters after the text of `_state`
        self._state: MatchState | None = grammar.matcher.start()

    def forced_continuation(self, *, spaced: bool, guess: Guess | None = None) -> ForcedContinuation | None:
        """Return the forced text; see `Constraint`."""
        started = time.perf_counter()
        state = None if self._utf8.incomplete_bytes else self.state()
        found = None if state is None else forcing.forced_continuation(state, spaced=spaced, guess=guess)
        self.seconds += time.perf_counter() - started
        return found

    def accept_text(self, text: str) -> bool:
        """Advance by the forced end; see `Constraint`."""
        started = time.perf_counter()
        tokens = self._model.tokenize_exactly(text)
        accepted = tokens is not None and self._accept_all(tokens)
        if accepted:
            self._pending_text += text
        else:
            self.forget_state()  # nothing is forced from here on
        self.seconds += time.perf_counter() - started
        return accepted

    def forget_state(self) -> bool:
        """Do without the automaton; see `Constraint`."""
        was_used, self._state = self._state is not None, None
        return was_used

    def _accept_all(self, tokens: list[int]) -> bool:
        raise NotImplementedError

    @property
    def incomplete_bytes(self) -> bytes:
        """The bytes of an incomplete character; see `Constraint`."""
        return self._utf8.incomplete_bytes

    def state(self) -> MatchState | None:
        """Return the state of the automaton; see `Constraint`."""
        if self._pending_text and self._state is not None:
            self._state = self._state.advance(self._pending_text)
        self._pending_text = ""
        return self._state


class LlamaCppConstraint(ConstraintBase):
    """A constraint of llama.cpp's own engine."""

    def __init__(self, model: NativeModel, native: NativeGrammar, grammar: Grammar) -> None:
        """Start with a copy of `native`, the grammar in the engine in its start state."""
        super().__init__(model, grammar)
        self._start = native
        self._grammar = native.clone()
        self._accepted_tokens: list[int] = []

    def allows(self, token: int) -> bool:
        """Return whether the token may come next; see `Constraint`."""
        started = time.perf_counter()
        allowed = self._grammar.allows(token) and self._utf8.accepts(token)
        self.seconds += time.perf_counter() - started
        return allowed

    def candidates(self) -> TokenIds | None:
        """Return a superset of the allowed tokens, by their first byte; see `Constraint`."""
        started = time.perf_counter()
        tokens: TokenIds | None = None
        if self._utf8.incomplete_bytes:
            tokens = self._model.tokens_by_first_byte(_CONTINUATION_BYTES)
        elif (state := self.state()) is not None:
            tokens = self._model.tokens_by_first_byte(first_bytes(state.allowed()))
            if state.can_end:
                tokens = np.union1d(tokens, list(self._model.end_tokens))
        self.seconds += time.perf_counter() - started
        return tokens

    def allowed(self, tokens: TokenIds) -> TokenMask:
        """Return `allows` for each token."""
        started = time.perf_counter()
        found = np.zeros(len(tokens), dtype=np.bool_)
        for first in range(0, len(tokens), _PART):
            self.stop.begin(_STEP)
            found[first : first + _PART] = self._grammar.allowed(tokens[first : first + _PART])
        for index in np.flatnonzero(found):
            found[index] = self._utf8.accepts(int(tokens[index]))
        self.seconds += time.perf_counter() - started
        return found

    def accept(self, token: int) -> None:
        """Advance by an allowed token; see `Constraint`."""
        started = time.perf_counter()
        self.stop.begin(_STEP)
        self._grammar.accept(token)
        self._accepted_tokens.append(token)
        self._pending_text += self._utf8.decode(token)
        self.seconds += time.perf_counter() - started

    def _accept_all(self, tokens: list[int]) -> bool:
        for token in tokens:
            self.stop.begin(_STEP)
            if not self._grammar.allows(token):
                self._rewind()
                return False
            self._grammar.accept(token)
        self._accepted_tokens += tokens
        return True

    def _rewind(self) -> None:
        """Restore the state after the accepted tokens, each of which the engine has allowed."""
        self._grammar = self._start.clone()
        for token in self._accepted_tokens:
            self.stop.begin(_STEP)
            self._grammar.accept(token)


_PART = 4096  # tokens that the engine is asked about at once
_STEP = "the grammar engine takes a token"
_CONTINUATION_BYTES = frozenset(range(0x80, 0xC0))
