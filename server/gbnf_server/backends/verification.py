"""Verify an answer with our own matcher, since a server may have ignored the grammar.

Independent of the engine that should have enforced it: servers have answered with HTTP 200 to grammars that
they could not parse, and generated without them.
"""

from __future__ import annotations

from functools import lru_cache

from gbnf.grammar.match import Matcher
from gbnf.grammar.trusted_parse import parse_trusted_gbnf

_SHOWN = 5  # expected terminals in a message


def grammar_violation(gbnf: str, text: str, *, truncated: bool) -> str | None:
    """Return how an answer violates the grammar, None if it fits. A truncated one has to be a prefix only.

    `gbnf` has passed `gbnf_server.inference.grammar_checker.guard_grammar`, or comes from our compiler.
    """
    if truncated:
        text = text.rstrip("\ufffd")  # a server's replacement for a character that was truncated
    match = _matcher(gbnf).match(text)
    if match.complete or (truncated and match.accepted):
        return None
    expected = ", ".join(match.expected[:_SHOWN]) + (", …" if len(match.expected) > _SHOWN else "")
    if match.accepted:
        found = "the text ends" if text else "the text is empty"
    else:
        found = f"found {text[match.position : match.position + 20]!r}"
    return f"at character {match.position}: {found}, expected {expected}"


@lru_cache(maxsize=16)
def _matcher(gbnf: str) -> Matcher:
    return Matcher(parse_trusted_gbnf(gbnf))
