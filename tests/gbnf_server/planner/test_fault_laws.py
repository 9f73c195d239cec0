"""Whatever fails in the middle of a batch or an extraction, nothing is lost and nothing is done twice."""

from __future__ import annotations

import asyncio
import json
import threading
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf.tools import Tool
from gbnf_server.backends.answer import answer
from gbnf_server.executors import Context, Field, Form, ScriptedPerson, Workspace
from gbnf_server.planner import Planner, PlannerOptions
from gbnf_server.planner.batch import Batch, BatchRequest, BatchResult
from gbnf_server.planner.drivers import RunEnvironment, astream, drive
from gbnf_server.planner.events import Event, RunFinished, ToolCalled, ToolDone, ToolFailed
from gbnf_server.planner.extraction import ExtractionError, Extractor
from gbnf_server.planner.loop import plan
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.system.errors import (
    AnswerTimeoutError,
    BackendError,
    ContextOverflowError,
    ExecutorError,
    ExecutorTimeoutError,
)
from support.by_hand import ANSWER, call, ticking
from support.effort import scaled
from support.faults import LASTING, PASSING, Failing, Fault, Killed, Said, dying_log, lasting_part, schedules

WORD = {"type": "object", "properties": {"word": {"type": "string"}}, "required": ["word"]}


def _tool(name: str, effect: str, *, confirm: bool = False) -> Tool:
    value = {"name": name, "description": f"The tool {name}.", "args": WORD}
    return Tool.from_mapping({**value, "run": {"effect": effect, "confirm": confirm}})


TOOLS = (_tool("note", "write"), _tool("look", "read"), _tool("drop", "write", confirm=True))
WORDS = st.sampled_from(["a", "b", "late", "bad"])
CALLS = st.builds(lambda name, word: call(name, word=word), st.sampled_from(["note", "look", "drop"]), WORDS)
QUESTIONS = st.just(call("ask_user", question="which?", options=["x", "y"]))
TEXTS = st.lists(CALLS | CALLS | QUESTIONS | st.sampled_from(LASTING) | st.just("no"), max_size=4)
SCRIPTS = st.lists(TEXTS.map(lambda texts: (*texts, ANSWER)), min_size=1, max_size=3)


class Deciding(ScriptedPerson):
    """A person who says yes, no, or nothing, each time as the call or question was answered before."""

    def __init__(self, decisions: Mapping[str, bool | None]) -> None:
        self._decisions = decisions
        self.counts: Counter[str] = Counter()

    def approve(self, call: Mapping[str, Any]) -> bool:
        self.counts["approval"] += 1
        decision = self._decisions.get(call["arguments"]["word"])
        if decision is None:
            raise ExecutorError("nobody is there")
        return decision

    def answer(self, form: Form) -> dict[str, Any]:
        self.counts["question"] += 1
        return {field.var: field.options[0] for field in form.fields}


async def until_hanging(values: AsyncGenerator[Any], hanging: asyncio.Event, most: int) -> list[Any]:
    """Return so many values. Raises CancelledError if the backend hangs before."""
    results: list[Any] = []
    while len(results) < most:
        hung, value = asyncio.create_task(hanging.wait()), asyncio.ensure_future(anext(values))
        await asyncio.wait({hung, value}, return_when=asyncio.FIRST_COMPLETED)
        hung.cancel()
        if not value.done():
            value.cancel()
        results.append(await value)
    return results


