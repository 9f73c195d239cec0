"""Grammars in llama.cpp's engine, through ctypes, where a wrong call would crash the process.

`NativeGrammar` is a parsed grammar and its state in a text, for one thread at a time. Invariants:

- The engine never gets a grammar that is empty (it would constrain nothing), contains NUL (the rest would be
  ignored) or is not UTF-8; `grammar_limits.guard_grammar` does all other checks.
- `NativeGrammar.accept` is called only with a token that `allows` has just allowed, and never with an
  end-of-generation token: the engine aborts the process otherwise.

llama.cpp's mask is too loose for token terminals (`<think>`, `!<[42]>`): inside a token, after characters of
it, it compares the token's id with a token terminal that comes next. To accept such a token ends the process
("Unexpected empty grammar stack"). So our automaton follows the tokens, too, and the mask excludes what it
does not take.
"""

from __future__ import annotations

import codecs
import ctypes
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

import numpy as np
import numpy.typing as npt

from gbnf import Grammar
from gbnf.errors import line_and_column
from gbnf.grammar.analysis import token_terminals
from gbnf.grammar.emit import emit_expr
from gbnf.grammar.ir import Expr, Literal, Rules, TokenTerminal, with_parts
from gbnf.grammar.match import Matcher, MatchState
from gbnf_server.llama.bindings import llama_cpp
from gbnf_server.llama.grammar_limits import check_size, missing_token
from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.process_globals import capture_log_errors, capture_stderr
from gbnf_server.system.errors import GrammarRefusedError

_TOKEN_DATA = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
_FIRST_MARK, _MOST_MARKS = 0xD800, 0x800  # surrogates, which no class matches, stand for token terminals


