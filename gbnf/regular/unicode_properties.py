"""The named sets of characters of ECMA-262: `\\d \\w \\s .`, `\\p{...}`, and letters of either case."""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import cache
from itertools import chain, groupby

from gbnf.regular.charset import ANY_CHAR, CharSet

DIGIT = CharSet.of((0x30, 0x39))
WORD = CharSet.of((0x30, 0x39), (0x41, 0x5A), "_", (0x61, 0x7A))
#: ECMA-262, WhiteSpace and LineTerminator.
SPACE = CharSet.of("\t\n\v\f\r \u00a0\u1680", (0x2000, 0x200A), "\u2028\u2029\u202f\u205f\u3000\ufeff")
LINE_END = CharSet.of("\n\r\u2028\u2029")

ESCAPED: Mapping[str, CharSet] = {
    "d": DIGIT, "D": ~DIGIT, "w": WORD, "W": ~WORD, "s": SPACE, "S": ~SPACE,
}  # fmt: skip

_LONG_NAMES = {
    "Other": "C", "Control": "Cc", "cntrl": "Cc", "Format": "Cf", "Unassigned": "Cn", "Private_Use": "Co",
    "Surrogate": "Cs", "Letter": "L", "Cased_Letter": "LC", "Lowercase_Letter": "Ll",
    "Modifier_Letter": "Lm", "Other_Letter": "Lo", "Titlecase_Letter": "Lt", "Uppercase_Letter": "Lu",
    "Mark": "M", "Combining_Mark": "M", "Spacing_Mark": "Mc", "Enclosing_Mark": "Me",
    "Nonspacing_Mark": "Mn", "Number": "N", "Decimal_Number": "Nd", "digit": "Nd", "Letter_Number": "Nl",
    "Other_Number": "No", "Punctuation": "P", "punct": "P", "Connector_Punctuation": "Pc",
    "Dash_Punctuation": "Pd", "Close_Punctuation": "Pe", "Final_Punctuation": "Pf",
    "Initial_Punctuation": "Pi", "Other_Punctuation": "Po", "Open_Punctuation": "Ps", "Symbol": "S",
    "Currency_Symbol": "Sc", "Modifier_Symbol": "Sk", "Math_Symbol": "Sm", "Other_Symbol": "So",
    "Separator": "Z", "Line_Separator": "Zl", "Paragraph_Separator": "Zp", "Space_Separator": "Zs",
}  # fmt: skip

#: Scripts whose characters' names say so.
_NAMED_SCRIPTS = {
    "Latin": "LATIN ", "Latn": "LATIN ", "Greek": "GREEK ", "Grek": "GREEK ", "Cyrillic": "CYRILLIC ",
    "Cyrl": "CYRILLIC ", "Han": "CJK ", "Hani": "CJK ", "Hiragana": "HIRAGANA ", "Hira": "HIRAGANA ",
    "Katakana": "KATAKANA ", "Kana": "KATAKANA ", "Hebrew": "HEBREW ", "Hebr": "HEBREW ",
    "Arabic": "ARABIC ", "Arab": "ARABIC ", "Thai": "THAI ", "Hangul": "HANGUL ", "Hang": "HANGUL ",
    "Devanagari": "DEVANAGARI ", "Deva": "DEVANAGARI ",
}  # fmt: skip


@cache
def unicode_property(text: str) -> CharSet | None:
    """Return the characters of a property, as named between the braces of `\\p{...}`; None if it is unknown.

    Known are general categories, scripts, ASCII, Any, Alphabetic and the like. Categories follow the Unicode
    version of `unicodedata`. Scripts follow the names of characters, an
    approximation: letters, and for Han also signs.
    """
    key, equals, value = text.partition("=")
    if equals:
        if key in ("General_Category", "gc"):
            return _category(value)
        return _script(value) if key in ("Script", "sc", "Script_Extensions", "scx") else None
    match text:
        case "Any":
            return ANY_CHAR
        case "ASCII":
            return CharSet.of((0, 0x7F))
        case "Assigned":
            unassigned = _category("Cn")
            return None if unassigned is None else ~unassigned
        case "Alphabetic" | "Alpha":
            return CharSet.of(*[part for name in ("L", "Nl") if (part := _category(name))])
        case "Lowercase" | "Lower":
            return _category("Ll")
        case "Uppercase" | "Upper":
            return _category("Lu")
        case "White_Space" | "space":
            return (SPACE | CharSet.of("\x85")) - CharSet.of("\ufeff")
    return _category(text)


def _category(name: str) -> CharSet | None:
    name = _LONG_NAMES.get(name, name)
    if name == "LC":
        names: tuple[str, ...] = ("Lu", "Ll", "Lt")
    else:
        names = tuple(known for known in _categories() if known.startswith(name)) if name else ()
    return CharSet.of(*[_categories()[name] for name in names]) if names else None


@cache
def _categories() -> Mapping[str, CharSet]:
    # Only these planes are assigned character by character (three of them, so far).
    ranges = {"Co": [(0xF0000, 0xFFFFD), (0x100000, 0x10FFFD)],
              "Cn": [(0x40000, 0xDFFFF), (0xE1000, 0xEFFFF), (0xFFFFE, 0xFFFFF), (0x10FFFE, 0x10FFFF)],
              "Cs": []}  # fmt: skip
    for codes in (range(0x40000), range(0xE0000, 0xE1000)):
        low = codes[0]
        for category, run in groupby(map(unicodedata.category, map(chr, codes))):
            high = low + sum(1 for _ in run)
            ranges.setdefault(category, []).append((low, high - 1))
            low = high
    return {category: CharSet.of(*pairs) for category, pairs in ranges.items()}


@cache
def _script(name: str) -> CharSet | None:
    prefix = _NAMED_SCRIPTS.get(name)
    if prefix is None:
        return None
    kinds = ("L",) if prefix != "CJK " else ("L", "S", "N")
    candidates = (_category(kind) or CharSet() for kind in kinds)
    return CharSet.of(
        *[
            char
            for char in chain.from_iterable(candidates)
            if unicodedata.name(char, "").removeprefix("FULLWIDTH ").startswith(prefix)
        ]
    )


def ignoring_case(chars: CharSet) -> CharSet:
    """Return the characters of the set, and those that differ from one of them only in case."""
    if len(chars) > len(_cased()):
        return CharSet.of(chars, *[orbit for orbit in _orbits() if any(char in chars for char in orbit)])
    return CharSet.of(chars, *[orbit for char in chars if (orbit := _cased().get(char))])


@cache
def _orbits() -> tuple[str, ...]:
    """Return the characters that are one when case is ignored, as strings of at least two."""
    orbits: dict[str, str] = {}
    for char in map(chr, range(0x1E944)):  # no letter beyond has a case
        folded = char.casefold()
        if len(folded) == 1 and folded != char:
            orbits[folded] = orbits.get(folded, folded) + char
    return tuple(orbits.values())


@cache
def _cased() -> Mapping[str, str]:
    return {char: orbit for orbit in _orbits() for char in orbit}
