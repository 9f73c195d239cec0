"""What a grammar does not constrain: unenforced keywords, and subschemas that allow anything."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["unenforced", "free_form", "declared_order"]


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A remark on one keyword of a schema.

    `kind` is "unenforced" if the grammar accepts values that `keyword` forbids; "free_form" if the schema
    itself allows anything; "declared_order" if any order of the properties was wanted, but only some orders
    are accepted, the declared one among them. `pointer` is a JSON Pointer into the schema, for a pool into
    the arguments of `tool`. `validator` says whether validation after decoding catches it.
    """

    tool: str
    pointer: str
    keyword: str
    kind: Kind
    reason: str
    validator: bool = True

    def __str__(self) -> str:
        pointer = f"{self.tool}: {self.pointer or '/'}" if self.tool else self.pointer or "/"
        text = f"{pointer}: {self.keyword}: {self.reason}"
        if self.kind != "unenforced":
            return text
        return f"{text} ({'the validator' if self.validator else 'nothing'} checks it)"


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
