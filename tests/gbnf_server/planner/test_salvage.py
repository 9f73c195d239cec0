"""An answer out of what was found: from results alone, and never where nothing was."""

from __future__ import annotations

import json
import socket
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from gbnf_server.backends.base import Completion
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.planner.events import Run, SalvagedAnswer, Step
from gbnf_server.planner.salvage import read, salvage
from support.models import make_model
from support.server import completion, scripted


def step(number: int, name: str, result: dict[str, Any] | None, error: str | None = None) -> Step:
    return Step(number, "", {"name": name, "arguments": {}}, result=result, error=error)


def run_of(*steps: Step, answer: str | None = None) -> Run:
    outcome, error = ("answered", None) if answer is not None else ("exhausted", "no answer")
    return Run(outcome, answer, error, "find my notes", "1", steps, (), datetime.now(UTC), 1.0)  # type: ignore[arg-type]  # a literal of the two


FOUND = run_of(
    step(1, "find_files", {"entries": ["notes/a.md", "notes/b.md"]}),
    step(2, "read_files", None, "there is no such file"),
    step(3, "get_now", {"date": "2026-11-21", "time": "10:32"}),
)


def test_results_are_listed_with_the_steps_that_they_came_from() -> None:
    salvaged = salvage(FOUND)
    assert salvaged is not None
    assert salvaged.text == (
        "This was done before it stopped:\n"
        "- find_files: notes/a.md, notes/b.md\n"
        "- get_now: date: 2026-11-21; time: 10:32"
    )
    assert (salvaged.by, salvaged.steps) == ("list", (1, 3))


def test_equal_results_are_listed_once_whatever_the_order_of_their_keys() -> None:
    salvaged = salvage(run_of(step(1, "look", {"a": 1, "b": 2}), step(2, "look", {"b": 2, "a": 1})))
    assert salvaged is not None
    assert salvaged.steps == (1,)


def test_nothing_is_salvaged_from_an_answer_or_from_nothing() -> None:
    assert salvage(run_of(*FOUND.steps, answer="two notes")) is None
    assert salvage(run_of(step(1, "read_files", None, "no"))) is None


def test_a_list_in_a_result_is_its_members() -> None:
    salvaged = salvage(run_of(step(1, "look", {"names": ["a", "b"], "tags": []})))
    assert salvaged is not None
    assert salvaged.text == "names: a, b; tags: nothing"


def test_a_long_result_is_truncated_in_the_list() -> None:
    salvaged = salvage(run_of(step(1, "read_files", {"entries": ["x" * 5000]})))
    assert salvaged is not None
    assert len(salvaged.text) < 700


@pytest.mark.parametrize(
    ("said", "steps"),
    [
        ("There are two notes.\n\nThe second could not be read.", (1, 3)),
        ("It is Saturday [3], says the clock [3]; the year is [2026].", (3,)),
    ],
)
def test_a_model_words_the_answer_from_the_results_only(said: str, steps: tuple[int, ...]) -> None:
    written = completion(f"<think>I look</think>{said}")
    with scripted(completion=[written]) as script, LlamaServer(script.url) as server:
        salvaged = salvage(FOUND, server, grammar=False)
        asked = json.dumps(script.asked)
    assert salvaged == SalvagedAnswer(said, "model", steps)
    assert "notes/a.md" in asked
    assert "there is no such file" not in asked


QUESTION = "Is rome.md new, yes or no?"


@pytest.mark.parametrize(
    "said",
    [
        '{"name": "find_files", "arguments": {"base_path": "."}}',
        '<tool_call>{"name": "find_files", "arguments": {}}</tool_call>',
        '{"name": "final_answer", "arguments": {"message": ""}}',
        "<answer>",
        '{"name": "get_now trips/rome"]}}',
        '[{"name": "x"',
        'The request was: what is new? [1] find_files: {"step": 1, "result": {}}',
        "The request was: what is new?",
        "The answer is:\n" * 10,
        "Answer the request from this alone, and say what is missing.",
        "github.github.github.github",
        "Answer in plain text, and nothing else.",
        "Is rome.md new, yes or",
        *("tool: find_files", "[1]", "[1] 4.4", " [1].\n"),
    ],
)
def test_a_call_the_prompt_and_endless_words_are_no_answer(said: str) -> None:
    salvaged = read(Completion(said, "stop"), QUESTION, FOUND.steps[:1])
    assert (salvaged.text, salvaged.by) == ("notes/a.md, notes/b.md", "list")
    assert salvaged.error.startswith("error: the model ")


@pytest.mark.parametrize(
    "said",
    [
        "[1] has two notes.",
        *("[2026]", "4.4 [1]", "The tool: find_files.", "tool: find_files, which lists files"),
        "The notes are notes/rome.md and notes/paris.md [1].",
        "- a\n- b\n- c",
        "0, 0, 0, 0, 0, 0, 0, 0",
        "| a | b |\n|---|---|\n| 1 | 1 |\n| 1 | 1 |",
        "No, no, no: nothing was found.",
        *("Yes", "rome.md", "👍"),  # a short one may be a part of the request
    ],
)
def test_an_answer_with_repetitions_of_its_own_is_kept(said: str) -> None:
    assert read(Completion(said, "stop"), QUESTION, FOUND.steps[:1]) == SalvagedAnswer(said, "model", (1,))
    called = json.dumps({"name": "final_answer", "arguments": {"message": said}})
    assert read(Completion(called, "stop"), QUESTION, FOUND.steps[:1]) == SalvagedAnswer(said, "model", (1,))


def test_a_truncated_answer_of_the_model_is_not_trusted(tmp_path: Path) -> None:
    with InProcess(make_model(tmp_path / "tiny.gguf", context=4096)) as model:
        salvaged = salvage(FOUND, model, max_tokens=16)
    assert salvaged is not None
    assert salvaged.steps == (1, 3)
    assert salvaged.by == "list"
    assert salvaged.error.startswith("error: ")


def test_without_a_response_the_answer_is_the_list_of_results() -> None:
    with (
        socket.create_server(("127.0.0.1", 0)) as listening,
        LlamaServer(f"http://127.0.0.1:{listening.getsockname()[1]}") as silent,
    ):
        salvaged = salvage(FOUND, silent, language="it", timeout_s=0.2)
    assert salvaged is not None
    assert salvaged.by == "list"
    assert salvaged.text.startswith("Prima di fermarsi")
    assert salvaged.error.startswith("hang: ")
