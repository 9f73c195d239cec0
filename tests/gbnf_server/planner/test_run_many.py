"""Many runs at a time: the same runs as one by one, in order, no more at a time than asked for."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import get_args

import pytest

from gbnf.errors import PoolError
from gbnf_server.backends.in_process import InProcess
from gbnf_server.executors import Context, Workspace
from gbnf_server.llama.demo_model import model_path
from gbnf_server.planner import CallFormat, Planner, PlannerOptions, Run
from support.by_hand import ANSWER, BY_NAME, NOW, POOL, call
from support.scripts import Script

QUERIES = [f"request {number}" for number in range(5)]


def planner(backend: object, folder: Path) -> Planner:
    return Planner(POOL, backend, context=Context(Workspace(folder)))  # type: ignore[arg-type]  # one of two kinds


@pytest.mark.slow
@pytest.mark.parametrize("concurrency", [1, 3, 9])
def test_runs_come_in_order(tmp_path: Path, concurrency: int) -> None:
    texts = {query: (NOW, call("final_answer", message=query)) for query in QUERIES}
    script = Script(texts)
    runs = planner(script, tmp_path).run_many(iter(QUERIES), concurrency=concurrency)
    assert [(run.query, run.answer) for run in runs] == [(query, query) for query in QUERIES]
    assert script.most_together <= concurrency
    assert len({run.turn for run in runs}) == len(QUERIES)


def test_none_at_a_time_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="concurrency is 0"):
        planner(Script({}), tmp_path).run_many(QUERIES, concurrency=0)


@pytest.mark.slow
@pytest.mark.parametrize("query", ["", " \n\t", "half \ud83d"])
def test_empty_and_non_text_requests_are_refused(tmp_path: Path, query: str) -> None:
    good = "what time is it?"
    script = Script({query: (NOW, ANSWER), good: (NOW, ANSWER)})
    one = planner(script, tmp_path)
    for way in (one.run, one.events, one.stream):
        with pytest.raises(ValueError, match="the request "):
            way(query)
    for queries in ([query], [good, query, good]):
        with pytest.raises(ValueError, match="the request "):
            one.run_many(iter(queries))
        with pytest.raises(ValueError, match="the request "):
            asyncio.run(one.arun_many(queries))
    assert script.most_together == 0  # nothing has begun
    assert [run.outcome for run in one.run_many([good])] == ["answered"]


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
        task = asyncio.create_task(planner(script, tmp_path).arun_many(QUERIES, concurrency=5))
        await asyncio.sleep(0)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert script.together == 0

    asyncio.run(cut_short())


@pytest.mark.slow
def test_a_model_in_process_answers_concurrent_runs_alike(tmp_path: Path) -> None:
    queries = ["what time is it", "create a folder trips", "what is 12 * 7?", "create a folder books"]

    def said(runs: list[Run]) -> list[list[str]]:
        return [[step.text for step in run.steps[:-1]] for run in runs]  # the answer may tell the time

    with InProcess(model_path()) as alone:
        one_by_one = [planner(alone, tmp_path / "alone").run(query) for query in queries]
    with InProcess(model_path(), parallel=2) as backend:
        together = planner(backend, tmp_path / "together").run_many(queries, concurrency=4)
    assert said(together) == said(one_by_one)


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
