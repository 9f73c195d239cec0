"""What a grammar does not constrain: unenforced keywords, and subschemas that allow anything."""

from __future__ import annotations

from collections.abc import Iterator

from gbnf.findings import Finding, Kind


class Report:
    """The findings of one compilation: for each JSON Pointer and keyword the first one."""

    def __init__(self, tool: str = "") -> None:
        self._tool = tool
        self._findings: dict[tuple[str, str], Finding] = {}

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._findings.values())

    def unenforced(self, pointer: str, keyword: str, reason: str) -> None:
        """Add a finding of a keyword that is not enforced."""
        self.add_finding(pointer, keyword, "unenforced", reason)

    def free_form(self, pointer: str, keyword: str, reason: str) -> None:
        """Add a finding of a schema that allows anything."""
        self.add_finding(pointer, keyword, "free_form", reason)

    def add_finding(self, pointer: str, keyword: str, kind: Kind, reason: str) -> None:
        """Add a finding, unless there is one for this pointer and keyword."""
        if (pointer, keyword) not in self._findings:
            self._findings[pointer, keyword] = Finding(self._tool, pointer, keyword, kind, reason)
