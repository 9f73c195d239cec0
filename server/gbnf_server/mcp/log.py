"""What an MCP server says besides its results: its standard error, log messages and progress."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeAlias

OnLog: TypeAlias = Callable[[str, str], None]
"""Called with a server's name and a line of its log, in a thread of its own."""

_KEPT = 50  # lines
_LONGEST = 500  # characters


class ServerLog:
    """The last lines of a server's log, and the count of all. `on_line` gets each; its errors are ignored."""

    def __init__(self, name: str, on_line: OnLog | None) -> None:
        self._name, self._on_line = name, on_line
        self._lines: deque[str] = deque(maxlen=_KEPT)
        self.count = 0

    def add(self, about: str, text: str | bytes) -> None:
        """Add a text, one entry for each of its lines."""
        decoded = text.decode(errors="replace") if isinstance(text, bytes) else text
        for line in decoded.splitlines()[-_KEPT:]:
            shown = line[:_LONGEST] + ("…" if len(line) > _LONGEST else "")
            entry = f"{about}: {shown}" if about else shown
            self._lines.append(entry)
            self.count += 1
            if self._on_line is not None:
                with suppress(Exception):
                    self._on_line(self._name, entry)

    def last(self, count: int = _KEPT) -> str:
        """Return the last lines."""
        return "\n".join(list(self._lines)[-count:] if count else ())

    def since(self, count: int) -> str:
        """Return the lines, of those kept, that were added after the first `count`."""
        return self.last(self.count - count)
