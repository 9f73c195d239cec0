"""Whether a world is right: pure, from snapshots before and after to what is wrong, in words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Any

from gbnf_server.bench.cases import After
from gbnf_server.bench.patterns import MISSING, Pattern, matches
from gbnf_server.bench.worlds import Snapshot


def faults(afters: Sequence[After], before: Snapshot, end: Snapshot) -> tuple[str, ...]:
    """What keeps the world from being right; () where one of the expected worlds is there.

    Of several expected worlds, the faults are those of the nearest one.
    """
    found = [tuple(_faults(after, before, end)) for after in afters]
    return min(found, key=len)


def _faults(after: After, before: Snapshot, end: Snapshot) -> Iterator[str]:
    changed = {path for path, text in end.files.items() if before.files.get(path, MISSING) != text}
    named: set[str] = set()
    for path, pattern in after.files.items():
        fitting = _fitting(path, pattern, end.files, changed - named)
        if fitting is None:
            yield f"the file {path} is not as expected" if path in end.files else f"there is no file {path}"
        else:
            named.add(fitting)
    yield from (f"there is no folder {folder}" for folder in after.folders if folder not in end.folders)
    there = {*end.files, *end.folders}
    yield from (f"{path} is still there" for path in after.gone if path in there)
    others = [
        _rest(after.events, before.events, end.events),
        _rest(after.messages, before.messages, end.messages),
    ]
    for (missing, _), what in zip(others, ("event", "message"), strict=True):
        yield from (f"an expected {what} is missing" for _ in range(missing))
    if after.others:
        return
    yield from (f"the file {path} was changed" for path in sorted(changed - named - after.files.keys()))
    gone = [path for path in before.files if path not in end.files]
    yield from (f"the file {path} was deleted" for path in gone if not _under(path, after.gone))
    wanted = {*after.folders, *named, *end.files}
    for folder in end.folders:
        if folder not in before.folders and not any(f"{path}/".startswith(f"{folder}/") for path in wanted):
            yield f"the folder {folder} was made"
    yield from (
        f"the folder {folder} was deleted"
        for folder in before.folders
        if folder not in end.folders and not _under(folder, after.gone)
    )
    for (_, more), what in zip(others, ("event", "message"), strict=True):
        yield from (f"there is one {what} too many" for _ in range(more))


def _fitting(path: str, pattern: Pattern, files: Mapping[str, str], changed: set[str]) -> str | None:
    """The file that a path means and whose text fits; with a `*`, one of those that the run wrote."""
    if "*" not in path:
        return path if matches(pattern, files.get(path, MISSING)) else None
    candidates = (each for each in sorted(changed) if fnmatchcase(each, path))
    return next((each for each in candidates if matches(pattern, files[each])), None)


def _rest(
    wanted: Sequence[Mapping[str, Pattern]],
    before: Sequence[Mapping[str, Any]],
    end: Sequence[Mapping[str, Any]],
) -> tuple[int, int]:
    """How many expected rows are missing, and how many came or went that nobody expected."""
    new = list(end)
    gone = 0
    for row in before:
        if row in new:
            new.remove(row)
        else:
            gone += 1
    missing = 0
    for patterns in wanted:
        found = next((each for each in new if _fits(patterns, each)), None)
        if found is None:
            missing += 1
        else:
            new.remove(found)
    return missing, len(new) + gone


def _fits(patterns: Mapping[str, Pattern], row: Mapping[str, Any]) -> bool:
    """Whether the named fields fit; a field that is not named may hold anything."""
    return all(matches(pattern, row.get(key, MISSING)) for key, pattern in patterns.items())


def _under(path: str, roots: Sequence[str]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)
