"""The words of a GBNF text, for highlighting. Joined they are the text."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Literal, NamedTuple, TypeAlias

TokenKind: TypeAlias = Literal["rule", "reference", "literal", "class", "operator", "space"]

_TOKEN = re.compile(
    r"""(?P<literal>"(?:[^"\\]|\\.)*"?)
    |(?P<class>\[(?:[^\]\\]|\\.)*\]?|\.)
    |(?P<reference>[A-Za-z0-9-]+)
    |(?P<operator>::=|\{[\d,]*\}|[|()?*+])
    |(?P<space>\s+)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)


class GbnfToken(NamedTuple):
    """A word; `rule` is the name that a line defines."""

    kind: TokenKind
    text: str


def tokens(line: str) -> Iterator[GbnfToken]:
    """Yield the words of a rule."""
    for number, found in enumerate(_TOKEN.finditer(line)):
        kind = found.lastgroup or "other"
        if kind == "reference" and number == 0:
            yield GbnfToken("rule", found[0])
        else:
            yield GbnfToken("operator" if kind == "other" else kind, found[0])  # type: ignore[arg-type]  # the groups' names are the kinds
