r"""GBNF in the Lark dialect of llguidance, of the same language.

llguidance parses lexemes, and a lexeme takes as much of a text as it can: `A: "a"+` before `B: "ab"` would
never let B begin. So a grammar is cut where that changes nothing:

- One that does not recurse is a regular expression. Its rules become terminals that refer to each other, and
  the whole is one lexeme, which is what llguidance is fastest at.
- Of one that recurses, every lexeme is one character.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from gbnf.grammar.analysis import is_nullable, nullable
from gbnf.grammar.code_points import matchable
from gbnf.grammar.ir import Alt, CharClass, Expr, Literal, Ref, Repeat, Rules, Seq, char_class
from gbnf.grammar.trusted_parse import parse_trusted_gbnf

_EMPTY = '""'
_NOTHING = "/[^\\x{0}-\\x{10FFFF}]/"


def lark_text(grammar: Rules | str) -> str:
    """The grammar (rules, or GBNF text that llama.cpp takes) for llguidance.

    Raises GrammarSyntaxError where the text is no GBNF.
    """
    return _rewritten(grammar) if isinstance(grammar, str) else _written(grammar)


@lru_cache(maxsize=64)
def _rewritten(gbnf: str) -> str:
    return _written(parse_trusted_gbnf(gbnf))


def _written(rules: Rules) -> str:
    reached, is_recursive = _reached(rules)
    initial = "r" if is_recursive else "R"  # rules are written small, terminals large
    names = {name: f"{initial}{number}" for number, name in enumerate(reached)}
    characters: dict[str, str] = {}

    def character(of: CharClass) -> str:
        """A class: itself inside a terminal, the name of a terminal of its own inside a rule."""
        written = _class(of)
        return characters.setdefault(written, f"C{len(characters)}") if is_recursive else written

    lines = [f"{names[name]}: {_expr(rules.productions[name], names, character)}" for name in reached]
    lines += [f"{name}: {written}" for written, name in characters.items()]
    root = names[rules.root]
    maybe = "?" if is_nullable(Ref(rules.root), nullable(rules)) and not is_recursive else ""
    # Without forcing: where a text is forced, its mask would hold one tokenization of it, and no other.
    return "\n".join(['%llguidance {"no_forcing": true}', f"start: {root}{maybe}", *lines]) + "\n"


def _reached(rules: Rules) -> tuple[list[str], bool]:
    """The rules that the start symbol leads to, and whether one of them leads to itself."""
    reached: dict[str, None] = {}
    open_rules: set[str] = set()
    is_recursive = False
    pending: list[tuple[str, bool]] = [(rules.root, False)]
    while pending:
        name, is_left = pending.pop()
        if is_left:
            open_rules.discard(name)
        elif name in open_rules:
            is_recursive = True
        elif name not in reached:
            reached[name] = None
            open_rules.add(name)
            pending.append((name, True))
            pending += [(used, False) for used in reversed(rules.references[name])]
    return list(reached), is_recursive


def _expr(expr: Expr, names: dict[str, str], character: Callable[[CharClass], str]) -> str:
    def item(part: Expr) -> str:
        written = _expr(part, names, character)
        return f"({written})" if isinstance(part, Alt | Seq) else written

    match expr:
        case Literal(text):
            return " ".join(character(char_class(char)) for char in text)
        case CharClass():
            return character(expr)
        case Ref(name):
            return names[name]
        case Seq(items):
            return " ".join(map(item, items)) or _EMPTY
        case Alt(items):
            return " | ".join(map(item, items)) or _NOTHING
        case Repeat(repeated, minimum, maximum):
            return f"({item(repeated)}){_suffix(minimum, maximum)}"


def _class(of: CharClass) -> str:
    ranges = matchable(of)
    if not ranges:
        return _NOTHING
    parts = [f"\\x{{{low:X}}}" + (f"-\\x{{{high:X}}}" if high > low else "") for low, high in ranges]
    return f"/[{''.join(parts)}]/"


def _suffix(minimum: int, maximum: int | None) -> str:
    match minimum, maximum:
        case 0, 1:
            return "?"
        case 0, None:
            return "*"
        case 1, None:
            return "+"
        case _:
            return f"{{{minimum},{'' if maximum is None else maximum}}}"
