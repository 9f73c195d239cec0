"""What a grammar allows after a text of JSON, token by token. The matcher alone decides; schemas are unknown.

All of it is bounded: what has more branches, or takes more steps, counts as open.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable

from gbnf.grammar.match import MatchState

DIGITS = "0123456789"
SPACES = " \n\t\r"
NUMBER = DIGITS + "-+.eE"
_AFTER_NUMBER = ",]}" + SPACES
_MOST_BRANCHES = 60
"""Characters that may come next, where each is tried."""
_MOST_STEPS = 1500
_MOST_TOKENS = 50
_MOST_NUMBERS = 8
_MOST_NUMBER_STEPS = 100
_MOST_SPACES = 16
_MOST_DIGITS = 40
_FORCED = 200
_LONGEST = 4000


def after_spaces(state: MatchState, *, spaced: bool = False) -> dict[str, MatchState]:
    """Return the states after whitespace, by the shortest; with `spaced`, that of one space comes first."""
    found = {"": state}
    pending = deque(found.items())
    seen = {state}
    while pending and len(found) < _MOST_SPACES:
        text, here = pending.popleft()
        for space in SPACES:
            following = here.advance(space)
            if following is not None and following not in seen:
                seen.add(following)
                found[text + space] = following
                pending.append((text + space, following))
    if spaced and (following := state.advance(" ")) is not None:
        return {" ": following, **{text: after for text, after in found.items() if text != " "}}
    return found


def first_after(states: dict[str, MatchState], text: str) -> str | None:
    """Return the whitespace and `text`, if they may come next; None if they may not."""
    return next((space + text for space, state in states.items() if state.advance(text) is not None), None)


def string_ends(state: MatchState, *, escaped: bool = False) -> tuple[list[str], bool]:
    """Return what may follow inside a string, up to its closing quote, and whether there is more than that.

    `escaped`: the string so far ends with the backslash of an escape.
    """
    before = "\\" if escaped else ""
    found: dict[str, None] = {}
    is_open = False
    pending: deque[tuple[MatchState, str]] = deque([(state, before)])
    for _ in range(_MOST_STEPS):
        if not pending:
            return [text.removeprefix(before) for text in found], is_open
        here, text = pending.popleft()
        forced = here.forced(_FORCED)
        if not forced and _number_of(here) > _MOST_BRANCHES:
            is_open = True
            continue
        for piece in [forced] if forced else _characters(here):
            end = _string_end(text, piece)
            if end is not None:
                found[end] = None
            elif (following := here.advance(piece)) is not None and len(text) < _LONGEST:
                pending.append((following, text + piece))
        if len(found) > _MOST_TOKENS:
            break
    return [], True


def number_ends(state: MatchState) -> tuple[list[str], bool]:
    """Return what may follow inside a number (or before one), and whether there is more than that."""
    found: list[str] = []
    pending: deque[tuple[MatchState, str]] = deque([(state, "")])
    for _ in range(_MOST_NUMBER_STEPS):
        if not pending or len(found) > _MOST_NUMBERS:
            break
        here, text = pending.popleft()
        if text and may_end_number(here):
            found.append(text)
        for character in NUMBER:
            if (following := here.advance(character)) is not None and len(text) < _MOST_DIGITS:
                pending.append((following, text + character))
    return ([], True) if pending or len(found) > _MOST_NUMBERS else (found, False)


def may_end_number(state: MatchState) -> bool:
    """Return whether a number may be complete."""
    return state.can_end or any(state.advance(character) is not None for character in _AFTER_NUMBER)


def missing_digits(state: MatchState) -> tuple[int, int | None] | None:
    """Return how many digits must follow, and how many may; None for anything but digits.

    In a string, those directly before something else. The second is None if there is no bound.
    """
    least: int | None = None
    level = {state}
    for count in range(_MOST_DIGITS):
        following: set[MatchState] = set()
        for each in level:
            digits = [after for digit in DIGITS if (after := each.advance(digit)) is not None]
            following.update(digits)
            if each.can_end or _number_of(each) > len(digits):
                least = count if least is None else least
                if digits and any(each.advance(other) is not None for other in "-+.eE"):
                    return None
        if not following:
            return (count if least is None else least, count) if count else None
        if len(following) > _MOST_BRANCHES:
            break
        level = following
    return (0 if least is None else least), None


def inserted(state: MatchState, text: str) -> str:
    """Return a text that may come next, with what the grammar forces then, but for a space after , and :."""
    following = state.advance(text)
    while following is not None and len(text) < _LONGEST:
        more = following.forced(_FORCED)
        if not more and text.endswith((":", ",")) and following.advance(" ") is not None:
            more = " "
        if not more:
            break
        text, following = text + more, following.advance(more)
    return text


def characters_in_words(state: MatchState) -> str:
    """Return which characters may come next, except for the quote; "" if they are many."""
    ranges = [(low, high) for low, high in state.allowed().ranges if (low, high) != (34, 34)]
    if sum(high - low + 1 for low, high in ranges) > _MOST_BRANCHES + 10:
        return ""
    characters = {chr(code) for low, high in ranges for code in range(low, high + 1)} - {'"'}
    parts = []
    for words, members in _CLASSES:
        if characters.issuperset(members):
            parts.append(words)
            characters -= set(members)
    digits = sorted(characters.intersection(DIGITS))
    if len(digits) > 1 and ord(digits[-1]) - ord(digits[0]) == len(digits) - 1:
        parts.insert(0, f"a digit from {digits[0]} to {digits[-1]}")
        characters -= set(digits)
    parts += [_shown(character) for character in sorted(characters)]
    return "" if len(parts) > 12 else either(parts)


def either(parts: Iterable[str]) -> str:
    """Return parts as a list in words."""
    *first, last = list(parts) or [""]
    return f"{', '.join(first)} or {last}" if first else last


def _string_end(text: str, following: str) -> str | None:
    """Return a string up to its closing quote, if that is in what follows."""
    escaped = (len(text) - len(text.rstrip("\\"))) % 2 == 1
    for index, character in enumerate(following):
        if escaped:
            escaped = False
        elif character == "\\":
            escaped = True
        elif character == '"':
            return text + following[: index + 1]
    return None


def _characters(state: MatchState) -> list[str]:
    return [chr(code) for low, high in state.allowed().ranges for code in range(low, high + 1)]


def _number_of(state: MatchState) -> int:
    return sum(high - low + 1 for low, high in state.allowed().ranges)


def _shown(character: str) -> str:
    return {"\\": "a backslash", " ": "a space"}.get(
        character, f'"{character}"' if character.isprintable() else f"U+{ord(character):04X}"
    )


_CLASSES = (
    ("a hexadecimal digit", DIGITS + "abcdefABCDEF"),
    ("a lowercase hexadecimal digit", DIGITS + "abcdef"),
    ("a digit", DIGITS),
    ("a letter", "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"),
    ("a lowercase letter", "abcdefghijklmnopqrstuvwxyz"),
    ("an uppercase letter", "ABCDEFGHIJKLMNOPQRSTUVWXYZ"),
)
