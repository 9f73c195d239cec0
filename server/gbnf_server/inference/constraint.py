"""What holds an answer: which tokens may come next, and which text must.

A `Constraint` follows one answer. Two engines make them, llama.cpp's own (here) and llguidance (`guidance`).
What must stay true:

- `accept` is called only with a token that `allows` has just let through and that ends nothing: llama.cpp
  aborts the process otherwise.
- What our own automaton says is a short cut, never the judge. The text that it holds to be forced goes
  through the engine token by token; where the engine refuses it, nothing has happened, and nothing is forced
  any more.
- The bytes are held to UTF-8. llama.cpp alone is not enough: it reads overlong forms, so that where "😀" and
  "日" may both come, it lets a model write "日" in the four bytes that no decoder takes.
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
from gbnf.grammar.forced_continuation import ForcedContinuation
from gbnf.grammar.match import MatchState
from gbnf_server.inference.native import NativeGrammar, NativeModel

TokenIds = npt.NDArray[np.int64]
TokenMask = npt.NDArray[np.bool_]


class Constraint(Protocol):
    """`seconds`: what it has taken so far."""

    seconds: float

    def allows(self, token: int) -> bool:
        """Tell whether the token may come next (one that ends the generation: whether the text may end)."""
        ...

    def candidates(self) -> TokenIds | None:
        """Tokens among which all that are allowed are, found cheaply; None: the whole vocabulary."""
        ...

    def allowed(self, tokens: TokenIds) -> TokenMask:
        """For each token what `allows` says, in one go."""
        ...

    def accept(self, token: int) -> None:
        """Go on by a token that `allows` has just let through, and that does not end the generation."""
        ...

    def forced_continuation(self, *, spaced: bool) -> ForcedContinuation | None:
        """How the text goes on, None where nobody can say; `spaced`: guess that optional spaces stand."""
        ...

    def accept_text(self, text: str) -> bool:
        """Go on by (a part of) the forced text if the engine takes it; otherwise stay."""
        ...


class Utf8Decoder:
    """Whether tokens spell UTF-8, a character perhaps unfinished; and their text."""

    def __init__(self, model: NativeModel) -> None:
        self._model = model
        self._decoder = codecs.getincrementaldecoder("utf-8")("strict")

    @property
    def is_complete(self) -> bool:
        """Whether no character is unfinished."""
        return not self._decoder.getstate()[0]

    def accepts(self, token: int) -> bool:
        piece = self._model.piece(token)
        if piece.isascii() and self.is_complete:
            return True
        state = self._decoder.getstate()
        try:
            self._decoder.decode(piece)
            unfinished = self._decoder.getstate()[0]
        except UnicodeDecodeError:
            return False
        finally:
            self._decoder.setstate(state)
        # the decoder waits for the third byte of a surrogate, which no text holds, to refuse it
        return not (unfinished[:1] == b"\xed" and unfinished[1:2] > b"\x9f")

    def decode(self, token: int) -> str:
        """Go on by a token that `accepts`, and return the characters that it finishes."""
        return self._decoder.decode(self._model.piece(token))


class ConstraintBase:
    """The part of a constraint that all engines share: what our automaton says of the text so far."""

    def __init__(self, model: NativeModel, grammar: Grammar) -> None:
        self.seconds = 0.0
        self._model = model
        self._utf8 = Utf8Decoder(model)
        self._pending_text = ""  # characters that `_state` has not followed yet
        self._state: MatchState | None = grammar.matcher.start()

    def forced_continuation(self, *, spaced: bool) -> ForcedContinuation | None:
        begun = time.perf_counter()
        state = self._current_state() if self._utf8.is_complete else None
        found = None if state is None else forcing.forced_continuation(state, spaced=spaced)
        self.seconds += time.perf_counter() - begun
        return found

    def accept_text(self, text: str) -> bool:
        begun = time.perf_counter()
        tokens = self._model.tokenize_exactly(text)
        accepted = tokens is not None and self._accept_all(tokens)
        if accepted:
            self._pending_text += text
        else:
            self._state = None  # the engine sees it otherwise: from here on nothing is forced
        self.seconds += time.perf_counter() - begun
        return accepted

    def _accept_all(self, tokens: list[int]) -> bool:
        raise NotImplementedError

    def _current_state(self) -> MatchState | None:
        if self._pending_text and self._state is not None:
            self._state = self._state.advance(self._pending_text)
        self._pending_text = ""
        return self._state


class LlamaCppConstraint(ConstraintBase):
    """llama.cpp's own engine as judge."""

    def __init__(self, model: NativeModel, native: NativeGrammar, grammar: Grammar) -> None:
        """`native` is the grammar in the engine, at its start; it is not changed."""
        super().__init__(model, grammar)
        self._start = native
        self._grammar = native.clone()
        self._accepted_tokens: list[int] = []

    def allows(self, token: int) -> bool:
        begun = time.perf_counter()
        allowed = self._grammar.allows(token) and self._utf8.accepts(token)
        self.seconds += time.perf_counter() - begun
        return allowed

    def candidates(self) -> TokenIds | None:
        begun = time.perf_counter()
        tokens: TokenIds | None = None
        if not self._utf8.is_complete:
            tokens = self._model.tokens_by_first_byte(_CONTINUATION_BYTES)
        elif (state := self._current_state()) is not None:
            tokens = self._model.tokens_by_first_byte(first_bytes(state.allowed()))
            if state.can_end:
                tokens = np.union1d(tokens, list(self._model.end_tokens))
        self.seconds += time.perf_counter() - begun
        return tokens

    def allowed(self, tokens: TokenIds) -> TokenMask:
        begun = time.perf_counter()
        found = self._grammar.allowed(tokens)
        for index in np.flatnonzero(found):
            found[index] = self._utf8.accepts(int(tokens[index]))
        self.seconds += time.perf_counter() - begun
        return found

    def accept(self, token: int) -> None:
        begun = time.perf_counter()
        self._grammar.accept(token)
        self._accepted_tokens.append(token)
        self._pending_text += self._utf8.decode(token)
        self.seconds += time.perf_counter() - begun

    def _accept_all(self, tokens: list[int]) -> bool:
        for token in tokens:
            if not self._grammar.allows(token):
                self._rewind()
                return False
            self._grammar.accept(token)
        self._accepted_tokens += tokens
        return True

    def _rewind(self) -> None:
        """Go back to what has been taken: the engine has let each of these tokens through at its place."""
        self._grammar = self._start.clone()
        for token in self._accepted_tokens:
            self._grammar.accept(token)


_CONTINUATION_BYTES = frozenset(range(0x80, 0xC0))
