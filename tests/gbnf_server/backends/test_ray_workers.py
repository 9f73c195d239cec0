"""Models in workers of a real Ray cluster of two nodes: whatever dies, each call is answered once."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import AsyncGenerator, Iterator, Mapping
from contextlib import aclosing
from functools import partial
from pathlib import Path
from typing import Any

import psutil
import pytest

from gbnf import Grammar
from gbnf.prompts.messages import Message
from gbnf_server.backends.base import Backend, BackendEvent, Completion, Request
from gbnf_server.cli.batch import _open_worker
from gbnf_server.cli.errors import ExitCode
from gbnf_server.cli.model_options import ModelSource
from gbnf_server.system.errors import (
    BackendError,
    BackendUnreachableError,
    ContextOverflowError,
    SetupError,
)

ray = pytest.importorskip("ray")
cluster_utils = pytest.importorskip("ray.cluster_utils")
workers_module = pytest.importorskip("gbnf_server.backends.ray_workers")
RayWorkers = workers_module.RayWorkers

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
NODE = {"num_cpus": 1, "object_store_memory": 80_000_000}
REQUESTS = [f"create a folder trip{number}" for number in range(60)]
GRAMMAR = Grammar.parse('root ::= "yes" | "no"')
ASK = Request([Message(role="user", content="well?")], GRAMMAR, max_tokens=8)
OPEN = partial(_open_worker, ModelSource())


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("RAY_USAGE_STATS_ENABLED", "0")
        cluster = cluster_utils.Cluster(
            initialize_head=True, head_node_args={**NODE, "include_dashboard": False}
        )
        cluster.add_node(**NODE)
        cluster.wait_for_nodes()
        ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])
        yield cluster
        ray.shutdown()
        cluster.shutdown()


@pytest.fixture
def workers(cluster: Any) -> Iterator[Any]:
    with RayWorkers(cluster.address, OPEN, 4) as workers:
        yield workers


def processes_of(node: Any) -> list[psutil.Process]:
    """Return the processes of the actors of a node."""
    raylet = psutil.Process(node.all_processes["raylet"][0].process.pid)
    return [each for each in raylet.children(recursive=True) if each.name().startswith("ray::_Worker")]


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()] if path.exists() else []


def test_a_batch_goes_on_when_a_worker_and_then_a_node_is_killed(cluster: Any, tmp_path: Path) -> None:
    lost = cluster.add_node(**NODE)
    cluster.wait_for_nodes()
    asked, out = tmp_path / "asked.jsonl", tmp_path / "out.jsonl"
    asked.write_text("".join(f"{json.dumps(each)}\n" for each in REQUESTS))
    command = [sys.executable, "-m", "gbnf_server", "batch", str(asked), "--quiet"]
    here = [*command, "--out", str(tmp_path / "here.jsonl"), "--workspace", str(tmp_path / "here")]
    assert subprocess.run(here, check=False, timeout=300).returncode == ExitCode.SUCCESS
    far = [*command, "--out", str(out), "--workspace", str(tmp_path / "far"), "--ray", cluster.address]
    batch = subprocess.Popen([*far, "--concurrency", "3"])

    def wait_for(count: int) -> None:
        while len(lines(out)) < count:
            assert batch.poll() is None
            time.sleep(0.01)

    try:
        wait_for(3)
        processes_of(cluster.head_node)[0].kill()
        wait_for(10)
        batch.send_signal(signal.SIGSTOP)  # it must not end before the node does
        assert len(lines(out)) < len(REQUESTS)
        cluster.remove_node(lost, allow_graceful=False)
        batch.send_signal(signal.SIGCONT)
        assert batch.wait(300) == ExitCode.SUCCESS
    finally:
        batch.kill()
    told = [(each["id"], each["query"], each["outcome"], each["answer"]) for each in lines(out)]
    expected = [
        (each["id"], each["query"], each["outcome"], each["answer"])
        for each in lines(tmp_path / "here.jsonl")
    ]
    assert told == expected
    begun = Counter(
        each["id"] for each in lines(out.with_name("out.jsonl.log")) if each.get("kind") == "begun"
    )
    assert set(begun.values()) == {1}
    assert len(begun) == len(REQUESTS)
    assert {each.name for each in (tmp_path / "far").iterdir()} >= {each.split()[-1] for each in REQUESTS}


def test_a_worker_answers_as_a_model_in_this_process(workers: Any) -> None:
    with ModelSource().open() as here:
        assert workers.complete(ASK).text == here.complete(ASK).text
        assert asyncio.run(workers.count_tokens(ASK)) == asyncio.run(here.count_tokens(ASK))
        assert (workers.info(), workers.context_length()) == (here.info(), here.context_length())
        assert (workers.dialect, workers.enforces_grammar) == (here.dialect, here.enforces_grammar)
    assert workers.slots == 4
    _errors_keep_their_type_and_their_fields(workers)
    _an_answer_that_is_left_leaves_the_worker_usable(workers)


def _errors_keep_their_type_and_their_fields(workers: Any) -> None:
    long = Request([Message(role="user", content="many words " * 20_000)], max_tokens=8)
    with pytest.raises(ContextOverflowError) as caught:
        workers.complete(long)
    assert caught.value.needed is not None
    assert caught.value.needed > 20_000
    assert caught.value.available == workers.context_length()


def _an_answer_that_is_left_leaves_the_worker_usable(workers: Any) -> None:
    endless = Request(ASK.messages, Grammar.parse('root ::= [a-z]+ "."'), max_tokens=8000)

    async def leave() -> Completion:
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.2), aclosing(workers.generate(endless)) as events:
                await anext(events)
        async with aclosing(workers.generate(ASK)) as events:
            return await anext(events)

    assert asyncio.run(leave()).text in {"yes", "no"}


def test_calls_move_on_until_no_worker_is_left(workers: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    for upstream in workers.upstreams:
        assert workers.complete(ASK).text in {"yes", "no"}
        upstream.backend.close()
    monkeypatch.setattr(workers_module, "_RESTARTED_S", 1.0)
    with pytest.raises(BackendUnreachableError, match="Ray cluster is gone"):
        workers.complete(ASK)


def deadly(parallel: int) -> tuple[Backend, Mapping[str, Any]]:
    """Open a model that a request for it kills."""
    backend, facts = OPEN(parallel)
    generate = backend.generate

    async def generate_or_die(request: Request) -> AsyncGenerator[BackendEvent, None]:
        if request.messages[-1]["content"] == "die":
            await asyncio.sleep(0.5)
            os._exit(1)
        async for event in generate(request):
            yield event

    vars(backend)["generate"] = generate_or_die
    return backend, facts


def test_a_call_that_kills_its_workers_is_not_repeated_for_ever(cluster: Any) -> None:
    with RayWorkers(cluster.address, deadly, 4) as workers:
        with pytest.raises(BackendError, match="died twice"):
            workers.complete(Request([Message(role="user", content="die")], GRAMMAR, max_tokens=8))
        assert workers.complete(ASK).text in {"yes", "no"}


def unlike(parallel: int) -> tuple[Backend, Mapping[str, Any]]:
    backend, facts = OPEN(parallel)
    return backend, {**facts, "sha256": str(os.getpid())}


def broken(parallel: int) -> tuple[Backend, Mapping[str, Any]]:
    raise SetupError(f"no model for {parallel}")


@pytest.mark.parametrize(("way", "says"), [(unlike, "Use the same everywhere"), (broken, "no model for 1")])
def test_models_that_differ_or_do_not_open_are_refused(cluster: Any, way: Any, says: str) -> None:
    with pytest.raises(SetupError, match=says):
        RayWorkers(cluster.address, way)


@pytest.mark.parametrize("address", ["127.0.0.1:1", "nonsense"])
def test_an_address_without_a_cluster(address: str) -> None:
    with pytest.raises(SetupError, match="no Ray cluster"):
        RayWorkers(address, OPEN)


def test_a_probe_after_the_end_does_not_connect_again(cluster: Any) -> None:
    """It would block the event loop that all blocking calls share."""
    with RayWorkers(cluster.address, OPEN) as workers:
        probes = [upstream.backend.is_there for upstream in workers.upstreams]
    ray.shutdown()
    assert not any(asyncio.run(probe()) for probe in probes)
    assert not ray.is_initialized()
