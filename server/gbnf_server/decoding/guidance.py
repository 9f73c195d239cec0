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

from gbnf.dialects.lark import lark_text
from gbnf.errors import GrammarSyntaxError
from gbnf_server.decoding.constraint import Flags, Following, Tokens
from gbnf_server.errors import BackendError, GrammarRefused, SetupError
from gbnf_server.native import NativeModel

_KEPT = 32  # grammars


class Llguidance:
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
        self._grammars: OrderedDict[str, Any] = OrderedDict()
        self._lock = threading.Lock()

    def constraint(self, gbnf: str) -> GuidanceConstraint:
        """What holds one answer to the grammar. Raises GrammarRefused."""
        with self._lock:
            matcher = self._grammars.pop(gbnf, None) or self._read(gbnf)
            self._grammars[gbnf] = matcher
            if len(self._grammars) > _KEPT:
                self._grammars.popitem(last=False)
            return GuidanceConstraint(self._model, matcher.deep_copy(), gbnf)

    def _read(self, gbnf: str) -> Any:
        try:
            dialect = lark_text(gbnf)
        except (GrammarSyntaxError, ValueError) as error:
            raise GrammarRefused(str(error)) from error
        matcher = self._matcher(self._tokenizer, dialect, log_level=0)
        if matcher.is_error():
            raise GrammarRefused(str(matcher.get_error()))
        return matcher


class GuidanceConstraint(Following):
    """llguidance as judge. What is forced our automaton says here, too: it also sees where a text ends."""

    def __init__(self, model: NativeModel, matcher: Any, gbnf: str) -> None:
        super().__init__(model, gbnf)
        self._matcher = matcher
        self._flags: Flags | None = None  # of the whole vocabulary, at this place

    def allows(self, token: int) -> bool:
        begun = time.perf_counter()
        if token in self._model.end_tokens:
            allowed = bool(self._matcher.is_accepting())
        else:
            allowed = self._matcher.validate_tokens([token]) == 1 and self._utf8.spells(token)
        self.seconds += time.perf_counter() - begun
        return allowed

    def candidates(self) -> Tokens:
        begun = time.perf_counter()
        tokens = np.flatnonzero(self._mask())
        self.seconds += time.perf_counter() - begun
        return tokens

    def allowed(self, tokens: Tokens) -> Flags:
        begun = time.perf_counter()
        flags = np.asarray(self._mask()[tokens])
        self.seconds += time.perf_counter() - begun
        return flags

    def accept(self, token: int) -> None:
        begun = time.perf_counter()
        self._flags = None
        if not self._matcher.consume_token(token):
            raise BackendError(f"llguidance cannot go on: {self._matcher.get_error()}")
        self._unread += self._utf8.take(token)
        self.seconds += time.perf_counter() - begun

    def _accept_all(self, tokens: list[int]) -> bool:
        self._flags = None
        if self._matcher.validate_tokens(tokens) < len(tokens):
            return False
        if not self._matcher.consume_tokens(tokens):
            raise BackendError(f"llguidance cannot go on: {self._matcher.get_error()}")
        return True

    def _mask(self) -> Flags:
        if self._flags is None:
            bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
            flags = np.unpackbits(bits, bitorder="little")[: self._model.size].astype(np.bool_)
            if self._matcher.is_error():
                raise BackendError(f"llguidance cannot go on: {self._matcher.get_error()}")
            self._flags = flags
        return self._flags
