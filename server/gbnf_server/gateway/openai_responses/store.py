"""Responses that later requests continue, in memory, up to a number and a size."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StoredResponse:
    """A response, and the items that its request added to the conversation. `size`: in bytes, about."""

    body: Mapping[str, Any]
    items: Sequence[Mapping[str, Any]]
    size: int

    @property
    def id(self) -> str:
        """The id of the response."""
        identifier: str = self.body["id"]
        return identifier


class ResponseStore:
    """The latest responses. Those that were not used for the longest time are removed first.

    May be used by several threads.
    """

    def __init__(self, *, responses: int = 1000, size: int = 64 << 20) -> None:
        """Keep at most this many responses, of at most `size` bytes in all."""
        self._responses, self._size = responses, size
        self._used = 0
        self._stored: dict[str, StoredResponse] = {}  # the one that was used last is the last
        self._items: dict[str, str] = {}  # id of an item of an output -> id of its response
        self._lock = threading.Lock()

    def put(self, response: StoredResponse) -> None:
        """Add a response; the oldest ones make place for it."""
        with self._lock:
            if response.size > self._size or self._responses < 1:
                return
            while len(self._stored) >= self._responses or self._used + response.size > self._size:
                self._remove(next(iter(self._stored)))
            self._stored[response.id] = response
            self._used += response.size
            for item in response.body["output"]:
                self._items[item["id"]] = response.id

    def get(self, response_id: str) -> Mapping[str, Any] | None:
        """Return the response with an id, None if it is not stored."""
        with self._lock:
            stored = self._use(response_id)
            return None if stored is None else stored.body

    def delete(self, response_id: str) -> bool:
        """Remove a response. Return whether it was stored."""
        with self._lock:
            return self._remove(response_id)

    def item(self, item_id: str) -> Mapping[str, Any] | None:
        """Return the item of an output with an id, None if it is not stored."""
        with self._lock:
            stored = self._use(self._items.get(item_id, ""))
            if stored is None:
                return None
            item: Mapping[str, Any] = next(item for item in stored.body["output"] if item["id"] == item_id)
            return item

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
        stored = self._stored.pop(response_id, None)
        if stored is not None:
            self._stored[response_id] = stored
        return stored

    def _remove(self, response_id: str) -> bool:
        stored = self._stored.pop(response_id, None)
        if stored is None:
            return False
        self._used -= stored.size
        for item in stored.body["output"]:
            del self._items[item["id"]]
        return True
