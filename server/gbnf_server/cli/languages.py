"""`gbnf sample`, `gbnf diff` and `gbnf lsp`: texts of a grammar, of one of two grammars, and its editor."""

from __future__ import annotations

import json
import os
from math import inf
from typing import Annotated

import typer

from gbnf_server.cli.errors import ExitCode, interruptible
from gbnf_server.cli.grammar_files import read_grammar
from gbnf_server.cli.input_files import check_one_stdin, source_name
from gbnf_server.cli.output import write
from gbnf_server.system.folders import cache_folder


def sample(
    grammar: Annotated[str, typer.Argument(), "GRAMMAR", "GBNF file; -: standard input."],
    count: Annotated[int, typer.Option("--count", "-n", min=1), "Number of texts."] = 20,
    seed: Annotated[int, typer.Option(min=0), "Seed of the texts."] = 0,
) -> None:
    """Print random texts of a grammar's language, each as a JSON string in a line.

    All are different. There are fewer than --count if the language has fewer. A text ends also if the grammar
    is recursive.

    \b
    Try:
      gbnf sample tools.gbnf -n 5
      gbnf compile | gbnf sample - | jq -r .

    \b
    Exit codes: 0 success, 3 invalid grammar, or one without a finite text.
    """
    os.environ.setdefault("HYPOTHESIS_STORAGE_DIRECTORY", str(cache_folder() / "hypothesis"))
    from gbnf.testing import sample as samples

    with interruptible():
        for text in samples(read_grammar(grammar), count, seed=seed):
            write(json.dumps(text, ensure_ascii=False))


def diff(
    first: Annotated[str, typer.Argument(), "A", "GBNF file; -: standard input."],
    second: Annotated[str, typer.Argument(), "B", "GBNF file; -: standard input."],
) -> None:
    """Print the shortest text that only one of two grammars accepts, as a JSON string.

    If there is none, print that the grammars are equal: in all their texts where this is found out, as for
    grammars without recursion, otherwise up to the length at which the search ends.

    \b
    Try:
      gbnf diff old.gbnf new.gbnf
      gbnf compile my-tools | gbnf diff tools.gbnf -

    \b
    Exit codes: 0 no difference, 1 a difference, 3 invalid grammar.
    """
    check_one_stdin(first, second)
    from gbnf.grammar.difference import compare

    with interruptible():
        result = compare(read_grammar(first).rules, read_grammar(second).rules)
    if result.text is None:
        write("equal" if result.searched == inf else f"equal in texts of up to {result.searched:,.0f} bytes")
        return
    only = source_name(first if result.in_first else second)
    write(f"only {only} accepts {json.dumps(result.text, ensure_ascii=False)}")
    raise typer.Exit(ExitCode.FAILURE)


def lsp() -> None:
    """Serve editors: diagnostics, hover, go to definition, completion and formatting.

    A language server (LSP) on standard input and output for GBNF files, with the diagnostics of gbnf lint and
    the layout of gbnf fmt, and for manifest.toml, with errors and findings.

    \b
    Try (Neovim):
      vim.lsp.config("gbnf", {cmd = {"gbnf", "lsp"}, filetypes = {"gbnf", "toml"}})
    """
    from gbnf_server.cli.language_server import server

    server.start_io()
