"""The engines that can hold an answer, by name: llama.cpp's own, and llguidance where it is installed.

An `Engine` reads a grammar once and keeps it: the next answer under the same grammar begins from a copy.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import Literal, Protocol

from gbnf_server.decoding.constraint import Constraint, EngineConstraint
from gbnf_server.native import NativeGrammar, NativeModel

EngineName = Literal["llama.cpp", "llguidance"]

_KEPT = 32  # grammars


class Engine(Protocol):
    def constraint(self, gbnf: str) -> Constraint:
        """What holds one answer to the grammar. Raises GrammarRefused."""
        ...


class LlamaCpp:
    """llama.cpp's own grammar engine, on one model's vocabulary. For several threads."""

    def __init__(self, model: NativeModel) -> None:
        self._model = model
        self._grammars: OrderedDict[str, NativeGrammar] = OrderedDict()
        self._lock = threading.Lock()

    def constraint(self, gbnf: str) -> EngineConstraint:
        with self._lock:
            grammar = self._grammars.pop(gbnf, None) or NativeGrammar.parse(self._model, gbnf)
            self._grammars[gbnf] = grammar
            if len(self._grammars) > _KEPT:
                self._grammars.popitem(last=False)
            return EngineConstraint(self._model, grammar, gbnf)


def engine_of(name: EngineName, model: NativeModel) -> Engine:
    """Raises SetupError where the engine is not installed, ValueError where there is none of that name."""
    match name:
        case "llama.cpp":
            return LlamaCpp(model)
        case "llguidance":
            from gbnf_server.decoding.guidance import Llguidance  # noqa: PLC0415  # an optional extra

            return Llguidance(model)
        case _:
            raise ValueError(f"there is no grammar engine {name!r}; there are llama.cpp and llguidance")
