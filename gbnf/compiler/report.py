"""What a grammar's author should know: keywords that it does not enforce, and places that it leaves free."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

Kind = Literal["unenforced", "free_form", "declared_order"]


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One remark on one place of a schema.

    `kind` is "unenforced" where the grammar accepts values that `keyword` forbids; "free_form" where the
    schema itself gives the grammar nothing to hold; "declared_order" where any order of the properties was
    asked for, and only some are accepted, the declared one among them. `pointer` is a JSON pointer into the
    schema, for a pool into the arguments of `tool`. `validator` says whether validation after decoding
    catches it.
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
    """The findings of one compilation, one for each place and keyword: the first that is told of it."""

    def __init__(self, tool: str = "") -> None:
        self._tool = tool
        self._findings: dict[tuple[str, str], Finding] = {}

    def __iter__(self) -> Iterator[Finding]:
        return iter(self._findings.values())

    def unenforced(self, pointer: str, keyword: str, reason: str) -> None:
        self.add_finding(pointer, keyword, "unenforced", reason)

    def free_form(self, pointer: str, keyword: str, reason: str) -> None:
        self.add_finding(pointer, keyword, "free_form", reason)

    def add_finding(self, pointer: str, keyword: str, kind: Kind, reason: str) -> None:
        if (pointer, keyword) not in self._findings:
            self._findings[pointer, keyword] = Finding(self._tool, pointer, keyword, kind, reason)
