r"""Translate a grammar to the Lark dialect of llguidance, without changing its language.

llguidance parses lexemes, and a lexeme matches as much of a text as it can: after `A: "a"+`, the lexeme
`B: "ab"` could never begin. So lexemes are chosen where this changes nothing:

- A grammar without recursion is a regular expression. Its rules become terminals that refer to each other,
  and the whole is one lexeme, the fastest form for llguidance.
- In a recursive grammar, every lexeme is one character.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping

from gbnf.compiler.grammar import Grammar
from gbnf.errors import GrammarError
from gbnf.grammar.analysis import in_cycles, is_nullable, nullable
from gbnf.grammar.code_points import matchable
from gbnf.grammar.emit import emit_expr, repetition_suffix
from gbnf.grammar.ir import Alt, CharClass, Expr, Literal, Ref, Repeat, Seq, TokenTerminal, char_class
from gbnf.grammar.passes import drop_unreachable

_EMPTY = '""'
_NOTHING = "/[^\\x{0}-\\x{10FFFF}]/"


def lark_text(
    grammar: Grammar, token_ids: Mapping[TokenTerminal, int] | None = None, end_tokens: Iterable[int] = ()
) -> str:
    """Return the grammar in llguidance's dialect of Lark.

    `token_ids`: of its token terminals, for which GrammarError is raised otherwise; `end_tokens`: those that
    no negated one means.
    """
    rules = grammar.rules
    reached = drop_unreachable(rules).productions
    tokens = {
        emit_expr(terminal): f"<[^{','.join(map(str, {token, *end_tokens}))}]>"
        if terminal.negated
        else f"<[{token}]>"
        for terminal, token in (token_ids or {}).items()
    }
    # Terminals contain no token: then the rules stay rules, as if they were recursive.
    is_recursive = bool(tokens) or any(in_cycles({name: rules.references[name] for name in reached}))
    initial = "r" if is_recursive else "R"  # Lark: lowercase rules, uppercase terminals
    names = tokens | {name: f"{initial}{number}" for number, name in enumerate(reached)}
    characters: dict[str, str] = {}

    def character(chars: CharClass) -> str:
        """Return a class: as it is inside a terminal, the name of its own terminal inside a rule."""
        ranges = matchable(chars)
        parts = [f"\\x{{{low:X}}}" + (f"-\\x{{{high:X}}}" if high > low else "") for low, high in ranges]
        pattern = f"/[{''.join(parts)}]/" if ranges else _NOTHING
        return characters.setdefault(pattern, f"C{len(characters)}") if is_recursive else pattern

    lines = [f"{names[name]}: {_expr(rules.productions[name], names, character)}" for name in reached]
    lines += [f"{name}: {pattern}" for pattern, name in characters.items()]
    root = names[rules.root]
    maybe = "?" if is_nullable(Ref(rules.root), nullable(rules)) and not is_recursive else ""
    # With forcing, the mask of a forced text would allow only one of its tokenizations.
    return "\n".join(['%llguidance {"no_forcing": true}', f"start: {root}{maybe}", *lines]) + "\n"


def _expr(expr: Expr, names: dict[str, str], character: Callable[[CharClass], str]) -> str:
    def item(part: Expr) -> str:
        text = _expr(part, names, character)
        return f"({text})" if isinstance(part, Alt | Seq) else text

    match expr:
        case Literal(text):
            return " ".join(character(char_class(char)) for char in text)
        case CharClass():
            return character(expr)
        case TokenTerminal():
            if (shown := emit_expr(expr)) not in names:
                raise GrammarError(f"which token {shown} is depends on the vocabulary: write its text")
            return names[shown]
        case Ref(name):
            return names[name]
        case Seq(items):
            return " ".join(map(item, items)) or _EMPTY
        case Alt(items):
            return " | ".join(map(item, items)) or _NOTHING
        case Repeat(repeated, minimum, maximum):
            return f"({item(repeated)}){repetition_suffix(minimum, maximum)}"
