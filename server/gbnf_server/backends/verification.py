"""Verify an answer with our own matcher, since a server may have ignored the grammar.

Independent of the engine that should have enforced it: servers have answered with HTTP 200 to grammars that
they could not parse, and generated without them.
"""

from __future__ import annotations

from gbnf import Grammar

_SHOWN = 5  # expected terminals in a message


def grammar_violation(grammar: Grammar, text: str, *, truncated: bool) -> str | None:
    """Return how an answer violates the grammar, None if it fits. A truncated one has to be a prefix only."""
    if truncated:
        text = text.rstrip("\ufffd")  # a server's replacement for a character that was truncated
    match = grammar.match(text)
    if match.complete or (truncated and match.accepted):
        return None
    expected = ", ".join(match.expected[:_SHOWN]) + (", …" if len(match.expected) > _SHOWN else "")
    if match.accepted:
        found = "the text ends" if text else "the text is empty"
    else:
        found = f"found {text[match.position : match.position + 20]!r}"
    return f"at character {match.position}: {found}, expected {expected}"
