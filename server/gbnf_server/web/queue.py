"""Places for the work that is done at the same time, and a bounded queue before them, fair between owners."""

from __future__ import annotations

import asyncio
import math
import time
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass

from gbnf_server.web.errors import HttpError

_LONGEST_RETRY_S = 60
_WEIGHT = 0.2  # of the last answer in the mean


@dataclass(eq=False, frozen=True, slots=True)
class _Waiting:
    owner: str
    granted: asyncio.Future[None]


class AnswerQueue:
    """At most `places` answers at a time, and `waiting` requests before them.

    A place goes to the owner that has the fewest, and among those to the one that got none for the longest
    time; requests of one owner are in order of arrival. If the queue is full, the owner with the most waiting
    requests loses its last. A request that is cancelled leaves the queue. Not for use by several event loops.
    """

    def __init__(self, places: int, waiting: int) -> None:
        self.places, self.most_waiting = places, waiting
        self._queue: list[_Waiting] = []
        self._running: Counter[str] = Counter()
        self._served: dict[str, int] = {}  # by owner: the number of its last place
        self._count = 0
        self._mean_s = 1.0

    @property
    def running(self) -> int:
        """The number of places that are taken."""
        return self._running.total()

    @property
    def waiting(self) -> int:
        """The number of requests in the queue."""
        return len(self._queue)

    @asynccontextmanager
    async def place(self, owner: str = "") -> AsyncIterator[None]:
        """Wait for a place, and hold it in the block. Raises HttpError (429) if the queue is full."""
        await self._enter(owner)
        started = time.monotonic()
        try:
            yield
        finally:
            self._mean_s += _WEIGHT * (time.monotonic() - started - self._mean_s)
            self._leave(owner)

    async def _enter(self, owner: str) -> None:
        if self.running < self.places:
            self._take(owner)
            return
        if self.waiting >= self.most_waiting:
            self._refuse(owner)
        turn = _Waiting(owner, asyncio.get_running_loop().create_future())
        self._queue.append(turn)
        try:
            await turn.granted
        except asyncio.CancelledError:
            if turn in self._queue:
                self._queue.remove(turn)
            elif not turn.granted.cancelled() and turn.granted.exception() is None:
                self._leave(owner)  # the place came at the same moment: the next one has it
            raise

    def _take(self, owner: str) -> None:
        self._count += 1
        self._running[owner] += 1
        self._served[owner] = self._count

    def _leave(self, owner: str) -> None:
        """Give the place to the next in the queue."""
        self._running[owner] -= 1
        waiting = [turn for turn in self._queue if not turn.granted.done()]
        if waiting:
            served = self._served
            turn = min(waiting, key=lambda turn: (self._running[turn.owner], served.get(turn.owner, 0)))
            self._queue.remove(turn)
            self._take(turn.owner)
            turn.granted.set_result(None)

    def _refuse(self, owner: str) -> None:
        """Refuse a request of `owner`, or the last of an owner that has more in the queue."""
        error = HttpError(
            429,
            f"{self.running} answers are being made and {self.waiting} requests wait. "
            "Send this one again later.",
            "queue_full",
            retry_after=self._retry_after(),
        )
        counts = Counter(turn.owner for turn in self._queue)
        most = max(counts, key=counts.__getitem__, default=owner)
        if counts[most] <= counts[owner] + 1:
            raise error
        last = next(turn for turn in reversed(self._queue) if turn.owner == most)
        self._queue.remove(last)
        if not last.granted.done():
            last.granted.set_exception(error)

    def _retry_after(self) -> int:
        """Return in how many seconds half of the queue has probably been answered."""
        expected = self._mean_s * (self.waiting / 2 + 1) / self.places
        return min(max(math.ceil(expected), 1), _LONGEST_RETRY_S)
