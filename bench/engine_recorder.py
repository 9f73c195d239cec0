"""A plugin of pytest for `engines.py`: writes what the tests put to the engine into $ENGINES_RECORD."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from gbnf import Grammar
from gbnf_server.llama.grammar_checker import EngineMatch, GrammarChecker
from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.native_grammar import NativeGrammar, TokenState


def pytest_configure() -> None:
    """Begin to record."""
    match_many, parse = GrammarChecker.match_many, NativeGrammar.parse

    def record(grammar: str, texts: list[str]) -> None:
        with Path(os.environ["ENGINES_RECORD"]).open("a") as file:
            file.write(json.dumps([grammar, texts]) + "\n")

    def matched(self: GrammarChecker, grammar: Grammar | str, texts: Iterable[str]) -> list[EngineMatch]:
        listed = list(texts)
        record(str(grammar), listed)
        return match_many(self, grammar, listed)

    def parsed(model: NativeModel, gbnf: str, tokens: TokenState | None = None) -> NativeGrammar:
        record(gbnf, [])
        return parse(model, gbnf, tokens)

    GrammarChecker.match_many = matched  # type: ignore[method-assign]  # for this process
    NativeGrammar.parse = staticmethod(parsed)  # type: ignore[method-assign]  # for this process
