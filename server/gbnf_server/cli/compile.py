"""`gbnf compile`: compile manifests to GBNF."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that the others start quickly

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated, Literal

import typer


def compile_(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(
            metavar="PATH", help="Manifests, or folders of manifests. Default: the bundled tools."
        ),
    ] = None,
    query: Annotated[
        str | None, typer.Option(help="Include only the tools that the pool filter keeps for this request.")
    ] = None,
    report: Annotated[
        bool, typer.Option("--report", help="Print to stderr what the grammar does not enforce.")
    ] = False,
    final_answer: Annotated[
        bool, typer.Option("--final-answer", help="Include the tool final_answer.")
    ] = False,
    ask_user: Annotated[bool, typer.Option("--ask-user", help="Include the tool ask_user.")] = False,
    step: Annotated[
        list[int] | None,
        typer.Option(min=1, help="Earlier step that from_step may refer to; repeatable."),
    ] = None,
    whitespace: Annotated[
        Literal["default", "compact", "spaced", "free"],
        typer.Option(help="Whitespace in the JSON. Default: at most one space after , and :."),
    ] = "default",
    json_: Annotated[
        bool, typer.Option("--json", help="Print a JSON object: grammar, exact, findings, kept, dropped.")
    ] = False,
) -> None:
    """Compile tool manifests to one GBNF grammar on stdout.

    \b
    Try:
      gbnf compile                                   the bundled tools
      gbnf compile my-tools/ more/manifest.toml      your own tools
      gbnf compile --query "find notes" --report     the tools for one request
      gbnf compile --final-answer > plan.gbnf        as the planner uses it
    """
    from gbnf import compile_pool, filter_pool, load_manifests
    from gbnf_server.bundled import manifests_path
    from gbnf_server.cli.output import write
    from gbnf_server.cli.tables import show_report

    tools = load_manifests(paths or manifests_path())
    selection = None if query is None else filter_pool(tools, query)
    pool = tools if selection is None else selection.kept
    grammar = compile_pool(
        pool, final_answer=final_answer, ask_user=ask_user, steps=tuple(step or ()), whitespace=whitespace
    )
    kept = [tool.name for tool in pool]
    dropped = {} if selection is None else {tool.name: why for tool, why in selection.dropped.items()}
    if json_:
        value = {
            "grammar": str(grammar),
            "exact": grammar.exact,
            "findings": [asdict(finding) for finding in grammar.report],
            "kept": kept,
            "dropped": dropped,
        }
        write(json.dumps(value, ensure_ascii=False, indent=2))
    else:
        write(str(grammar))
    if report:
        show_report(grammar, kept, dropped)
