"""What is at the paths of a call, for the person who approves it."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any

from gbnf_server.executors.workspace import STATE_FOLDER, Workspace
from gbnf_server.system.errors import ExecutorError

_SHOWN, _MOST_TEXTS, _COUNTED = 10, 1000, 1000
_NAMES_PATH = re.compile(
    r"(?:\w*_)?(?:path|file|file_?name|folder|dir|directory|directories|destination|source|target)s?",
    re.IGNORECASE,
)
"""Names of arguments whose values are paths, whether anything is there or not."""


def describe_paths(arguments: Mapping[str, Any], workspace: Workspace) -> tuple[str, ...]:
    """Return a line for each path of a call's arguments in a workspace: `"a.txt": exists, 1,204 bytes`.

    A path is a text at which something is, or of an argument whose name says so. Ten at most, then how many
    others there are.
    """
    texts: dict[str, bool] = {}
    for text, is_named in islice(_texts(arguments), _MOST_TEXTS):
        texts[text] = is_named or texts.get(text, False)
    lines = [
        f"{json.dumps(text, ensure_ascii=False)}: {state or 'new'}"
        for text, is_named in texts.items()
        if (state := _state(text, workspace)) or (is_named and state is not None)
    ]
    others = [f"other paths: {len(lines) - _SHOWN:,}"] if len(lines) > _SHOWN else []
    return (*lines[:_SHOWN], *others)


def _texts(value: Any, name: str = "") -> Iterator[tuple[str, bool]]:
    """Yield the texts of a value, and whether the name of their argument says that they are paths."""
    match value:
        case str():
            yield value, _NAMES_PATH.fullmatch(name) is not None
        case Mapping():
            for key, member in value.items():
                yield from _texts(member, key)
        case list():
            for member in value:
                yield from _texts(member, name)


def _state(text: str, workspace: Workspace) -> str | None:
    """Return what is at a path, "" if nothing is, None if it is none inside the workspace."""
    try:
        path = workspace.relative(workspace.resolve(text))
        is_link = workspace.relative(workspace.locate(text)) != path
        state = _folder(path, workspace) or _file(path, workspace)
    except FileNotFoundError:
        return ""
    except (ExecutorError, OSError):
        return None
    return f"link to {json.dumps(path, ensure_ascii=False)}, {state}" if is_link else state


def _folder(path: str, workspace: Workspace) -> str:
    """Return a folder's number of entries, "" for a file. Raises OSError."""
    try:
        with workspace.open_folder(path) as folder, os.scandir(folder) as entries:
            names = (entry.name for entry in entries if entry.name != STATE_FOLDER)
            count = sum(1 for _ in islice(names, _COUNTED + 1))
    except NotADirectoryError:
        return ""
    if count > _COUNTED:
        return f"folder with more than {_COUNTED:,} entries"
    return f"folder with {count:,} {'entry' if count == 1 else 'entries'}"


def _file(path: str, workspace: Workspace) -> str:
    with workspace.open_parent(path) as (parent, name):
        size = os.stat(name, dir_fd=parent, follow_symlinks=False).st_size
    return f"exists, {size:,} {'byte' if size == 1 else 'bytes'}"
