"""Random patterns, and texts to look for them in. Judged elsewhere: by Python's `re` and by node."""

from __future__ import annotations

import re

from hypothesis import strategies as st

#: Characters on which ECMA-262 and Python's `re` agree, once `\\d`, `\\w`, `\\s` and `\\b` are ASCII.
CHARACTERS = "abA_1- \né.😀"

TEXTS = st.text(st.sampled_from(CHARACTERS), max_size=8)

_ATOMS = st.sampled_from(
    ["a", "b", "A", "_", "1", "-", " ", "\\n", "é", "\\.", ".", "😀", "\\d", "\\w", "\\s", "\\D", "\\W",
     "\\S", "[ab]", "[^a]", "[a-z]", "[^\\w\\-]", "[\\d_]", "[1-9A-Fé]", "\\u0061", "\\x62", "[\\s\\S]", "ab",
     "a1"]
)  # fmt: skip
_ANCHORS = st.sampled_from(["^", "$", "\\b", "\\B"])
_QUANTIFIERS = st.sampled_from(["*", "+", "?", "{2}", "{1,}", "{0,2}", "{1,3}", "*?", "+?", "{0}"])


def _combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    group = inner.map(lambda text: f"(?:{text})")
    return st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=1, max_size=3).map(lambda items: f"(?:{'|'.join(items)})"),
        st.tuples(group, _QUANTIFIERS).map("".join),
        st.tuples(_ATOMS, _QUANTIFIERS).map("".join),
        inner.map(lambda text: f"({text})"),
    )


_PLAIN = st.recursive(st.one_of(_ATOMS, _ANCHORS), _combined, max_leaves=6)
_LOOKAHEADS = st.tuples(st.sampled_from(["(?=", "(?!"]), _PLAIN).map(lambda parts: f"{parts[0]}{parts[1]})")
_LOOKBEHINDS = st.sampled_from(["(?<=a)", "(?<!a)", "(?<=[ab]1)", "(?<!\\w)", "(?<=^b)"])
_LOOKING = st.recursive(st.one_of(_ATOMS, _ANCHORS, _LOOKAHEADS, _LOOKBEHINDS), _combined, max_leaves=8)


def patterns(*, looks: bool = True) -> st.SearchStrategy[str]:
    """Patterns with everything that is regular; with lookarounds, where asked."""
    bodies = _LOOKING if looks else _PLAIN
    return st.tuples(st.sampled_from(["", "^"]), bodies, st.sampled_from(["", "$"])).map("".join)


def python_finds(pattern: str, text: str) -> bool:
    """Whether Python finds the pattern, read as ECMA-262 reads it (on `CHARACTERS`)."""
    # Before Python 3.14, \\B is nowhere in the empty string.
    translations = {"$": "\\Z", "\\B": "(?!\\b)"}
    translated = re.sub(r"\\.|\$", lambda found: translations.get(found[0], found[0]), pattern)
    return re.search(translated, text, re.ASCII) is not None
