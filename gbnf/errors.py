"""What can go wrong, as one tree.

    GbnfError
    ├── ManifestError          one file's fault: file, key, value, way out
    ├── ManifestErrors         every broken file of one loading, at once
    ├── SchemaError            a JSON Schema that is malformed, or that no value satisfies
    ├── PoolError              a pool that cannot be compiled: empty, or two tools of one name
    ├── GrammarSyntaxError     GBNF text that llama.cpp would refuse: line, column, way out
    ├── AmbiguousGrammarError  a grammar that can be followed in too many ways at once
    └── TooManyStates, PatternError (gbnf.regular.errors): a regular language that is not held

The client's own errors (`gbnf_server.errors`) hang below `GbnfError` too, so one ``except`` holds all.
Errors carry fields, and their message shows the value and the way out.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any


class GbnfError(Exception):
    """The root of every error that this project raises on purpose."""


class ManifestError(GbnfError):
    """One manifest is broken.

    Fields: `path` (the file), `key` (dotted path inside it, "" for the file as a whole), `value` (what
    stands there, None where nothing does), `problem` and `hint` (one sentence each).
    """

    def __init__(self, path: Path, key: str, value: Any, problem: str, hint: str) -> None:
        self.path, self.key, self.value, self.problem, self.hint = path, key, value, problem, hint
        location = f"{path}: {key}" if key else f"{path}"
        shown = "" if value is None else f" (got {_shorten(value)})"
        super().__init__(f"{location}: {problem}{shown}. {hint}")


class ManifestErrors(GbnfError):  # noqa: N818  # several errors, so the plural says it
    """Every broken manifest of one loading. `errors` holds them in file order."""

    def __init__(self, errors: tuple[ManifestError, ...]) -> None:
        self.errors = errors
        count = f"{len(errors)} broken manifest" + ("s" if len(errors) != 1 else "")
        super().__init__("\n".join([f"{count}:", *(f"  {error}" for error in errors)]))


class SchemaError(GbnfError):
    """A schema that is malformed, or that no JSON value satisfies.

    Fields: `pointer` (JSON pointer of the place, "" for the root), `problem`, `hint`.
    """

    def __init__(self, pointer: str, problem: str, hint: str = "") -> None:
        self.pointer, self.problem, self.hint = pointer, problem, hint
        super().__init__(f"schema at '{pointer or '/'}': {problem}." + (f" {hint}" if hint else ""))


def is_rust_panic(error: BaseException) -> bool:
    """Whether a library written in Rust gave up: PyO3's exception has no name to import, and no `Exception`.

    The tables of `referencing` do so where Python's stack ends while they compare keys.
    """
    return type(error).__name__ == "PanicException" and type(error).__module__ == "pyo3_runtime"


class PoolError(GbnfError):
    """A pool that has no grammar: it is empty, or holds two tools of one name."""


class InvalidArgumentError(GbnfError, ValueError):
    """An argument of a function that is out of range, or an unknown name."""


class GrammarSyntaxError(GbnfError):
    """GBNF text that llama.cpp would refuse, hang on or silently loosen. `line` and `column` count from 1."""

    def __init__(self, line: int, column: int, problem: str, hint: str = "") -> None:
        self.line, self.column, self.problem, self.hint = line, column, problem, hint
        super().__init__(f"line {line}, column {column}: {problem}." + (f" {hint}" if hint else ""))


class AmbiguousGrammarError(GbnfError):
    """A grammar of which one character, or the start, leads to too many derivations. Field: `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"the grammar can be followed in more than {limit:,} ways at one place of a text. "
            f"Give each rule one way to derive the empty string, and none two ways to derive the same text."
        )


def _shorten(value: Any, limit: int = 120) -> str:
    text = repr(value)
    return text if len(text) <= limit else text[: limit - 1] + "…"
