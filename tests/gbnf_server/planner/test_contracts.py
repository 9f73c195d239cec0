"""The three exits of a contract's run, on real backends."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gbnf.contracts import Contract, choice, lines, pick
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.planner.contracts import arun_contract, messages, run_contract
from support.backends import FakeBackend
from support.gateways import until
from support.models import make_model

CONTRACT = Contract(best=pick(3), mood=choice(["glad", "sad"]), haiku=lines(2, limit=8))


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    path = make_model(Path(tmp_path_factory.mktemp("model")) / "tiny.gguf", context=2048)
    with InProcess(path) as backend:
        yield backend


@pytest.fixture
def silent() -> Iterator[str]:
    """The address of a server that takes connections and says nothing."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"


def test_success_with_the_grammar_even_of_a_model_that_knows_nothing(model: InProcess) -> None:
    for seed in range(5):
        run = run_contract(CONTRACT, "Which?", model, temperature=1.5, seed=seed, max_tokens=100)
        assert run.outcome == "success", run
        assert run.values["best"] in (1, 2, 3)
        assert run.values["mood"] in ("glad", "sad")
        assert run.error == ""


def test_an_answer_that_keeps_no_contract_is_an_error_with_its_text(model: InProcess) -> None:
    run = run_contract(CONTRACT, "Which?", model, grammar=False, max_tokens=20)
    assert run.outcome == "error"
    assert run.raw
    assert run.error.startswith("best: ")


def test_a_truncated_answer_is_no_success(model: InProcess) -> None:
    run = run_contract(CONTRACT, "Which?", model, max_tokens=3)
    assert run.outcome == "error"


def test_a_backend_that_fails_is_an_error(model: InProcess) -> None:
    run = run_contract(CONTRACT, "Which? " * 2000, model)
    assert (run.outcome, run.raw) == ("error", "")
    assert "do not fit" in run.error


def test_a_silent_server_times_out_as_a_hang(silent: str) -> None:
    with LlamaServer(silent) as backend:
        runs = [run_contract(CONTRACT, "Which?", backend, timeout_s=0.1) for _ in range(2)]
    assert [run.outcome for run in runs] == ["hang", "hang"]
    assert all(run.error == "no answer within 0.1 s" for run in runs)


def test_a_call_that_hangs_is_cancelled(silent: str) -> None:
    async def ask(backend: LlamaServer) -> None:
        assert (await arun_contract(CONTRACT, "Which?", backend, timeout_s=0.1)).outcome == "hang"
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})

    with LlamaServer(silent) as backend:
        asyncio.run(ask(backend))


def test_a_backend_that_blocks_the_loop_is_a_hang_too() -> None:
    release = threading.Event()

    class Blocking(FakeBackend):
        async def arespond(self, *_: Any, **__: Any) -> Any:
            release.wait(30)
            raise AssertionError

    try:
        assert run_contract(CONTRACT, "Which?", Blocking(), timeout_s=0.1).outcome == "hang"
    finally:
        release.set()


def test_the_question_comes_before_how_to_answer() -> None:
    system, user = messages(CONTRACT, "Which one rhymes?", system="Be brief.")
    assert system == {"role": "system", "content": "Be brief."}
    assert user["content"] == f"Which one rhymes?\n\n{CONTRACT.prompt()}"
