"""The grammar engines by name: llama.cpp's own, and llguidance if it is installed."""

from __future__ import annotations

from typing import Literal

import numpy as np

from gbnf import Grammar
from gbnf.grammar.code_points import first_bytes
from gbnf_server.llama.constraint import Constraint, GrammarEngine, TokenIds, TokenMask, timed
from gbnf_server.llama.native import NativeGrammar, NativeModel

GrammarEngineName = Literal["llama.cpp", "llguidance"]

_PART = 4096  # tokens that the engine is asked about at once
_STEP = "the grammar engine takes a token"
_CONTINUATION_BYTES = frozenset(range(0x80, 0xC0))


class LlamaCppConstraint(Constraint):
    """A constraint of llama.cpp's own engine."""

    def __init__(self, model: NativeModel, native: NativeGrammar, grammar: Grammar) -> None:
        """Start with a copy of `native`, the grammar in the engine in its start state."""
        super().__init__(model, grammar)
        self._start = native
        self._grammar = native.clone()
        self._accepted_tokens: list[int] = []

    @timed
    def allows(self, token: int) -> bool:
        """Return whether the token may come next; see `Constraint`."""
        return self._grammar.allows(token) and self._utf8.accepts(token)

    @timed
    def candidates(self) -> TokenIds | None:
        """Return a superset of the allowed tokens, by their first byte; see `Constraint`."""
        if self._utf8.incomplete_bytes:
            return self._model.tokens_by_first_byte(_CONTINUATION_BYTES)
        if (state := self.state()) is None:
            return None
        tokens = self._model.tokens_by_first_byte(first_bytes(state.allowed()))
        return np.union1d(tokens, list(self._model.end_tokens)) if state.can_end else tokens

    @timed
    def allowed(self, tokens: TokenIds) -> TokenMask:
        """Return `allows` for each token."""
        found = np.zeros(len(tokens), dtype=np.bool_)
        for first in range(0, len(tokens), _PART):
            self.stop.begin(_STEP)
            found[first : first + _PART] = self._grammar.allowed(tokens[first : first + _PART])
        for index in np.flatnonzero(found):
            found[index] = self._utf8.accepts(int(tokens[index]))
        return found

    @timed
    def accept(self, token: int) -> None:
        """Advance by an allowed token; see `Constraint`."""
        self.stop.begin(_STEP)
        self._grammar.accept(token)
        self._accepted_tokens.append(token)
        self._pending_text += self._utf8.decode(token)

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


class LlamaCppEngine(GrammarEngine):
    """llama.cpp's own grammar engine."""

    def _parse(self, grammar: Grammar) -> NativeGrammar:
        return NativeGrammar.parse(self._model, str(grammar))

    def _start(self, parsed: NativeGrammar, grammar: Grammar) -> Constraint:
        return LlamaCppConstraint(self._model, parsed, grammar)


def grammar_engine(name: GrammarEngineName, model: NativeModel) -> GrammarEngine:
    """Return an engine. Raises SetupError if it is not installed, ValueError for an unknown name."""
    match name:
        case "llama.cpp":
            return LlamaCppEngine(model)
        case "llguidance":
            from gbnf_server.llama.llguidance_engine import LlguidanceEngine  # noqa: PLC0415  # an optional extra

            return LlguidanceEngine(model)
        case _:
            raise ValueError(f"unknown grammar engine {name!r}. Use llama.cpp or llguidance.")
