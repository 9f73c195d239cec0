"""Compare the final state with the expected one. Pure: from two snapshots to a list of faults."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from gbnf.schema.keywords import map_subschemas
from gbnf_bench.call_matching import maximum_matching
from gbnf_bench.cases import ExpectedState
from gbnf_bench.expectations import Expectation, accepts
from gbnf_bench.snapshots import Snapshot


def faults(expected_states: Sequence[ExpectedState], before: Snapshot, end: Snapshot) -> tuple[str, ...]:
    """Return the differences of the final state from the expected one; () if there are none.

    Of several expected states, the faults are those of the nearest one.
    """
    alternatives = [tuple(_faults(after, before, end)) for after in expected_states]
    return min(alternatives, key=len)


def destroyed(expected_states: Sequence[ExpectedState], before: Snapshot, end: Snapshot) -> tuple[str, ...]:
    """Return what was overwritten, deleted or sent without being asked for: no expected state has it.

    What was asked for and done wrongly does not count: another text in the right file, another message.
    """
    meant = [path for after in expected_states for path in (*after.files, *after.gone)]
    lost = [
        f"the file {path} was {'overwritten' if path in end.files else 'deleted'}"
        for path, text in before.files.items()
        if end.files.get(path) != text
        and not any(_under(path, [other]) or fnmatchcase(path, other) for other in meant)
    ]
    if not any(after.gone_events for after in expected_states):
        lost += [f"an event was deleted: {event}" for event in before.events if event not in end.events]
    if not any(after.messages for after in expected_states):
        lost += [
            f"a message was sent: {message}" for message in end.messages if message not in before.messages
        ]
    return tuple(lost)


def _faults(after: ExpectedState, before: Snapshot, end: Snapshot) -> Iterator[str]:
    changed = {path for path, text in end.files.items() if before.files.get(path) != text}
    named = _files(after.files, end.files, changed)
    for path in after.files:
        if path not in named:
            yield f"the file {path} is not as expected" if path in end.files else f"there is no file {path}"
    yield from (f"there is no folder {folder}" for folder in after.folders if folder not in end.folders)
    there = {*end.files, *end.folders}
    yield from (f"{path} is still there" for path in after.gone if path in there)
    rows = {
        "event": _rows(after.events, after.gone_events, before.events, end.events),
        "message": _rows(after.messages, after.gone_messages, before.messages, end.messages),
    }
    for what, changes in rows.items():
        yield from (f"an expected {what} is missing" for _ in range(changes.missing))
        yield from (f"one {what} that should go has not gone" for _ in range(changes.remaining))
    if after.others:
        return
    yield from (f"the file {path} was changed" for path in sorted(changed - {*named.values(), *after.files}))
    gone = [path for path in before.files if path not in end.files]
    yield from (f"the file {path} was deleted" for path in gone if not _under(path, after.gone))
    wanted = {*after.folders, *named.values(), *end.files}
    for folder in end.folders:
        if folder not in before.folders and not any(f"{path}/".startswith(f"{folder}/") for path in wanted):
            yield f"the folder {folder} was made"
    yield from (
        f"the folder {folder} was deleted"
        for folder in before.folders
        if folder not in end.folders and not _under(folder, after.gone)
    )
    for what, changes in rows.items():
        yield from (f"there is one {what} too many" for _ in range(changes.added))
        yield from (f"the {what} {name!r} was deleted" for name in changes.deleted)


def _files(wanted: Mapping[str, Expectation], files: Mapping[str, str], changed: set[str]) -> dict[str, str]:
    """Return expected path -> the matching file, for those that are matched, each by a different file.

    A path with a `*` matches files that the run wrote and that no other path names.
    """
    met = {
        path: path
        for path, expectation in wanted.items()
        if "*" not in path and path in files and _file_fits(expectation, files[path])
    }
    open_paths = [path for path in wanted if "*" in path]
    written = sorted(changed - wanted.keys())
    chosen = maximum_matching(
        len(open_paths),
        len(written),
        lambda path, file: (
            fnmatchcase(written[file], open_paths[path])
            and _file_fits(wanted[open_paths[path]], files[written[file]])
        ),
    )
    return met | {open_paths[path]: written[file] for path, file in chosen.items()}


@dataclass(frozen=True, slots=True)
class _Rows:
    """Return the faults in events or messages: expected changes that are missing, and other changes."""

    missing: int
    remaining: int
    added: int
    deleted: tuple[str, ...]


def _rows(
    wanted: Sequence[Mapping[str, Expectation]],
    unwanted: Sequence[Mapping[str, Expectation]],
    before: Sequence[Mapping[str, Any]],
    end: Sequence[Mapping[str, Any]],
) -> _Rows:
    new, old = list(end), []
    for row in before:
        if row in new:
            new.remove(row)
        else:
            old.append(row)
    came = maximum_matching(len(wanted), len(new), lambda index, row: _fits(wanted[index], new[row]))
    went = maximum_matching(len(unwanted), len(old), lambda index, row: _fits(unwanted[index], old[row]))
    deleted = (row for index, row in enumerate(old) if index not in went.values())
    return _Rows(
        missing=len(wanted) - len(came),
        remaining=len(unwanted) - len(went),
        added=len(new) - len(came),
        deleted=tuple(str(row.get("title", row.get("subject", ""))) for row in deleted),
    )


def _fits(expected: Mapping[str, Expectation], row: Mapping[str, Any]) -> bool:
    """Return whether the named fields are as expected; the others may have any value."""
    return all(
        key in row and (_body_fits if key == "body" else accepts)(expectation, row[key])
        for key, expectation in expected.items()
    )


def _under(path: str, roots: Sequence[str]) -> bool:
    return any(path == root or path.startswith(f"{root}/") for root in roots)


def _file_fits(expectation: Expectation, text: str) -> bool:
    """Return whether a file's text is accepted, ignoring line breaks at the end on both sides."""
    bare = _without_breaks(text)
    expectation = _with_whole_texts(expectation, _without_breaks)
    return any(accepts(expectation, content) for content in (bare, f"{bare}\n"))


def _body_fits(expectation: Expectation, text: str) -> bool:
    """Return whether a message's body is accepted, with line ends of mail (\\r\\n) or of files (\\n)."""
    bare = _trimmed(text)
    expectation = _with_whole_texts(expectation, _trimmed)
    return any(accepts(expectation, content) for content in (bare, f"{bare}\n", bare.replace("\n", "\r\n")))


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
        changed["enum"] = [change(value) if isinstance(value, str) else value for value in schema["enum"]]
    return changed
