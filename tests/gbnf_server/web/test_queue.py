"""The queue: its counts are kept whatever happens, and nobody is forgotten."""

from __future__ import annotations

import asyncio

from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.web.errors import HttpError
from gbnf_server.web.queue import AnswerQueue
from support.gateways import in_event_loop

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


@in_event_loop
async def test_a_place_that_comes_at_the_moment_of_a_cancellation_goes_to_the_next() -> None:
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


@given(st.integers(1, 3), st.lists(st.sampled_from("aaaab"), max_size=20))
@in_event_loop
async def test_an_owner_waits_for_no_more_than_one_answer_of_each_other(
    places: int, owners: list[str]
) -> None:
    queue = AnswerQueue(places, 100)
    order: list[str] = []
    go_on = asyncio.Semaphore(0)

    async def work(owner: str) -> None:
        async with queue.place(owner):
            order.append(owner)
            await go_on.acquire()

    tasks = [asyncio.create_task(work(owner)) for owner in owners]
    await settle()
    for _ in owners:
        go_on.release()
        await settle()
    await asyncio.gather(*tasks)
    waited = order[places:]
    rare = min(owners.count("b") - order[:places].count("b"), owners.count("a"))
    assert waited[: 2 * rare].count("b") >= rare - places


@in_event_loop
async def test_a_full_queue_refuses_who_has_most_in_it() -> None:
    queue = AnswerQueue(1, 4)
    order: list[str] = []

    async def work(owner: str) -> None:
        async with queue.place(owner):
            order.append(owner)
            await asyncio.sleep(0)

    tasks = [asyncio.create_task(work(owner)) for owner in ("a", "a", "a", "a", "a", "b", "a", "b", "c")]
    results = await asyncio.gather(*tasks, return_exceptions=True)
    refused = [index for index, result in enumerate(results) if isinstance(result, HttpError)]
    assert refused == [2, 3, 4, 6]
    assert order == ["a", "b", "c", "a", "b"]
