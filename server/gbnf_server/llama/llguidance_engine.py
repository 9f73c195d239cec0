"""llguidance as the grammar engine: token masks of the whole vocabulary in about 50 microseconds.

Optional: `pip install gbnf-toolkit[llguidance]`. It takes our grammar in its own dialect
(`gbnf.dialects.lark`) and uses the model's own tokenizer. It raises no errors: a matcher that fails stays in
an error state, so every call here checks what it returned.
"""

from __future__ import annotations

import warnings
from typing import Any

import numpy as np

from gbnf import Grammar
from gbnf.dialects.lark import lark_text
from gbnf_server.llama.constraint import Constraint, GrammarEngine, TokenIds, TokenMask, timed
from gbnf_server.llama.native import NativeModel
from gbnf_server.system.errors import BackendError, GrammarRefusedError, SetupError


class LlguidanceEngine(GrammarEngine):
    """llguidance's matchers."""

    def __init__(self, model: NativeModel) -> None:
        """Raise SetupError if llguidance is not installed."""
        try:
            import llguidance  # noqa: PLC0415  # optional
            from llguidance.llamacpp import lltokenizer_from_vocab  # noqa: PLC0415  # likewise
        except ImportError:
            raise SetupError(
                "llguidance is not installed: pip install 'gbnf-toolkit[llguidance]', or use llama.cpp"
            ) from None
        super().__init__(model)
        self._matcher: Any = llguidance.LLMatcher
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it calls a deprecated function of llama.cpp
            # the first is its end token; it allows all of them if it allows one
            ends = sorted(model.end_tokens)
            self._tokenizer: Any = lltokenizer_from_vocab(model.vocabulary, eos_token=ends)

    def _parse(self, grammar: Grammar) -> Any:
        matcher = self._matcher(self._tokenizer, lark_text(grammar), log_level=0)
        if matcher.is_error():
            raise GrammarRefusedError(str(matcher.get_error()))
        return matcher

    def _start(self, parsed: Any, grammar: Grammar) -> Constraint:
        return LlguidanceConstraint(self._model, parsed.deep_copy(), grammar)


class LlguidanceConstraint(Constraint):
    """A constraint of llguidance. Forced text is from our automaton, which also finds the end of a text."""

    def __init__(self, model: NativeModel, matcher: Any, grammar: Grammar) -> None:
        super().__init__(model, grammar)
        self._matcher = matcher
        self._token_mask: TokenMask | None = None  # of the whole vocabulary, in this state

    @timed
    def allows(self, token: int) -> bool:
        """Return whether the token may come next; see `Constraint`."""
        if token in self._model.end_tokens:
            return bool(self._matcher.is_accepting())
        return self._matcher.validate_tokens([token]) == 1 and self._utf8.accepts(token)

    @timed
    def candidates(self) -> TokenIds:
        """Return the allowed tokens; see `Constraint`."""
        return np.flatnonzero(self._mask())

    @timed
    def allowed(self, tokens: TokenIds) -> TokenMask:
        """Return `allows` for each token."""
        return np.asarray(self._mask()[tokens])

    @timed
    def accept(self, token: int) -> None:
        """Advance by an allowed token. Raises BackendError if llguidance fails."""
        self._token_mask = None
        if not self._matcher.consume_token(token):
            raise BackendError(f"llguidance failed: {self._matcher.get_error()}")
        self._pending_text += self._utf8.decode(token)

    def _accept_all(self, tokens: list[int]) -> bool:
        self._token_mask = None
        if self._matcher.validate_tokens(tokens) < len(tokens):
            return False
        if not self._matcher.consume_tokens(tokens):
            raise BackendError(f"llguidance failed: {self._matcher.get_error()}")
        return True

    def _mask(self) -> TokenMask:
        if self._token_mask is None:
            bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
            flags = np.unpackbits(bits, bitorder="little")[: self._model.size].astype(np.bool_)
            if self._matcher.is_error():
                raise BackendError(f"llguidance failed: {self._matcher.get_error()}")
            self._token_mask = flags
        return self._token_mask
