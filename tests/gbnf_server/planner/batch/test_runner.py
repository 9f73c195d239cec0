"""Whatever ends a batch, and wherever: it goes on, nothing is executed twice, nothing is lost."""

from __future__ import annotations

import asyncio
import io
import json
import shutil
from collections import Counter
from collections.abc import Sequence
from contextlib import aclosing
from dataclasses import replace
from itertools import cycle
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf.prompts.messages import Message
from gbnf.tools import Tool
from gbnf_server.backends.base import Backend, Completion, ModelInfo
from gbnf_server.backends.model_traits import ModelTraits
from gbnf_server.executors import AbsentPerson, Context, Form, Person, ScriptedPerson, Workspace
from gbnf_server.planner import Planner, PlannerOptions
from gbnf_server.planner.batch import Batch, BatchRequest, BatchResult, write_result
from gbnf_server.planner.compaction import prompt_size
from gbnf_server.planner.runs.run_log import RunLogError
from gbnf_server.system.errors import BackendUnreachableError, ContextOverflowError, ServerResponseError
from support.backends import FakeBackend
from support.by_hand import ANSWER, call
from support.effort import scaled
from support.faults import lasting_part
from support.scripts import HANDLE, Copying, Script
from support.small_models import FORMAT, odds, written
from support.toys import make_tool

REQUESTS = tuple(BatchRequest(f"r{number}", f"request {number}") for number in range(3))
GO = [BatchRequest("r", "go")]
#: Each request notes two words and looks once.
TEXTS = {
    one.query: (call("note", word=f"{one.id}-a"), call("look"), call("note", word=f"{one.id}-b"), ANSWER)
    for one in REQUESTS
}
LOOKING = {one.query: (call("look"), call("look"), ANSWER) for one in REQUESTS}
WORDS = Counter(f"{one.id}-{letter}" for one in REQUESTS for letter in "ab")


@pytest.fixture(scope="module")
def tools(tmp_path_factory: pytest.TempPathFactory) -> tuple[Tool, Tool]:
    """`note` adds a line to a file, which shows how often it was executed; `look` only reads."""
    folder = tmp_path_factory.mktemp("tools")
    note = make_tool(
        folder,
        "note",
        """
        with open(str(context.workspace.root) + "/notes.txt", "a") as file:
            file.write(arguments["word"] + "\\n")
        return {"noted": arguments["word"]}
        """,
        args={"properties": {"word": {"type": "string"}}, "required": ["word"]},
        effect="write",
    )
    return note, make_tool(folder, "look", 'return {"seen": "nothing"}')


@pytest.fixture
def looks(tools: tuple[Tool, ...], monkeypatch: pytest.MonkeyPatch) -> tuple[Tool, ...]:
    """The tools, `look` without a process of its own: for tests of what does not depend on it."""
    monkeypatch.setattr("gbnf_server.planner.batch.replay.run_executor", lambda *_: {"seen": "nothing"})
    return tools


def planner(tools: tuple[Tool, ...], backend: Backend, folder: Path, **given: Any) -> Planner:
    person = given.pop("person", AbsentPerson(approve_all=True))
    options = PlannerOptions(**{"max_tokens": 64, "salvage": False, **given})
    return Planner(tools, backend, options, context=Context(Workspace(folder / "world"), person=person))


def results(batch: Batch, concurrency: int = 2, on_result: Any = None) -> list[BatchResult]:
    async def collect() -> list[BatchResult]:
        return [result async for result in batch.results(concurrency, on_result)]

    return asyncio.run(collect())


def notes(folder: Path) -> Counter[str]:
    path = folder / "world" / "notes.txt"
    return Counter(path.read_text().split() if path.exists() else ())


def run(
    tools: tuple[Tool, ...],
    folder: Path,
    script: Backend | None = None,
    requests: Sequence[BatchRequest] = REQUESTS,
    **options: Any,
) -> list[BatchResult]:
    with Batch(requests, planner(tools, script or Script(TEXTS), folder, **options), folder / "log") as batch:
        return results(batch)


def outcomes(*given: Any, **options: Any) -> list[str]:
    return [one.outcome for one in run(*given, **options)]


def test_each_new_result_is_told_once(looks: tuple[Tool, ...], tmp_path: Path) -> None:
    seen: list[str] = []
    for expected in ([one.id for one in REQUESTS], []):
        with Batch(REQUESTS, planner(looks, Script(LOOKING), tmp_path), tmp_path / "log") as batch:
            found = results(batch, 2, lambda one: seen.append(one.request.id))
        assert [one.request for one in found] == list(REQUESTS)
        assert {one.outcome for one in found} == {"answered"}
        assert sorted(seen) == expected
        seen.clear()