class Process:
    """One process after another on one log: what ran, and what each had from the model."""

    def __init__(self, scripts: Sequence[Sequence[Said]], decisions: Mapping[str, bool | None]) -> None:
        self.requests = [BatchRequest(f"r{number}", f"request {number}") for number in range(len(scripts))]
        self.texts = {one.query: texts for one, texts in zip(self.requests, scripts, strict=True)}
        self.person = Deciding(decisions)
        self.executed: Counter[str] = Counter()
        self.said: Counter[tuple[str, int]] = Counter()

    def run(
        self,
        folder: Path,
        schedule: Sequence[tuple[Fault, int]] = (),
        *,
        concurrency: int = 1,
        check: Callable[[], None] = lambda: None,
    ) -> list[BatchResult]:
        backend = Failing(self.texts, schedule)

        def execute(tool: Tool, arguments: Mapping[str, Any], context: Context) -> dict[str, Any]:
            check()
            self.executed[f"{context.turn} {tool.name} {arguments['word']}"] += tool.run.effect == "write"
            check()
            if arguments["word"] == "late":
                raise ExecutorTimeoutError(tool.name, 3)
            if arguments["word"] == "bad":
                raise ExecutorError("no such word")
            return {"entries": [arguments["word"]]}

        async def collect() -> list[BatchResult]:
            backend.hanging = asyncio.Event()
            async with aclosing(batch.results(concurrency)) as stream:
                return await until_hanging(stream, backend.hanging, len(self.requests))

        options = PlannerOptions(
            salvage=True,
            ask_user=True,
            call_format="json",
            max_seconds=1000.0,
            repeat_calls=True,
            max_tools=None,
        )
        context = Context(Workspace(folder / "world"), person=self.person)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr("gbnf_server.planner.batch.replay.run_executor", execute)
            planner = Planner(TOOLS, backend, options, context=context)
            try:
                with Batch(self.requests, planner, folder / "log") as batch:
                    return asyncio.run(collect())
            finally:
                self.said += backend.said
                assert backend.open == 0


@settings(max_examples=scaled(150), deadline=None)
@given(
    TEXTS,
    st.dictionaries(WORDS, st.booleans() | st.none()),
    schedules((*PASSING, *LASTING, ContextOverflowError(9, 5))),
    st.booleans(),
    st.booleans(),
    st.none() | st.integers(1, 20),
)
def test_a_run_ends_with_run_finished(
    texts: Sequence[Said],
    decisions: Mapping[str, bool | None],
    schedule: list[tuple[Fault, int]],
    is_blocking: bool,
    resumes: bool,
    most: int | None,
) -> None:
    """Whatever a backend and a person do, and wherever the caller stops."""
    backend, events = Failing({"go": (*texts, ANSWER)}, schedule), []
    executed: list[str] = []
    raised: BackendError | None = None

    def execute(tool: Tool, arguments: Mapping[str, Any], _context: Context) -> dict[str, Any]:
        executed.append(tool.name)
        if arguments["word"] == "bad":
            raise ExecutorError("no such word")
        return {"entries": [arguments["word"]]}

    def take(event: Event) -> bool:
        events.append(event)
        return len(events) == most

    async def run_in_loop() -> None:
        async with aclosing(astream(planning, environment, text=True)) as stream:
            async for event in stream:
                if take(event):
                    return

    with TemporaryDirectory() as name:
        context = Context(Workspace(Path(name)), person=Deciding(decisions))
        answers = partial(answer, backend)
        environment = RunEnvironment(answers, context, (), execute, resumes=resumes)
        options = ResolvedOptions.resolve(
            PlannerOptions(ask_user=True, call_format="json", max_tools=None), backend
        )
        planning = plan("go", TOOLS, options, turn="t", clock=ticking())
        try:
            if is_blocking:
                with closing(drive(planning, environment, text=True)) as stream:
                    for event in stream:
                        if take(event):
                            break
            else:
                asyncio.run(run_in_loop())
        except BackendError as error:
            raised = error
    has_finished = any(isinstance(event, RunFinished) for event in events)
    assert has_finished == isinstance(events[-1], RunFinished)
    if raised is None:
        assert has_finished or len(events) == most
    else:
        assert (resumes, raised.is_retryable, has_finished) == (True, True, False)
    assert backend.open == 0
    done = [event.name for event in events if isinstance(event, ToolDone | ToolFailed)]
    called = [event.name for event in events if isinstance(event, ToolCalled)]
    assert len(done) <= len(called) <= len(done) + 1
    assert len(executed) <= len(called), "nothing is executed that was not reported before"


