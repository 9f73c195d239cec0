"""What several programs share: tables for a terminal and in Markdown, parsers, the leaderboard's data."""

from __future__ import annotations

import argparse
import importlib.util
import sys
from collections.abc import Mapping
from pathlib import Path

import typer
from rich.console import Console
from rich.table import Table

KINDS = ("valid", "invalid", "no call", "truncated")
"""Outcomes of an answer, beside errors."""


def new_table(heads: str, title: str | None = None, *, left: tuple[str, ...] = ()) -> Table:
    """Return a table with these heads, separated by `|`. The first column and `left` are aligned left."""
    table = Table(title=title)
    for index, head in enumerate(heads.split("|")):
        is_left = not index or head.strip() in left
        table.add_column(head.strip(), justify="left" if is_left else "right")
    return table


def show(table: Table) -> None:
    """Print a table: as Markdown where the output is no terminal."""
    if sys.stdout.isatty():
        Console().print(table)
        return
    if table.title:
        print(f"{table.title}:\n")
    print_heads(" | ".join(str(column.header) for column in table.columns))
    for row in zip(*[column.cells for column in table.columns], strict=True):
        print(f"| {' | '.join(map(str, row))} |")
    print()


def parser_of(doc: str | None) -> argparse.ArgumentParser:
    """Return a parser whose help is a program's docstring, as it is written."""
    return argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)


def print_heads(heads: str) -> None:
    """Print the heads of a table in Markdown, separated by `|`."""
    names = [head.strip() for head in heads.split("|")]
    print(f"| {' | '.join(names)} |\n{'|---' * len(names)}|")


def outcome_cells(outcomes: Mapping[str, int]) -> str:
    """Return the cells of a row in Markdown: the number of answers of each kind, and the errors."""
    counts = " | ".join(str(outcomes.get(kind, 0)) for kind in KINDS)
    errors = ", ".join(f"{count} × {kind}" for kind, count in outcomes.items() if kind not in KINDS)
    return f"{counts} | {errors or '0'}"


def leaderboard_data(folder: Path | None) -> Path:
    """Return the given folder of BFCL's data, or that of an installed `bfcl_eval`."""
    if folder is not None:
        return folder
    spec = importlib.util.find_spec("bfcl_eval")
    if spec is None or spec.origin is None:
        hint = "bfcl_eval is not installed: give the folder of its data"
        raise typer.BadParameter(hint, param_hint="--data")
    return Path(spec.origin).parent / "data"
