"""`gbnf lint` and `gbnf fmt`: diagnostics and the layout of GBNF files."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal
from urllib.parse import quote

import typer
from rich.text import Text

from gbnf_server.cli.errors import ExitCode
from gbnf_server.cli.input_files import STDIN, check_one_stdin, errors_of, read_text, source_name
from gbnf_server.cli.output import escape_line, excerpt, plural, say, stderr_console, stdout_console, write
from gbnf_server.system.errors import InputError

if TYPE_CHECKING:
    from rich.console import Console

    from gbnf import Grammar
    from gbnf.grammar.lint import Diagnostic

Found = Mapping[str, tuple[str, list["Diagnostic"]]]
"""For each file its text, and what was found in it."""

FilesArgument = Annotated[list[str], typer.Argument(), "FILE...", "GBNF files; -: standard input."]
_STYLES = {"error": "bold red", "warning": "yellow", "note": "cyan"}


def lint(
    files: FilesArgument,
    fix: Annotated[bool, "Correct what has one meaning only, and report the rest."] = False,
    format_: Annotated[Literal["text", "json", "sarif"], "Format of the findings."] = "text",
) -> None:
    """Report what is wrong or doubtful in GBNF files: position, cause and remedy.

    Errors: llama.cpp refuses the grammar, never ends with it or reads another one. Warnings: it works, but
    probably not as it was meant. Notes: what to know before a model uses it.

    \b
    Try:
      gbnf lint grammar.gbnf
      gbnf lint --fix grammars/*.gbnf
      gbnf lint --format sarif grammars/*.gbnf > gbnf.sarif

    \b
    Exit codes: 0 nothing but notes, 1 errors or warnings, 3 a file that cannot be read.
    """
    from gbnf.grammar.lint import apply_fixes
    from gbnf.grammar.lint import lint as find

    check_one_stdin(*files)
    if fix and STDIN in files:
        raise typer.BadParameter("--fix writes files, not the standard input")
    results: dict[str, tuple[str, list[Diagnostic]]] = {}
    for file in files:
        text = read_text(file, "a GBNF file")
        if fix:
            text = _rewritten(file, text, apply_fixes(text))
        results[file] = text, find(text)
    severities = [diagnostic.severity for _, diagnostics in results.values() for diagnostic in diagnostics]
    if format_ == "text":
        for file, (text, diagnostics) in results.items():
            show_diagnostics(stdout_console(), file, text, diagnostics)
        counts = [plural(severities.count(kind), kind) for kind in _STYLES if kind in severities]
        say(", ".join(counts) or f"nothing found in {plural(len(results), 'file')}")
    else:
        shown = _json(results) if format_ == "json" else _sarif(results)
        write(json.dumps(shown, indent=2, ensure_ascii=False))
    if {"error", "warning"} & {*severities}:
        raise typer.Exit(ExitCode.FAILURE)


def fmt(
    files: FilesArgument,
    check: Annotated[bool, "Write nothing; list the files that would change."] = False,
) -> None:
    """Rewrite GBNF files in the canonical layout. Comments stay, and so does the grammar.

    \b
    Try:
      gbnf fmt grammars/*.gbnf
      gbnf fmt - < grammar.gbnf
      gbnf fmt --check grammars/*.gbnf

    \b
    Exit codes: 0 formatted, 1 a file would change, 3 a file has a syntax error or cannot be read.
    """
    from gbnf.grammar.format import format_grammar

    check_one_stdin(*files)
    changed = []
    for file in files:
        text = read_text(file, "a GBNF file")
        with errors_of(file):
            new = format_grammar(text)
        changed += [file] * (new != text)
        if not check:
            _rewritten(file, text, new)
            if file == STDIN:
                write(new)
    if check and changed:
        write("\n".join(map(source_name, changed)))
    say(f"{plural(len(changed), 'file')} {'would change' if check else 'changed'}")
    if check and changed:
        raise typer.Exit(ExitCode.FAILURE)


def read_grammar(file: str, *, warns: bool = False) -> Grammar:
    """Return the grammar in a file; if it has errors, show them and exit. `warns`: show warnings, too."""
    from gbnf import Grammar
    from gbnf.grammar.lint import lint as find

    text = read_text(file, "a GBNF file")
    diagnostics = [diagnostic for diagnostic in find(text) if diagnostic.severity != "note"]
    is_valid = all(diagnostic.severity != "error" for diagnostic in diagnostics)
    if warns or not is_valid:
        show_diagnostics(stderr_console(), file, text, diagnostics)
    if not is_valid:
        raise typer.Exit(ExitCode.INPUT)
    return Grammar.parse(text)


def show_diagnostics(console: Console, file: str, text: str, diagnostics: list[Diagnostic]) -> None:
    """Print each diagnostic: file, position, rule and message, then the line with a caret, and the hint."""
    name = escape_line("<stdin>" if file == STDIN else file)
    for diagnostic in diagnostics:
        head = (f"{diagnostic.severity} {diagnostic.code}", _STYLES[diagnostic.severity])
        place = f"{name}:{diagnostic.line}:{diagnostic.column}: "
        console.print(Text.assemble(place, head, f": {escape_line(diagnostic.message)}"), soft_wrap=True)
        line, caret = excerpt(text, diagnostic.start, diagnostic.end)
        console.print(Text.assemble(f"  {line}\n  ", (caret, head[1])), soft_wrap=True)
        console.print(Text(f"  {escape_line(diagnostic.hint)}", "dim"), soft_wrap=True)


def _rewritten(file: str, text: str, new: str) -> str:
    """Return the new text, once it is in the file if it differs from the old one."""
    if file != STDIN and new != text:
        try:
            Path(file).write_text(new, "utf-8", newline="")
        except OSError as error:
            raise InputError(f"{file} cannot be written: {error.strerror}.") from None
    return new


def _json(results: Found) -> list[dict[str, Any]]:
    return [
        {"file": source_name(file), "rule": diagnostic.rule.name, "severity": diagnostic.severity}
        | asdict(diagnostic)
        | {"fix": [edit._asdict() for edit in diagnostic.fix]}
        for file, (_, diagnostics) in results.items()
        for diagnostic in diagnostics
    ]


def _sarif(checked: Found) -> dict[str, Any]:
    """Return a log of SARIF 2.1.0, which code hosts show beside the lines."""
    from gbnf.grammar.lint import LINT_RULES

    def region(start: int, end: int) -> dict[str, int]:
        return {"charOffset": start, "charLength": end - start}

    def result(file: dict[str, str], remark: Diagnostic) -> dict[str, Any]:
        marked = {"startLine": remark.line, "startColumn": remark.column} | region(remark.start, remark.end)
        place = {"physicalLocation": {"artifactLocation": file, "region": marked}}
        edits = [
            {"deletedRegion": region(edit.start, edit.end), "insertedContent": {"text": edit.text}}
            for edit in remark.fix
        ]
        message = {"text": f"{remark.message}. {remark.hint}"}
        value = {"ruleId": remark.code, "level": remark.severity, "message": message, "locations": [place]}
        change = {"artifactLocation": file, "replacements": edits}
        return value | ({"fixes": [{"artifactChanges": [change]}]} if edits else {})

    rules = [
        {"id": rule.code, "name": rule.name, "shortDescription": {"text": rule.summary}}
        | {"defaultConfiguration": {"level": rule.severity}}
        for rule in LINT_RULES.values()
    ]
    results = [
        result({"uri": quote(Path(name).as_posix())}, diagnostic)
        for name, (_, diagnostics) in checked.items()
        for diagnostic in diagnostics
    ]
    driver = {"name": "gbnf lint", "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
