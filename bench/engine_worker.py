"""Prints the verdicts of one version of llama.cpp, for `engines.py`, which starts it again where it crashes.

python bench/engine_worker.py LIBRARY CASES.json FIRST
"""

from __future__ import annotations

import json
import signal
import sys
import types
from pathlib import Path
from typing import Any

from gbnf_server.llama.prebuilt import PrebuiltBindings

_BINDINGS: Any = types.ModuleType("gbnf_server.llama.bindings")
_BINDINGS.llama_cpp = PrebuiltBindings(Path(sys.argv[1]))
sys.modules[_BINDINGS.__name__] = _BINDINGS

from gbnf_server.llama.demo_model import model_path  # noqa: E402  # with that library
from gbnf_server.llama.grammar_checker import GrammarChecker  # noqa: E402  # likewise
from gbnf_server.llama.native_grammar import NativeGrammar  # noqa: E402  # likewise
from gbnf_server.system.errors import GrammarRefusedError  # noqa: E402  # likewise

LIMIT_S = 30  # for a grammar with its texts

if __name__ == "__main__":
    checker = GrammarChecker.load(model_path())
    for grammar, texts in json.loads(Path(sys.argv[2]).read_text())[int(sys.argv[3]) :]:
        signal.alarm(LIMIT_S)
        try:
            result: Any = [match.complete for match in checker.match_many(grammar, texts)] if texts else []
            if not texts:  # the engine alone, without our parser before it
                NativeGrammar.parse(checker.model, grammar)
        except GrammarRefusedError as error:
            result = f"refused: {error}"
        print(json.dumps(result), flush=True)
