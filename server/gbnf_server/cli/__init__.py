"""The command line: `gbnf`. Each command lives in a module of its own and imports what it needs when it runs.

`main` is the only place where errors become messages and exit codes: commands raise them.
"""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that the others start quickly

from __future__ import annotations

import sys
from collections.abc import Sequence
from types import TracebackType


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (None: of this process) and leave with an exit code of `exits.ExitCode`."""
    from gbnf_server.cli.app import app

    sys.excepthook = _show_traceback
    try:
        app(args=None if arguments is None else list(arguments), prog_name="gbnf")
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001 - `report` raises what it does not know
        from gbnf_server.cli.errors import report

        sys.exit(report(error))


def _show_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an unforeseen error as Python does; its message may quote a model or a file, so it is escaped."""
    import traceback

    from gbnf_server.cli.output import escape_control_characters

    sys.stderr.write(escape_control_characters("".join(traceback.format_exception(kind, error, trace))))
