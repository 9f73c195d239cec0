"""Search for files by glob pattern, in a folder and its subfolders.

A pattern without ``/`` matches names, at any depth; one with ``/`` matches the path below the start folder,
where ``**`` matches any number of folders. ``*``, ``?`` and ``[abc]`` match within one name, and ``{a,b}``
matches either. Case is ignored, and so is the Unicode normalization form. A pattern that ends with ``/``
matches folders. As in a shell, names that start with a dot match only patterns with that dot; the runtime's
own folder is never found. Links to folders are not followed; a link to a file inside the workspace counts as
a file.

Patterns with a ``*`` in each may be in one text, with ``|``, ``;`` or ``,`` between them, if nothing has that
text for a name.

A name without wildcards and suffix that nothing has stands for the files with that suffix, or else for those
whose names contain it; `pattern` in the result says which.

A folder that cannot be read, such as one whose path is too long for the system, is skipped and reported, and
so are entries after the first `MAX_ENTRIES`. A name that is not valid Unicode is skipped: no model can repeat
it.
"""

from __future__ import annotations

import os
import re
import unicodedata
from fnmatch import translate
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gbnf_server.executors import STATE_FOLDER, ExecutorError, is_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gbnf_server.executors import Context, Workspace

LIMIT = 5000
"""Maximum number of paths in a result."""

MAX_ENTRIES = 200_000
"""Maximum number of files and folders that a search examines."""

_MAX_ALTERNATIVES = 100
_SHOWN, _LONG, _EXAMINED = 5, 200, 1000


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    """Return the paths that match the patterns."""
    workspace = context.workspace
    base = workspace.resolve(arguments["base_path"])
    if not base.is_dir():
        raise ExecutorError(_missing(base, arguments["base_path"], workspace))
    given = [*([arguments["pattern"]] if "pattern" in arguments else []), *arguments.get("patterns", [])]
    result: dict[str, Any] = {}
    search = _GlobSearch(workspace, [compiled for text in given for compiled in _compile(text)])
    entries = sorted(search.walk(base))
    if not entries and (separate := [part for text in given for part in _separate(text)]) != given:
        search = _GlobSearch(workspace, [compiled for text in separate for compiled in _compile(text)])
        entries = sorted(search.walk(base))
    for pattern in _widened(given[0]) if len(given) == 1 and not entries else ():
        search = _GlobSearch(workspace, [*_compile(pattern)])
        if entries := sorted(search.walk(base)):
            result["pattern"] = pattern
            break
    result |= {"entries": entries[:LIMIT], "count": len(entries)}
    if len(entries) > LIMIT:
        result["left_out"] = f"only the first {LIMIT} are listed; search a folder inside, or for less"
    if search.problems:
        result["not_searched"] = search.problems
    return result


def _separate(text: str) -> list[str]:
    """Return the patterns in a text that lists several, as in "*.xlsx;*.ods"; models write such lists."""
    parts = [part for part in re.split(r"\s*[|;,]\s*", text) if part]
    is_list = "{" not in text and "[" not in text and all("*" in part for part in parts)
    return parts if is_list else [text]


def _widened(pattern: str) -> Iterator[str]:
    """Yield the patterns that a name without wildcards and suffix stands for, if nothing has it.

    A suffix, as in "log", and then any name with it in it. Below its folder, if it has one.
    """
    folder, _, name = pattern.rpartition("/")
    if not name or re.search(r"[*?\[\]{}]", pattern) or "." in name:
        return
    start = f"{folder}/**/" if folder else ""
    yield f"{start}*.{name}"
    yield f"{start}*{name}*"


def _missing(base: Path, name: str, workspace: Workspace) -> str:
    """Return what is wrong with a start folder, and what is in the nearest folder that exists."""
    if base.is_file():
        folder = workspace.relative(base.parent)
        return f"'{name}' is a file, and no folder to search in; read it, or search the folder '{folder}'"
    parent = next(path for path in base.parents if path.is_dir())
    try:
        with os.scandir(parent) as found:
            entries = sorted(entry.name for entry in islice(found, _EXAMINED))
    except OSError:  # it may not be read
        entries = []
    names = [entry for entry in entries if entry != STATE_FOLDER and is_text(entry)]
    folder = workspace.relative(parent)
    there = f"; '{folder}' has {', '.join(map(repr, names[:_SHOWN]))}" if names else ""
    return f"there is no folder '{name}'; \".\" is the workspace{there}"


