"""The queue: its counts are kept whatever happens, and nobody is forgotten."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.web.errors import HttpError
from gbnf_server.web.queue import AnswerQueue

STEP = st.tuples(st.sampled_from(["come", "finish", "leave"]), st.integers(0, 9))


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


@given(st.integers(1, 3), st.integers(0, 3), st.lists(STEP, max_size=30))
def test_places_are_never_exceeded_nor_lost(places: int, waiting: int, steps: list[tuple[str, int]]) -> None:
    asyncio.run(follow(places, waiting, steps))


async def follow(places: int, waiting: int, steps: list[tuple[str, int]]) -> None:
    queue = AnswerQueue(places, waiting)
    tasks: dict[asyncio.Task[None], asyncio.Event] = {}
    inside = 0

    async def work(done: asyncio.Event) -> None:
        nonlocal inside
        async with queue.place():
            inside += 1
            try:
                await done.wait()
            finally:
                inside -= 1

    for action, which in steps:
        present = [task for task in tasks if not task.done()]
        if action == "come":
            full = len(present) >= places + waiting
            done = asyncio.Event()
            task = asyncio.create_task(work(done))
            tasks[task] = done
            await settle()
            assert (task.done() and isinstance(task.exception(), HttpError)) == full
        elif present:
            task = present[which % len(present)]
            if action == "finish":
                tasks[task].set()
            else:
                task.cancel()
            if which % 2:  # otherwise the next step comes before this one has its effect
                await settle()
        await settle()
        left = [
            task
            for task, done in tasks.items()
            if not task.done() and not (task.cancelling() or done.is_set())
        ]
        assert inside == queue.running == min(places, inside + queue.waiting)
        assert inside + queue.waiting >= len(left)
    for task, done in tasks.items():
        done.set()
        if not task.done():
            await asyncio.wait({task})
    assert (queue.running, queue.waiting, inside) == (0, 0, 0)


def test_a_full_queue_says_when_to_come_again() -> None:
    async def ask() -> HttpError:
        queue = AnswerQueue(1, 0)
        async with queue.place():
            with pytest.raises(HttpError) as refused:
                async with queue.place():
                    pass
        return refused.value

    error = asyncio.run(ask())
    assert error.status == 429
    assert error.retry_after is not None
    assert 1 <= error.retry_after <= 60


def test_a_place_that_comes_at_the_moment_of_a_cancellation_goes_to_the_next() -> None:
    async def play() -> None:
        queue = AnswerQueue(1, 2)
        first = queue.place()
        await first.__aenter__()
        events: list[str] = []

        async def work(name: str) -> None:
            async with queue.place():
                events.append(name)

        second, third = asyncio.create_task(work("second")), asyncio.create_task(work("third"))
        await settle()
        await first.__aexit__(None, None, None)  # the second has the place, and has not run yet
        second.cancel()
        await asyncio.wait({second, third})
        assert events == ["third"]
        assert (queue.running, queue.waiting) == (0, 0)

    asyncio.run(play())
