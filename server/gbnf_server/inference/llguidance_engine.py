"""llguidance as the engine that holds an answer: masks of the whole vocabulary in some 50 microseconds.

An optional peer: `pip install gbnf-toolkit[llguidance]`. It reads our grammar in its own dialect
(`gbnf.dialects.lark`) and splits texts with the model's own tokenizer. It raises no errors: a matcher that
cannot go on says so, and stays so, hence every call here looks at what it has answered.
"""

from __future__ import annotations

import threading
import time
import warnings
from collections import OrderedDict
from typing import Any

import numpy as np

from gbnf import Grammar
from gbnf.dialects.lark import lark_text
from gbnf_server.errors import BackendError, GrammarRefused, SetupError
from gbnf_server.inference.constraint import ConstraintBase, TokenIds, TokenMask
from gbnf_server.inference.native import NativeModel

_KEPT = 32  # grammars


class LlguidanceEngine:
    """llguidance's matchers over one model's vocabulary. For several threads."""

    def __init__(self, model: NativeModel) -> None:
        """Raises SetupError where llguidance is not installed."""
        try:
            import llguidance  # noqa: PLC0415  # an optional peer
            from llguidance.llamacpp import lltokenizer_from_vocab  # noqa: PLC0415  # likewise
        except ImportError:
            raise SetupError(
                "llguidance is not installed: pip install 'gbnf-toolkit[llguidance]', or leave out the engine"
            ) from None
        self._model = model
        self._matcher: Any = llguidance.LLMatcher
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # it calls llama.cpp by an older name
            # It takes the first of several for "the" end, and allows all of them where it allows one.
            ends = sorted(model.end_tokens)
            self._tokenizer: Any = lltokenizer_from_vocab(model.vocabulary, eos_token=ends)
        self._grammars: OrderedDict[Grammar, Any] = OrderedDict()
        self._lock = threading.Lock()

    def constraint(self, grammar: Grammar) -> LlguidanceConstraint:
        """What holds one answer to the grammar. Raises GrammarRefused."""
        with self._lock:
            matcher = self._grammars.pop(grammar, None) or self._read(grammar)
            self._grammars[grammar] = matcher
            if len(self._grammars) > _KEPT:
                self._grammars.popitem(last=False)
            return LlguidanceConstraint(self._model, matcher.deep_copy(), grammar)

    def _read(self, grammar: Grammar) -> Any:
        matcher = self._matcher(self._tokenizer, lark_text(grammar), log_level=0)
        if matcher.is_error():
            raise GrammarRefused(str(matcher.get_error()))
        return matcher


class LlguidanceConstraint(ConstraintBase):
    """llguidance as judge. What is forced our automaton says here, too: it also sees where a text ends."""

    def __init__(self, model: NativeModel, matcher: Any, grammar: Grammar) -> None:
        super().__init__(model, grammar)
        self._matcher = matcher
        self._token_mask: TokenMask | None = None  # of the whole vocabulary, at this place

    def allows(self, token: int) -> bool:
        begun = time.perf_counter()
        if token in self._model.end_tokens:
            allowed = bool(self._matcher.is_accepting())
        else:
            allowed = self._matcher.validate_tokens([token]) == 1 and self._utf8.accepts(token)
        self.seconds += time.perf_counter() - begun
        return allowed

    def candidates(self) -> TokenIds:
        begun = time.perf_counter()
        tokens = np.flatnonzero(self._mask())
        self.seconds += time.perf_counter() - begun
        return tokens

    def allowed(self, tokens: TokenIds) -> TokenMask:
        begun = time.perf_counter()
        flags = np.asarray(self._mask()[tokens])
        self.seconds += time.perf_counter() - begun
        return flags

    def accept(self, token: int) -> None:
        begun = time.perf_counter()
        self._token_mask = None
        if not self._matcher.consume_token(token):
            raise BackendError(f"llguidance cannot go on: {self._matcher.get_error()}")
        self._pending_text += self._utf8.decode(token)
        self.seconds += time.perf_counter() - begun

    def _accept_all(self, tokens: list[int]) -> bool:
        self._token_mask = None
        if self._matcher.validate_tokens(tokens) < len(tokens):
            return False
        if not self._matcher.consume_tokens(tokens):
            raise BackendError(f"llguidance cannot go on: {self._matcher.get_error()}")
        return True

    def _mask(self) -> TokenMask:
        if self._token_mask is None:
            bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
            flags = np.unpackbits(bits, bitorder="little")[: self._model.size].astype(np.bool_)
            if self._matcher.is_error():
                raise BackendError(f"llguidance cannot go on: {self._matcher.get_error()}")
            self._token_mask = flags
        return self._token_mask