class _GlobSearch:
    """A search. `problems`: what it could not examine, in sentences."""

    def __init__(self, workspace: Workspace, patterns: list[tuple[str, ...]]) -> None:
        self._workspace, self._patterns = workspace, patterns
        self._unreadable: list[str] = []
        self._left = MAX_ENTRIES

    @property
    def problems(self) -> list[str]:
        """Sentences about what was not searched."""
        problems = []
        if self._unreadable:
            shown = ", ".join(f"'{path}'" for path in self._unreadable[:_SHOWN])
            more = f" and {len(self._unreadable) - _SHOWN} more" if len(self._unreadable) > _SHOWN else ""
            problems.append(f"folders that cannot be read: {shown}{more}")
        if self._left < 0:
            problems.append(f"the search ended after {MAX_ENTRIES:,} files and folders: name a folder inside")
        return problems

    def walk(self, base: Path) -> Iterator[str]:
        """Yield matching paths, relative to the workspace; folders end with ``/``.

        Skips names that are not valid Unicode, and folders in which nothing can match.
        """
        start = self._workspace.relative(base)
        begun = [frozenset(_from(pattern, 0)) for pattern in self._patterns]
        waiting = [("" if start == "." else f"{start}/", begun)]
        while waiting:
            prefix, at = waiting.pop()
            folders = []
            for entry in self._listed(prefix):
                self._left -= 1
                if self._left < 0:
                    return
                # also the state folder of a workspace inside this one
                if entry.name == STATE_FOLDER or not is_text(entry.name):
                    continue
                path = prefix + entry.name if prefix else self._workspace.relative(entry.path)
                after = self._after(at, unicodedata.normalize("NFC", entry.name))
                if not any(after):
                    continue
                if entry.is_dir(follow_symlinks=False):
                    folders.append((f"{path}/", after))
                    if self._fits(self._after(after, "")):
                        yield f"{path}/"
                elif self._fits(after) and self._is_file(entry, path):
                    yield path
            waiting += reversed(folders)

    def _after(self, at: list[frozenset[int]], part: str) -> list[frozenset[int]]:
        """Return the positions in each pattern after one more part of a path."""
        return [
            _step(pattern, positions, part) for pattern, positions in zip(self._patterns, at, strict=True)
        ]

    def _fits(self, at: list[frozenset[int]]) -> bool:
        return any(len(pattern) in positions for pattern, positions in zip(self._patterns, at, strict=True))

    def _listed(self, prefix: str) -> Iterator[os.DirEntry[str]]:
        try:
            with os.scandir(self._workspace.root / prefix) as entries:
                yield from entries
        except OSError:  # no permission, deleted meanwhile, or a path too long for the system
            self._unreadable.append(prefix if len(prefix) < _LONG else f"{prefix[:_LONG]}…")

    def _is_file(self, entry: os.DirEntry[str], path: str) -> bool:
        """Return whether it is a regular file, or a link to one inside the workspace."""
        try:
            if not entry.is_symlink():
                return entry.is_file(follow_symlinks=False)
            return self._workspace.resolve(path).is_file()
        except (ExecutorError, OSError):
            return False


def _compile(pattern: str) -> Iterator[tuple[str, ...]]:
    """Yield the parts of a pattern between ``/``, for each alternative of its braces."""
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ExecutorError(f"pattern '{pattern}' is refused: it is compared with paths below 'base_path'")
    for text in _alternatives(unicodedata.normalize("NFC", pattern).removeprefix("./")):
        parts = [part for part in text.split("/") if part]
        if parts:
            anywhere = [] if "/" in text.rstrip("/") else ["**"]
            whole = [*anywhere, *parts, *([""] if text.endswith("/") else [])]
            # several ** in a row are equivalent to one
            yield tuple(
                part
                for part, after in zip(whole, [*whole[1:], ""], strict=True)
                if part != "**" or after != "**"
            )


def _alternatives(text: str) -> list[str]:
    """Return the alternatives of braces: ``abd`` and ``acd`` for ``a{b,c}d``."""
    done: list[str] = []
    waiting = [text]
    while waiting:
        if len(done) + len(waiting) > _MAX_ALTERNATIVES:
            raise ExecutorError(f"pattern '{text}' has too many alternatives in braces")
        current = waiting.pop()
        found = re.search(r"\{([^{}]*,[^{}]*)\}", current)
        if found is None:
            done.append(current)
        else:
            waiting += [
                current[: found.start()] + each + current[found.end() :] for each in found[1].split(",")
            ]
    return done


def _step(pattern: Sequence[str], positions: frozenset[int], part: str) -> frozenset[int]:
    """Return the positions in a pattern after one more part of a path.

    The last part of a folder's path is empty, and so is that of its pattern.
    """
    reached: set[int] = set()
    for position in positions:
        if position == len(pattern):
            continue
        if pattern[position] == "**":
            if part and not part.startswith("."):
                reached.update(_from(pattern, position))
        elif _is_like(part, pattern[position]):
            reached.update(_from(pattern, position + 1))
    return frozenset(reached)


def _from(pattern: Sequence[str], position: int) -> Iterator[int]:
    """Yield the position, and the next one if a ``**`` is there: it may match no folder."""
    yield position
    if position < len(pattern) and pattern[position] == "**":
        yield position + 1


def _is_like(part: str, pattern: str) -> bool:
    if not pattern or not part:
        return pattern == part
    return (pattern.startswith(".") or not part.startswith(".")) and bool(_compiled(pattern).match(part))


@lru_cache(maxsize=256)
def _compiled(pattern: str) -> re.Pattern[str]:
    return re.compile(translate(pattern), re.IGNORECASE)