@pytest.fixture(scope="module")
def finished(
    tools: tuple[Tool, ...], tmp_path_factory: pytest.TempPathFactory
) -> tuple[Path, list[BatchResult]]:
    """A batch that ran to its end: its folder, with a copy beside it, and its results."""
    folder = tmp_path_factory.mktemp("batch") / "batch"
    whole = run(tools, folder)
    shutil.copytree(folder, folder.with_name("as-finished"))
    return folder, whole


def restored(folder: Path) -> tuple[Path, list[bytes]]:
    """The folder as the batch left it, and the lines of its log."""
    shutil.rmtree(folder)
    shutil.copytree(folder.with_name("as-finished"), folder)
    return folder, (folder / "log").read_bytes().splitlines(keepends=True)


@pytest.mark.slow
@settings(max_examples=scaled(20))  # each takes a batch of real tools
@given(data=st.data())
def test_after_a_kill_it_resumes_and_executes_nothing_twice(
    tools: tuple[Tool, ...], finished: tuple[Path, list[BatchResult]], data: st.DataObject
) -> None:
    whole = finished[1]
    folder, lines = restored(finished[0])
    kept = data.draw(st.integers(0, len(lines)), label="lines of the log that are there")
    torn = data.draw(st.integers(0, 40), label="bytes of the next line") if kept < len(lines) else 0
    rest = lines[kept][: min(torn, len(lines[kept]) - 1)] if kept < len(lines) else b""
    (folder / "log").write_bytes(b"".join(lines[:kept]) + rest)
    entries = [json.loads(line) for line in lines[1:kept]]
    begun = [one for one in entries if one["kind"] == "begun" and one["call"]["name"] == "note"]
    # the state as it was then: all that had begun by then, and no more
    (folder / "world" / "notes.txt").write_text(
        "".join(one["call"]["arguments"]["word"] + "\n" for one in begun)
    )
    ends = Counter(one["id"] for one in entries if one["kind"] == "done")
    starts = Counter(one["id"] for one in entries if one["kind"] == "begun")
    in_progress = {one["id"]: one["call"] for one in entries if one["kind"] == "begun"}
    cut = {
        name
        for name, call_made in in_progress.items()
        if starts[name] > ends[name] and call_made["name"] == "note"
    }

    resumed = run(tools, folder)

    assert max(notes(folder).values(), default=0) <= 1
    assert {one.request.id for one in resumed if one.outcome == "interrupted"} == cut
    for one, before in zip(resumed, whole, strict=True):
        if one.request.id in cut:
            assert one.interrupted == in_progress[one.request.id]
        else:
            assert one.outcome == before.outcome
            assert {word for word in notes(folder) if word.startswith(one.request.id)} == {
                f"{one.request.id}-a",
                f"{one.request.id}-b",
            }
    assert run(tools, folder, Script({})) == resumed, "what is done is not done again"


@pytest.mark.parametrize(
    ("status", "answers"), [*zip([401, 403, 404, 408, 429, 500, 502, 503], cycle([0, 3, 7]), strict=False)]
)
def test_a_server_that_refuses_all_requests_stops_the_batch_which_can_resume(
    looks: tuple[Tool, ...], tmp_path: Path, status: int, answers: int
) -> None:
    away = Script(LOOKING, lost_after=answers, fault=ServerResponseError(status, "later"))
    with pytest.raises(ServerResponseError, match="later"):
        run(looks, tmp_path, away, salvage=True)
    script = Script(LOOKING)
    assert outcomes(looks, tmp_path, script, salvage=True) == ["answered"] * 3
    assert script.asked == sum(map(len, LOOKING.values())) - answers


def test_a_run_on_a_server_that_ignored_the_grammar_resumes(looks: tuple[Tool, ...], tmp_path: Path) -> None:
    texts = {one.query: ("Sure!", call("look"), ANSWER) for one in REQUESTS}
    lost, script = Script(texts, lost_after=4), Script(texts)
    # so that the first text is ended where it leaves the grammar
    lost.enforces_grammar = script.enforces_grammar = False
    with pytest.raises(BackendUnreachableError):
        run(looks, tmp_path, lost)
    assert outcomes(looks, tmp_path, script) == ["answered"] * 3
    assert script.asked == sum(map(len, texts.values())) - 4


