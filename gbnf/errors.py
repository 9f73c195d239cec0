"""The errors of the project, as one tree.

    GbnfError
    ├── ManifestError              one manifest: file, key, value, problem, hint
    ├── BrokenManifestsError       all broken manifests of one load
    ├── SchemaError                a JSON Schema that is malformed, or that no value satisfies
    ├── PoolError                  a pool that is empty, or in which two tools share a name
    ├── GrammarError               rules that are no grammar (also a ValueError)
    │   ├── GrammarSyntaxError     GBNF text that llama.cpp would refuse: line, column, problem, hint
    │   └── AmbiguousGrammarError  a grammar with too many derivations of one text
    ├── ToolFormatError            a chat template without a tool-call format that can be derived: reason
    └── InvalidArgumentError       an argument that is out of range or unknown (also a ValueError)

Errors that one module raises for another one, such as `gbnf.work_limits.TooManyStatesError`, and those of the
server (`gbnf_server.system.errors`) derive from `GbnfError` too: one ``except`` catches all.
Errors have fields, and their message shows the value and a hint.
"""

from __future__ import annotations

import copyreg
import difflib
from collections.abc import Iterable
from pathlib import Path
from typing import Any


class GbnfError(Exception):
    """The base class of every error that this project raises on purpose. Errors can be pickled."""

    def __reduce__(self) -> tuple[Any, ...]:  # without the constructor, which composes the message
        return copyreg.__newobj__, (type(self), *self.args), self.__dict__  # type: ignore[attr-defined]  # not in typeshed


class ManifestError(GbnfError):
    """A broken manifest.

    Fields: `path` (the file), `key` (the dotted path inside it, "" for the whole file), `value` (the value of
    the key, None if there is none), `problem` and `hint` (one sentence each).
    """

    def __init__(self, path: Path, key: str, value: Any, problem: str, hint: str) -> None:
        self.path, self.key, self.value, self.problem, self.hint = path, key, value, problem, hint
        location = f"{path}: {key}" if key else f"{path}"
        shown = "" if value is None else f" (got {clip(repr(value))})"
        super().__init__(f"{location}: {problem}{shown}. {hint}")


class BrokenManifestsError(GbnfError):
    """All broken manifests of one load. `errors` has them in the order of the files."""

    def __init__(self, errors: tuple[ManifestError, ...]) -> None:
        self.errors = errors
        count = f"{len(errors)} broken manifest" + ("s" if len(errors) != 1 else "")
        super().__init__("\n".join([f"{count}:", *(f"  {error}" for error in errors)]))


class SchemaError(GbnfError):
    """A schema that is malformed, or that no JSON value satisfies.

    Fields: `pointer` (the JSON Pointer of the subschema, "" for the root), `problem`, `hint`.
    """

    def __init__(self, pointer: str, problem: str, hint: str = "") -> None:
        self.pointer, self.problem, self.hint = pointer, problem, hint
        super().__init__(f"schema at '{pointer or '/'}': {problem}." + (f" {hint}" if hint else ""))


def is_rust_panic(error: BaseException) -> bool:
    """Return whether `error` is a panic of a library written in Rust.

    PyO3's `PanicException` cannot be imported, and does not derive from `Exception`. The tables of
    `referencing` panic if Python's stack overflows while they compare keys.
    """
    return type(error).__name__ == "PanicException" and type(error).__module__ == "pyo3_runtime"


class PoolError(GbnfError):
    """A pool that has no grammar: it is empty, or two of its tools have the same name."""


class InvalidArgumentError(GbnfError, ValueError):
    """An argument of a function that is out of range, or an unknown name."""


class GrammarError(GbnfError, ValueError):
    """Rules that are no grammar: undefined, left-recursive, without GBNF text or finite derivations."""


def line_and_column(text: str, position: int) -> tuple[int, int]:
    """Return the line and the column, from 1, of a position in a text."""
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


class GrammarSyntaxError(GrammarError):
    """GBNF text that llama.cpp would refuse, hang on or silently loosen.

    `line` and `column` count from 1. `code` is a rule of `gbnf lint`, `span` the positions of the text.
    """

    def __init__(
        self,
        line: int,
        column: int,
        problem: str,
        hint: str = "",
        code: str = "",
        span: tuple[int, int] = (0, 0),
    ) -> None:
        self.line, self.column, self.problem, self.hint = line, column, problem, hint
        self.code, self.span = code, span
        super().__init__(f"line {line}, column {column}: {problem}." + (f" {hint}" if hint else ""))


class AmbiguousGrammarError(GrammarError):
    """A grammar with too many derivations of the same text. Field: `limit`."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        super().__init__(
            f"the grammar has more than {limit:,} derivations of the same text, or of how it begins. "
            f"Let alternatives begin differently, and give no text two derivations, not even the empty one."
        )


class ToolFormatError(GbnfError):
    """A chat template that fails, or whose tool-call format cannot be derived. Field: `reason`."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        super().__init__(f"{reason}.")


def clip(text: str, limit: int = 120) -> str:
    """Return at most `limit` characters of a text: the whole, or its beginning and an ellipsis."""
    return text if len(text) <= limit else text[: limit - 1] + "…"


def suggestion(name: str, names: Iterable[str]) -> str:
    """Return ` Did you mean …?` if a name is similar, whatever its case, otherwise ""."""
    folded = {other.casefold(): other for other in names}
    similar = difflib.get_close_matches(name[:200].casefold(), folded, n=2, cutoff=0.6)
    return f" Did you mean {' or '.join(repr(folded[other]) for other in similar)}?" if similar else ""
