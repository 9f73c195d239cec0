"""GBNF that is known to be good, read fast: one rule a line, as `emit` writes it, each line read once.

For who needs the rules of a grammar at every call, beside an engine that has taken the text already: this
reader checks nothing that `parse_gbnf` checks, and is some ten times as fast; grammars of one pool share
nearly all their lines. What is written in another form (a rule over several lines, a comment) is left to
`parse_gbnf`.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gbnf.grammar.escapes import EscapeError, parse_class, parse_literal
from gbnf.grammar.ir import CharClass, Expr, Ref, Rules, alt, literal, repeat, seq
from gbnf.grammar.parse import parse_gbnf

_RULE = re.compile(r"([A-Za-z0-9-]+) ::= (.*)")
_TOKEN = re.compile(
    r'(?P<literal>"(?:\\.|[^"\\])*")|(?P<cls>\[(?:\\.|[^\]\\])*\])|(?P<name>[A-Za-z0-9-]+)|(?P<mark>[()|.])'
    r"|(?P<suffix>[?*+]|\{(?P<low>[0-9]+)(?P<comma>,?)(?P<high>[0-9]*)\})|(?P<space> +)"
)
_ANY = CharClass((), negated=True)
#: Groups inside one another: each is up to four expressions deep, and `parse.MAX_DEPTH` is above that.
_MAX_GROUPS = 70


def parse_trusted_gbnf(text: str) -> Rules:
    """The rules of a grammar that an engine or `parse_gbnf` has taken, the start symbol `root`.

    Raises GrammarSyntaxError where it is neither in the plain form nor taken by `parse_gbnf`.
    """
    productions: dict[str, Expr] = {}
    for line in text.split("\n"):
        if line:
            read = _line(line)
            if read is None or read[0] in productions:
                return parse_gbnf(text)
            productions[read[0]] = read[1]
    rules = Rules(productions)
    used = {name for names in rules.references.values() for name in names}
    return rules if used <= productions.keys() and "root" in productions else parse_gbnf(text)


@lru_cache(maxsize=8192)
def _line(line: str) -> tuple[str, Expr] | None:
    """The rule that stands on a line; None where it is not in the plain form."""
    rule = _RULE.fullmatch(line)
    if rule is None:
        return None
    try:
        expr = _body(rule[2])
    except (EscapeError, ValueError):
        return None
    return None if expr is None else (rule[1], expr)


def _body(text: str) -> Expr | None:
    """An alternation. The innermost open group is the last of `open_groups`: its alternatives, and the
    items of the one that is being read."""
    open_groups: list[tuple[list[Expr], list[Expr]]] = [([], [])]
    position = 0
    while position < len(text):
        token = _TOKEN.match(text, position)
        if token is None:
            return None
        position = token.end()
        alternatives, items = open_groups[-1]
        match token.lastgroup:
            case "literal":
                items.append(literal(parse_literal(token[0])))
            case "cls":
                items.append(parse_class(token[0]))
            case "name":
                items.append(Ref(token[0]))
            case "space":
                continue
            case "mark" if token[0] == ".":
                items.append(_ANY)
            case "mark" if token[0] == "(":
                if len(open_groups) > _MAX_GROUPS:
                    return None
                open_groups.append(([], []))
            case "mark" if token[0] == "|":
                alternatives.append(seq(*items))
                items.clear()
            case "mark":
                open_groups.pop()
                if not open_groups:
                    return None
                open_groups[-1][1].append(alt(*alternatives, seq(*items)))
            case _:
                # `emit` puts parentheses between two repetitions
                if not items or text[position - len(token[0]) - 1] in "?*+}":
                    return None
                items.append(repeat(items.pop(), *_bounds(token)))
    if len(open_groups) != 1:
        return None
    alternatives, items = open_groups[0]
    return alt(*alternatives, seq(*items))


def _bounds(token: re.Match[str]) -> tuple[int, int | None]:
    match token[0]:
        case "?":
            return 0, 1
        case "*":
            return 0, None
        case "+":
            return 1, None
        case _:
            low = int(token["low"])
            return low, int(token["high"]) if token["high"] else None if token["comma"] else low