def test_a_log_that_lacks_an_entry_cannot_be_resumed(looks: tuple[Tool, ...], tmp_path: Path) -> None:
    with pytest.raises(BackendUnreachableError):
        run(looks, tmp_path, Script(LOOKING, lost_after=1))
    log = tmp_path / "log"
    begun = next(line for line in log.read_text().splitlines(keepends=True) if '"begun"' in line)
    log.write_text(log.read_text().replace(begun, "", 1))
    with pytest.raises(
        RunLogError, match=r"cannot resume from .*: the log has 'done' where the run expects 'begun'"
    ):
        run(looks, tmp_path, Script(LOOKING))


class Odds(Script):
    """A small model that is asked at its first token whether it calls."""

    model = ModelInfo(traits=ModelTraits(tool_format=FORMAT, parameters=500_000_000))

    def respond(self, messages: Sequence[Message], **limits: Any) -> Completion:
        said = super().respond(messages, **limits)
        return odds(3.0) if limits["max_tokens"] == 1 else said


def test_the_odds_of_a_small_model_are_replayed(looks: tuple[Tool, ...], tmp_path: Path) -> None:
    look = written({"name": "look", "arguments": {}})
    texts = {one.query: (look, "Nothing was seen.") for one in REQUESTS}
    whole, lost, script = Odds(texts), Odds(texts, lost_after=2), Odds(texts)
    expected = run(looks, tmp_path / "whole", whole)
    with pytest.raises(BackendUnreachableError):
        run(looks, tmp_path, lost)
    found = run(looks, tmp_path, script)
    assert [lasting_part(one.to_json()) for one in found] == [lasting_part(one.to_json()) for one in expected]
    assert script.asked == whole.asked - 2


def test_closing_the_results_ends_the_runs(looks: tuple[Tool, ...], tmp_path: Path) -> None:
    script = Script({one.query: (ANSWER,) for one in REQUESTS})

    async def take_one() -> None:
        with Batch(REQUESTS, planner(looks, script, tmp_path), tmp_path / "log") as batch:
            async with aclosing(batch.results(1)) as stream:
                await anext(stream)

    asyncio.run(take_one())
    assert script.asked < len(REQUESTS)


@pytest.mark.parametrize("status", [400, 413, 422])
def test_what_a_server_refuses_of_a_request_is_its_result(
    looks: tuple[Tool, ...], tmp_path: Path, status: int
) -> None:
    refused = Script({}, lost_after=0, fault=ServerResponseError(status, "no"))
    for script in (refused, Script({})):
        assert outcomes(looks, tmp_path, script) == ["failed"] * 3


@pytest.mark.parametrize("answers", [1, 2])
def test_an_unapproved_call_is_replayed(tmp_path: Path, answers: int) -> None:
    tools = (make_tool(tmp_path, "drop", effect="write", confirm=True), make_tool(tmp_path, "look"))
    texts = {"go": (call("drop"), call("drop"), ANSWER)}
    options: dict[str, Any] = {"person": AbsentPerson(), "repeat_calls": True}
    with pytest.raises(BackendUnreachableError):
        run(tools, tmp_path, Script(texts, lost_after=answers), GO, **options)
    [result] = run(tools, tmp_path, Script(texts), GO, **options)
    assert result.outcome == "answered"
    assert result.run is not None
    assert [step["fault"] for step in result.run["steps"]] == ["denied", "denied", None]


class Typing(ScriptedPerson):
    """Types the same password wherever one is wanted."""

    def answer(self, form: Form) -> dict[str, Any]:
        return dict.fromkeys((field.var for field in form.fields), "hunter2")


@pytest.mark.slow
@pytest.mark.parametrize("person", [Typing(), AbsentPerson()])
def test_a_credential_is_asked_for_again_and_never_in_the_log(tmp_path: Path, person: Person) -> None:
    ask = make_tool(
        tmp_path,
        "ask",
        """
        from gbnf_server.executors import Field, Form
        return {"entries": list(context.ask(Form("F", (Field("pw", "Password?", "credentials"),))).values())}
        """,
    )
    use = make_tool(
        tmp_path,
        "use",
        'return {"length": len(context.secret(arguments["word"]))}',
        args={"properties": {"word": {"type": "string"}}, "required": ["word"]},
        effect="write",
    )
    texts = {"go": (call("ask"), call("use", word=HANDLE), call("use", word=HANDLE), ANSWER)}
    with pytest.raises(BackendUnreachableError):
        run((ask, use), tmp_path, Copying(texts, lost_after=2), GO, person=Typing(), repeat_calls=True)
    [result] = run((ask, use), tmp_path, Copying(texts), GO, person=person, repeat_calls=True)
    assert result.run is not None
    assert result.run["steps"][1]["result"] == {"length": len("hunter2")}
    step = result.run["steps"][2]
    if isinstance(person, AbsentPerson):
        assert "credentials are not stored, and must be entered again: there is nobody" in step["error"]
    else:
        assert step["result"] == {"length": len("hunter2")}
    assert "hunter2" not in (tmp_path / "log").read_text()


