"""What a grammar does not constrain: unenforced keywords, and subschemas that allow anything."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from gbnf.findings import Finding, Kind

_APART = frozenset({"inexpressible", "disputed"})


class Report:
    """The findings of one compilation: for each JSON Pointer and keyword the first one.

    Values that a format cannot write, or that others refuse, are apart: one more for each.
    """

    def __init__(self, tool: str = "") -> None:
        self._tool = tool
        self._findings: dict[tuple[str, str, str], Finding] = {}

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._findings.values())

    def excludes_delimiters(self) -> None:
        """Add a finding for the whole tool, once, that its format's delimiters are excluded from texts."""
        reason = "the format cannot write some strings and keys, such as those that contain its delimiters"
        self.add("inexpressible", "", "type", reason)

    def unwritten(self, values: Sequence[Any], pointer: str) -> None:
        """Add a finding of listed values that a tool-call format cannot write, if there are any."""
        if values:
            count = "the value" if len(values) == 1 else f"{len(values)} of the values, such as"
            self.add("inexpressible", pointer, "type", f"the format cannot write {count} {values[0]!r}")

    def add(self, kind: Kind, pointer: str, keyword: str, reason: str) -> None:
        """Add a finding, unless there is one for this pointer and keyword."""
        key = (pointer, keyword, kind if kind in _APART else "")
        if key not in self._findings:
            self._findings[key] = Finding(self._tool, pointer, keyword, kind, reason)
