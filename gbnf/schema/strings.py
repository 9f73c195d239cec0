"""The string keywords: a regular language, and bounds on the length beside it.

`pattern`, `format` and their complements are intersected as automata. The bounds stay numbers as long as
possible, since they make automata large; `string_language` combines both. A keyword without an automaton of
reasonable size is reported and left out.

Invariants: leaving a keyword out only enlarges the language.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from fractions import Fraction

from gbnf.regular.automaton import Dfa
from gbnf.regular.pattern_syntax import PatternError
from gbnf.schema.document import Subschema
from gbnf.schema.keywords import NOT_FORMAT, NOT_PATTERN, NOT_WORDS
from gbnf.schema.value_sets import String
from gbnf.work_limits import MAX_STRING_STATES, TooManyStatesError, work_cache


def integer_keyword(conjunct: Subschema, keyword: str) -> int | None:
    """Return a length or a number of items; None if the keyword is absent."""
    value = conjunct.raw.get(keyword)
    return None if value is None else int(value)


def number_keyword(conjunct: Subschema, keyword: str) -> Fraction | None:
    """Return a number, exactly as written; None if the keyword is absent, or a flag as up to draft 4."""
    value = conjunct.raw.get(keyword)
    return None if value is None or isinstance(value, bool) else Fraction(str(value))


def smallest(bounds: Iterable[int | None]) -> int | None:
    """Return the smallest of the bounds that are not None."""
    return min((bound for bound in bounds if bound is not None), default=None)


def intersection(left: Dfa | None, right: Dfa | None) -> Dfa | None:
    """Return the texts of both languages (None: all texts). Raises TooManyStatesError."""
    return right if left is None else left if right is None else left & right


#: The keywords of languages, and those of the author's schema that they are.
_LANGUAGE_KEYWORDS = {
    "pattern": "pattern", NOT_PATTERN: "pattern", "format": "format", NOT_FORMAT: "format", NOT_WORDS: "not",
}  # fmt: skip

ReportCallback = Callable[[str, str, str], None]


def string_shape(conjuncts: Sequence[Subschema], report: ReportCallback) -> String | None:
    """Return the strings that satisfy all conjuncts; None if there are none."""
    low = max((integer_keyword(conjunct, "minLength") or 0 for conjunct in conjuncts), default=0)
    high = smallest(integer_keyword(conjunct, "maxLength") for conjunct in conjuncts)
    language: Dfa | None = None
    for pointer, keyword, part in _languages(conjuncts, report):
        try:
            language = intersection(language, part)
        except TooManyStatesError as error:
            report(pointer, keyword, str(error))
    if language is not None:
        if language.is_empty:
            return None
        shortest, longest = language.lengths
        if (high is not None and shortest > high) or (longest is not None and longest < low):
            return None
        low = 0 if low <= shortest else low
        high = None if longest is not None and high is not None and longest <= high else high
        language = None if language == Dfa.all_words() else language
    return None if high is not None and low > high else String(language, low, high, tuple(conjuncts))


@work_cache(maxsize=512)
def string_language(shape: String) -> Dfa:
    """Return the strings of a shape as one automaton. Raises TooManyStatesError."""
    language = Dfa.all_words() if shape.language is None else shape.language
    if not shape.min_length and shape.max_length is None:
        return language
    return language & Dfa.of_length(shape.min_length, shape.max_length, limit=MAX_STRING_STATES)


def merge_strings(shapes: Sequence[String]) -> list[String]:
    """Merge shapes with equal bounds into one, where the automaton is small enough."""
    merged: list[String] = []
    for shape in shapes:
        for index, other in enumerate(merged):
            if (shape.min_length, shape.max_length) != (other.min_length, other.max_length):
                continue
            try:
                left, right = shape.language, other.language
                both = None if left is None or right is None else left | right
            except TooManyStatesError:
                continue
            conjuncts = (*other.conjuncts, *shape.conjuncts)
            merged[index] = String(both, shape.min_length, shape.max_length, conjuncts)
            break
        else:
            merged.append(shape)
    return merged


def _languages(conjuncts: Sequence[Subschema], report: ReportCallback) -> Iterator[tuple[str, str, Dfa]]:
    """Yield the languages of the conjuncts' keywords, each with its JSON Pointer and keyword."""
    for conjunct in conjuncts:
        raw = conjunct.raw
        for keyword, name in _LANGUAGE_KEYWORDS.items():
            if keyword not in raw:
                continue
            pointer = f"{conjunct.pointer}/{name}"
            try:
                language = _language(keyword, raw[keyword], pointer, report)
            except (PatternError, TooManyStatesError) as error:
                report(pointer, name, str(error))
            else:
                if language is not None:
                    yield pointer, name, language


def _language(keyword: str, value: object, pointer: str, report: ReportCallback) -> Dfa | None:
    """Return the strings that one keyword allows; None if it allows all or can't be enforced."""
    # Imported on demand: most schemas need neither.
    from gbnf.regular.ecma262 import search  # noqa: PLC0415  # few schemas need it
    from gbnf.regular.formats import FORMATS, IDN_HOSTNAME, format_language  # noqa: PLC0415  # likewise

    if keyword == NOT_WORDS:
        assert isinstance(value, list)
        return ~Dfa.of_words(value)
    if not isinstance(value, str):
        return None
    if keyword in ("pattern", NOT_PATTERN):
        matching = search(value)
        return matching if keyword == "pattern" else ~matching
    language = format_language(value)
    if language is None:
        if value == IDN_HOSTNAME:
            report(pointer, "format", f"the grammar does not enforce the format {value!r}")
            return None
        return ~Dfa.all_words() if keyword == NOT_FORMAT else None  # an unknown one allows every string
    if FORMATS[value].caveat:
        report(pointer, "format", FORMATS[value].caveat)
        if keyword == NOT_FORMAT:
            return None
    return language if keyword == "format" else ~language
