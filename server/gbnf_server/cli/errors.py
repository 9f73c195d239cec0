"""How errors are reported: the message on stderr, and the exit status."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import typer
from rich.text import Text

from gbnf.errors import GbnfError
from gbnf_server.cli.exit_codes import ExitCode
from gbnf_server.cli.output import stderr_console
from gbnf_server.errors import GbnfServerError, InputError


def report(error: BaseException) -> ExitCode:
    """Print an error, and return the exit status. Raise one that this package does not raise on purpose."""
    match error:
        case KeyboardInterrupt():
            _tell("interrupted", "nothing was left half done")
            return ExitCode.INTERRUPTED
        case GbnfServerError() if not isinstance(error, InputError):
            _tell("error", str(error))
            return ExitCode.ENVIRONMENT
        case GbnfError():
            _tell("error", str(error))
            return ExitCode.INPUT
        case _:
            raise error


@contextmanager
def interruptible() -> Iterator[None]:
    """Exit with a message and status 130 at Ctrl-C, which typer catches before `main`, without a message."""
    try:
        yield
    except KeyboardInterrupt as error:
        raise typer.Exit(report(error)) from None


def _tell(head: str, message: str) -> None:
    stderr_console().print(Text.assemble((f"{head}: ", "bold red"), message), soft_wrap=True)
