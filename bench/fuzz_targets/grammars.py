"""GBNF texts: our parser and matcher beside llama.cpp's."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from hypothesis import strategies as st

from fuzz_targets.common import SEEDS, Target, edited, edits
from gbnf import Grammar
from gbnf.dialects import xgrammar_text
from gbnf.errors import GrammarSyntaxError
from gbnf.grammar.analysis import token_terminals
from gbnf.grammar.emit import emit
from gbnf_server.llama.native_grammar import NativeGrammar
from gbnf_server.system.errors import GrammarRefusedError
from isolation import Confined, Finished
from support.grammars import LETTERS, grammars, quick
from support.oracle import engine
from support.random_texts import generate

_GBNF_PIECES = [
    "(", ")", "|", "?", "*", "+", "{2}", "{0,3}", "{2,}", "{,2}", "{3,2}", "{2001}", "{0,2001}", "{0}", "#c",
    "\n", "\r", "\t", " ", "::=", "root", "a", "B-2", "3", "_", '"', '""', '"\\x00"', "[", "]", "[^]",
    "[]", "[^", "\\", "\\x41", "\\u00e9", "\\ud800", "-", ".", "[z-a]", "[a-]", "<a>", "<[1]>", "!<[1]>",
    'root ::= "a"\n', "a ::= root\n", "\x00", "é", "\ufeff", "\n|", "|\n",
]  # fmt: skip
_GBNF_CASES = st.fixed_dictionaries(
    {
        "text": grammars().map(emit)
        | st.lists(st.sampled_from(_GBNF_PIECES), max_size=12).map(lambda some: "root ::= " + " ".join(some)),
        "edits": edits(_GBNF_PIECES),
        "texts": st.lists(st.text(LETTERS, max_size=6), max_size=2),
        "seed": SEEDS,
    }
)
_MAY_LOOSEN = re.compile(r"[{<!*+?\0]|\[\^?\]|\[[^\]]*-|\\[xuU]0")


def check_gbnf(case: Mapping[str, Any]) -> str:
    """Check that the engine accepts what the parser accepts, and that both agree on texts."""
    text = edited(case["text"], case["edits"])
    try:
        grammar = Grammar.parse(text)
    except GrammarSyntaxError as error:
        names = re.findall(r"^\s*([A-Za-z0-9-]+)\s*::=", text, re.MULTILINE)
        strict = _MAY_LOOSEN.search(text) or "recursion" in error.problem or len(names) > len(set(names))
        if strict or text.count("(") > 100:
            return "refused"  # what the engine would loosen, hang on or crash at: it is not asked
        try:
            NativeGrammar.parse(engine().model, text)
        except GrammarRefusedError:
            return "refused by both"
        raise AssertionError(f"the engine takes what is refused: {error}") from None
    if any(token_terminals(grammar.rules)):
        return "read"  # which tokens there are depends on the vocabulary
    NativeGrammar.parse(engine().model, text)
    assert Grammar.parse(str(grammar)) == grammar, "what is emitted is read otherwise"
    with suppress(GrammarSyntaxError):
        Grammar.parse(xgrammar_text(grammar))
    texts = list(case["texts"])
    with suppress(ValueError):  # nothing finite can be derived
        derived = generate(grammar.rules, random.Random(case["seed"]), budget=40)
        assert grammar.match(derived).complete, f"the derived {derived!r} is refused"
        texts += [derived, derived[:-1], derived + "a"]
    judged = _judged(text, texts) if quick(grammar.rules) else None
    if judged is None or re.search(r"\[\^[^\]]*[^\x00-\x7f\]]", text):
        return "read"  # too slow for the engine; or a class that it reads bytewise, as a smaller one
    for sample, (accepted, complete) in zip(texts, judged, strict=True):
        match = grammar.match(sample)
        same = (match.accepted, match.complete) == (accepted, complete)
        assert same, f"of {sample!r} the matcher says {match}, the engine {accepted=}, {complete=}"
    return "compared"


def _judged(gbnf: str, texts: list[str]) -> list[tuple[bool, bool]] | None:
    """The engine's verdicts; None if it takes too long: its time grows exponentially in some grammars."""

    def work(texts: list[str]) -> list[tuple[bool, bool]]:
        matches = engine().match_many(gbnf, texts)
        return [(match.accepted, match.complete) for match in matches]

    with Confined(work, limit_s=1.0, memory_mib=256) as confined:
        outcome = confined.attempt(texts)
    return outcome.value if isinstance(outcome, Finished) else None


GBNF = Target("gbnf", _GBNF_CASES, check_gbnf)
