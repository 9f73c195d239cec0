"""Long histories: laws of runs in a small context, then tables, then real models."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf.prompts.messages import Image, Message
from gbnf_server.backends.base import Completion, Usage
from gbnf_server.backends.in_process import InProcess
from gbnf_server.llama.demo_model import model_path
from gbnf_server.planner import Event, HistoryCompacted, Planner, PlannerOptions, Run
from gbnf_server.planner.compaction import PromptMeter, prompt_size
from gbnf_server.planner.events import CallModel, ExecuteTool, StepStarted, ToolDone
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.system.errors import ContextOverflowError, ExecutorError
from support.by_hand import ANSWER, POOL, Driven, call, drive_by_hand, resolved
from support.effort import scaled
from support.executors import world

BYTES_PER_TOKEN = 4


@dataclass
class SmallModel:
    """Writes `texts` in turn, and refuses prompts that do not fit.

    `counts`: it says how many tokens it read; `known`: and how long its context is.
    """

    texts: Sequence[str]
    context: int
    counts: bool = True
    known: bool = True
    written: int = 0
    prompts: list[tuple[Message, ...]] = field(default_factory=list)

    def __call__(self, effect: CallModel) -> Completion | ContextOverflowError:
        messages = tuple(effect.request.messages)
        tokens = prompt_size(messages) // BYTES_PER_TOKEN
        self.prompts.append(messages)
        if tokens >= self.context:
            return ContextOverflowError(tokens if self.counts else None, self.context if self.known else None)
        text = self.texts[min(self.written, len(self.texts) - 1)]
        self.written += 1
        return Completion(
            text, "stop", Usage(tokens if self.counts else 0, 9),
            context_length=self.context if self.known else None,
        )  # fmt: skip


ENTRIES = st.lists(st.text("abc/. ", min_size=1, max_size=12) | st.just("long " * 200), max_size=12)
REPLIES = st.one_of(
    st.builds(lambda entries: {"entries": entries}, ENTRIES),
    st.just({"text": "word " * 500}),
    st.just(ExecutorError("it failed: " + "because " * 90)),
)
CALLS = st.one_of(
    st.builds(lambda n: call("compute", expression=str(n)), st.integers(0, 9)),
    st.builds(lambda n: call("find_files", base_path=f"folder {n}", pattern="*"), st.integers(0, 9)),
    st.builds(lambda step: call("read_files", from_step=step), st.integers(1, 12)),
    st.builds(lambda n: call("create_dirs", paths=["x" * 300 + str(n)]), st.integers(0, 9)),
    st.just("no call at all"),
)


@dataclass
class Case:
    options: ResolvedOptions
    model: SmallModel
    driven: Driven


@st.composite
def cases(draw: st.DrawFn) -> Case:
    options = resolved(
        max_steps=draw(st.integers(2, 14)),
        max_blocked=9,
        compact=draw(st.sampled_from([True, True, True, False])),
        call_format=draw(st.sampled_from(["json", "lines"])),
        constrained=draw(st.booleans()),
        language=draw(st.sampled_from(["en", "it"])),
        max_tokens=draw(st.sampled_from([16, 512])),
        reasoning=draw(st.sampled_from(["off", "off", "free"])),
        filter=False,
        prompt_style="minimal",
    )
    model = SmallModel(
        draw(st.lists(CALLS, min_size=1, max_size=14)),
        draw(st.integers(300, 2000)),
        counts=draw(st.booleans()),
        known=draw(st.booleans()),
    )
    driven = drive_by_hand(SOME, [model], replies=draw(st.lists(REPLIES, max_size=14)), options=options)
    return Case(options, model, driven)


SOME = [tool for tool in POOL if tool.name in {"compute", "find_files", "read_files", "create_dirs"}]


@settings(max_examples=scaled(200))
@given(cases())
def test_laws_of_compacted_runs(case: Case) -> None:
    messages_stay_well_formed(case)
    entries_that_a_step_refers_to_are_never_compacted(case)
    a_compaction_never_grows_and_in_between_prompts_only_grow(case)
    a_run_fails_only_if_the_shortest_history_does_not_fit(case)
    without_compaction_the_history_is_sent_whole(case)


def messages_stay_well_formed(case: Case) -> None:
    for effect in case.driven.of(CallModel):
        system, user, *pairs = without_reasoning(effect)
        assert (system["role"], user["role"]) == ("system", "user")
        assert user["content"].startswith("do something")
        assert [message["role"] for message in pairs] == ["assistant", "tool"] * (len(pairs) // 2)
        for message in pairs[1::2]:
            assert isinstance(json.loads(message["content"])["step"], int)
        numbers = [json.loads(message["content"])["step"] for message in pairs[1::2]]
        assert numbers == list(range(effect.step - len(numbers), effect.step))
        assert effect.step == 1 or numbers, "the last step is there"
    assert len({effect.request.messages[0]["content"] for effect in case.driven.of(CallModel)}) == 1


def without_reasoning(effect: CallModel) -> tuple[Message, ...]:
    """The conversation before what asks for free reasoning."""
    messages = list(effect.request.messages)
    if messages[-1]["role"] == "user" and len(messages) > 2:
        del messages[-2:]
    last = messages[-1]
    asking = ("\n\nBefore the next call", "\n\nPrima della prossima")
    content = last["content"]
    for text in asking:
        content = content.partition(text)[0]
    return (*messages[:-1], {**last, "content": content})


def entries_that_a_step_refers_to_are_never_compacted(case: Case) -> None:
    entries: dict[int, Any] = {}
    refers_to: tuple[int, ...] = ()
    for request in case.driven.requests:
        match request:
            case StepStarted():
                refers_to = request.refers_to
                assert set(refers_to) == set(entries)
            case ToolDone() if request.result.get("entries"):
                entries[request.step] = request.result["entries"]
            case CallModel():
                text = "\n".join(message["content"] for message in request.request.messages)
                for step in refers_to:
                    assert f'{{"step": {step}, ' in text
            case ExecuteTool() if "paths" in request.arguments and request.tool.name == "read_files":
                assert request.arguments["paths"] in entries.values()
    for done in case.driven.run.steps:
        if done.result is not None and "entries" in done.result:
            assert done.result["entries"] == entries.get(done.number, []), "the run keeps whole results"


def a_compaction_never_grows_and_in_between_prompts_only_grow(case: Case) -> None:
    before: tuple[Message, ...] = ()
    compacted = False
    number = 0
    for request in case.driven.requests:
        match request:
            case HistoryCompacted():
                assert case.options.compact
                assert request.tokens_after <= request.tokens_before
                assert request.steps == tuple(range(1, len(request.steps) + 1))
                assert 0 < len(request.steps) < request.step
                compacted = True
            case CallModel(purpose="call"):
                messages = without_reasoning(request)
                if not compacted:
                    assert messages[: len(before)] == before
                elif number == request.step:
                    assert prompt_size(messages) < prompt_size(before)
                before, compacted, number = messages, False, request.step


def a_run_fails_only_if_the_shortest_history_does_not_fit(case: Case) -> None:
    run = case.driven.run
    calls = case.driven.of(CallModel)
    assert len(run.steps) <= case.options.max_steps
    assert len(calls) <= 2 * case.options.max_steps + 2 * len(case.driven.of(HistoryCompacted)) + 1
    if run.outcome != "failed":
        return
    assert "do not fit" in str(run.error)
    if case.options.compact:
        _, user, *pairs = without_reasoning(calls[-1])
        assert len(pairs) <= 2
        assert all(len(line) < 400 for line in user["content"].splitlines())
        if pairs:
            assert len(pairs[1]["content"]) < 600


def without_compaction_the_history_is_sent_whole(case: Case) -> None:
    if not case.options.compact:
        assert case.driven.of(HistoryCompacted) == []
        for effect in case.driven.of(CallModel):
            assert len(without_reasoning(effect)) == 2 * effect.step


def compute(n: int) -> str:
    return call("compute", expression=str(n))


def driven(texts: Sequence[str], context: int, replies: Sequence[Any], **options: Any) -> Driven:
    chosen = resolved(**{"max_tokens": 16, "filter": False, "prompt_style": "minimal", **options})
    return drive_by_hand(SOME, [SmallModel(texts, context)], replies=replies, options=chosen)


def test_tiers_in_their_order() -> None:
    """The same results and calls in smaller and smaller contexts."""
    texts = [*(compute(n) for n in range(10)), ANSWER]
    replies = [{"entries": [f"entry {n}"], "text": "word " * 300} for n in range(10)]
    strongest = []
    for context in (8000, 3200, 1500, 900):
        done = driven(texts, context, replies)
        assert done.run.outcome == "answered"
        strongest.append(max((event.tier for event in done.of(HistoryCompacted)), default=0))
        whole = driven(texts, context, replies, compact=False).run
        assert whole.outcome == ("answered" if context == 8000 else "failed")
    assert strongest == sorted(strongest)
    assert (strongest[0], strongest[-1]) == (0, 4)


@pytest.mark.parametrize(("known", "reported"), [(None, 99), (99, None), (None, None)])
def test_a_prompt_that_did_not_fit_exceeds_the_context(known: int | None, reported: int | None) -> None:
    meter = PromptMeter(known).overflowed(ContextOverflowError(None, reported), ())
    assert meter.estimate(0) > (known or reported or 0)


def test_it_compacts_rarely_and_ahead_of_the_call() -> None:
    texts = [*(compute(n) for n in range(40)), ANSWER]
    replies = [{"text": "word " * 100} for _ in range(40)]
    done = driven(texts, 2000, replies, max_steps=50, max_seconds=None)
    assert done.run.outcome == "answered"
    assert len(done.of(CallModel)) == len(done.run.steps), "no call was in vain"
    assert 1 <= len(done.of(HistoryCompacted)) <= 6


def test_lines_say_the_call_and_its_outcome() -> None:
    texts = [compute(1), "no call", *(compute(n) for n in range(2, 8)), ANSWER]
    replies = [
        {"entries": ["a", "b"]},
        ExecutorError("no such number"),
        *({"text": "word " * 400} for _ in "abcde"),
    ]
    done = driven(texts, 1000, replies)
    [*_, last] = done.of(CallModel)
    lines = [
        json.loads(line) for line in last.request.messages[1]["content"].splitlines() if line.startswith("{")
    ]
    assert [line["step"] for line in lines] == list(range(1, len(lines) + 1))
    assert len(lines) >= 3
    assert lines[0]["call"] == "compute"
    assert "error" in lines[1]
    assert (lines[2]["call"], lines[2]["error"]) == ("compute", "no such number")
    assert done.run.outcome == "answered"


@pytest.mark.parametrize("before", [0, 2])
def test_tools_that_an_answer_added_stay_described(before: int) -> None:
    """They are described below the answer, which becomes a line."""
    steps = [*(compute(n) for n in range(before)), call("ask_user", question="Where?")]
    texts = [*steps, *(compute(n) for n in range(before, 8)), ANSWER]
    model = SmallModel(texts, 1600)
    done = drive_by_hand(
        POOL,
        [model],
        query="find my report",
        answers=["in google drive"],
        replies=[{"text": "word " * 300} for _ in range(8)],
        options=resolved(ask_user=True, max_tokens=16, prompt_style="minimal"),
    )
    assert [event.tier for event in done.of(HistoryCompacted)][-1] >= 2
    for prompt in model.prompts[before + 1 :]:
        assert sum(message["content"].count("\nfind_files_google_workspace(") for message in prompt) == 1


def test_images_stay_with_the_request() -> None:
    model = SmallModel([*(compute(n) for n in range(8)), ANSWER], 900)
    image = Image(b"x", "image/png")
    options = resolved(max_tokens=16, prompt_style="minimal")
    replies = [{"text": "word " * 300} for _ in range(8)]
    done = drive_by_hand(SOME, [model], replies=replies, options=options, images=(image,))
    assert done.run.outcome == "answered"
    assert all(prompt[1]["images"] == (image,) for prompt in model.prompts)
    assert done.of(HistoryCompacted)


@pytest.mark.slow
@pytest.mark.skipif(not model_path().is_file(), reason="there is no embedded model yet")
def test_a_real_model_finishes_what_did_not_fit(tmp_path: Path) -> None:
    """The embedded model with half of its context."""

    def run(*, compact: bool) -> tuple[Run, list[HistoryCompacted]]:
        context = world(tmp_path / str(compact))
        (context.workspace.root / "notes").mkdir()
        for number in range(4):
            (context.workspace.root / "notes" / f"notes{number}.md").write_text("Remember the milk. " * 40)
        seen: list[Event] = []
        options = PlannerOptions(compact=compact, salvage=False)
        with InProcess(model_path(), context_length=512) as model:
            planner = Planner(POOL, model, options, context=context, hooks=[seen.append])
            finished = planner.run("find all md files in notes and read them")
        return finished, [event for event in seen if isinstance(event, HistoryCompacted)]

    whole, _ = run(compact=False)
    assert whole.outcome == "failed"
    assert "do not fit" in str(whole.error)
    finished, compactions = run(compact=True)
    assert (finished.outcome, finished.error) == ("answered", None)
    assert [step.name for step in finished.steps] == ["find_files", "read_files", "final_answer"]
    assert str(finished.answer).startswith("notes/notes0.md says: Remember the milk.")
    assert [event.tier for event in compactions] == [3]
