"""The paths of a case: normalized as in a snapshot, and checked for conflicts."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from gbnf_bench.errors import KeyPath, SuiteFieldError

_Value = TypeVar("_Value")


def inside(path: str, key_path: KeyPath) -> str:
    """`./trips/` -> `trips`. Raises SuiteFieldError if the path is not inside the workspace."""
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if path.startswith("/") or ".." in parts or not parts:
        raise SuiteFieldError(
            key_path, path, "not a path inside the workspace",
            "Write it relative to the workspace, like notes/a.txt.",
        )  # fmt: skip
    return "/".join(parts)


def all_inside(paths: Sequence[str], key_path: KeyPath) -> tuple[str, ...]:
    """Return the same for each of several paths."""
    return tuple(inside(path, (*key_path, index)) for index, path in enumerate(paths))


def keyed_inside(table: Mapping[str, _Value], key_path: KeyPath) -> dict[str, _Value]:
    """Return a table with normalized paths as keys. Raises SuiteFieldError for a path that occurs twice."""
    normalized: dict[str, _Value] = {}
    for path, value in table.items():
        plain = inside(path, (*key_path, path))
        if plain in normalized:
            raise SuiteFieldError((*key_path, path), None, f"{plain} is named twice", "Remove one of them.")
        normalized[plain] = value
    return normalized


def check_before(files: Collection[str], folders: Sequence[str], key_path: KeyPath) -> None:
    """Raise SuiteFieldError if a path is both a file and a folder."""
    for path in files:
        for other in (*files, *folders):
            if other.startswith(f"{path}/") or path in folders:
                raise SuiteFieldError(
                    (*key_path, "files", path), None, f"this is a file, and {other} needs a folder there",
                    "Change one of the paths.",
                )  # fmt: skip


def check_after(
    files: Collection[str], folders: Sequence[str], gone: Sequence[str], key_path: KeyPath
) -> None:
    """Raise SuiteFieldError if a path is expected both to exist and to be gone."""
    there = [path for path in files if "*" not in path]
    for index, path in enumerate(gone):
        for other in (*there, *folders):
            if f"{other}/".startswith(f"{path}/"):
                raise SuiteFieldError(
                    (*key_path, "gone", index), path, f"{other} is expected to exist, so this cannot be gone",
                    "Remove one of them.",
                )  # fmt: skip
