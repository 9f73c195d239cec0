"""Follow an answer through our own matcher: a server that ignored the grammar is found out here.

Independent of the engine that was to enforce it: servers have answered HTTP 200 to grammars that they could
not read, and generated without.
"""

from __future__ import annotations

from functools import lru_cache

from gbnf.grammar.match import Matcher
from gbnf.grammar.trusted_parse import parse_trusted_gbnf

_SHOWN = 5  # expected terminals that a message lists


def grammar_violation(gbnf: str, text: str, *, truncated: bool) -> str | None:
    """What is wrong with an answer, None where it fits. A cut one has to be a prefix of the language only.

    `gbnf` has passed `gbnf_server.inference.grammar_checker.guard`, or comes from our compiler.
    """
    if truncated:
        text = text.rstrip("\ufffd")  # a server's sign for a character that the cut went through
    match = _matcher(gbnf).match(text)
    if match.complete or (truncated and match.accepted):
        return None
    expected = ", ".join(match.expected[:_SHOWN]) + (", …" if len(match.expected) > _SHOWN else "")
    if match.accepted:
        found = "the text ends" if text else "the text is empty"
    else:
        found = f"{text[match.position : match.position + 20]!r} stands"
    return f"at character {match.position} {found} where the grammar expects {expected}"


@lru_cache(maxsize=16)
def _matcher(gbnf: str) -> Matcher:
    return Matcher(parse_trusted_gbnf(gbnf))
