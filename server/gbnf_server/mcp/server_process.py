"""The process that starts an MCP server and outlives it. Only `stdio` starts it.

    python -I -c BOOT CONNECTION SYS_PATH COMMAND ARGUMENT…

Invariant: when this process's parent closes the connection, or ends in any way, the server and all that it
has started end, too (`gbnf_server.executors.supervisor`).
"""

from __future__ import annotations

import os
import signal
from typing import NoReturn

from gbnf_server.executors.supervisor import continue_supervised

_GRACE_PERIOD_S = 2.0
"""Between SIGTERM and SIGKILL."""

_NOT_STARTED = 127


def main(connection: int, command: list[str]) -> NoReturn:
    """Run a command until it ends, or the other end of `connection` is closed."""
    continue_supervised(connection, _close_streams, grace_period=_GRACE_PERIOD_S)
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGPIPE):
        signal.signal(number, signal.SIG_DFL)  # Python, and shells, ignore some, which is inherited
    try:
        os.execvp(command[0], command)  # noqa: S606 - the user's command
    except OSError as error:
        os.write(2, f"{command[0]}: {error.strerror}\n".encode())
        os._exit(_NOT_STARTED)


def _close_streams() -> None:
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):  # so that the server's pipes end with the server
        os.dup2(nothing, stream)
