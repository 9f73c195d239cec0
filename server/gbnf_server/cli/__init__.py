"""The command line: `gbnf`. Each command lives in a module of its own and imports what it needs when it runs.

`main` is the only place where errors become messages and exit codes: commands raise them.
"""

# ruff: noqa: PLC0415 - a command imports what it needs when it runs, so that the others start quickly

from __future__ import annotations

import sys
from collections.abc import Sequence


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line (None: of this process) and leave with an exit code of `exits.ExitCode`."""
    from gbnf.errors import GbnfError

    from gbnf_server.cli.app import app
    from gbnf_server.cli.exits import ExitCode, code_of

    try:
        app(args=None if arguments is None else list(arguments), prog_name="gbnf")
    except GbnfError as error:
        _complain("error", str(error))
        sys.exit(code_of(error))
    except KeyboardInterrupt:
        _complain("interrupted", "nothing was left half done")
        sys.exit(ExitCode.INTERRUPTED)


def _complain(head: str, message: str) -> None:
    from rich.text import Text

    from gbnf_server.cli.text import clean, notes

    lines = "\n".join(clean(line) for line in message.splitlines())
    notes().print(Text.assemble((f"{head}: ", "bold red"), lines), soft_wrap=True)
