"""`gbnf check`: check a grammar, and a text against it."""

from __future__ import annotations

import json
import sys
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.text import Text

from gbnf.extras import is_installed
from gbnf_server.cli.errors import ExitCode
from gbnf_server.cli.grammar_files import read_grammar
from gbnf_server.cli.model_options import ModelSource, VocabOption
from gbnf_server.cli.output import escape_line, excerpt, plural, stdout_console, write

if TYPE_CHECKING:
    from gbnf import Grammar
    from gbnf.grammar.match import Match

SHOWN_EXPECTED = 12


def check(
    grammar: Annotated[str, typer.Argument(), "GRAMMAR", "GBNF file; -: standard input."],
    text: Annotated[
        str | None, typer.Argument(), "TEXT", "Text to check. Default: standard input, if piped."
    ] = None,
    engine: Annotated[bool, typer.Option(), "Load the grammar in llama.cpp, too, if installed."] = True,
    vocab: VocabOption = None,
    json_: Annotated[bool, "Print a JSON object: accepted; if not, where and what was expected."] = False,
) -> None:
    """Check a grammar, and whether a text is in its language.

    Errors of the grammar are those of `gbnf lint`. If the text is not in the language, print where it
    violates the grammar and what was expected there. Without a text, check only the grammar, and print the
    warnings, too. One line break at the end of a piped text is ignored. Token terminals (<think>, !<[42]>)
    are checked with --vocab only: the tokens are those of your model.

    \b
    Try:
      gbnf check tools.gbnf
      gbnf check think.gbnf --vocab model.gguf
      gbnf check tools.gbnf '{"name": "get_now", "arguments": {}}'
      gbnf compile | gbnf check - '{"name": "get_nov", "arguments": {}}'

    \b
    Exit codes: 0 accepted, 1 rejected, 3 invalid grammar, 4 llama.cpp rejects the grammar.
    """
    parsed = read_grammar(grammar, warns=text is None)
    loaded = engine and _load_in_engine(parsed, vocab)
    if text is None and grammar != "-" and sys.stdin is not None and not sys.stdin.isatty():
        piped = sys.stdin.buffer.read().decode(errors="surrogateescape")
        text = piped.removesuffix("\n").removesuffix("\r") if piped else None
    if json_:
        accepted = _print_json(parsed, text)
        raise typer.Exit(ExitCode.SUCCESS if accepted else ExitCode.FAILURE)
    if text is None:
        by = "this toolkit and llama.cpp" if loaded else "this toolkit"
        write(f"valid: {plural(len(parsed.rules.productions), 'rule')}, accepted by {by}")
        return
    match = parsed.match(text)
    if match.complete:
        write("accepted")
        return
    _show_refusal(text, match)
    raise typer.Exit(ExitCode.FAILURE)


def _print_json(grammar: Grammar, text: str | None) -> bool:
    """Print whether the grammar accepts the text, and return it; without a text, only that it is sound."""
    value: dict[str, Any] = {"accepted": True, "rules": len(grammar.rules.productions)}
    match = None if text is None else grammar.match(text)
    if match is not None and not match.complete:
        value |= {"accepted": False, "at_end": match.accepted, "position": match.position}
        value |= {"line": match.line, "column": match.column, "expected": match.expected}
    write(json.dumps(value, ensure_ascii=False))
    return bool(value["accepted"])


def _load_in_engine(grammar: Grammar, vocab: str | None) -> bool:
    """Whether llama.cpp took the grammar; False without it or a vocabulary. Raises GrammarRefusedError."""
    from gbnf.grammar.analysis import token_terminals
    from gbnf_server.llama.demo_model import model_path

    has_engine = is_installed("local") and model_path().is_file()
    if vocab is None and (not has_engine or any(token_terminals(grammar.rules))):
        return False
    from gbnf_server.llama.grammar_checker import GrammarChecker

    GrammarChecker.load(ModelSource(vocab).path()).check(grammar)
    return True


def _show_refusal(text: str, match: Match) -> None:
    """Print the line where the text fails, with a caret, and what was expected there."""
    console = stdout_console()
    problem = "the text ends too early" if match.accepted else "rejected"
    console.print(Text.assemble((problem, "bold red"), f" at line {match.line}, column {match.column}"))
    line, caret = excerpt(text, match.position, match.position)
    console.print(Text.assemble(f"  {line}\n  ", (caret, "bold red")), soft_wrap=True)
    shown = [escape_line(terminal) for terminal in match.expected[:SHOWN_EXPECTED]]
    hidden = len(match.expected) - len(shown)
    shown += [f"{hidden} more"] if hidden > 0 else []
    console.print(
        Text("expected " + ("  or  ".join(shown) or "nothing: no text continues from here")), soft_wrap=True
    )
