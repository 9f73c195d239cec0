"""What llama.cpp's grammar engine does not survive, here or in a server: checked without the engine."""

from __future__ import annotations

from dataclasses import replace

from gbnf import Grammar
from gbnf.errors import AmbiguousGrammarError
from gbnf.grammar.emit import emit_expr
from gbnf.grammar.ir import TokenTerminal
from gbnf_server.system.errors import GrammarRefusedError

MOST_RULES = 20_000  # the engine detects left recursion recursively; a chain of 100,000 rules crashed it


def guard_grammar(grammar: object) -> Grammar:
    """Return the grammar if it cannot harm llama.cpp's engine, here or in a server.

    `Grammar.parse` and the compiler rule out all other grammars that would. Raises GrammarRefusedError.
    """
    if not isinstance(grammar, Grammar):
        raise GrammarRefusedError(f"it is a {type(grammar).__name__}. Use Grammar.parse(text) for GBNF text.")
    check_size(grammar)
    try:
        grammar.check_stacks()
    except AmbiguousGrammarError as error:
        raise GrammarRefusedError(str(error)) from error
    return grammar


def missing_token(name: str, terminal: TokenTerminal, count: int) -> GrammarRefusedError:
    """Return the error for a token that the vocabulary of a model lacks.

    `count`: how many tokens spell its text, or how many the vocabulary has.
    """
    token = emit_expr(replace(terminal, negated=False))
    how = "spells this in" if isinstance(terminal.token, str) else "has"
    return GrammarRefusedError(
        f"the vocabulary of {name} has no token {token}: it {how} {count} tokens. Write the text in quotes, "
        "or use another model."
    )


def check_size(grammar: Grammar) -> None:
    """Raise GrammarRefusedError for a grammar with more rules than the engine takes."""
    if len(grammar.rules.productions) > MOST_RULES:
        raise GrammarRefusedError(
            f"it has more than {MOST_RULES} rules, and a chain of so many overflows the engine's stack. "
            "Join rules that are used once."
        )
