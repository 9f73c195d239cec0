"""Jobs that run several at a time, whatever the order in which they end, fail, and are closed."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import aclosing

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf_server.planner.runs.run_log import MOST_WAITING, RunLog, RunLogError, in_order
from support.effort import scaled


class BrokenError(Exception):
    """A job, or the next one, has failed."""


@settings(max_examples=scaled(100), deadline=None)
@given(
    st.permutations(range(6)),
    st.integers(0, 6),
    st.integers(1, 4),
    st.none() | st.integers(0, 5),
    st.none() | st.integers(0, 6),
    st.integers(0, 6),
)
def test_results_come_in_order(
    ends: list[int], jobs: int, concurrency: int, broken: int | None, stop: int | None, most: int
) -> None:
    """`ends`: the order in which jobs end; `broken`: which fails; `stop`: which cannot be taken."""
    running: set[int] = set()
    started: list[int] = []
    most_together = 0

    def source() -> Iterator[int]:
        for job in range(jobs):
            if job == stop:
                raise BrokenError("taken")
            yield job

    async def collect() -> list[int]:
        nonlocal most_together
        gates = {job: asyncio.Event() for job in range(6)}

        async def run(job: int) -> int:
            nonlocal most_together
            running.add(job)
            started.append(job)
            most_together = max(most_together, len(running))
            try:
                await gates[job].wait()
                if job == broken:
                    raise BrokenError("run")
                return job
            finally:
                running.discard(job)

        async def open_gates() -> None:
            for job in ends:  # those that are not yet started end at once
                gates[job].set()
                await asyncio.sleep(0)

        opening = asyncio.create_task(open_gates())
        results: list[int] = []
        try:
            async with aclosing(in_order(source(), run, concurrency)) as values:
                async for value in values:
                    results.append(value)
                    if len(results) == most:
                        break
        except BrokenError as error:
            at = [broken] if str(error) == "run" else [stop]
            assert at == [len(results)], "what was before the error has come"
        else:
            assert len(results) in (jobs, most)
        await opening
        return results

    results = asyncio.run(collect())
    assert results == list(range(len(results)))
    assert started == sorted(started)
    assert most_together <= concurrency
    assert not running, "nothing runs after the end"


def test_no_job_is_taken_before_it_is_needed() -> None:
    taken: list[int] = []

    def endless() -> Iterator[int]:
        while True:
            taken.append(len(taken))
            yield taken[-1]

    async def double(job: int) -> int:
        return 2 * job

    async def take() -> list[int]:
        async with aclosing(in_order(endless(), double, 2)) as values:
            return [await anext(values) for _ in range(3)]

    assert asyncio.run(take()) == [0, 2, 4]
    assert len(taken) <= 3 + MOST_WAITING + 2 * 2


def test_a_log_that_cannot_be_used_is_named(tmp_path_factory: pytest.TempPathFactory) -> None:
    folder = tmp_path_factory.mktemp("log")
    (folder / "file").touch()
    with pytest.raises(RunLogError, match="file is in the way"):
        RunLog(folder / "file" / "log", lambda value: (value, value))
    with RunLog(folder / "log", lambda value: (value["a"], value)) as log:
        log.append({"a": 1})
        with pytest.raises(RunLogError, match="in use"):
            RunLog(folder / "log", lambda value: (value, value))
    with RunLog(folder / "log", lambda value: (value["a"], value)) as log:
        assert log.entries == {1: [{"a": 1}]}
    with pytest.raises(RunLogError, match=r"line 1: this is no entry of the log .*again"):
        RunLog(folder / "log", lambda value: (value["b"], value), hint="Run it again.")
    with RunLog(folder / "log", lambda value: (value["b"], value), fresh=True) as log:
        assert log.entries == {}
