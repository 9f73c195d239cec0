"""Exit codes that mean something, and which error leaves with which."""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that the others start quickly

from __future__ import annotations

from enum import IntEnum

from gbnf.errors import GbnfError


class ExitCode(IntEnum):
    """0 yes, 1 no; above that, something was in the way. `gbnf_server.cli.help` words them for people."""

    DONE = 0
    NO = 1
    USAGE = 2
    INPUT = 3
    MACHINE = 4
    INTERRUPTED = 130


class InputError(GbnfError):
    """A file that was given cannot be read; the message says which and why."""


def code_of(error: GbnfError) -> ExitCode:
    """Which code an error leaves with: the client's own errors are the machine's, all others an input's."""
    from gbnf_server.errors import ClientError

    return ExitCode.MACHINE if isinstance(error, ClientError) else ExitCode.INPUT
