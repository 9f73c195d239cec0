"""The languages of ECMA-262 patterns.

Patterns are read in Unicode mode (a character is a code point) with the leniency of Annex B, since patterns
in the wild need it: a lone `{`, `}` or `]` is itself, as is an escaped character that means nothing special.
Greedy and lazy quantifiers, capturing and other groups are the same language. Read as their authors meant
them, though ECMA-262 does not know them: `(?i)` and other flags at the start, `(?P<name>...)`, comments
`(?#...)`, `\\A`, `\\Z` and `\\z`. Backreferences are refused, as are lookbehinds that ask what follows (by
`$`, `\\b` or a lookaround inside) and lookbehinds inside other lookarounds.

Where Python's `re` (which jsonschema uses) reads a pattern differently, ECMA-262 holds: `\\d` and `\\w` are
ASCII, `\\s` is its own white space, `.` excludes all four line terminators, `$` is the very end (not also the
place before a last line feed), `[]` is the empty class and `[^]` the full one, and `a{,3}` is literal.
"""

from __future__ import annotations

from gbnf.effort import remembered
from gbnf.regular.automaton import Dfa
from gbnf.regular.errors import PatternError, UnsupportedPatternError
from gbnf.regular.positions import Before, Condition, position_automaton
from gbnf.regular.reader import read_pattern
from gbnf.regular.subsets import determinise
from gbnf.regular.syntax import Node, ends_text, looks_on, starts_text


@remembered(maxsize=4096)
def search(pattern: str) -> Dfa:
    """The texts in which the pattern is found somewhere. Raises PatternError and TooManyStates."""
    return _language(read_pattern(pattern), pattern)


def _language(node: Node, pattern: str, within: Condition | None = None) -> Dfa:
    """The texts in which the expression is found.

    `within` makes it the body of that lookaround: found at the start of what follows the place, or at the
    end of what stands before it.
    """
    behind = within is not None and within.look.behind
    positions = position_automaton(
        node,
        begins_anywhere=(within is None or behind) and not starts_text(node),
        ends_anywhere=not behind and not ends_text(node),
        before=Before.NOTHING if within is None or behind else within.before,
    )
    conditions = {condition for steps in positions.steps for needed in steps for condition in needed}
    if within is not None and any(condition.look.behind for condition in conditions):
        raise UnsupportedPatternError(pattern, within.look.position, "a lookbehind inside a lookaround")
    return determinise(positions, {condition: _body(condition, pattern) for condition in conditions})


def _body(condition: Condition, pattern: str) -> Dfa:
    """What must hold behind the place, or before it, for the lookaround's body to match."""
    look = condition.look
    if look.behind and looks_on(look.item):
        raise UnsupportedPatternError(pattern, look.position, "a lookbehind that asks what follows")
    found = _language(look.item, pattern, condition)
    return ~found if look.negated else found


__all__ = ["PatternError", "search"]
