"""The person at the terminal, whom tools may ask."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from gbnf_server.cli.output import stderr_console

if TYPE_CHECKING:
    from rich.console import Console

    from gbnf_server.cli.model_options import ModelSource
    from gbnf_server.executors import Person, Workspace


def is_person_present(console: Console) -> bool:
    """Return whether somebody can read questions and answer them."""
    return sys.stdin is not None and sys.stdin.isatty() and console.is_terminal


def asks_person(source: ModelSource) -> bool:
    """Return whether a model may ask questions by default.

    The demonstration model may not: it is not trained with `ask_user`.
    """
    return not source.is_demo_model and is_person_present(stderr_console())


def person_at_terminal(workspace: Workspace, console: Console, *, approve_all: bool) -> Person:
    """Return the person at the terminal; without a terminal, one who is absent."""
    from gbnf_server.executors import AbsentPerson, TerminalPerson

    if is_person_present(console):
        return TerminalPerson(console=console, workspace=workspace, approve_all=approve_all)
    return AbsentPerson(approve_all=approve_all)
