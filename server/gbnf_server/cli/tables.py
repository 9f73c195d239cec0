"""Grammars, findings and tools on a terminal."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Console
from rich.table import Table
from rich.text import Text

from gbnf import Finding, Grammar
from gbnf.tools import Tool
from gbnf.tools.complexity import Complexity
from gbnf_server.cli.output import escape_line, plural, stderr_console, stdout_console

PIPED_WIDTH = 120
"""Width of a piped table."""


@dataclass(frozen=True, slots=True)
class ToolRow:
    """A row of the table of tools."""

    tool: Tool
    complexity: Complexity
    is_complex: bool
    findings: tuple[Finding, ...]


def show_report(grammar: Grammar, kept: Sequence[str], dropped: Mapping[str, str]) -> None:
    """Print to stderr what a grammar does not enforce, and which tools the pool filter dropped."""
    console = stderr_console()
    rules, size = len(grammar.rules.productions), len(str(grammar).encode())
    if kept:
        console.print(Text(f"{plural(len(kept), 'tool')}: {', '.join(kept)}", style="dim"), soft_wrap=True)
    for name, reason in dropped.items():
        console.print(
            Text(f"left out {escape_line(name)}: {escape_line(reason)}", style="dim"), soft_wrap=True
        )
    console.print(Text(f"{plural(rules, 'rule')}, {size} bytes", style="dim"))
    for finding in grammar.report:
        show_finding(console, finding)
    unenforced = sum(finding.kind == "unenforced" for finding in grammar.report)
    if grammar.exact:
        verdict = ("exact", "bold green"), ": every text of this grammar is valid for the schemas"
    else:
        verdict = ("not exact", "bold yellow"), f": {plural(unenforced, 'keyword')} left to the validator"
    console.print(Text.assemble(*verdict), soft_wrap=True)


def show_finding(console: Console, finding: Finding) -> None:
    """Print a finding."""
    style = "cyan" if finding.kind == "free_form" else "yellow"
    console.print(
        Text.assemble((f"{finding.kind.replace('_', ' ')}  ", style), escape_line(str(finding))),
        soft_wrap=True,
    )


def show_tools(rows: Sequence[ToolRow], *, findings: bool) -> None:
    """Print the table of `gbnf manifests`, and below it the mistakes, or all findings."""
    console = stdout_console(PIPED_WIDTH)
    console.print(tools_table(rows))
    every = [finding for row in rows for finding in row.findings]
    listed = every if findings else [finding for finding in every if finding.is_mistake]
    for finding in listed:
        show_finding(console, finding)
    if more := len(every) - len(listed):
        others = "other " if listed else ""
        console.print(Text(f"{others}{plural(more, 'finding')}; --findings lists them", style="dim"))


def tools_table(rows: Sequence[ToolRow]) -> Table:
    """Return the table of tools. In a narrow terminal, only the descriptions are shortened."""
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    table.add_column("tool", style="bold", no_wrap=True)
    table.add_column("effect", no_wrap=True)
    table.add_column("complexity", justify="right", no_wrap=True)
    table.add_column("findings", justify="right", no_wrap=True)
    table.add_column("description")  # the only one that shrinks
    for row in rows:
        policy = row.tool.run
        table.add_row(
            Text(escape_line(row.tool.name)),
            Text(
                policy.effect + (", asks" if policy.confirm else ""),
                style="yellow" if policy.effect == "write" else "",
            ),
            Text(str(row.complexity.score), style="yellow" if row.is_complex else ""),
            Text(str(len(row.findings)) if row.findings else "-", style="" if row.findings else "dim"),
            Text(escape_line(row.tool.description()), no_wrap=True, overflow="ellipsis"),
        )
    return table
