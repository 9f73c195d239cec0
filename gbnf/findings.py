"""Remarks on a tool or a schema that is usable as it is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "unenforced", "free_form", "inexpressible", "disputed",
    "unknown_key", "undeclared", "loosened", "left_out", "not_executable", "unreachable",
]  # fmt: skip
_OF_GRAMMARS = frozenset({"unenforced", "free_form", "inexpressible", "disputed"})


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """A remark on one keyword of a schema, or on one key of a manifest.

    Of a compilation, `kind` is "unenforced" if the grammar accepts values that `keyword` forbids; "free_form"
    if the schema itself allows anything; "inexpressible" if a tool-call format cannot write some of the
    values that the schema allows; "disputed" if the grammar follows the standard, and validators that compute
    in floats refuse some of its values; "left_out" if the tool cannot be compiled, so that the grammar has no
    calls of it.

    Of a tool that was loaded (`Tool.findings`), it is "unknown_key" if a key is not known, but similar to one
    that is, or has no effect here; "undeclared" for a name that no property has, or a reference to no
    definition of the root; "loosened" if `keyword` was removed, because it is malformed; "not_executable" if
    no code executes it.

    Of a tool in a pool, it is "unreachable" if no run can call it in the order that `[offer] after` demands.

    `pointer` is a JSON Pointer into the schema, for a tool into its arguments, or to the table of a manifest
    beside them, such as "/run". `validator` says whether validation after decoding checks what is unenforced.
    """

    tool: str
    pointer: str
    keyword: str
    kind: Kind
    reason: str
    validator: bool = True

    @property
    def is_mistake(self) -> bool:
        """Whether it is something to correct, which `strict` makes an error, and no limit of a grammar."""
        return self.kind not in _OF_GRAMMARS

    @property
    def loosens(self) -> bool:
        """Whether the grammar accepts what the schema forbids, so that it is not exact.

        A tool that is left out does not: the grammar has no calls of it.
        """
        return self.kind in ("unenforced", "loosened")

    @property
    def location(self) -> str:
        """The tool, if there is one, and the pointer."""
        pointer = self.pointer or "/"
        return f"{self.tool}: {pointer}" if self.tool else pointer

    def __str__(self) -> str:
        text = f"{self.location}: {self.keyword}: {self.reason}"
        if self.kind != "unenforced":
            return text
        return f"{text} ({'the validator' if self.validator else 'nothing'} checks it)"
