"""Files by glob pattern, in a folder and all below it.

A pattern without ``/`` is compared with names, at any depth; one with ``/`` with the path below the start
folder, where ``**`` stands for any number of folders. ``*``, ``?`` and ``[abc]`` stay within one name, and
``{a,b}`` is either. Upper and lower case are the same, and so are the two Unicode spellings of an accented
letter. A pattern that ends with ``/`` looks for folders. As in a shell, names that start with a dot are found
only by a pattern that writes the dot; the runtime's own folder never is. Links to folders are not followed;
a link to a file inside the workspace counts as a file.
"""

from __future__ import annotations

import os
import re
import unicodedata
from fnmatch import translate
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gbnf_server.executors import ExecutorError
from gbnf_server.executors.workspace import STATE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gbnf_server.executors import Context, Workspace

LIMIT = 5000
_MOST_ALTERNATIVES = 100


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    workspace = context.workspace
    base = workspace.resolve(arguments["base_path"])
    if not base.is_dir():
        raise ExecutorError(f"there is no folder '{arguments['base_path']}'; \".\" is the workspace")
    given = [*([arguments["pattern"]] if "pattern" in arguments else []), *arguments.get("patterns", [])]
    patterns = [compiled for text in given for compiled in _compile(text)]
    entries = sorted(
        path
        for path in _walk(workspace, base)
        if any(_fits(path, each, base, workspace) for each in patterns)
    )
    result: dict[str, Any] = {"entries": entries[:LIMIT], "count": len(entries)}
    if len(entries) > LIMIT:
        result["left_out"] = f"only the first {LIMIT} are listed; search a folder inside, or for less"
    return result


def _walk(workspace: Workspace, base: Path) -> Iterator[str]:
    """Paths below `base`, relative to the workspace, where they are text; folders end with ``/``."""
    for folder, folders, files in os.walk(base):
        if STATE in folders:  # of a workspace inside this one too
            folders.remove(STATE)
        inside = workspace.relative(folder)
        prefix = "" if inside == "." else f"{inside}/"
        for name in folders:
            if not Path(folder, name).is_symlink() and _is_text(name):
                yield f"{prefix}{name}/"
        for name in files:
            if _is_text(name) and _is_file(workspace, f"{prefix}{name}"):
                yield f"{prefix}{name}"


def _is_text(name: str) -> bool:
    return not any("\ud800" <= character <= "\udfff" for character in name)


def _is_file(workspace: Workspace, path: str) -> bool:
    try:
        return workspace.resolve(path).is_file()
    except ExecutorError:
        return False


def _compile(pattern: str) -> Iterator[tuple[str, ...]]:
    """The parts of a pattern between ``/``, once for each way to read its braces."""
    if pattern.startswith("/") or ".." in pattern.split("/"):
        raise ExecutorError(f"pattern '{pattern}' is refused: it is compared with paths below 'base_path'")
    for text in _alternatives(unicodedata.normalize("NFC", pattern).removeprefix("./")):
        parts = tuple(part for part in text.split("/") if part)
        if parts:
            anywhere = () if "/" in text.rstrip("/") else ("**",)
            yield (*anywhere, *parts, *(("",) if text.endswith("/") else ()))


def _alternatives(text: str) -> list[str]:
    """``a{b,c}d`` -> ``abd``, ``acd``"""
    done: list[str] = []
    waiting = [text]
    while waiting:
        if len(done) + len(waiting) > _MOST_ALTERNATIVES:
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


def _fits(path: str, pattern: tuple[str, ...], base: Path, workspace: Workspace) -> bool:
    start = workspace.relative(base)
    below = path if start == "." else path[len(start) + 1 :]
    return _match(pattern, tuple(unicodedata.normalize("NFC", below).split("/")))


def _match(pattern: Sequence[str], parts: Sequence[str]) -> bool:
    """Whether the parts of a path fit; a folder's last part is empty, and so is its pattern's."""
    if not pattern:
        return not parts
    if pattern[0] == "**":
        hidden = bool(parts) and (parts[0].startswith(".") or parts[0] == "")
        return _match(pattern[1:], parts) or (bool(parts) and not hidden and _match(pattern, parts[1:]))
    if not parts or (pattern[0] == "") != (parts[0] == ""):
        return False
    if parts[0].startswith(".") and not pattern[0].startswith("."):
        return False
    return re.match(translate(pattern[0]), parts[0], re.IGNORECASE) is not None and _match(
        pattern[1:], parts[1:]
    )
