"""Compiled tools in the cache folder, so that the next process needs not compile them again.

A SQLite database, `compiled/parts.sqlite` in the cache folder. Invariants:

- A process reads only what the same version wrote: the name of an entry is a hash that contains one of the
  compiler's sources, of Python's version and of the installed packages. A process whose sources were changed
  after its start neither reads nor writes.
- Any number of processes may read and write. Entries have a checksum (`gbnf.compiler.stored_parts`), and a
  damaged file is replaced: SQLite need not wait for the disk, nor keep a journal on it.
- The file has at most `MAX_BYTES`. The entries that were not read for the longest time are removed first.
- No problem with the file is an error: without the cache, tools are compiled. The first one is logged.
"""

from __future__ import annotations

import logging
import os
import sqlite3
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from functools import cache, cached_property
from hashlib import blake2b
from pathlib import Path

import gbnf
from gbnf.compiler.part_cache import part_cache, use_part_cache
from gbnf_server.system.folders import cache_folder

CACHE_PARTS_VARIABLE = "GBNF_COMPILE_CACHE"
MAX_BYTES = 32 * 2**20
"""How large the file may become."""

_PAGE = 4096
_LEAST_PAGES = 8  # of which the tables take four
_READ_AGAIN_S = 3600.0  # the time of an entry that is read is set at most once in this time
_STARTED = time.time()
_SETUP = """
PRAGMA journal_mode = MEMORY;
PRAGMA synchronous = OFF;
CREATE TABLE IF NOT EXISTS parts (name BLOB PRIMARY KEY, entry BLOB, read_at REAL);
CREATE INDEX IF NOT EXISTS parts_by_time ON parts (read_at);
"""
_REMOVE_OLDEST = """
DELETE FROM parts WHERE name IN
(SELECT name FROM parts ORDER BY read_at LIMIT (SELECT count(*) / 4 + 1 FROM parts))
"""

_log = logging.getLogger(__name__)


def use_disk_cache() -> None:
    """Keep what this process compiles in the cache folder, unless GBNF_COMPILE_CACHE is 0. Idempotent."""
    if os.environ.get(CACHE_PARTS_VARIABLE) != "0" and part_cache() is None:
        use_part_cache(DiskPartCache())


@cache
def compiler_version() -> bytes | None:
    """Return a hash of all that decides what a tool compiles to; None if sources changed since the start."""
    version = blake2b(f"{sys.version}\n".encode(), digest_size=20)
    newest = 0.0
    for name, path in sorted(_sources(str(Path(gbnf.__file__).parent), "")):
        with open(path, "rb") as file:  # noqa: PTH123  # a hundred of them: half of the time of Path
            source = file.read()
            newest = max(newest, os.fstat(file.fileno()).st_ctime)
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
    """A `PartCache` in a file in a folder, by default `compiled` in the cache folder."""

    def __init__(self, folder: Path | None = None, *, max_bytes: int = MAX_BYTES) -> None:
        self._folder = folder
        self._most_pages = max(max_bytes // _PAGE, _LEAST_PAGES)
        self._lock = threading.Lock()
        self._connection: sqlite3.Connection | None = None
        self._is_writable = True

    def get(self, key: str) -> bytes | None:
        """Return the entry, None if there is none that can be read."""
        version = compiler_version()
        if version is None:
            return None
        name = _name(key, version)
        rows = self._execute("SELECT entry, read_at FROM parts WHERE name = ?", name)
        if rows and time.time() - rows[0][1] > _READ_AGAIN_S:
            self._execute("UPDATE parts SET read_at = ? WHERE name = ?", time.time(), name)
        return rows[0][0] if rows else None

    def put(self, key: str, entry: bytes) -> None:
        """Write the entry, unless the file cannot be written or the entry takes an eighth of it."""
        version = compiler_version()
        if version is not None and self._is_writable and len(entry) <= self._most_pages * _PAGE // 8:
            values = _name(key, version), entry, time.time()
            self._execute("INSERT OR REPLACE INTO parts VALUES (?, ?, ?)", *values)

    def _execute(self, statement: str, *values: object) -> list[tuple[bytes, float]]:
        """Return the rows of a statement; none if the file does not work."""
        with self._lock:
            if not self._is_writable and self._connection is None:
                return []
            try:
                self._connection = self._connection or self._connected()
                while True:
                    try:
                        return self._connection.execute(statement, values).fetchall()
                    except sqlite3.OperationalError as error:
                        is_full = error.sqlite_errorcode == sqlite3.SQLITE_FULL
                        if not (is_full and self._connection.execute(_REMOVE_OLDEST).rowcount):
                            raise
            except (OSError, sqlite3.OperationalError) as error:
                if self._is_writable:
                    _log.debug("compiled tools are not kept: %s", error)
                self._is_writable = False
            except sqlite3.DatabaseError:  # it is damaged, or no database
                if self._connection is not None:
                    self._connection.close()
                    self._connection = None
                with suppress(OSError):
                    self._path.unlink()
            return []

    @cached_property
    def _path(self) -> Path:
        return (self._folder or cache_folder() / "compiled") / "parts.sqlite"

    def _connected(self) -> sqlite3.Connection:
        self._path.parent.mkdir(parents=True, exist_ok=True)
        connection = sqlite3.connect(self._path, timeout=1.0, isolation_level=None, check_same_thread=False)
        try:
            connection.execute(f"PRAGMA max_page_count = {self._most_pages}")
            connection.executescript(_SETUP)
        except sqlite3.Error:
            connection.close()
            raise
        return connection


def _name(key: str, version: bytes) -> bytes:
    return blake2b(key.encode(), digest_size=20, key=version).digest()
