"""Run the benchmarks of speed, and write the tables that they print into the documentation.

    python bench/all.py [--only TEXT] [--write]

A table in README.md or docs/ is between two comments, of which the first names the command that prints it:

    <!-- printed by: python bench/startup.py -->
    <!-- end -->

Each command compares with a named peer in the same run. Without --write, the tables are printed only.
"""

from __future__ import annotations

import re
import shlex
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Annotated

import typer

from checkout import ROOT

_TABLE = re.compile(r"(<!-- printed by: python (bench/[^\n]+) -->\n)(.*?)(<!-- end -->)", re.DOTALL)


def documents() -> Iterator[Path]:
    """Yield the files that may contain such tables."""
    yield ROOT / "README.md"
    yield from sorted((ROOT / "docs").rglob("*.md"))


def commands(text: str) -> list[str]:
    """Return the commands of the tables in a document, each once."""
    return list(dict.fromkeys(command for _, command, _, _ in _TABLE.findall(text)))


def with_table(text: str, command: str, table: str) -> str:
    """Return a document with what a command printed, in all places that name it."""
    return _TABLE.sub(
        lambda match: f"{match[1]}{table.strip()}\n{match[4]}" if match[2] == command else match[0], text
    )


def main(
    only: Annotated[str, typer.Option(help="Run the commands that contain this text.")] = "",
    write: Annotated[bool, typer.Option("--write", help="Write the tables into the documents.")] = False,
) -> None:
    """Run the commands, and print what they print."""
    texts = {path: path.read_text("utf-8") for path in documents()}
    wanted = dict.fromkeys(
        command for text in texts.values() for command in commands(text) if only in command
    )
    failed = False
    for command in wanted:
        began = time.monotonic()
        done = subprocess.run(
            [sys.executable, *shlex.split(command)], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False
        )
        print(
            f"## python {command}\n\n{done.stdout.strip()}\n\n{time.monotonic() - began:.0f} s\n", flush=True
        )
        failed = failed or bool(done.returncode)
        if write and not done.returncode:
            for path, text in texts.items():
                texts[path] = with_table(text, command, done.stdout)
                if texts[path] != text:
                    path.write_text(texts[path], "utf-8")
    raise typer.Exit(failed)


if __name__ == "__main__":
    typer.run(main)
