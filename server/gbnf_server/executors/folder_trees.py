"""Measure and remove folders of any depth and size.

Invariants: folders may be nested deeper than the interpreter's recursion limit, the number of open files or
the system's longest path allow; no link is followed; no kind of entry raises an exception.
"""

from __future__ import annotations

import os
import stat
from contextlib import suppress
from pathlib import Path

from gbnf_server.executors.workspace import DIRECTORY

MAX_MEASURED = 200_000
"""Maximum entries that `folder_size` counts."""


def folder_size(path: Path) -> int:
    """Return the bytes of the readable files below `path`; 0 if it does not exist."""
    total, left, pending = 0, MAX_MEASURED, [str(path)]
    while pending and left:
        with suppress(OSError), os.scandir(pending.pop()) as entries:
            for entry in entries:
                left -= 1
                if entry.is_dir(follow_symlinks=False):
                    pending.append(entry.path)
                else:
                    with suppress(OSError):
                        total += entry.stat(follow_symlinks=False).st_size
                if not left:
                    break
    return total


def remove_trees(folder: int, most: int) -> None:
    """Remove the content of the folder that is open as `folder`, at most `most` entries.

    A folder inside another is moved up into `folder` first: none is opened below the second level.
    """
    pending = os.listdir(folder)
    while pending and most > 0:
        name = pending.pop()
        most -= 1
        with suppress(OSError):
            if not _is_folder(name, folder):
                os.unlink(name, dir_fd=folder)
                continue
            os.chmod(name, 0o700, dir_fd=folder)  # without these permissions, it cannot be emptied
            inside = os.open(name, DIRECTORY, dir_fd=folder)
            try:
                with os.scandir(inside) as entries:
                    for entry in entries:
                        if most <= 0:
                            return
                        most -= 1
                        _take_out(entry.name, inside, folder, pending)
            finally:
                os.close(inside)
            os.rmdir(name, dir_fd=folder)


def _take_out(name: str, inside: int, folder: int, pending: list[str]) -> None:
    if not _is_folder(name, inside):
        os.unlink(name, dir_fd=inside)
        return
    os.chmod(name, 0o700, dir_fd=inside)  # a folder that is moved must be writable (rename(2))
    fresh = os.urandom(16).hex()
    os.rename(name, fresh, src_dir_fd=inside, dst_dir_fd=folder)
    pending.append(fresh)


def _is_folder(name: str, folder: int) -> bool:
    return stat.S_ISDIR(os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode)
