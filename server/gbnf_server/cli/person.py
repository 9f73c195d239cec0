"""The person at the terminal, whom tools may ask."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that the others start quickly

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from rich.console import Console

    from gbnf_server.executors import Person, Workspace


def person_at_terminal(workspace: Workspace, console: Console, *, approve_all: bool) -> Person:
    """Return the person at the terminal; without a terminal, one who is absent."""
    from gbnf_server.executors import AbsentPerson, TerminalPerson

    if sys.stdin.isatty() and console.is_terminal:
        return TerminalPerson(console=console, workspace=workspace, approve_all=approve_all)
    return AbsentPerson(approve_all=approve_all)
