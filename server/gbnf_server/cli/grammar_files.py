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
    found: dict[str, tuple[str, list[Diagnostic]]] = {}
    for file in files:
        text = read_text(file, "a GBNF file")
        if fix:
            text = _rewritten(file, text, apply_fixes(text))
        found[file] = text, find(text)
    severities = [each.severity for _, diagnostics in found.values() for each in diagnostics]
    if format_ == "text":
        for file, (text, diagnostics) in found.items():
            show_diagnostics(stdout_console(), file, text, diagnostics)
        counts = [plural(severities.count(one), one) for one in _STYLES if one in severities]
        say(", ".join(counts) or f"nothing found in {plural(len(found), 'file')}")
    else:
        write(json.dumps(_json(found) if format_ == "json" else _sarif(found), indent=2, ensure_ascii=False))
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
    found = [each for each in find(text) if each.severity != "note"]
    is_valid = all(each.severity != "error" for each in found)
    if warns or not is_valid:
        show_diagnostics(stderr_console(), file, text, found)
    if not is_valid:
        raise typer.Exit(ExitCode.INPUT)
    return Grammar.parse(text)


def show_diagnostics(console: Console, file: str, text: str, diagnostics: list[Diagnostic]) -> None:
    """Print each diagnostic: file, position, rule and message, then the line with a caret, and the hint."""
    name = escape_line("<stdin>" if file == STDIN else file)
    for each in diagnostics:
        head = (f"{each.severity} {each.code}", _STYLES[each.severity])
        place = f"{name}:{each.line}:{each.column}: "
        console.print(Text.assemble(place, head, f": {escape_line(each.message)}"), soft_wrap=True)
        line, caret = excerpt(text, each.start, each.end)
        console.print(Text.assemble(f"  {line}\n  ", (caret, head[1])), soft_wrap=True)
        console.print(Text(f"  {escape_line(each.hint)}", "dim"), soft_wrap=True)


def _rewritten(file: str, text: str, new: str) -> str:
    """Return the new text, once it is in the file if it differs from the old one."""
    if file != STDIN and new != text:
        try:
            Path(file).write_text(new, "utf-8", newline="")
        except OSError as error:
            raise InputError(f"{file} cannot be written: {error.strerror}.") from None
    return new


def _json(found: Found) -> list[dict[str, Any]]:
    return [
        {"file": source_name(file), "rule": each.rule.name, "severity": each.severity}
        | asdict(each)
        | {"fix": [edit._asdict() for edit in each.fix]}
        for file, (_, diagnostics) in found.items()
        for each in diagnostics
    ]


def _sarif(found: Found) -> dict[str, Any]:
    """Return a log of SARIF 2.1.0, which code hosts show beside the lines."""
    from gbnf.grammar.lint import LINT_RULES

    def region(start: int, end: int) -> dict[str, int]:
        return {"charOffset": start, "charLength": end - start}

    def result(file: dict[str, str], each: Diagnostic) -> dict[str, Any]:
        marked = {"startLine": each.line, "startColumn": each.column} | region(each.start, each.end)
        place = {"physicalLocation": {"artifactLocation": file, "region": marked}}
        edits = [
            {"deletedRegion": region(edit.start, edit.end), "insertedContent": {"text": edit.text}}
            for edit in each.fix
        ]
        message = {"text": f"{each.message}. {each.hint}"}
        value = {"ruleId": each.code, "level": each.severity, "message": message, "locations": [place]}
        change = {"artifactLocation": file, "replacements": edits}
        return value | ({"fixes": [{"artifactChanges": [change]}]} if edits else {})

    rules = [
        {"id": rule.code, "name": rule.name, "shortDescription": {"text": rule.summary}}
        | {"defaultConfiguration": {"level": rule.severity}}
        for rule in LINT_RULES.values()
    ]
    results = [
        result({"uri": quote(Path(name).as_posix())}, each)
        for name, (_, diagnostics) in found.items()
        for each in diagnostics
    ]
    driver = {"name": "gbnf lint", "rules": rules}
    run = {"tool": {"driver": driver}, "columnKind": "unicodeCodePoints", "results": results}
    return {"$schema": "https://json.schemastore.org/sarif-2.1.0.json", "version": "2.1.0", "runs": [run]}
