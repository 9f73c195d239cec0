"""`gbnf manifests`: list the tools."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that the others start quickly

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer


def manifests(
    path: Annotated[
        Path | None,
        typer.Argument(metavar="PATH", help="Manifest or folder. Default: the bundled tools."),
    ] = None,
    findings: Annotated[bool, typer.Option("--findings", help="List every finding below the table.")] = False,
    json_: Annotated[bool, typer.Option("--json", help="Print one JSON array.")] = False,
) -> None:
    """List the tools: name, effect, complexity of the arguments, and findings.

    A finding is a subschema that the grammar does not enforce, or that does not constrain its values. Most
    violations are caught by the validator after decoding.

    \b
    Try:
      gbnf manifests                     the bundled tools
      gbnf manifests my-tools/ --findings
    """
    from gbnf import args_complexity, compile_pool, is_complex, load_manifests
    from gbnf_server.bundled import manifests_path
    from gbnf_server.cli.output import write
    from gbnf_server.cli.tables import ToolRow, show_tools

    rows = [
        ToolRow(
            tool,
            complexity=args_complexity(tool.model_args()),
            is_complex=is_complex(tool.model_args()),
            findings=compile_pool(
                (tool,), steps=(1,)
            ).report,  # with a step, so that all arguments are included
        )
        for tool in load_manifests(path or manifests_path())
    ]
    if not json_:
        show_tools(rows, findings=findings)
        return
    value = [
        {
            "name": row.tool.name,
            "version": row.tool.version,
            "description": row.tool.description(),
            "effect": row.tool.run.effect,
            "confirm": row.tool.run.confirm,
            "complexity": {"score": row.complexity.score, **asdict(row.complexity)},
            "is_complex": row.is_complex,
            "findings": [asdict(finding) for finding in row.findings],
        }
        for row in rows
    ]
    write(json.dumps(value, ensure_ascii=False, indent=2))
