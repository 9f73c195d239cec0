r"""GBNF in the part that xgrammar, which vLLM and SGLang decode with, reads as llama.cpp does.

Found by putting random grammars to both (xgrammar 0.2.8). Where they differ, and what is written instead:

    .          for xgrammar the name of a rule: a class of everything
    [\x5Ea]    a caret that stands first negates, even as an escape: it is moved behind the others
    "\x1Fa"    xgrammar takes every hexadecimal digit that follows: the literal is split, "\x1F" "a";
               in a class such escapes come last
    0a, -a     for xgrammar no names of rules: a letter is put in front
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache

from gbnf.grammar.emit import emit
from gbnf.grammar.ir import Alt, CharClass, Expr, Literal, Ref, Repeat, Rules, Seq
from gbnf.grammar.parse import parse_gbnf

_CARET = ord("^")
_NUL = (0, 0)  # no text holds it
_HEX_DIGITS = "0123456789abcdefABCDEF"
# `emit` writes \xHH for what is not printable up to U+00FF, and has short escapes for three of those
_LONG_ESCAPED = "".join(
    chr(code) for code in range(0x100) if not chr(code).isprintable() and chr(code) not in "\t\n\r"
)
_RUNS_ON = re.compile(f"(?<=[{re.escape(_LONG_ESCAPED)}])(?=[{_HEX_DIGITS}])")


def xgrammar_text(grammar: Rules | str) -> str:
    """The grammar (GBNF text or rules) for xgrammar: of the same language, and GBNF still.

    Raises GrammarSyntaxError where the text is no grammar that llama.cpp takes.
    """
    return _rewritten(grammar) if isinstance(grammar, str) else _emitted(grammar)


@lru_cache(maxsize=64)
def _rewritten(gbnf: str) -> str:
    return _emitted(parse_gbnf(gbnf))


def _emitted(rules: Rules) -> str:
    names = _names(rules)
    productions = {names[name]: _plain(expr, names) for name, expr in rules.productions.items()}
    return emit(Rules(productions, names[rules.root]))


def _names(rules: Rules) -> dict[str, str]:
    """What each rule is called in the dialect: its own name where that begins with a letter."""
    names = {name: name for name in rules.productions if name[0].isalpha()}
    taken = set(names)
    for name in rules.productions:
        if name not in names:
            called = f"r{name}"
            while called in taken:
                called = f"r{called}"
            names[name] = called
            taken.add(called)
    return names


def _plain(expr: Expr, names: Mapping[str, str]) -> Expr:
    match expr:
        case Literal(text):
            parts = tuple(Literal(part) for part in _RUNS_ON.split(text))
            return expr if len(parts) == 1 else Seq(parts)
        case Ref(name):
            return Ref(names[name])
        case CharClass():
            return _plain_class(expr)
        case Seq(items):
            return Seq(tuple(_plain(item, names) for item in items))
        case Alt(items):
            return Alt(tuple(_plain(item, names) for item in items))
        case Repeat(item, minimum, maximum):
            return Repeat(_plain(item, names), minimum, maximum)


def _plain_class(of: CharClass) -> Expr:
    """The class with its ranges in an order that both read alike."""
    if not of.ranges:
        return CharClass((_NUL,), negated=True) if of.negated else of
    ranges: list[tuple[int, int]] = []
    for low, high in of.ranges:
        if low == _CARET < high:
            ranges += [(low + 1, high), (low, low)]
        else:
            ranges.append((low, high))
    ranges.sort(key=_ends_in_escape)
    if ranges[0][0] == _CARET:
        if len(ranges) == 1:
            return CharClass((_NUL, *ranges), negated=True) if of.negated else Literal("^")
        ranges.append(ranges.pop(0))
    return CharClass(tuple(ranges), of.negated)


def _ends_in_escape(pair: tuple[int, int]) -> bool:
    return pair[1] == _CARET or chr(pair[1]) in _LONG_ESCAPED
