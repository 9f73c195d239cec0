"""The languages of ECMA-262 patterns.

Patterns are read in Unicode mode (a character is a code point) with the leniency of Annex B, since patterns
need it in practice: a lone `{`, `}` or `]` is itself, as is an escaped character that means nothing special.
Greedy and lazy quantifiers, capturing and other groups are the same language. Accepted with their usual
meaning, though not part of ECMA-262: `(?i)` and other flags at the start, `(?P<name>...)`, comments
`(?#...)`, `\\A`, `\\Z` and `\\z`. Unsupported are backreferences, lookbehinds that depend on the following
text (by `$`, `\\b` or a lookaround inside) and lookbehinds inside other lookarounds.

Where Python's `re` (which jsonschema uses) interprets a pattern differently, ECMA-262 applies: `\\d` and
`\\w` are ASCII, `\\s` is its own white space, `.` excludes all four line terminators, `$` is the very end
(not also the place before a last line feed), `[]` is the empty class and `[^]` the full one, and `a{,3}` is
literal.
"""

from __future__ import annotations

from gbnf.regular.automaton import Dfa
from gbnf.regular.glushkov import Condition, PositionAutomaton, Preceding
from gbnf.regular.pattern_parser import parse_pattern
from gbnf.regular.pattern_syntax import (
    End,
    PatternNode,
    Start,
    UnsupportedPatternError,
    is_anchored,
    may_look_ahead,
)
from gbnf.regular.subset_construction import determinise
from gbnf.work_limits import work_cache


@work_cache(maxsize=4096)
def search(pattern: str) -> Dfa:
    """Return the texts in which the pattern is found. Raises PatternError and TooManyStatesError."""
    return found_in(parse_pattern(pattern), pattern)


def found_in(node: PatternNode, pattern: str = "", within: Condition | None = None) -> Dfa:
    """Return the texts in which the expression is found. `pattern`: its text, for errors of lookarounds.

    With `within`, it is the body of that lookaround: found at the start of the text after the position, or
    at the end of the text before it.
    """
    behind = within is not None and within.lookaround.behind
    positions = PositionAutomaton(
        node,
        begins_anywhere=(within is None or behind) and not is_anchored(node, Start),
        ends_anywhere=not behind and not is_anchored(node, End),
        before=Preceding.TEXT_START if within is None or behind else within.before,
    )
    conditions = {condition for steps in positions.steps for needed in steps for condition in needed}
    if within is not None and any(condition.lookaround.behind for condition in conditions):
        raise UnsupportedPatternError(pattern, within.lookaround.position, "a lookbehind inside a lookaround")
    return determinise(positions, {condition: _body(condition, pattern) for condition in conditions})


def _body(condition: Condition, pattern: str) -> Dfa:
    """Return the text after the position, or before it, for which the lookaround is satisfied."""
    lookaround = condition.lookaround
    if lookaround.behind and may_look_ahead(lookaround.item):
        raise UnsupportedPatternError(
            pattern, lookaround.position, "a lookbehind that depends on the following text"
        )
    language = found_in(lookaround.item, pattern, condition)
    return ~language if lookaround.negated else language
