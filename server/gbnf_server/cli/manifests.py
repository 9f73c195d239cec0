"""`gbnf manifests`: list the tools."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich import box
from rich.table import Table
from rich.text import Text

from gbnf_server.cli.errors import ExitCode
from gbnf_server.cli.output import escape_line, plural, show_finding, stdout_console, write
from gbnf_server.cli.tool_options import PathArgument, ToolSources

if TYPE_CHECKING:
    from gbnf import Finding
    from gbnf.tools import Tool
    from gbnf.tools.complexity import Complexity

PIPED_WIDTH = 120
"""Width of a piped table."""
_WIDE = 90
"""The fewest columns in which descriptions have a column of their own."""


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A row of the table of tools."""

    tool: Tool
    complexity: Complexity
    is_complex: bool
    findings: tuple[Finding, ...]


def manifests(
    context: typer.Context,
    path: PathArgument = None,
    *,
    sources: ToolSources,
    findings: Annotated[bool, "List every finding below the table."] = False,
    strict: Annotated[bool, "Exit with status 1 if a tool has a mistake, such as a misspelt key."] = False,
    json_: Annotated[bool, "Print one JSON array."] = False,
) -> None:
    """List the tools: name, effect, complexity of the arguments, and findings.

    A finding is a subschema that the grammar does not enforce, or that does not constrain its values. Most
    violations are caught by the validator after decoding. Mistakes are findings too, and are always listed: a
    key that is probably misspelt, a tool without an executor, a schema that no call satisfies.

    \b
    Try:
      gbnf manifests                     the bundled tools
      gbnf manifests my-tools/ --findings
      gbnf manifests my-tools/ --strict  in a test
    """
    from gbnf import args_complexity, is_complex
    from gbnf.tools import ASK_USER
    from gbnf.tools.prerequisites import unreachable_tools

    with sources.with_paths([path] if path else [], context).open() as pool:
        unreachable = unreachable_tools((*pool, ASK_USER))
        rows = [
            ToolRow(
                tool,
                complexity=args_complexity(tool.model_args()),
                is_complex=is_complex(tool.model_args()),
                findings=findings_of(tool, unreachable.get(tool)),
            )
            for tool in pool
        ]
    if json_:
        write(json.dumps(_as_json(rows), ensure_ascii=False, indent=2))
    else:
        _show_tools(rows, findings=findings)
    if strict and any(finding.is_mistake for row in rows for finding in row.findings):
        raise typer.Exit(ExitCode.FAILURE)


def findings_of(tool: Tool, unreachable: str | None = None) -> tuple[Finding, ...]:
    """Return what is to be said about a tool: by its manifest, its grammar, its code and the other tools."""
    from gbnf import Finding, SchemaError, compile_pool
    from gbnf.compiler.pool import uncompilable_finding

    try:
        findings = compile_pool((tool,), steps=(1,)).report  # with a step, so that all arguments are included
    except SchemaError as error:
        findings = (*tool.findings, uncompilable_finding(tool, error))
    if tool.path is not None and not tool.path.with_name("executor.py").is_file():
        reason = "the file is not beside the manifest, so calls fail"
        findings = (*findings, Finding(tool.name, "", "executor.py", "not_executable", reason))
    if unreachable is not None:
        findings = (*findings, Finding(tool.name, "/offer", "after", "unreachable", unreachable))
    return findings


def _as_json(rows: list[ToolRow]) -> list[dict[str, Any]]:
    return [
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


def _show_tools(rows: Sequence[ToolRow], *, findings: bool) -> None:
    """Print the table of `gbnf manifests`, and below it the mistakes, or all findings."""
    console = stdout_console(PIPED_WIDTH)
    console.print(tools_table(rows, console.width))
    every = [finding for row in rows for finding in row.findings]
    listed = every if findings else [finding for finding in every if finding.is_mistake]
    for finding in listed:
        show_finding(console, finding)
    if hidden := len(every) - len(listed):
        others = "other " if listed else ""
        console.print(Text(f"{others}{plural(hidden, 'finding')}; --findings lists them", style="dim"))


def tools_table(rows: Sequence[ToolRow], width: int) -> Table:
    """Return the table of tools. In less than `_WIDE` columns, descriptions are below the names."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    is_wide = width >= _WIDE
    table.add_column("tool", overflow="fold", no_wrap=is_wide)
    table.add_column("effect", no_wrap=True)
    if is_wide:
        table.add_column("complexity", justify="right", no_wrap=True)
    table.add_column("findings", justify="right", no_wrap=True)
    if is_wide:
        table.add_column("description")  # the only one that shrinks
    for row in rows:
        policy = row.tool.run
        name, described = escape_line(row.tool.name), escape_line(row.tool.description())
        cells = [
            Text.assemble((name, "bold"), "" if is_wide or not described else f"\n{described}"),
            Text(
                policy.effect + (", asks" if policy.confirm else ""),
                style="yellow" if policy.effect == "write" else "",
            ),
            Text(str(row.complexity.score), style="yellow" if row.is_complex else ""),
            Text(str(len(row.findings)) if row.findings else "-", style="" if row.findings else "dim"),
            Text(described, no_wrap=True, overflow="ellipsis"),
        ]
        table.add_row(*(cells if is_wide else (*cells[:2], cells[3])))
    return table
