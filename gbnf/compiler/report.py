"""What a grammar's author should know: keywords that it does not enforce, and places that it leaves free."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True, order=True)
class Finding:
    """One remark on one place of a schema.

    `kind` is "unenforced" where the grammar accepts values that `keyword` forbids, and "free_form" where
    the schema itself gives the grammar nothing to hold. `pointer` is a JSON pointer into the schema, for a
    pool into the arguments of `tool`. `validator` says whether validation after decoding catches it.
    """

    tool: str
    pointer: str
    keyword: str
    kind: Literal["unenforced", "free_form"]
    reason: str
    validator: bool = True

    def __str__(self) -> str:
        place = f"{self.tool}: {self.pointer or '/'}" if self.tool else self.pointer or "/"
        caught = (
            ""
            if self.kind == "free_form"
            else " (the validator checks it)"
            if self.validator
            else " (nothing checks it)"
        )
        return f"{place}: {self.keyword}: {self.reason}{caught}"
