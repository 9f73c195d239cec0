"""The grammar engines by name: llama.cpp's own, and llguidance with the extra of that name."""

from __future__ import annotations

import ctypes
from typing import Any, Literal

import numpy as np

from gbnf import Grammar
from gbnf.dialects.lark import lark_text
from gbnf.grammar.code_points import first_bytes
from gbnf_server.llama.bindings import llama_cpp
from gbnf_server.llama.constraint import Constraint, GrammarEngine, TokenIds, TokenMask, timed
from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.native_grammar import NativeGrammar, native_grammar, token_ids
from gbnf_server.system.errors import BackendError, GrammarRefusedError, SetupError

GrammarEngineName = Literal["llama.cpp", "llguidance"]

_PART = 4096  # tokens that the engine is asked about at once
_STEP = "the grammar engine takes a token"
_CONTINUATION_BYTES = frozenset(range(0x80, 0xC0))


class LlamaCppConstraint(Constraint):
    """A constraint of llama.cpp's own engine."""

    def __init__(self, model: NativeModel, native: NativeGrammar, grammar: Grammar) -> None:
        """Start with a copy of `native`, the grammar in the engine in its start state."""
        super().__init__(model, grammar)
        self._grammar = native.clone()

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
        allowed_mask = np.zeros(len(tokens), dtype=np.bool_)
        for first in range(0, len(tokens), _PART):
            self.stop.begin(_STEP)
            allowed_mask[first : first + _PART] = self._grammar.allowed(tokens[first : first + _PART])
        return self._utf8.accepted(tokens, allowed_mask)

    @timed
    def accept(self, token: int) -> None:
        """Advance by an allowed token; see `Constraint`."""
        self.stop.begin(_STEP)
        self._grammar.accept(token)
        self._pending_text += self._utf8.decode(token)

    def _accept_all(self, tokens: list[int]) -> bool:
        tried = self._grammar.clone()  # takes a twentieth of a millisecond for 15 tools
        for token in tokens:
            self.stop.begin(_STEP)
            if not tried.allows(token):
                return False
            tried.accept(token)
        self._grammar = tried
        return True


class LlamaCppEngine(GrammarEngine):
    """llama.cpp's own grammar engine."""

    def _parse(self, grammar: Grammar) -> NativeGrammar:
        return native_grammar(self._model, grammar)

    def _start(self, parsed: NativeGrammar, grammar: Grammar) -> Constraint:
        return LlamaCppConstraint(self._model, parsed, grammar)


def llguidance_tokenizer(model: NativeModel) -> Any:
    """Return llguidance's tokenizer, as its module `llamacpp` does, which requires llama-cpp-python."""
    import llguidance  # noqa: PLC0415  # optional

    control, defined = llama_cpp.LLAMA_TOKEN_ATTR_CONTROL, llama_cpp.LLAMA_TOKEN_ATTR_USER_DEFINED
    pieces = [model.piece(token) for token in range(model.size)]
    for token, piece in enumerate(pieces):
        kind = llama_cpp.llama_vocab_get_attr(model.vocabulary, token)
        if kind & control or (kind & defined and piece.startswith(b"<") and piece.endswith(b">")):
            pieces[token] = b"\xff" + piece  # a special token
    return llguidance.LLTokenizer.from_llamacpp(
        tokens=pieces,
        vocab_ptr=model.vocabulary,
        tokenize_fptr=ctypes.cast(llama_cpp.llama_tokenize, ctypes.c_void_p).value,
        eos_token=sorted(model.end_tokens),  # the first is its end token; it allows all of them or none
    )


class LlguidanceEngine(GrammarEngine):
    """llguidance's matchers: token masks of the whole vocabulary in about 50 microseconds.

    It takes our grammar in its own dialect (`gbnf.dialects.lark`) and uses the model's own tokenizer. It
    raises no errors: a matcher that fails stays in an error state, so every call here checks what it
    returned.
    """

    def __init__(self, model: NativeModel) -> None:
        """Raise SetupError if llguidance is not installed."""
        try:
            import llguidance  # noqa: PLC0415  # optional
        except ImportError:
            raise SetupError(
                "llguidance is not installed: pip install 'gbnf-toolkit[llguidance]', or use llama.cpp"
            ) from None
        super().__init__(model)
        self._matcher: Any = llguidance.LLMatcher
        self._tokenizer = llguidance_tokenizer(model)

    def _parse(self, grammar: Grammar) -> Any:
        text = lark_text(grammar, token_ids(self._model, grammar), self._model.end_tokens)
        matcher = self._matcher(self._tokenizer, text, log_level=0)
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
        """Return a superset of the allowed tokens; see `Constraint`."""
        return np.flatnonzero(self._mask())

    @timed
    def allowed(self, tokens: TokenIds) -> TokenMask:
        """Return `allows` for each token."""
        # a negated token terminal is also any byte
        return self._utf8.accepted(tokens, np.array(self._mask()[tokens]))

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


def grammar_engine(name: GrammarEngineName, model: NativeModel) -> GrammarEngine:
    """Return an engine. Raises SetupError if it is not installed, ValueError for an unknown name."""
    match name:
        case "llama.cpp":
            return LlamaCppEngine(model)
        case "llguidance":
            return LlguidanceEngine(model)
        case _:
            raise ValueError(f"unknown grammar engine {name!r}. Use llama.cpp or llguidance.")