INTERRUPTIONS = st.lists(st.tuples(schedules(), st.none() | st.integers(1, 30)), max_size=4)
DECISIONS = st.dictionaries(WORDS, st.booleans() | st.none())


@settings(max_examples=scaled(100), deadline=None)
@given(SCRIPTS, DECISIONS, INTERRUPTIONS, st.integers(1, 3))
def test_an_interrupted_batch_is_an_uninterrupted_one(
    scripts: list[Sequence[Said]],
    decisions: Mapping[str, bool | None],
    interruptions: list[tuple[list[tuple[Fault, int]], int | None]],
    concurrency: int,
) -> None:
    with TemporaryDirectory() as name:
        whole = Process(scripts, decisions)
        expected = whole.run(Path(name, "whole"), concurrency=concurrency)
        process, kills = Process(scripts, decisions), 0
        for schedule, lines in interruptions:
            with dying_log(lines or 10_000) as check:
                try:
                    process.run(Path(name, "cut"), schedule, concurrency=concurrency, check=check)
                except Killed:
                    kills += 1
                except (BackendError, asyncio.CancelledError):
                    pass
        results = process.run(Path(name, "cut"), concurrency=concurrency)
        for one, before in zip(results, expected, strict=True):
            assert one.request == before.request
            if one.outcome == "interrupted":
                assert kills
            else:
                assert lasting_part(one.to_json()) == lasting_part(before.to_json())
        assert process.run(Path(name, "cut")) == results, "what has a result is not run again"
        assert all(count <= max(before, 1) for count, before in _paired(process.executed, whole.executed))
        if not kills:
            assert process.person.counts == whole.person.counts
            if concurrency == 1:
                assert process.said == whole.said, "what has a reply is not asked again"


def _paired(first: Counter[str], second: Counter[str]) -> list[tuple[int, int]]:
    """Return the counts of calls of two processes, whose turns have different names."""
    counts = Counter[str]()
    for key, count in second.items():
        counts[key.split(" ", 1)[1]] = max(count, counts[key.split(" ", 1)[1]])
    return [(count, counts[key.split(" ", 1)[1]]) for key, count in first.items()]


GOOD, BAD = (json.dumps({"name": "Even", "arguments": {"number": number}}) for number in (2, 3))
ANSWERS = st.sampled_from([(GOOD,), (BAD, GOOD), (BAD, BAD), *((error,) for error in LASTING), ("no", GOOD)])
ASKED = st.lists(st.sampled_from(["a", "b", "c", "d", " ", "\ud800"]), min_size=1, max_size=7)


@dataclass
class Even:
    number: int

    def __post_init__(self) -> None:
        if self.number % 2:
            raise ValueError("it is odd")


EXTRACTED_BY = Failing({})
EXTRACTOR = Extractor(Even, EXTRACTED_BY, attempts=2, max_seconds=1000.0, spans=False)


def logged_results(log: Path) -> int:
    """Return how many results are in a log."""
    return log.read_text().count("\n") if log.exists() else 0


def extracted(
    answers: Mapping[str, Sequence[Said]],
    asked: Sequence[str],
    log: Path,
    schedule: Sequence[tuple[Fault, int]] = (),
    *,
    concurrency: int = 1,
    most: int | None = None,
) -> tuple[list[Any], Counter[tuple[str, int]]]:
    """Return the results, of at most `most` texts, and what the model said."""
    EXTRACTED_BY.begin(answers, schedule)

    async def collect() -> list[Any]:
        EXTRACTED_BY.hanging = asyncio.Event()
        async with aclosing(EXTRACTOR.amany(iter(asked), log, concurrency)) as stream:
            wanted = len(asked) if most is None else min(most, len(asked))
            return await until_hanging(stream, EXTRACTED_BY.hanging, wanted)

    results = []
    with suppress(BackendError, asyncio.CancelledError, Killed):
        results = asyncio.run(collect())
    assert EXTRACTED_BY.open == 0
    shown = [
        (str(each), each.attempts) if isinstance(each, ExtractionError) else lasting_part(each.to_json())
        for each in results
    ]
    return shown, EXTRACTED_BY.said


