"""Whether an ECMA-262 pattern is found in a text.

jsonschema hands patterns to Python's `re`, in which `$` also matches before a final line feed and `\\d` any
digit of Unicode. Here the automata of `gbnf.regular` match them. Patterns without an automaton
(backreferences, too many states) are matched by the package `regex`, with a time limit.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING

from gbnf.regular.pattern_syntax import PatternError
from gbnf.schema_caches import schema_cache
from gbnf.work_limits import TooManyStatesError, WorkLimitError, may_backtrack, spend

if TYPE_CHECKING:
    import regex

#: The longest pattern for `regex`, in characters once its repetitions are written out, as `regex` does:
#: `(ab+){3}` becomes four times `ab`, and `b`.
_MAX_EXPANDED_LENGTH = 100_000
#: Seconds for which `regex` may search one text for one pattern.
_TIMEOUT_S = 1.0


def pattern_matches(pattern: str, text: str) -> bool | None:
    """Return whether the pattern is found in the text; None if that is unknown.

    Where `may_backtrack` forbids it, only automata are used: a backtracking search takes an amount of work
    that can't be counted. Elsewhere `regex` gets `_TIMEOUT_S`.
    """
    answer = _automaton_matches(pattern, text)
    if answer is None and may_backtrack() and (expression := _regex_pattern(pattern)) is not None:
        with suppress(TimeoutError):
            return expression.search(text, timeout=_TIMEOUT_S) is not None
    return answer


def _automaton_matches(pattern: str, text: str) -> bool | None:
    """Match with the pattern's automaton; None if it has none."""
    from gbnf.regular.ecma262 import search  # noqa: PLC0415  # most schemas have no patterns

    spend(1 + len(text) // 4)
    try:
        return search(pattern).accepts(text)
    except WorkLimitError:
        raise
    except (PatternError, TooManyStatesError):
        return None


def pattern_sample(pattern: str) -> str:
    """Return a text of the form of a pattern; "" if its texts have several forms, or that is unknown."""
    from gbnf.regular.ecma262 import search  # noqa: PLC0415  # most schemas have no patterns

    try:
        language = search(pattern)
        sample = language.shortest()
    except (PatternError, TooManyStatesError):
        return ""
    if not sample or not sample.isprintable() or "|" in pattern:
        return ""
    return sample if language.lengths == (len(sample), len(sample)) else ""


def is_supported_pattern(pattern: str) -> bool:
    """Return whether `pattern_matches` has a matcher for the pattern."""
    is_regex = may_backtrack() and _regex_pattern(pattern) is not None  # which is faster than an automaton
    return is_regex or _automaton_matches(pattern, "") is not None


_TOKEN = re.compile(r"\\k<\w+>|\\.|\[(?:\\.|[^\]\\])*\]|\$|\.|\(\?<(?![=!])", re.DOTALL)
_TRANSLATIONS = {"$": r"\Z", ".": r"[^\n\r\u2028\u2029]", "(?<": "(?P<"}


def _translated(token: str) -> str:
    return f"(?P={token[3:-1]})" if token.startswith("\\k<") else _TRANSLATIONS.get(token, token)


_ELEMENT = re.compile(r"\\.|\[(?:\\.|[^\]\\])*\]|(?P<least>\+|\{(?P<count>\d+)(?:,\d*)?\})|.", re.DOTALL)
#: Comments, and the flag that allows them, which `_expanded_length` does not follow.
_COMMENTS = re.compile(r"\(\?(?:#|[a-zA-Z]*x)")


def _expanded_length(pattern: str) -> int:
    """Estimate the pattern's length in `regex`: each group is repeated its minimum of times plus one."""
    groups, last = [0], 0
    for element in _ELEMENT.finditer(pattern):
        if element["least"]:
            repeated = last * int((element["count"] or "1")[:9])
            groups[-1], last = groups[-1] + repeated, last + repeated
        elif element[0] == "(":
            groups.append(1)
        elif element[0] == ")" and len(groups) > 1:
            last = groups.pop()
            groups[-1] += last
        elif element[0] not in "*?":
            groups[-1], last = groups[-1] + 1, 1
    return sum(groups)


@schema_cache(maxsize=128)
def _regex_pattern(pattern: str) -> regex.Pattern[str] | None:
    """Compile the pattern with `regex`, `$` being the very end; None if `regex` can't read it."""
    import regex  # noqa: PLC0415  # most patterns have an automaton

    if _COMMENTS.search(pattern) or _expanded_length(pattern) > _MAX_EXPANDED_LENGTH:
        return None
    translated = _TOKEN.sub(lambda match: _translated(match[0]), pattern)
    try:
        return regex.compile(translated, regex.ASCII)
    except (regex.error, ValueError, OverflowError, RecursionError):
        return None