def test_another_workspace_is_refused(looks: tuple[Tool, ...], tmp_path: Path) -> None:
    run(looks, tmp_path, Script(LOOKING))
    (tmp_path / "other").mkdir()
    with pytest.raises(
        RunLogError, match=f"belongs to the workspace {tmp_path}/world, not to .*/other/world"
    ):
        Batch(REQUESTS, planner(looks, Script({}), tmp_path / "other"), tmp_path / "log")


def test_a_workspace_that_is_a_file_fails_only_its_request_and_can_be_corrected(
    looks: tuple[Tool, ...], tmp_path: Path
) -> None:
    (tmp_path / "world").mkdir()
    (tmp_path / "world" / "file").touch()
    asked = [BatchRequest("r0", "request 0", workspace="file"), *REQUESTS[1:]]
    for outcome in ("failed", "answered"):
        found = run(looks, tmp_path, Script(LOOKING), asked)
        assert [one.outcome for one in found] == [outcome, "answered", "answered"]
        assert ("cannot be used as the workspace" in str(found[0].to_json()["error"])) == (
            outcome == "failed"
        )
        if outcome == "failed":
            (tmp_path / "world" / "file").unlink()


def test_a_log_that_cannot_be_written_is_named(looks: tuple[Tool, ...], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(RunLogError, match="file/log can't be written"):
        Batch(REQUESTS, planner(looks, Script({}), tmp_path), tmp_path / "file" / "log")


@pytest.mark.slow
def test_cancelled_it_waits_for_the_tool_and_keeps_what_it_gave(
    tools: tuple[Tool, ...], tmp_path: Path
) -> None:
    async def cut_short() -> None:
        with Batch(REQUESTS, planner(tools, Script(TEXTS), tmp_path), tmp_path / "log") as batch:
            stream = batch.results(3)
            task = asyncio.ensure_future(anext(stream))
            while not notes(tmp_path):  # noqa: ASYNC110  # it is another process's file
                await asyncio.sleep(0.001)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
            await stream.aclose()

    asyncio.run(cut_short())
    assert outcomes(tools, tmp_path) == ["answered"] * 3
    assert notes(tmp_path) == WORDS


@pytest.mark.slow
def test_a_request_may_have_a_workspace_of_its_own(tools: tuple[Tool, ...], tmp_path: Path) -> None:
    script = Script({"go": (call("note", word="here"), ANSWER)})
    run(tools, tmp_path, script, [BatchRequest("r0", "go", workspace="one")])
    assert (tmp_path / "world" / "one" / "notes.txt").read_text() == "here\n"


def test_a_workspace_outside_the_batchs_is_refused(tools: tuple[Tool, ...], tmp_path: Path) -> None:
    with pytest.raises(RunLogError, match="'r0': its workspace"):
        run(tools, tmp_path, None, [BatchRequest("r0", "request 0", workspace="../elsewhere")])
    assert not (tmp_path / "elsewhere").exists()


def test_other_tools_settings_and_requests_of_the_same_name_are_refused(
    looks: tuple[Tool, ...], tmp_path: Path
) -> None:
    run(looks, tmp_path, Script(LOOKING))
    changed = (replace(looks[0], descriptions={"en": "Another."}), *looks[1:])
    with pytest.raises(RunLogError, match="other tools, settings, another model or version"):
        run(changed, tmp_path, Script({}))
    with pytest.raises(RunLogError, match="other tools, settings, another model or version"):
        run(looks, tmp_path, Script({}), max_tokens=65)
    with pytest.raises(RunLogError, match="'r1' differs"):
        run(looks, tmp_path, Script({}), [BatchRequest("r1", "something else")])
    with Batch(REQUESTS, planner(looks, Script({}), tmp_path), tmp_path / "log"):  # noqa: SIM117  # the log is locked
        with pytest.raises(RunLogError, match="in use"):
            run(looks, tmp_path, Script({}))


def test_requests_may_be_added_later(looks: tuple[Tool, ...], tmp_path: Path) -> None:
    run(looks, tmp_path, Script(LOOKING), REQUESTS[:1])
    script = Script(LOOKING)
    assert outcomes(looks, tmp_path, script) == ["answered"] * 3
    assert script.asked == 2 * 3


def test_a_file_that_is_not_a_log_is_unchanged(tools: tuple[Tool, ...], tmp_path: Path) -> None:
    (tmp_path / "log").write_text('{"some": "thing"}\n')
    with pytest.raises(RunLogError, match="line 1: this is no entry of the log"):
        run(tools, tmp_path)
    assert (tmp_path / "log").read_text() == '{"some": "thing"}\n'


@pytest.mark.slow
def test_a_tool_that_reads_may_be_asked_again_after_a_kill(
    tools: tuple[Tool, ...], finished: tuple[Path, list[BatchResult]]
) -> None:
    folder, lines = restored(finished[0])
    index = next(number for number, line in enumerate(lines) if b'"begun"' in line and b'"look"' in line)
    one = json.loads(lines[index])["id"]
    (folder / "log").write_bytes(
        b"".join(line for line in lines[: index + 1] if json.loads(line).get("id") in (None, one))
    )
    (folder / "world" / "notes.txt").write_text(f"{one}-a\n")
    assert outcomes(tools, folder) == ["answered"] * 3
    assert notes(folder) == WORDS


@pytest.mark.slow
@pytest.mark.parametrize(
    ("body", "shown"),
    [
        ("import signal\nos.kill(os.getpid(), signal.SIGRTMIN + 3)\ntime.sleep(60)", "killed by SIGRTMIN+3"),
        ("deep = []\nfor _ in range(940): deep = [deep]\nreturn {'deep': deep}", "nested deeper than 64"),
        (r"raise ExecutorError('half a \ud800 character')", "half a \ufffd character"),
        (r"return {'entries': ['a\udcff.txt', 'b']}", "a\ufffd.txt"),  # as a search finds it
    ],
)
def test_what_a_tool_does_badly_is_written_and_resumed(tmp_path: Path, body: str, shown: str) -> None:
    body = "from gbnf_server.executors import ExecutorError\n" + body
    bad = make_tool(tmp_path, "bad", body, effect="write")
    texts = {"go": (call("bad"), call("bad"), ANSWER)}

    def batch(script: Script) -> str:
        file = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
        for one in run((bad,), tmp_path, script, GO, repeat_calls=True):
            write_result(file, one)
        file.seek(0)
        return file.read()

    with pytest.raises(BackendUnreachableError):
        batch(Script(texts, lost_after=1))
    [line] = batch(Script(texts)).splitlines()
    assert json.loads(line)["outcome"] == "answered"
    for step in json.loads(line)["steps"][:2]:
        assert shown in (step["error"] or step["result"]["entries"])
    assert batch(Script({})).splitlines() == [line]


class Tight(FakeBackend):
    """A model that takes few bytes and counts none: only refusals tell that a prompt is too long."""

    def __init__(self) -> None:
        self.prompts: list[Sequence[Message]] = []

    def respond(self, messages: Sequence[Message], **_limits: Any) -> Completion:
        if prompt_size(messages) > 2500:
            raise ContextOverflowError(None, None)
        self.prompts.append(messages)
        steps = sum(message["content"].count('{"step": ') for message in messages)
        return Completion(call("peek", at=steps) if steps < 7 else ANSWER, "stop")


@pytest.mark.slow
def test_an_interrupted_run_shows_its_history_as_it_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peek = make_tool(tmp_path / "tools", "peek", args={"properties": {"at": {"type": "integer"}}})
    monkeypatch.setattr("gbnf_server.planner.batch.replay.run_executor", lambda *_: {"seen": "word " * 200})

    def finish(log: Path) -> tuple[Tight, list[BatchResult]]:
        model = Tight()
        asked = planner((peek,), model, tmp_path, max_tokens=512, repeat_calls=True)
        with Batch(REQUESTS[:1], asked, log) as batch:
            return model, results(batch)

    whole, [result] = finish(tmp_path / "log")
    assert result.outcome == "answered"
    lines = (tmp_path / "log").read_bytes().splitlines(keepends=True)
    after = {number for number, line in enumerate(lines, 1) if b"ContextOverflowError" in line}
    assert len(after) >= 2
    for kept in sorted({*range(1, len(lines), 4), *after}):
        (tmp_path / "log").write_bytes(b"".join(lines[:kept]))
        model, [resumed] = finish(tmp_path / "log")
        assert resumed.outcome == "answered"
        assert model.prompts == whole.prompts[len(whole.prompts) - len(model.prompts) :]
