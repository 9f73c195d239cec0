"""What a line of text is made of: what the grammar lets a model write, and what the parser strips.

The grammar's lines are a part of those that the parser takes: they begin with a sign that can't open a
heading, a list, a quotation, a fence or a tag, and hold no closing tag.
"""

from __future__ import annotations

import re

from gbnf.compiler.rules import Scope
from gbnf.grammar.ir import Literal, Ref, alt, char_class, repeat, seq

_BREAKS = ((0x00, 0x1F), (0x7F, 0x9F), (0x2028, 0x2029))
_SPACES = ((0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200B), (0x202F, 0x202F), (0x205F, 0x2060),
           (0x3000, 0x3000), (0xFEFF, 0xFEFF))  # fmt: skip
_OPENERS = "<`>#*_-+=|~•·–—"

_PLAIN = char_class(*_BREAKS, "<", negated=True)
_AFTER_LESS = char_class(*_BREAKS, "</", negated=True)
_FIRST = char_class(*_BREAKS, *_SPACES, _OPENERS, negated=True)


def line_rule(limit: int, scope: Scope) -> Ref:
    """The rule of a line of 1 to `limit` characters (counting `<` and what follows it as one)."""
    char = scope.table.add(("char",), alt(_PLAIN, seq(Literal("<"), _AFTER_LESS)))
    return scope.table.add(("line", str(limit)), seq(_FIRST, repeat(char, 0, limit - 1)))


_THOUGHTS = re.compile(r"\s*<(think|thinking|thought|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL)
_THOUGHTS_END = re.compile(r".*</(?:think|thinking|thought|reasoning)>", re.DOTALL)
_FENCE = re.compile(r"\s*`{3,}[^\n`]*\n(.*?)\n?[ \t]*`{3,}[ \t]*(?:\n|\Z)", re.DOTALL)
_LEADING = re.compile(r"(?:[>#*•·+-]+[ \t]+)+")
_BOLD = re.compile(r"(\*\*|__|\*|_|`)(?=\S)(.+?)(?<=\S)\1(.*)", re.DOTALL)


def spoken(text: str, notes: list[str]) -> str:
    """The answer itself: without thoughts, and out of a code block that holds all of it."""
    said = _THOUGHTS.sub("", text, count=1) if _THOUGHTS.match(text) else text
    if ending := _THOUGHTS_END.match(said):
        said = said[ending.end() :]
    if said != text:
        notes.append("left out the thoughts")
    fence = _FENCE.fullmatch(said.rstrip() + "\n") if "```" in said else None
    if fence is not None:
        notes.append("took the answer out of a code block")
        return fence[1]
    return said


def bare(line: str) -> str:
    """A line without the signs of a list, a heading, a quotation or bold type around it."""
    said = line.strip()
    said = said[leading.end() :] if (leading := _LEADING.match(said)) else said
    bold = _BOLD.fullmatch(said)
    return (bold[2] + bold[3]).strip() if bold else said
