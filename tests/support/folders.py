"""Folders deeper than Python's limit of recursion, and files that may not grow.

`shutil.rmtree` raises RecursionError for them, so a test must remove its own: pytest's removal of the folders
of earlier sessions would end there, and leave a directory open.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def full_disk(max_bytes: int) -> Iterator[None]:
    """Let this process write no file longer than this.

    Nor a compiled module: Python would write it in part, without an error, for each later process to read.
    """
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    writes_modules = not sys.dont_write_bytecode
    sys.dont_write_bytecode = True
    resource.setrlimit(resource.RLIMIT_FSIZE, (max_bytes, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
        sys.dont_write_bytecode = not writes_modules


def deepen(root: Path, depth: int, name: str = "d") -> None:
    """Make a chain of folders with the file `bottom.txt` at its end, however long its path is."""
    folder = os.open(root, os.O_RDONLY)
    for _ in range(depth):
        os.mkdir(name, dir_fd=folder)
        inner = os.open(name, os.O_RDONLY, dir_fd=folder)
        os.close(folder)
        folder = inner
    os.close(os.open("bottom.txt", os.O_WRONLY | os.O_CREAT, dir_fd=folder))
    os.close(folder)


def remove(root: Path) -> None:
    """Remove a folder of any depth."""
    subprocess.run(["rm", "-rf", str(root)], check=True)
