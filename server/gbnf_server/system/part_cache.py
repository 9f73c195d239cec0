"""Compiled tools in the cache folder, so that the next process needs not compile them again.

One file for each entry, in `compiled` in the cache folder. Invariants:

- A process reads only what the same version wrote: the name of a file contains a hash of the compiler's
  sources, of Python's version and of the installed packages. A process whose sources were changed after its
  start neither reads nor writes.
- Files appear whole, by renaming; processes may read, write and remove them at the same time. Their content
  has a checksum (`gbnf.compiler.stored_parts`).
- The folder has at most `MAX_BYTES`, plus up to an eighth of this for each other process that writes at the
  same time. The files that were not read for the longest time are removed first.
- No problem with files is an error: without the cache, tools are compiled. The first one is logged.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path

import gbnf
from gbnf.schema_caches import caches_in_use
from gbnf_server.system.folders import cache_folder

CACHE_PARTS_VARIABLE = "GBNF_COMPILE_CACHE"
MAX_BYTES = 32 * 2**20
"""How much the files may occupy."""

_BLOCK = 4096  # file systems allocate about this much at a time
_READ_AGAIN_S = 3600.0  # a file that is read has its time of modification set, at most once in this time
_STARTED = time.time()
# a named pipe in place of a file must not block
_FLAGS = os.O_RDONLY | getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_BINARY", 0)

_log = logging.getLogger(__name__)


def use_disk_cache() -> None:
    """Keep what this process compiles in the cache folder, unless GBNF_COMPILE_CACHE is 0. Idempotent."""
    if os.environ.get(CACHE_PARTS_VARIABLE) != "0" and caches_in_use().parts is None:
        caches_in_use().parts = DiskPartCache()


@cache
def compiler_version() -> bytes | None:
    """Return a hash of all that decides what a tool compiles to; None if sources changed since the start."""
    version = blake2b(f"{sys.version}\n".encode(), digest_size=20)
    newest = 0.0
    for name, path in sorted(_sources(str(Path(gbnf.__file__).parent), "")):
        source, status = _read(path)
        newest = max(newest, status.st_ctime)
        version.update(f"{name} {len(source)}\n".encode() + source)
    for name in sorted(_installed_packages()):
        version.update(f"{name}\n".encode())
    return version.digest() if newest < _STARTED else None


def _sources(folder: str, name: str) -> Iterator[tuple[str, str]]:
    """Yield the name and the path of each source file in a folder."""
    for entry in os.scandir(folder):
        if entry.name.endswith((".py", ".so", ".pyd")):
            yield f"{name}/{entry.name}", entry.path
        elif entry.name != "__pycache__" and entry.is_dir():
            yield from _sources(entry.path, f"{name}/{entry.name}")


def _installed_packages() -> Iterator[str]:
    """Yield the name and the version of each installed package."""
    for folder in sys.path:
        with suppress(OSError):  # not each entry is a folder
            names = os.listdir(folder)  # noqa: PTH208  # a tenth of the time of Path.iterdir
            yield from (name for name in names if name.endswith((".dist-info", ".egg-info")))


class DiskPartCache:
    """A `PartCache` in a folder. `folder` is by default `compiled` in the cache folder."""

    def __init__(self, folder: Path | None = None, *, max_bytes: int = MAX_BYTES) -> None:
        self._given_folder = folder
        self._max_bytes = max_bytes
        self._lock = threading.Lock()
        self._room = 0  # what may be written before the sizes of all files are added again
        self._is_writable = True

    def get(self, key: str) -> bytes | None:
        """Return the entry, None if there is none that can be read."""
        path = self._path(key)
        if path is None:
            return None
        try:
            entry, status = _read(path)
            if time.time() - status.st_mtime > _READ_AGAIN_S:
                os.utime(path)
        except FileNotFoundError:
            return None
        except OSError as error:
            _log.debug("cannot read %s: %s", path, error)
            return None
        return entry

    def put(self, key: str, entry: bytes) -> None:
        """Write the entry, unless the folder is read-only or full."""
        path = self._path(key)
        if path is None or not self._is_writable or len(entry) > self._max_bytes // 8:
            return
        temporary = f"{path}.{os.getpid()}-{threading.get_ident()}"
        try:
            self._make_room(_allocated(len(entry)))
            try:
                Path(temporary).write_bytes(entry)
                os.replace(temporary, path)  # noqa: PTH105  # both are strings
            except OSError:
                with suppress(OSError):
                    os.unlink(temporary)  # noqa: PTH108  # as above
                raise
        except OSError as error:
            self._is_writable = False
            _log.debug("compiled tools are not kept: %s", error)

    @cached_property
    def _folder(self) -> Path:
        return self._given_folder or cache_folder() / "compiled"

    @cached_property
    def _prefix(self) -> str:
        """The path of the folder, with a separator."""
        return f"{self._folder}{os.sep}"

    def _path(self, key: str) -> str | None:
        """Return the path of an entry; None if this process has no version."""
        version = compiler_version()
        if version is None:
            return None
        return self._prefix + blake2b(key.encode(), digest_size=20, key=version).hexdigest()

    def _make_room(self, size: int) -> None:
        """Count what is about to be written, and remove files if the folder could become too large."""
        with self._lock:
            if self._room < size:
                self._folder.mkdir(parents=True, exist_ok=True)
                free = self._max_bytes - _shrink(self._folder, self._max_bytes - size)
                self._room = min(free, max(self._max_bytes // 8, size))
            self._room -= size


def _read(path: str) -> tuple[bytes, os.stat_result]:
    """Return the content of a small file, and its state. Raises OSError. Faster than `open`."""
    file = os.open(path, _FLAGS)
    try:
        status = os.fstat(file)
        return os.read(file, status.st_size), status
    finally:
        os.close(file)


def _allocated(size: int) -> int:
    return -(-size // _BLOCK) * _BLOCK


def _shrink(folder: Path, limit: int) -> int:
    """Remove files if they occupy more than `limit`, until they are a quarter below. Return what is left."""
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            with suppress(OSError):  # another process has removed it
                if entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    files.append((status.st_mtime, entry.path, _allocated(status.st_size)))
    total = sum(size for _, _, size in files)
    if total > limit:
        for _, path, size in sorted(files):
            if total <= limit * 3 // 4:
                break
            with suppress(OSError):
                os.unlink(path)  # noqa: PTH108  # a string
            total -= size
    return total
