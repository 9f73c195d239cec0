"""The command line `gbnf`. Each command is a module of its own, and imports what it needs when it runs.

Public besides `main`, for the commands of `gbnf_bench`: `commands` (help texts), `config`, `default_model`,
`errors`, `model_options`, `output`, `tool_options`. Invariant: only `main` turns errors into messages and
exit codes; commands raise them.
"""

from __future__ import annotations

import atexit
import gc
import sys
from collections.abc import Sequence
from types import TracebackType


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (None: of this process), and exit with a status of `ExitCode`."""
    from gbnf_server.cli.app import app

    sys.excepthook = _show_traceback
    gc.set_threshold(20_000, 50, 50)  # a compilation keeps many objects alive, with almost no cycles
    atexit.register(gc.disable)  # the last collections take a tenth of the time of a run, for nothing
    try:
        app(args=None if arguments is None else list(arguments), prog_name="gbnf")
    except (Exception, KeyboardInterrupt) as error:  # noqa: BLE001  # `report` raises unexpected ones again
        from gbnf_server.cli.errors import report

        sys.exit(report(error))


def _show_traceback(kind: type[BaseException], error: BaseException, trace: TracebackType | None) -> None:
    """Print an unexpected error as Python does, escaped: its message may quote a model or a file."""
    import traceback

    from gbnf_server.cli.output import escape_control_characters

    sys.stderr.write(escape_control_characters("".join(traceback.format_exception(kind, error, trace))))
