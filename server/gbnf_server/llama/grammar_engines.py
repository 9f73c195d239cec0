"""The grammar engines by name: llama.cpp's own, and llguidance if it is installed.

A `GrammarEngine` parses a grammar once and caches it: the next answer with the same grammar starts from a
copy.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Literal, Protocol

from gbnf import Grammar
from gbnf_server.llama.constraint import Constraint, LlamaCppConstraint
from gbnf_server.llama.native import NativeGrammar, NativeModel

GrammarEngineName = Literal["llama.cpp", "llguidance"]

_KEPT = 32  # grammars


class GrammarEngine(Protocol):
    """Creates the constraints of answers, over one model's vocabulary."""

    def constraint(self, grammar: Grammar) -> Constraint:
        """Return a constraint for one answer. Raises GrammarRefusedError."""
        ...


class LlamaCppEngine:
    """llama.cpp's own grammar engine, over one model's vocabulary. Thread-safe."""

    def __init__(self, model: NativeModel) -> None:
        self._model = model
        self._grammars: OrderedDict[Grammar, NativeGrammar] = OrderedDict()
        self._lock = threading.Lock()

    def constraint(self, grammar: Grammar) -> LlamaCppConstraint:
        """Return a constraint for one answer. Raises GrammarRefusedError."""
        with self._lock:
            native = self._grammars.pop(grammar, None) or NativeGrammar.parse(self._model, str(grammar))
            self._grammars[grammar] = native
            if len(self._grammars) > _KEPT:
                self._grammars.popitem(last=False)
            return LlamaCppConstraint(self._model, native, grammar)


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
