"""The exit codes."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Exit codes; `gbnf_server.cli.help` describes them."""

    SUCCESS = 0
    FAILURE = 1
    USAGE = 2
    INPUT = 3
    ENVIRONMENT = 4
    INTERRUPTED = 130