@settings(max_examples=scaled(100), deadline=None)
@given(
    st.fixed_dictionaries(dict.fromkeys("abcd", ANSWERS)),
    ASKED,
    st.lists(
        st.tuples(schedules(), st.none() | st.integers(1, 7), st.none() | st.integers(0, 4)), max_size=4
    ),
    st.integers(1, 3),
)
def test_an_interrupted_extraction_is_an_uninterrupted_one(
    answers: Mapping[str, Sequence[Said]],
    asked: list[str],
    interruptions: list[tuple[list[tuple[Fault, int]], int | None, int | None]],
    concurrency: int,
) -> None:
    with TemporaryDirectory() as name:
        expected, _ = extracted(answers, asked, Path(name, "whole"), concurrency=concurrency)
        assert len(expected) == len(asked)
        logged = 0
        for schedule, lines, most in interruptions:
            with dying_log(lines or 10_000):
                extracted(answers, asked, Path(name, "cut"), schedule, concurrency=concurrency, most=most)
            now = logged_results(Path(name, "cut"))
            assert now >= logged, "what has a result keeps it"
            logged = now
        results, last = extracted(answers, asked, Path(name, "cut"), concurrency=concurrency)
        assert results == expected
        texts = Counter(text for text in asked if text.strip() and text.isascii())
        assert logged_results(Path(name, "cut")) == texts.total(), "one result for each text"
        assert sum(count for (_, made), count in last.items() if made == 0) == texts.total() - logged
        assert extracted(answers, asked, Path(name, "cut")) == (expected, Counter())


class Late(ScriptedPerson):
    """A person who answers once `answers` is set. `was_asked` is set when the question comes."""

    def __init__(self) -> None:
        self.was_asked, self.answers = threading.Event(), threading.Event()

    def answer(self, form: Form) -> dict[str, Any]:
        self.was_asked.set()
        self.answers.wait()
        return {field.var: "x" for field in form.fields}


def test_an_answer_after_the_end_of_a_run_is_no_result(tmp_path: Path) -> None:
    person, ended = Late(), threading.Event()
    form = Form("F", (Field("answer", "which?", "text"),))

    def execute(_tool: Tool, _arguments: Any, context: Context) -> dict[str, Any]:
        try:
            return {"entries": [context.person.answer(form)["answer"]]}
        finally:
            ended.set()

    script = {"go": (call("look", word="a"), ANSWER)}
    context = Context(Workspace(tmp_path / "world"), person=person)
    planner = Planner(TOOLS, Failing(script), PlannerOptions(call_format="json"), context=context)

    async def run() -> None:
        with Batch([BatchRequest("r", "go")], planner, tmp_path / "log") as batch:
            async with aclosing(batch.results()) as results:
                task = asyncio.ensure_future(anext(results))
                await asyncio.to_thread(person.was_asked.wait)
                task.cancel()
                with pytest.raises(asyncio.CancelledError):
                    await task
            person.answers.set()
            await asyncio.to_thread(ended.wait)
            async with aclosing(batch.results()) as results:
                [result] = [each async for each in results]
        assert result.run is not None
        assert [step["result"] for step in result.run["steps"]] == [{"entries": ["x"]}, None]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("gbnf_server.planner.batch.replay.run_executor", execute)
        asyncio.run(run())


@pytest.mark.parametrize("slow", [1, 2, 5])
def test_a_slow_answer_ends_its_own_run_and_a_server_that_hangs_all(slow: int, tmp_path: Path) -> None:
    answers = dict.fromkeys("abcde", (GOOD,))
    late = [(AnswerTimeoutError("it has not begun to answer"), 0)] * slow
    results, _ = extracted(answers, "abcde", tmp_path / "log", late)
    assert len(results) == (0 if slow == 5 else 5)
    assert logged_results(tmp_path / "log") == 5 - slow
    results, said = extracted(answers, "abcde", tmp_path / "log")
    assert len(results) == 5
    assert said.total() == slow
