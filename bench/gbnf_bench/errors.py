"""Errors of the files that the bench reads."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gbnf.errors import clip
from gbnf_server.system.errors import InputError

KeyPath = tuple[str | int, ...]
"""Keys and indices from the root of a file to a value."""


class SuiteFieldError(ValueError):  # a part of InvalidSuiteError, which is the error
    """One fault. Fields: `at`, `value` (None if there is none), `problem`, `hint`."""

    def __init__(self, key_path: KeyPath, value: Any, problem: str, hint: str) -> None:
        self.key_path, self.value, self.problem, self.hint = key_path, value, problem, hint
        super().__init__(problem)

    @property
    def key(self) -> str:
        """The dotted path, such as `cases[3].steps`."""
        return dotted(self.key_path) or "the file"

    def __str__(self) -> str:
        shown = "" if self.value is None else f" (got {clip(repr(self.value), 80)})"
        return f"{self.key}: {self.problem}{shown}. {self.hint}".rstrip()

    def prefixed(self, *outer: str | int) -> SuiteFieldError:
        """Return the same fault with a prefix to its location."""
        return SuiteFieldError((*outer, *self.key_path), self.value, self.problem, self.hint)


class InvalidSuiteError(InputError):
    """All faults of one suite, in the file's order. Field: `errors`."""

    def __init__(self, path: str, faults: Sequence[SuiteFieldError]) -> None:
        self.errors = tuple(faults)
        count = f"{len(faults)} fault" + ("s" if len(faults) != 1 else "")
        super().__init__("\n".join([f"{count} in a suite:", *(f"  {path}: {fault}" for fault in faults)]))


class ResultsFileError(InputError):
    """Unreadable stored runs or leaderboard files; the message names file, location and hint."""


def dotted(key_path: KeyPath) -> str:
    """`("cases", 3, "steps")` -> `cases[3].steps`; indices start at 1."""
    text = ""
    for part in key_path:
        text += f"[{part + 1}]" if isinstance(part, int) else f".{part}" if text else part
    return text
