"""Where compiled tools may be kept beyond the process: a hook, since this package writes no files.

Imports nothing, so that a program may set the hook before it knows whether it compiles anything.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Protocol


class PartCache(Protocol):
    """Keeps entries of bytes by key. Both methods may be called from several threads, and raise nothing.

    A key says everything about an entry but the version of this package, of Python and of the packages that
    it uses: the implementation must return no entry that another version put there. Entries carry a
    checksum, so one that is damaged does no harm: it is compiled again, and put again.
    """

    def get(self, key: str) -> bytes | None:
        """Return the entry, None if there is none."""

    def put(self, key: str, entry: bytes) -> None:
        """Keep an entry, if possible. It replaces the present one."""


class _CacheInUse:
    cache: PartCache | None = None


_is_off: ContextVar[bool] = ContextVar("part_cache_is_off", default=False)


def use_part_cache(cache: PartCache | None) -> PartCache | None:
    """Set the cache of this process (None: none, as at first), and return the previous one.

    Grammars and reports do not depend on it.
    """
    previous, _CacheInUse.cache = _CacheInUse.cache, cache
    return previous


@contextmanager
def without_part_cache() -> Iterator[None]:
    """Compile without the cache, for variants of tools that nobody will ask for again."""
    token = _is_off.set(True)
    try:
        yield
    finally:
        _is_off.reset(token)


def part_cache() -> PartCache | None:
    """Return the cache of this process."""
    return None if _is_off.get() else _CacheInUse.cache
