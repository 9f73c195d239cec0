"""Where compiled tools may be kept beyond the process: a hook, since this package writes no files.

Imports nothing, so that a program may set the hook before it knows whether it compiles anything.
"""

from __future__ import annotations

from typing import Protocol


class PartCache(Protocol):
    """Keeps entries of bytes by key. Both methods may be called from several threads, and raise nothing.

    A key says everything about an entry but the version of this package, of Python and of the packages that
    it uses: the implementation must return no entry that another version put there. Entries carry a
    checksum, so one that is damaged does no harm: it is compiled again, and put again.
    """

    def get(self, key: str) -> bytes | None:
        """Return the entry, None if there is none."""
        ...

    def put(self, key: str, entry: bytes) -> None:
        """Keep an entry, if possible. It replaces the present one."""
        ...


class _CacheInUse:
    cache: PartCache | None = None


def use_part_cache(cache: PartCache | None) -> PartCache | None:
    """Set the cache of this process (None: none, as at first), and return the previous one.

    Grammars and reports do not depend on it.
    """
    previous, _CacheInUse.cache = _CacheInUse.cache, cache
    return previous


def part_cache() -> PartCache | None:
    """Return the cache of this process."""
    return _CacheInUse.cache
