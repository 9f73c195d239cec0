"""A plugin of pytest for `engines.py`: writes what the tests put to the engine into $ENGINES_RECORD."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path

from gbnf import Grammar
from gbnf_server.llama.grammar_checker import EngineMatch, GrammarChecker


def pytest_configure() -> None:
    """Begin to record."""
    match_many = GrammarChecker.match_many
    record = Path(os.environ["ENGINES_RECORD"])

    def recorded(self: GrammarChecker, grammar: Grammar | str, texts: Iterable[str]) -> list[EngineMatch]:
        listed = list(texts)
        with record.open("a") as file:
            file.write(json.dumps([str(grammar), listed]) + "\n")
        return match_many(self, grammar, listed)

    GrammarChecker.match_many = recorded  # type: ignore[method-assign]
