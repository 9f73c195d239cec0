"""`gbnf doctor`: what works on this machine, and how to get what does not."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that the others start quickly

from __future__ import annotations

import json
from dataclasses import asdict
from typing import Annotated

import typer

from gbnf_server.cli.exit_codes import ExitCode
from gbnf_server.cli.output import escape_line, stdout_console, write


def doctor(
    model: Annotated[
        str | None,
        typer.Option(metavar="F.gguf|NAME", help="Also check that this model, or smollm2, loads and fits."),
    ] = None,
    port: Annotated[int, typer.Option(min=1, max=65535, help="Port to check.")] = 8080,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """Check this machine: one line per check, with a fix for what is missing.

    Exits with status 4 if something that is needed does not work.
    """
    from rich.text import Text

    from gbnf_server.cli.machine_checks import checks
    from gbnf_server.cli.model_options import ModelSource

    styles = {"ok": ("✓", "green"), "limited": ("–", "yellow"), "broken": ("✗", "bold red")}
    done = []
    path = None if model is None else ModelSource(model).path()
    for check in checks(path, port=port):
        done.append(check)
        if not json_:
            line = Text.assemble(styles[check.state], f" {check.name:<15} {escape_line(check.found)}")
            if check.fix:
                line.append(f"\n  {'':<15} → {escape_line(check.fix)}", style="bold")
            stdout_console().print(line, soft_wrap=True)
    if json_:
        write(json.dumps([asdict(check) for check in done], ensure_ascii=False, indent=2))
    if any(check.state == "broken" for check in done):
        raise typer.Exit(ExitCode.ENVIRONMENT)
