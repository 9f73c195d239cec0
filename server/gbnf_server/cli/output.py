"""Output to terminals and pipes: text from tools, models and files never acts as markup or control.

All output goes through `write_stdout`, `stderr_console` or `stdout_console`, which escape control characters
one by one: a text in pieces is as safe as a whole one.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.text import Text

from gbnf_server.system.errors import SetupError

if TYPE_CHECKING:
    from rich.progress import Progress, ProgressColumn
    from starlette.types import ASGIApp

    from gbnf.findings import Finding

SHOWN_CHARACTERS = 100
AROUND = 60
"""Characters shown on each side of a position."""


class _CleanConsole(Console):
    """A console that escapes control characters in texts."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterator[Segment]:
        for segment in super().render(renderable, options):
            text = segment.text if segment.control else escape_control_characters(segment.text)
            yield segment._replace(text=text)


def stderr_console() -> Console:
    """Return where all goes that is not a command's result: stderr, without colours when piped."""
    return _CleanConsole(stderr=True, highlight=False, markup=False, emoji=False)


def say(message: str, head: str = "", style: str = "dim") -> None:
    """Print a remark to stderr in a style; with a head, only that has the style."""
    text = Text.assemble((f"{head}: ", style), message) if head else Text(message, style)
    stderr_console().print(text, soft_wrap=True)


def show_finding(console: Console, finding: Finding) -> None:
    """Print a finding."""
    style = "cyan" if finding.kind == "free_form" else "yellow"
    console.print(
        Text.assemble((f"{finding.kind.replace('_', ' ')}  ", style), escape_line(str(finding))),
        soft_wrap=True,
    )


def stdout_console(piped_width: int | None = None) -> Console:
    """Return stdout for coloured texts and tables; `piped_width` is in columns."""
    console = _CleanConsole(highlight=False, markup=False, emoji=False)
    if piped_width is not None and not console.is_terminal:
        console.width = piped_width
    return console


def progress_bar(console: Console, *columns: ProgressColumn, quiet: bool = False) -> Progress:
    """Return a bar with a description, a count and the time, then `columns`; hidden if `quiet` or piped."""
    from rich.progress import (  # few commands need it
        BarColumn,
        MofNCompleteColumn,
        Progress,
        TextColumn,
        TimeElapsedColumn,
    )

    return Progress(
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        *columns,
        console=console,
        disable=quiet or not console.is_terminal,
        transient=True,
    )


def write(text: str) -> None:
    """Print a command's result, on lines of its own."""
    write_stdout(text if text.endswith("\n") else text + "\n")


def write_stdout(text: str) -> None:
    """Write to stdout, and flush. Raises SetupError; click handles a closed pipe."""
    if sys.stdout is None:  # closed before the process started
        raise SetupError("the result can't be written: standard output is closed")
    try:
        sys.stdout.write(escape_control_characters(text))
        sys.stdout.flush()
    except BrokenPipeError:
        raise
    except (OSError, ValueError) as error:
        # what is left in the buffer would fail again when the process ends
        with suppress(OSError, ValueError):
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, sys.stdout.fileno())
            os.close(nowhere)
        reason = getattr(error, "strerror", None) or error
        raise SetupError(f"the result can't be written to standard output: {reason}") from None


def serve_app(app: ASGIApp, host: str, port: int, path: str, note: str, *, opens: bool = False) -> None:
    """Serve an application until Ctrl-C: print its URL, to `path`, and a note; `opens` it in the browser."""
    import webbrowser

    import uvicorn

    from gbnf_server.web.http_server import listen, server_config, url_of

    with listen(host, port) as listening, suppress(KeyboardInterrupt):
        url = f"{url_of(host, listening)}{path}"
        write(url)
        say(note)
        if opens:
            webbrowser.open(url)
        uvicorn.Server(server_config(app)).run(sockets=[listening])


@contextmanager
def writing(problem: str, hint: str = "") -> Iterator[None]:
    """Raise SetupError, which begins with `problem`, if a file can't be written."""
    try:
        yield
    except OSError as error:
        raise SetupError(f"{problem}: {error.strerror or error}.{hint}") from None


def request_text(text: str, argument: str = "REQUEST") -> str:
    """Return a request unchanged. Raises BadParameter if it is blank, or not UTF-8."""
    if not text.strip():
        raise typer.BadParameter("the text is empty", param_hint=argument)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        position = f"at character {error.start + 1}, after {text[: error.start][-20:]!r}"
        raise typer.BadParameter(f"the text is not UTF-8 {position}", param_hint=argument) from None
    return text


def escape_control_characters(text: str) -> str:
    """Return the text with each control character as an escape of JSON, `\\u001b`; new lines and tabs stay.

    So JSON keeps its value, and a grammar too. What is escaped can move the cursor, change colours, turn the
    direction of writing, break lines unseen or hide text. All else stays, as what joins emoji and letters.
    """
    return _CONTROL.sub(_escaped, text.replace("\r\n", "\n"))


_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u206f\ufff9-\ufffb\ud800-\udfff\U000e0000-\U000e007f]"
)


def _escaped(match: re.Match[str]) -> str:
    return re.sub("(.{4})", r"\\u\1", match[0].encode("utf-16-be", "surrogatepass").hex())


def escape_line(text: str) -> str:
    """Return the text on one line, with all control characters escaped, line breaks and tabs included."""
    return escape_control_characters(text).replace("\n", "\\n").replace("\t", "\\t")


def excerpt(text: str, start: int, end: int) -> tuple[str, str]:
    """Return the line of a position, or what is around it, and carets to put below `start` to `end`."""
    from rich.cells import cell_len

    begin, stop = text.rfind("\n", 0, start) + 1, text.find("\n", start)
    stop = len(text) if stop < 0 else stop
    first, last = max(begin, start - AROUND), min(stop, start + AROUND)
    before = ("…" if first > begin else "") + escape_line(text[first:start])
    after = escape_line(text[start:last]) + ("…" if last < stop else "")
    width = cell_len(escape_line(text[start : min(end, last)]))
    return before + after, " " * cell_len(before) + "^" * max(width, 1)


def plural(count: int, thing: str) -> str:
    """`plural(2, "tool")` -> "2 tools"."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
