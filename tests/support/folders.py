"""Folders deeper than Python's limit of recursion.

`shutil.rmtree` raises RecursionError for them, so a test must remove its own: pytest's removal of the folders
of earlier sessions would end there, and leave a directory open.
"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


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
