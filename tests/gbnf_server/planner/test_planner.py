"""A planner refuses what is no request, and serves several runs at a time."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import get_args

import pytest

from gbnf.errors import PoolError
from gbnf_server.executors import Context, Workspace
from gbnf_server.planner import CallFormat, Planner, PlannerOptions, Run
from support.by_hand import ANSWER, BY_NAME, NOW, POOL, call
from support.scripts import Script

QUERIES = [f"request {number}" for number in range(5)]


def planner(backend: Script, folder: Path) -> Planner:
    return Planner(POOL, backend, context=Context(Workspace(folder)))


async def together(one: Planner, queries: list[str]) -> list[Run]:
    return await asyncio.gather(*map(one.arun, queries))


@pytest.mark.slow
def test_concurrent_runs_are_turns_of_their_own(tmp_path: Path) -> None:
    texts = {query: (NOW, call("final_answer", message=query)) for query in QUERIES}
    runs = asyncio.run(together(planner(Script(texts), tmp_path), QUERIES))
    assert [(run.query, run.answer) for run in runs] == [(query, query) for query in QUERIES]
    assert len({run.turn for run in runs}) == len(QUERIES)


@pytest.mark.parametrize("query", ["", " \n\t", "half \ud83d"])
def test_empty_and_non_text_requests_are_refused(tmp_path: Path, query: str) -> None:
    script = Script({query: (ANSWER,)})
    one = planner(script, tmp_path)
    for way in (one.run, one.stream, one.astream, lambda query: asyncio.run(one.arun(query))):
        with pytest.raises(ValueError, match="the request "):
            way(query)
    assert script.most_together == 0  # nothing has begun


@pytest.mark.parametrize("call_format", get_args(CallFormat))
def test_two_tools_of_one_name_make_no_planner(tmp_path: Path, call_format: CallFormat) -> None:
    with pytest.raises(PoolError, match=r"two tools named 'get_now'"):
        Planner(
            [*POOL, BY_NAME["get_now"]],
            Script({}),
            PlannerOptions(call_format=call_format),
            context=Context(Workspace(tmp_path)),
        )


def test_cancelled_all_of_them_end(tmp_path: Path) -> None:
    script = Script(dict.fromkeys(QUERIES, (NOW, ANSWER)))

    async def cut_short() -> None:
        task = asyncio.create_task(together(planner(script, tmp_path), QUERIES))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert script.together == 0

    asyncio.run(cut_short())


@pytest.mark.slow
def test_each_run_reads_the_current_tools(tmp_path: Path) -> None:
    script = Script({"now": (NOW, ANSWER), "then": (NOW, ANSWER)})
    pool = list(POOL)
    changing = Planner(lambda: pool, script, context=Context(Workspace(tmp_path)))
    assert changing.run("now").steps[0].call is not None
    pool.remove(BY_NAME["get_now"])
    assert changing.run("then").steps[0].refusal == "invalid"
    pool.clear()
    with pytest.raises(PoolError, match="the pool is empty"):
        changing.run("now")
    with pytest.raises(PoolError, match="the pool is empty"):
        Planner(lambda: pool, script, context=Context(Workspace(tmp_path)))
