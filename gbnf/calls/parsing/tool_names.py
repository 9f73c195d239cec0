"""Resolution of a name in a model's text to a tool, whatever its spelling."""

from __future__ import annotations

import difflib
from collections.abc import Iterable

from gbnf.tools import Tool

_LIMIT = 200
"""Characters of a name that are compared."""
_QUOTES = " \t\r\n`*\"'“”"


class ToolNames:
    """The tool names of a pool."""

    def __init__(self, tools: Iterable[Tool]) -> None:
        self.tools = {tool.name: tool for tool in tools}
        self._folded: dict[str, list[str]] = {}
        for name in self.tools:
            self._folded.setdefault(fold(name), []).append(name)

    def find(self, written: str) -> Tool | None:
        """Return the tool that a name resolves to, None if there is none, or two.

        Compared exactly, then by letters and digits only, then without a namespace: `Find-Files`,
        `functions.find_files` and `findFiles()` all resolve to `find_files`.
        """
        name = written[:_LIMIT].strip(_QUOTES).removesuffix("()")
        if name in self.tools:
            return self.tools[name]
        for form in (name, name.replace(":", ".").replace("/", ".").rpartition(".")[2]):
            meant = self._folded.get(fold(form), ())
            if len(meant) == 1:
                return self.tools[meant[0]]
        return None

    def nearest(self, written: str) -> str | None:
        """Return the most similar tool name; None for an empty pool."""
        similar = difflib.get_close_matches(fold(written[:_LIMIT]), self._folded, n=1, cutoff=0.0)
        return self._folded[similar[0]][0] if similar else None

    def unknown(self, written: str) -> str:
        """Return the error for an unknown name, for the model."""
        nearest = self.nearest(written)
        suggestion = f" The nearest is {nearest!r}." if nearest else ""
        tools = f"The tools are {', '.join(self.tools)}." if self.tools else "There are no tools."
        return f"unknown tool {written[:80]!r}.{suggestion} {tools}"


def fold(name: str) -> str:
    """Return a name without case, spaces, dashes and underscores."""
    return "".join(char for char in name.casefold() if char.isalnum())