@dataclass(frozen=True, slots=True)
class TokenState:
    """The state of our automaton after the tokens of a grammar with token terminals.

    `marks`: the character that stands for each of them, its token, and whether it is negated. `incomplete`:
    the bytes of a character that has not ended.
    """

    model: NativeModel
    marks: tuple[tuple[str, int, bool], ...]
    state: MatchState
    incomplete: bytes = b""

    @property
    def control_texts(self) -> frozenset[str]:
        """The texts of their tokens."""
        return frozenset(self.model.token_text(token) for _, token, _ in self.marks) - {""}

    def takes(self, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return for each token whether it may come next, if the engine allows it."""
        allowed = np.isin(tokens, list(self.model.end_tokens))
        for mark, marked, negated in self.marks:
            if self.state.advance(mark) is not None:
                allowed |= (tokens == marked) != negated
        for index in np.flatnonzero(~allowed):
            allowed[index] = self.state.advance(self._read(int(tokens[index]))[0]) is not None
        return allowed

    def after(self, token: int) -> TokenState | None:
        """Return the state after a token."""
        text, incomplete = self._read(token)
        marks = [mark for mark, marked, negated in self.marks if (marked == token) != negated]
        state = self.state.after_any([text, *marks])
        return None if state is None else replace(self, state=state, incomplete=incomplete)

    def _read(self, token: int) -> tuple[str, bytes]:
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        return decoder.decode(self.incomplete + self.model.piece(token)), decoder.getstate()[0]


class NativeGrammar:
    """A grammar of the engine, and its state in a text. `tokens`: None without token terminals."""

    def __init__(self, model: NativeModel, sampler: Any, tokens: TokenState | None = None) -> None:
        self._model, self._sampler, self.tokens = model, sampler, tokens
        self._close = weakref.finalize(self, llama_cpp.llama_sampler_free, sampler)
        self._entry = (llama_cpp.llama_token_data * 1)()
        self._array = llama_cpp.llama_token_data_array(data=self._entry, size=1, selected=-1, sorted=False)

    @staticmethod
    def parse(model: NativeModel, gbnf: str, tokens: TokenState | None = None) -> NativeGrammar:
        """Parse a grammar. Raises GrammarRefusedError with llama.cpp's reason."""
        if not gbnf.strip():
            raise GrammarRefusedError("it is empty. Give at least the rule 'root'.")
        if "\0" in gbnf:
            raise GrammarRefusedError("it holds a NUL character, at which the engine would stop reading.")
        try:
            raw = gbnf.encode()
        except UnicodeEncodeError as error:
            raise GrammarRefusedError(f"it is not Unicode text: {error.reason} at {error.start}.") from None
        with capture_log_errors() as logged, capture_stderr() as printed:
            sampler = llama_cpp.llama_sampler_init_grammar(model.vocabulary, raw, b"root")
        if not sampler:
            raise GrammarRefusedError(_reason("".join(printed), logged, gbnf))
        return NativeGrammar(model, sampler, tokens)

    def clone(self) -> NativeGrammar:
        """Return a copy in the same state, without parsing again."""
        return NativeGrammar(self._model, llama_cpp.llama_sampler_clone(self._sampler), self.tokens)

    def allows(self, token: int) -> bool:
        """Return whether the token may come next (one that ends the generation: whether the text may end)."""
        entry, array = self._entry[0], self._array
        entry.id, entry.logit, entry.p = token, 0.0, 0.0
        array.size, array.selected, array.sorted = 1, -1, False
        llama_cpp.llama_sampler_apply(self._sampler, ctypes.byref(array))
        allows = bool(self._entry[0].logit == 0.0)
        return allows and (self.tokens is None or bool(self.tokens.takes(np.array([token]))[0]))

    def accept(self, token: int) -> None:
        """Advance by a token that `allows` has just allowed, and that does not end the generation."""
        if self.tokens is not None:
            self.tokens = self.tokens.after(token)
        llama_cpp.llama_sampler_accept(self._sampler, token)

    def allowed(self, tokens: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Return `allows` for each token, in one call."""
        entries = np.zeros(len(tokens), dtype=_TOKEN_DATA)
        entries["id"] = tokens
        array = llama_cpp.llama_token_data_array(
            data=entries.ctypes.data_as(ctypes.POINTER(llama_cpp.llama_token_data)),
            size=len(tokens),
            selected=-1,
            sorted=False,
        )
        llama_cpp.llama_sampler_apply(self._sampler, ctypes.byref(array))
        allowed = np.asarray(entries["logit"] == 0.0)
        if self.tokens is not None:
            allowed[allowed] = self.tokens.takes(tokens[allowed])
        return allowed

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._close()


def token_ids(model: NativeModel, grammar: Grammar) -> dict[TokenTerminal, int]:
    """Return the token of each token terminal. Raises GrammarRefusedError if the vocabulary has none.

    So it does for a token that ends the generation, which llama.cpp allows only at the end of a text.
    """
    ids: dict[TokenTerminal, int] = {}
    for terminal in token_terminals(grammar.rules) if grammar.is_parsed else ():
        token = terminal.token
        tokens = model.tokenize(token, special=True) if isinstance(token, str) else [token]
        if len(tokens) != 1 or tokens[0] >= model.size:
            raise missing_token(model.name, terminal, model.size if isinstance(token, int) else len(tokens))
        if tokens[0] in model.end_tokens and not terminal.negated:
            raise GrammarRefusedError(
                f"{emit_expr(terminal)} ends the answers of {model.name}, so that no text contains it. "
                "Leave it out: an answer ends where the rule root does."
            )
        ids[terminal] = tokens[0]
    if len(ids) > _MOST_MARKS:
        raise GrammarRefusedError(f"it has more than {_MOST_MARKS} different token terminals. Use fewer.")
    return ids


def native_grammar(model: NativeModel, grammar: Grammar) -> NativeGrammar:
    """Return the grammar in llama.cpp's engine. Raises GrammarRefusedError."""
    check_size(grammar)
    ids = token_ids(model, grammar)
    return NativeGrammar.parse(model, str(grammar), _token_state(model, grammar.rules, ids) if ids else None)


def _token_state(model: NativeModel, rules: Rules, ids: Mapping[TokenTerminal, int]) -> TokenState:
    marks = {key: chr(_FIRST_MARK + number) for number, key in enumerate(ids)}

    def marked(expr: Expr) -> Expr:
        return Literal(marks[expr]) if isinstance(expr, TokenTerminal) else with_parts(expr, marked)

    productions = {name: marked(expr) for name, expr in rules.productions.items()}
    start = Matcher(Rules(productions, rules.root), with_costs=False).start()
    return TokenState(model, tuple((marks[key], ids[key], key.negated) for key in ids), start)


def _reason(printed: str, logged: Sequence[str], gbnf: str) -> str:
    """Return llama.cpp's reason for refusing a grammar, with the location of the error."""
    _, label, reason = printed.partition("error parsing grammar: ")
    if not label:
        last = logged[-1] if logged else "llama.cpp gave no reason"
        return last.partition(": ")[2].strip() or last.strip()
    reason = reason.removesuffix(f"\n\n{gbnf}\n")
    what, separator, rest = reason.partition(" at ")
    if not separator or not gbnf.endswith(rest):
        return reason.strip()
    line, column = line_and_column(gbnf, len(gbnf) - len(rest))
    near = f"before {rest[:40]!r}" if rest else "at the end"
    return f"{what} in line {line}, column {column}, {near}"
