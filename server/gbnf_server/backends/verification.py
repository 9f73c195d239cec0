"""Follow an answer through our own matcher: a server that ignored the grammar is found out here.

Independent of the engine that was to enforce it: servers have answered HTTP 200 to grammars that they could
not read, and generated without.
"""

from __future__ import annotations

from gbnf import Grammar

_SHOWN = 5  # expected terminals that a message lists


def grammar_violation(grammar: Grammar, text: str, *, truncated: bool) -> str | None:
    """Return why an answer does not match, None if it does. A truncated one has to match as a prefix only."""
    if truncated:
        text = text.rstrip("\ufffd")  # a server's sign for a character that the cut went through
    match = grammar.match(text)
    if match.complete or (truncated and match.accepted):
        return None
    expected = ", ".join(match.expected[:_SHOWN]) + (", …" if len(match.expected) > _SHOWN else "")
    if match.accepted:
        found = "the text ends" if text else "the text is empty"
    else:
        found = f"{text[match.position : match.position + 20]!r} stands"
    return f"at character {match.position} {found} where the grammar expects {expected}"
