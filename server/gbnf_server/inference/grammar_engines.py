"""The engines that can hold an answer, by name: llama.cpp's own, and llguidance where it is installed.

An `GrammarEngine` reads a grammar once and keeps it: the next answer under the same grammar begins from a copy.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Literal, Protocol

from gbnf import Grammar
from gbnf_server.inference.constraint import Constraint, LlamaCppConstraint
from gbnf_server.inference.native import NativeGrammar, NativeModel

GrammarEngineName = Literal["llama.cpp", "llguidance"]

_KEPT = 32  # grammars


class GrammarEngine(Protocol):
    def constraint(self, grammar: Grammar) -> Constraint:
        """What holds one answer to the grammar. Raises GrammarRefused."""
        ...


class LlamaCppEngine:
    """llama.cpp's own grammar engine, on one model's vocabulary. For several threads."""

    def __init__(self, model: NativeModel) -> None:
        self._model = model
        self._grammars: OrderedDict[Grammar, NativeGrammar] = OrderedDict()
        self._lock = threading.Lock()

    def constraint(self, grammar: Grammar) -> LlamaCppConstraint:
        with self._lock:
            native = self._grammars.pop(grammar, None) or NativeGrammar.parse(self._model, str(grammar))
            self._grammars[grammar] = native
            if len(self._grammars) > _KEPT:
                self._grammars.popitem(last=False)
            return LlamaCppConstraint(self._model, native, grammar)


def grammar_engine(name: GrammarEngineName, model: NativeModel) -> GrammarEngine:
    """Raises SetupError where the engine is not installed, ValueError where there is none of that name."""
    match name:
        case "llama.cpp":
            return LlamaCppEngine(model)
        case "llguidance":
            from gbnf_server.inference.llguidance_engine import LlguidanceEngine  # noqa: PLC0415  # an optional extra

            return LlguidanceEngine(model)
        case _:
            raise ValueError(f"there is no grammar engine {name!r}; there are llama.cpp and llguidance")
