"""Places for the answers that are made at the same time, and a bounded queue before them."""

from __future__ import annotations

import asyncio
import math
import time
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

from gbnf_server.web.errors import HttpError

_LONGEST_RETRY_S = 60
_WEIGHT = 0.2  # of the last answer in the mean


class AnswerQueue:
    """At most `places` answers at a time, and `waiting` requests before them, in order of arrival.

    A request that is cancelled leaves the queue. Not for use by several event loops.
    """

    def __init__(self, places: int, waiting: int) -> None:
        self.places, self.most_waiting = places, waiting
        self.running = 0
        self._queue: deque[asyncio.Future[None]] = deque()
        self._mean_s = 1.0

    @property
    def waiting(self) -> int:
        """The number of requests in the queue."""
        return len(self._queue)

    @asynccontextmanager
    async def place(self) -> AsyncIterator[None]:
        """Wait for a place, and hold it in the block. Raises HttpError (429) if the queue is full."""
        await self._enter()
        started = time.monotonic()
        try:
            yield
        finally:
            self._mean_s += _WEIGHT * (time.monotonic() - started - self._mean_s)
            self._leave()

    async def _enter(self) -> None:
        if self.running < self.places:
            self.running += 1
            return
        if self.waiting >= self.most_waiting:
            raise HttpError(
                429,
                f"{self.running} answers are being made and {self.waiting} requests wait. "
                "Send this one again later.",
                "queue_full",
                retry_after=self._retry_after(),
            )
        turn = asyncio.get_running_loop().create_future()
        self._queue.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled():
                self._leave()  # the place came at the same moment: the next one has it
            else:
                with suppress(ValueError):  # it was at the head, and has been passed over
                    self._queue.remove(turn)
            raise

    def _leave(self) -> None:
        """Give the place to the next in the queue."""
        while self._queue:
            turn = self._queue.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self.running -= 1

    def _retry_after(self) -> int:
        """Return in how many seconds half of the queue has probably been answered."""
        expected = self._mean_s * (self.waiting / 2 + 1) / self.places
        return min(max(math.ceil(expected), 1), _LONGEST_RETRY_S)
