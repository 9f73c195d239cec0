"""Which requests to a llama-server may reuse what is in the cache of its slots, by their salts.

Without a salt, a llama-server reuses whatever begins a prompt in the cache of any slot, or among the prompts
that it has moved to main memory (`--cache-ram`). A request that names a slot finds that slot's cache, and
those in main memory; with `cache_prompt` false, nothing. So a request with a salt names a slot, and reuses
its cache if the request before had the same salt, and the server keeps no prompts elsewhere.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass


@dataclass(slots=True)
class _Slot:
    """A slot. `salt`: of what is in its cache, None if that is unknown.

    `running`: requests that name it; `overlapped`: whether there were several, whose order is not known.
    """

    id: int
    salt: str | None = None
    running: int = 0
    overlapped: bool = False
    last_used: int = 0


class ServerSlots:
    """The slots of one server. Thread-safe.

    `are_separate`: whether it keeps no prompts outside of them, None if that is not known yet.
    """

    def __init__(self, total: int) -> None:
        self.are_separate: bool | None = None
        self._slots = [_Slot(number) for number in range(total)]
        self._lock = threading.Lock()
        self._count = 0

    @contextmanager
    def taken(self, salt: str) -> Iterator[tuple[int, bool]]:
        """Return the slot of a request that runs in the context, and whether it may reuse its cache."""
        with self._lock:
            self._count += 1
            slot = min(self._slots, key=lambda each: (each.running, each.salt != salt, each.last_used))
            slot.overlapped = slot.running > 0
            reuses = slot.salt == salt and not slot.overlapped and bool(self.are_separate)
            slot.salt = salt if reuses else None
            slot.running, slot.last_used = slot.running + 1, self._count
        try:
            yield slot.id, reuses
            with self._lock:  # answered: the cache has this prompt, and nothing of an earlier one
                slot.salt = None if slot.overlapped else salt
        finally:
            with self._lock:
                slot.running -= 1
