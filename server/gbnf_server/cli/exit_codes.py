"""Exit codes that mean something, and which error leaves with which."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """0 yes, 1 no; above that, something was in the way. `gbnf_server.cli.help` words them for people."""

    SUCCESS = 0
    FAILURE = 1
    USAGE = 2
    INPUT = 3
    ENVIRONMENT = 4
    INTERRUPTED = 130
