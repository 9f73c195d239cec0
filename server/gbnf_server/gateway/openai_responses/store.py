"""Responses that later requests continue, in memory, up to a number and a size.

Invariant: who is not the owner of a response cannot read, continue or remove it.
"""

from __future__ import annotations

import copy
import sys
import threading
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, and the items that its request added to the conversation. `size`: see `memory_of`."""

    body: Mapping[str, Any]
    items: Sequence[Mapping[str, Any]]
    size: int


def memory_of(value: Any) -> int:
    """Return the bytes that a JSON value takes as Python objects; those that are shared count each time."""
    size, left = 0, [value]
    while left:
        each = left.pop()
        size += sys.getsizeof(each)
        if isinstance(each, Mapping):
            left += each.keys()
            left += each.values()
        elif isinstance(each, list | tuple):
            left += each
    return size


class ResponseStore:
    """The latest responses, as their owner sees them; see `of`.

    Where there is no place for another, the owner with the most bytes loses the one that was not used for the
    longest time. May be used by several threads.
    """

    def __init__(self, *, responses: int = 1000, size: int = 64 << 20) -> None:
        """Keep at most this many responses, of at most `size` bytes in all."""
        self._responses, self._size = responses, size
        self._owner = ""
        # by owner and id; the one that was used last is the last
        self._stored: dict[tuple[str, str], StoredResponse] = {}
        self._lock = threading.Lock()

    def of(self, owner: str) -> Self:
        """Return the same store as `owner` sees it."""
        view = copy.copy(self)
        view._owner = owner  # noqa: SLF001 - of this class
        return view

    def put(self, response: StoredResponse) -> None:
        """Add a response; old ones make place for it."""
        with self._lock:
            if response.size > self._size or self._responses < 1:
                return
            used: Counter[str] = Counter()
            for (owner, _), stored in self._stored.items():
                used[owner] += stored.size
            while len(self._stored) >= self._responses or used.total() + response.size > self._size:
                largest = max(used, key=used.__getitem__)
                oldest = next(key for key in self._stored if key[0] == largest)
                used[largest] -= self._stored.pop(oldest).size
                if all(owner != largest for owner, _ in self._stored):
                    del used[largest]
            self._stored[self._owner, response.body["id"]] = response

    def get(self, response_id: str) -> Mapping[str, Any] | None:
        """Return the response with an id, None if it is not stored."""
        with self._lock:
            stored = self._use(response_id)
            return None if stored is None else stored.body

    def delete(self, response_id: str) -> bool:
        """Remove a response. Return whether it was stored."""
        with self._lock:
            return self._stored.pop((self._owner, response_id), None) is not None

    def item(self, item_id: str) -> Mapping[str, Any] | None:
        """Return the item of an output with an id, None if it is not stored."""
        with self._lock:
            for (owner, response_id), stored in self._stored.items():
                for item in stored.body["output"] if owner == self._owner else ():
                    if item["id"] == item_id:
                        self._use(response_id)
                        found: Mapping[str, Any] = item
                        return found
        return None

    def conversation(self, response_id: str) -> list[Mapping[str, Any]] | None:
        """Return the items up to the end of a response, None if one of the responses is not stored."""
        with self._lock:
            chain: list[StoredResponse] = []
            identifier: str | None = response_id
            while identifier is not None:
                stored = self._use(identifier)
                if stored is None:
                    return None
                chain.append(stored)
                identifier = stored.body["previous_response_id"]
        return [item for stored in reversed(chain) for item in (*stored.items, *stored.body["output"])]

    def _use(self, response_id: str) -> StoredResponse | None:
        stored = self._stored.pop((self._owner, response_id), None)
        if stored is not None:
            self._stored[self._owner, response_id] = stored
        return stored
