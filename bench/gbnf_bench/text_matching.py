"""Compare multi-line texts with expectations, ignoring invisible differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gbnf.schema.keywords import map_subschemas
from gbnf_bench.expectations import Expectation, accepts


def file_fits(expectation: Expectation, text: str) -> bool:
    """Return whether a file's text is accepted, ignoring line breaks at the end on both sides."""
    bare = _without_breaks(text)
    expectation = _with_whole_texts(expectation, _without_breaks)
    return any(accepts(expectation, each) for each in (bare, f"{bare}\n"))


def body_fits(expectation: Expectation, text: str) -> bool:
    """Return whether a message's body is accepted, with line ends of mail (\\r\\n) or of files (\\n)."""
    bare = _trimmed(text)
    expectation = _with_whole_texts(expectation, _trimmed)
    return any(accepts(expectation, each) for each in (bare, f"{bare}\n", bare.replace("\n", "\r\n")))


def _without_breaks(text: str) -> str:
    return text.rstrip("\r\n")


def _trimmed(text: str) -> str:
    return text.replace("\r\n", "\n").strip()


def _with_whole_texts(schema: Any, change: Callable[[str], str]) -> Any:
    """Return the schema with `const` and `enum` texts normalized. Patterns are not changed."""
    if not isinstance(schema, dict):
        return schema
    changed = map_subschemas(schema, lambda _, part: _with_whole_texts(part, change))
    if isinstance(schema.get("const"), str):
        changed["const"] = change(schema["const"])
    if "enum" in schema:
        changed["enum"] = [change(each) if isinstance(each, str) else each for each in schema["enum"]]
    return changed
