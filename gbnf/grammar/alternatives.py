"""The JSON scalars that a grammar allows at a place, if they are few: enum values, booleans, short ranges."""

from __future__ import annotations

from gbnf.grammar.match import MatchState

_MOST_CHARACTERS = 64
"""Of the characters that may come next: a free string has more."""
_MOST_LENGTH = 200
_SPACES = " \t\n\r"


def scalar_alternatives(state: MatchState, limit: int) -> tuple[str, ...] | None:
    """Return the texts of the JSON scalars that may come next; None if there may be others, or too many."""
    scalars: list[str] = []
    pending = [("", state)]
    while pending:
        text, current = pending.pop()
        quoted = text[1:-1].replace("\\\\", "")
        if len(text) > 1 and text[0] == text[-1] == '"' and not quoted.endswith("\\"):  # a whole string
            scalars.append(text)
            continue
        ranges = current.allowed().ranges
        if len(text) > _MOST_LENGTH or sum(high - low + 1 for low, high in ranges) > _MOST_CHARACTERS:
            return None
        characters = [chr(code) for low, high in ranges for code in range(low, high + 1)]
        if not text:
            if not {"{", "["}.isdisjoint(characters):
                return None
            characters = [char for char in characters if char not in _SPACES]
        elif text[0] != '"':
            within = [char for char in characters if char.isalnum() or char in "+-."]
            if current.can_end or len(within) < len(characters):
                scalars.append(text)
            characters = within
        following = ((text + char, current.advance(char)) for char in reversed(characters))
        pending += [(longer, after) for longer, after in following if after is not None]
        if len(scalars) + len(pending) > limit:
            return None
    return tuple(scalars)
