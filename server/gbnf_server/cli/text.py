"""Text for terminals: what tools, models and files say is shown as text, never as markup or control."""

from __future__ import annotations

import sys
import unicodedata

from rich.console import Console

SHOWN_CHARACTERS = 100


def notes() -> Console:
    """Where all goes that is not a command's result: stderr, without colours when piped."""
    return Console(stderr=True, highlight=False)


def write(text: str) -> None:
    """Print a command's result: as it is into a pipe, without control characters on a terminal."""
    if sys.stdout.isatty():
        text = "\n".join(clean(line) for line in text.splitlines())
    sys.stdout.write(text if text.endswith("\n") else text + "\n")
    sys.stdout.flush()


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
