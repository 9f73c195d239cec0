"""Conversion of the spellings of numbers between expressions and automata."""

from __future__ import annotations

from gbnf.compiler.rules import Scope
from gbnf.errors import InvalidArgumentError
from gbnf.grammar.ir import Alt, CharClass, Expr, Literal, Ref, Repeat, Seq
from gbnf.regular.automaton import Dfa
from gbnf.work_limits import work_cache


def intersection(left: Expr, right: Expr) -> Expr:
    """Return the spellings that both expressions derive. None of the three contains a nonterminal."""
    return automaton_expr(expr_language(left) & expr_language(right))


@work_cache(maxsize=256)
def expr_language(expr: Expr) -> Dfa:
    """Return the automaton of an expression without nonterminals."""
    from gbnf.regular.ecma262 import search  # noqa: PLC0415  # most numbers don't need it

    return search(f"^(?:{_as_pattern(expr)})$")


def automaton_expr(words: Dfa, scope: Scope | None = None) -> Expr:
    """Return the words of an automaton, as they are. Without a scope, in one expression."""
    from gbnf.compiler.automaton_rules import words_expr  # noqa: PLC0415  # most numbers don't need it

    return words_expr(words, scope)


def _as_pattern(expr: Expr) -> str:
    match expr:
        case Literal(text):
            return text.replace(".", r"\.")
        case CharClass(ranges):
            return "[" + "".join(f"{chr(low)}-{chr(high)}" for low, high in ranges) + "]"
        case Seq(items):
            return "".join(map(_as_pattern, items))
        case Alt(items):
            return "(?:" + "|".join(map(_as_pattern, items)) + ")"
        case Repeat(item, minimum, maximum):
            return f"(?:{_as_pattern(item)}){{{minimum},{'' if maximum is None else maximum}}}"
        case Ref(name):
            raise InvalidArgumentError(f"{name} is a nonterminal")
