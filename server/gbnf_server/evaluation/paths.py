"""Paths of a case's world: as a snapshot writes them, and such that all of them can be."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import TypeVar

from gbnf_server.evaluation.errors import Fault, KeyPath

_Value = TypeVar("_Value")


def inside(path: str, at: KeyPath) -> str:
    """`./trips/` -> `trips`. Raises Fault if the path is none below the workspace."""
    parts = [part for part in path.split("/") if part not in {"", "."}]
    if path.startswith("/") or ".." in parts or not parts:
        raise Fault(
            at, path, "not a path inside the workspace",
            "Write it from the workspace on, like notes/a.txt.",
        )  # fmt: skip
    return "/".join(parts)


def all_inside(paths: Sequence[str], at: KeyPath) -> tuple[str, ...]:
    """Return the same for each of several paths."""
    return tuple(inside(path, (*at, index)) for index, path in enumerate(paths))


def keyed_inside(table: Mapping[str, _Value], at: KeyPath) -> dict[str, _Value]:
    """Return the same for a table's keys, each of which means a file of its own."""
    found: dict[str, _Value] = {}
    for path, value in table.items():
        plain = inside(path, (*at, path))
        if plain in found:
            raise Fault((*at, path), None, f"{plain} is named twice", "Take one of them out.")
        found[plain] = value
    return found


def check_before(files: Collection[str], folders: Sequence[str], at: KeyPath) -> None:
    """Raise Fault if something would have to lie in a file, or a file be a folder."""
    for path in files:
        for other in (*files, *folders):
            if other.startswith(f"{path}/") or path in folders:
                raise Fault(
                    (*at, "files", path), None, f"this is a file, and {other} needs a folder there",
                    "Give one of them another path.",
                )  # fmt: skip


def check_after(files: Collection[str], folders: Sequence[str], gone: Sequence[str], at: KeyPath) -> None:
    """Raise Fault if what is to be gone is to be there."""
    there = [path for path in files if "*" not in path]
    for index, path in enumerate(gone):
        for other in (*there, *folders):
            if f"{other}/".startswith(f"{path}/"):
                raise Fault(
                    (*at, "gone", index), path, f"{other} is to be there, so that this cannot be gone",
                    "Take one of them out.",
                )  # fmt: skip
