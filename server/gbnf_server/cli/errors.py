"""How errors are reported: the message on stderr, and the exit status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum

import typer

from gbnf.errors import GbnfError
from gbnf.extras import MissingExtraError
from gbnf_server.cli.output import say
from gbnf_server.system.errors import GbnfServerError, InputError


class ExitCode(IntEnum):
    """Exit codes; `gbnf_server.cli.commands.EXIT_CODES` describes them."""

    SUCCESS = 0
    FAILURE = 1
    USAGE = 2
    INPUT = 3
    ENVIRONMENT = 4
    INTERRUPTED = 130


def report(error: BaseException) -> ExitCode:
    """Print an error, and return the exit status. Raise one that this package does not raise on purpose.

    The notes of a KeyboardInterrupt say what it interrupted.
    """
    match error:
        case KeyboardInterrupt():
            notes = "; ".join(getattr(error, "__notes__", ()))
            say(notes or "interrupted", "interrupted" if notes else "", "bold red")
            return ExitCode.INTERRUPTED
        case MissingExtraError() | GbnfServerError() if not isinstance(error, InputError):
            say(str(error), "error", "bold red")
            return ExitCode.ENVIRONMENT
        case GbnfError():
            say(str(error), "error", "bold red")
            return ExitCode.INPUT
        case _:
            raise error


@contextmanager
def interruptible(note: str = "") -> Iterator[None]:
    """Exit with a message and status 130 at Ctrl-C, which typer catches before `main`, without a message."""
    try:
        yield
    except KeyboardInterrupt as error:
        if note:
            error.add_note(note)
        raise typer.Exit(report(error)) from None
