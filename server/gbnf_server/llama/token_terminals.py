"""Grammars with token terminals (`<think>`, `!<[42]>`) over the vocabulary of a model.

llama.cpp's mask is too loose for them: inside a token, after characters of it, it compares the token's id
with a token terminal that comes next. To accept such a token ends the process ("Unexpected empty grammar
stack"). So our automaton follows the tokens, too, and the mask excludes what it does not take.
"""

from __future__ import annotations

from collections.abc import Mapping

from gbnf import Grammar
from gbnf.grammar.analysis import token_terminals
from gbnf.grammar.emit import emit_expr
from gbnf.grammar.ir import Expr, Literal, Rules, TokenTerminal, with_parts
from gbnf.grammar.match import Matcher
from gbnf_server.llama.grammar_limits import check_size, missing_token
from gbnf_server.llama.native import NativeGrammar, NativeModel, TokenState
from gbnf_server.system.errors import GrammarRefusedError

_FIRST_MARK, _MOST_MARKS = 0xD800, 0x800  # surrogates, which no class matches, stand for token terminals


def token_ids(model: NativeModel, grammar: Grammar) -> dict[TokenTerminal, int]:
    """Return the token of each token terminal. Raises GrammarRefusedError if the vocabulary has none.

    So it does for a token that ends the generation, which llama.cpp allows only at the end of a text.
    """
    ids: dict[TokenTerminal, int] = {}
    for terminal in token_terminals(grammar.rules) if grammar.is_parsed else ():
        token = terminal.token
        found = model.tokenize(token, special=True) if isinstance(token, str) else [token]
        if len(found) != 1 or found[0] >= model.size:
            raise missing_token(model.name, terminal, model.size if isinstance(token, int) else len(found))
        if found[0] in model.end_tokens and not terminal.negated:
            raise GrammarRefusedError(
                f"{emit_expr(terminal)} ends the answers of {model.name}, so that no text contains it. "
                "Leave it out: an answer ends where the rule root does."
            )
        ids[terminal] = found[0]
    if len(ids) > _MOST_MARKS:
        raise GrammarRefusedError(f"it has more than {_MOST_MARKS} different token terminals. Use fewer.")
    return ids


def native_grammar(model: NativeModel, grammar: Grammar) -> NativeGrammar:
    """Return the grammar in llama.cpp's engine. Raises GrammarRefusedError."""
    check_size(grammar)
    ids = token_ids(model, grammar)
    return NativeGrammar.parse(model, str(grammar), _token_state(model, grammar.rules, ids) if ids else None)


def _token_state(model: NativeModel, rules: Rules, ids: Mapping[TokenTerminal, int]) -> TokenState:
    marks = {terminal: chr(_FIRST_MARK + number) for number, terminal in enumerate(ids)}

    def marked(expr: Expr) -> Expr:
        return Literal(marks[expr]) if isinstance(expr, TokenTerminal) else with_parts(expr, marked)

    productions = {name: marked(expr) for name, expr in rules.productions.items()}
    start = Matcher(Rules(productions, rules.root), with_costs=False).start()
    return TokenState(model, tuple((marks[one], ids[one], one.negated) for one in ids), start)
