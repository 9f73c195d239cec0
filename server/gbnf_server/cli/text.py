"""Text for terminals: what tools, models and files say is shown as text, never as markup or control."""

from __future__ import annotations

import os
import sys
import unicodedata
from contextlib import suppress

import typer
from rich.console import Console

SHOWN_CHARACTERS = 100


def notes() -> Console:
    """Where all goes that is not a command's result: stderr, without colours when piped."""
    return Console(stderr=True, highlight=False)


def write(text: str) -> None:
    """Print a command's result: as it is into a pipe, without control characters on a terminal."""
    if sys.stdout is not None and sys.stdout.isatty():
        text = "\n".join(clean(line) for line in text.splitlines())
    put(text if text.endswith("\n") else text + "\n")


def put(text: str) -> None:
    """Write to stdout, and on its way. Raises SetupError where it can't be; a reader that left is click's."""
    from gbnf_server.errors import SetupError  # noqa: PLC0415 - `--help` needs none of the package

    if sys.stdout is None:  # it was closed before the process began
        raise SetupError("the result can't be written: standard output is closed")
    try:
        sys.stdout.write(text)
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


def request_text(text: str) -> str:
    """A request as it was given. Raises BadParameter where it asks for nothing, or is no text."""
    if not text.strip():
        raise typer.BadParameter("the request is empty: say what you want", param_hint="REQUEST")
    try:
        text.encode()
    except UnicodeEncodeError as error:
        place = f"at character {error.start + 1}, after {text[: error.start][-20:]!r}"
        raise typer.BadParameter(f"the request is no UTF-8 text {place}", param_hint="REQUEST") from None
    return text


def clean(text: str) -> str:
    """The text with every control character shown as an escape, so that none reaches the terminal."""
    return "".join(
        char
        if char.isprintable() or unicodedata.category(char) == "Zs"
        else char.encode("unicode_escape").decode()
        for char in text
    )


def brief(text: str, limit: int = SHOWN_CHARACTERS) -> str:
    """The text on one line, clipped."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def plural(count: int, thing: str) -> str:
    """`plural(2, "tool")` -> "2 tools"."""
    return f"{count} {thing}" if count == 1 else f"{count} {thing}s"
