r"""Translate a grammar to the subset of GBNF that xgrammar reads as llama.cpp does.

xgrammar is the engine of vLLM and SGLang. The differences, found by testing both with random grammars
(xgrammar 0.2.8, and a real vLLM 0.32: bench/vllm_grammars.py), and what is emitted instead:

    .          the name of a rule in xgrammar: a class of everything
    [\x5Ea]    a caret in first position negates, even if it is escaped: it is moved to the end
    "\x1Fa"    xgrammar reads all hexadecimal digits that follow: the literal is split, "\x1F" "a";
               in a class such escapes come last
    \U0010FFFF llguidance drops its zeros: the character itself
    [+\-]      llguidance, the other engine of these servers, has no such escape: [+] | "-"
    0a         no rule name in xgrammar: a letter is prepended (and to -a)
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from gbnf.compiler.grammar import Grammar
from gbnf.errors import GrammarError
from gbnf.grammar.code_points import complement, matchable
from gbnf.grammar.emit import emit, emit_expr
from gbnf.grammar.ir import Alt, CharClass, Expr, Literal, Ref, Repeat, Rules, Seq, TokenTerminal
from gbnf.schema_caches import schema_cache

_CARET, _DASH, _LAST_ASCII = ord("^"), ord("-"), 0x7F
_NUL = (0, 0)  # no text contains it
_HEX_DIGITS = "0123456789abcdefABCDEF"
# `emit` escapes unprintable characters up to U+00FF as \xHH, except for three with short escapes
_LONG_ESCAPED = "".join(
    chr(code) for code in range(0x100) if not chr(code).isprintable() and chr(code) not in "\t\n\r"
)
_LONGEST_ESCAPE = re.compile(r"(?<!\\)((?:\\\\)*)\\U([0-9A-F]{8})")
_RUNS_ON = re.compile(f"(?<=[{re.escape(_LONG_ESCAPED)}])(?=[{_HEX_DIGITS}])")


@schema_cache(maxsize=64)
def xgrammar_text(grammar: Grammar) -> str:
    """Return the grammar for xgrammar: GBNF of the same language."""
    rules = grammar.rules
    names = _names(rules)
    productions = {names[name]: _plain(expr, names) for name, expr in rules.productions.items()}
    text = emit(Rules(productions, names[rules.root]))
    return _LONGEST_ESCAPE.sub(lambda escape: escape[1] + chr(int(escape[2], 16)), text)


def _names(rules: Rules) -> dict[str, str]:
    """Return the rules' names in the dialect: unchanged if they begin with a letter."""
    names = {name: name for name in rules.productions if name[0].isalpha()}
    taken = set(names)
    for name in rules.productions:
        if name not in names:
            renamed = f"r{name}"
            while renamed in taken:
                renamed = f"r{renamed}"
            names[name] = renamed
            taken.add(renamed)
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
        case TokenTerminal():
            raise GrammarError(f"xgrammar has no token terminals: write a text for {emit_expr(expr)}")
        case Seq(items):
            return Seq(tuple(_plain(item, names) for item in items))
        case Alt(items):
            return Alt(tuple(_plain(item, names) for item in items))
        case Repeat(item, minimum, maximum):
            return Repeat(_plain(item, names), minimum, maximum)


def _plain_class(chars: CharClass) -> Expr:
    """Return the class with its ranges in an order that both engines read alike."""
    if not chars.ranges:
        return CharClass((_NUL,), negated=True) if chars.negated else chars
    if chars.negated and chars.ranges[-1][1] > _LAST_ASCII:  # `emit` would do so
        chars = CharClass(matchable(chars))
    if any(_DASH in pair for pair in chars.ranges):
        return _without_dash(chars)
    ranges: list[tuple[int, int]] = []
    for low, high in chars.ranges:
        if low == _CARET < high:
            ranges += [(low + 1, high), (low, low)]
        else:
            ranges.append((low, high))
    ranges.sort(key=lambda pair: pair[1] == _CARET or chr(pair[1]) in _LONG_ESCAPED)
    if ranges[0][0] == _CARET:
        if len(ranges) == 1:
            return CharClass((_NUL, *ranges), negated=True) if chars.negated else Literal("^")
        ranges.append(ranges.pop(0))
    return CharClass(tuple(ranges), chars.negated)


def _without_dash(chars: CharClass) -> Expr:
    """Return a class in which a dash is at the end of a range as one without it, and texts beside it."""
    if chars.negated:  # a dash goes with its neighbours, which are added unless they are excluded, too
        neighbours = (_DASH - 1, _DASH + 1)
        wider = CharClass(complement(complement((*chars.ranges, neighbours))), negated=True)
        excluded = [any(low <= near <= high for low, high in chars.ranges) for near in neighbours]
        added = [chr(near) for near, is_excluded in zip(neighbours, excluded, strict=True) if not is_excluded]
        return Alt((_plain_class(wider), *map(Literal, added)))
    below = [(low, min(high, _DASH - 1)) for low, high in chars.ranges if low < _DASH]
    above = [(max(low, _DASH + 1), high) for low, high in chars.ranges if high > _DASH]
    others = CharClass((*below, *above))
    return Alt((_plain_class(others), Literal("-"))) if others.ranges else Literal("-")
