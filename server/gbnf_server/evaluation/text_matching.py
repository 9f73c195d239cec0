"""Texts of several lines against patterns: what a person would not see does not count."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gbnf_server.evaluation.patterns import Equals, OneOf, OptionalPattern, Pattern, matches


def file_fits(pattern: Pattern, text: Any) -> bool:
    """Whether a file's text, or MISSING, fits; line breaks at its end count on neither side."""
    if not isinstance(text, str):
        return matches(pattern, text)
    bare = _without_breaks(text)
    pattern = _with_whole_texts(pattern, _without_breaks)
    return any(matches(pattern, each) for each in (bare, f"{bare}\n"))


def body_fits(pattern: Pattern, text: Any) -> bool:
    """Whether a message's body, or MISSING, fits: mail ends its lines with \\r\\n, and people with \\n."""
    if not isinstance(text, str):
        return matches(pattern, text)
    bare = _trimmed(text)
    pattern = _with_whole_texts(pattern, _trimmed)
    return any(matches(pattern, each) for each in (bare, f"{bare}\n", bare.replace("\n", "\r\n")))


def _without_breaks(text: str) -> str:
    return text.rstrip("\r\n")


def _trimmed(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def _with_whole_texts(pattern: Pattern, change: Callable[[str], str]) -> Pattern:
    """The pattern with the texts changed that it may be equal to; parts of a text stay as they are."""
    match pattern:
        case Equals(str() as text):
            return Equals(change(text))
        case OptionalPattern(inner):
            return OptionalPattern(_with_whole_texts(inner, change))
        case OneOf(patterns):
            return OneOf(tuple(_with_whole_texts(each, change) for each in patterns))
        case _:
            return pattern
