"""llama.cpp's own grammar engine on a real vocabulary: the judge of every grammar in the tests.

Only what asks it imports the server, which binds it: the tests of `gbnf` run without.
"""

from __future__ import annotations

import os
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from gbnf.extras import is_installed

if TYPE_CHECKING:
    from gbnf_server.llama.grammar_checker import GrammarChecker

CHECKOUT = Path(__file__).resolve().parents[2]
_EMBEDDED = CHECKOUT / "server/gbnf_server/llama/demo_model/model.gguf"
SHARED = Path(os.environ.get("GBNF_SHARED", CHECKOUT.parent / "shared"))


@cache
def engine(vocabulary: str = "embedded") -> GrammarChecker:
    """The engine on the embedded vocabulary, or on `ggml-vocab-<vocabulary>.gguf`; skips without either."""
    if not is_installed("local"):
        pytest.skip("needs llama.cpp's engine: the extra local")
    from gbnf_server.llama.grammar_checker import GrammarChecker

    return GrammarChecker.load(vocabulary_path(vocabulary))


def accepts(grammar: Any, text: str) -> bool:
    """Whether the engine finds the text in the language of the grammar."""
    return engine().match(grammar, text).complete


def parses(text: str) -> bool:
    """Whether llama.cpp parses the text of a grammar; skips the test without it."""
    model = engine().model
    from gbnf_server.llama.native_grammar import NativeGrammar
    from gbnf_server.system.errors import GrammarRefusedError

    try:
        NativeGrammar.parse(model, text)
    except GrammarRefusedError:
        return False
    return True


def vocabulary_path(vocabulary: str) -> Path:
    """The file of a vocabulary; skips the test without it."""
    path = _EMBEDDED if vocabulary == "embedded" else SHARED / "vocabs" / f"ggml-vocab-{vocabulary}.gguf"
    if not path.is_file():
        pytest.skip(
            f"the vocabulary {path.name} is not here: set GBNF_SHARED to the folder that holds vocabs/"
        )
    return path
