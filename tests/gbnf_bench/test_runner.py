"""Runs: from cases to records and scores, with the embedded model and with texts that are given."""

from __future__ import annotations

import dataclasses
import json
import re
import shutil
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf import load_manifests
from gbnf_bench import code_versions
from gbnf_bench.bench_output import ROWS_SHOWN, show
from gbnf_bench.call_matching import references_of
from gbnf_bench.configurations import CONFIGURATIONS, named
from gbnf_bench.dsl import call, case, contains, suite
from gbnf_bench.errors import ResultsFileError
from gbnf_bench.report import report
from gbnf_bench.result_files import replace_file
from gbnf_bench.results import Results, write_step_grammars
from gbnf_bench.run_log import RunLog, RunRecord
from gbnf_bench.runner import Bench, RunOptions
from gbnf_bench.scoring import score
from gbnf_bench.tables import case_table, compare_tables, quality_table
from gbnf_server.backends.base import Completion
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.server_process import LlamaServerProcess
from gbnf_server.planner.events import StepStarted
from gbnf_server.planner.runs.fingerprints import describe_model, identity
from gbnf_server.planner.runs.recording import grammar_text
from gbnf_server.planner.runs.run_files import read_events, read_step_grammars
from gbnf_server.planner.runs.run_log import RunLogError
from gbnf_server.system.errors import (
    BackendError,
    BackendUnreachableError,
    ServerResponseError,
    SetupError,
)
from support.effort import scaled
from support.executors import bundled_tools
from support.folders import full_disk
from support.scripts import Told

TOOLS = tuple(bundled_tools().values())
REFERENCES = references_of(TOOLS)
SUITE = suite(
    "small",
    case("create a folder trips", calls=[call("create_dirs", paths=["trips"])], after={"folders": ["trips"]}),
    case("what time is it", calls=[call("get_now")], answer=contains("10:32")),
    case("order a pizza", abstain=True),
)


def _json(name: str, **arguments: Any) -> str:
    return json.dumps({"name": name, "arguments": arguments})


FOLDER, NOW = _json("create_dirs", paths=["trips"]), _json("get_now")
DONE = _json("final_answer", message="It is 10:32.")


def _bench(backend: Any, configurations: Sequence[str] = ("filter",), **options: Any) -> Bench:
    return Bench([SUITE], named(configurations), TOOLS, backend, model="m", options=RunOptions(**options))


def _results(records: Sequence[RunRecord]) -> Results:
    about = {
        "label": "x",
        "made_at": "now",
        "versions": {},
        "machine": {},
        "options": {},
        "model": {"name": "told"},
    }
    return Results(about, CONFIGURATIONS, (SUITE,), REFERENCES, tuple(records))


@pytest.fixture(scope="module")
def embedded() -> Iterator[InProcess]:
    with InProcess(model_path()) as model:
        yield model


@pytest.mark.slow
def test_the_grammars_of_steps_are_those_that_the_model_got(tmp_path: Path) -> None:
    first, tools = {}, {}
    for name in ("baseline", "text", "grammar", "union", "filter"):
        asked: list[str] = []

        class Watching(Told):
            def respond(self, messages: Sequence[Any], **limits: Any) -> Completion:
                asked.append(grammar_text(limits["grammar"]))  # noqa: B023  # called inside the loop
                return super().respond(messages, **limits)

        bench = _bench(Watching(NOW, FOLDER, "no call", DONE), [name])
        with RunLog(tmp_path / f"{name}.jsonl") as log:
            records = [record for _, record in bench.run_all(log)]
        grammars = bench.step_grammars(records)
        stored = json.loads(json.dumps(write_step_grammars(grammars)))
        assert read_step_grammars(stored, "x") == {
            key: {offer: text if text.endswith("\n") else f"{text}\n" for offer, text in found.items()}
            for key, found in grammars.items()
            if found
        }
        found = [
            grammars["small", name].get(event.offer, "")
            for record in records
            for event in read_events(record.events, "the log")
            if isinstance(event, StepStarted)
        ]
        assert len(found) > 6
        assert found == asked
        first[name], tools[name] = asked[0], len(records[0].events[0]["tools"])
        results = dataclasses.replace(_results(records), grammars=grammars)
        again = Results.from_json(json.loads(json.dumps(results.to_json())))
        assert report(again) == report(results)
        assert report(results).count("data-lines=") == sum(map(bool, asked))
    assert first["baseline"] == first["text"] == ""
    assert len({first[name] for name in ("grammar", "union", "filter")}) == 3
    assert tools["filter"] < tools["union"] == tools["grammar"] == tools["baseline"] == len(TOOLS)


def _model_calls(record: RunRecord) -> list[tuple[str, int, int]]:
    """What the model wrote, the length of its prompt, and how much of that it remembered."""
    return [
        (event["text"], event["usage"]["prompt_tokens"], event["usage"]["cached_tokens"])
        for event in record.events
        if event["event"] == "model_called"
    ]


@pytest.mark.slow
@pytest.mark.parametrize("warm", [True, False])
def test_warm_runs_reuse_prompts(embedded: InProcess, warm: bool) -> None:
    bench = _bench(embedded, ["filter"], warm=warm)
    bench.run(bench.jobs[0])
    assert (_model_calls(bench.run(bench.jobs[0]))[0][2] > 0) == warm


@pytest.mark.slow
def test_a_stored_run_scores_as_the_live_one(tmp_path: Path) -> None:
    bench = _bench(Told(FOLDER, DONE), ["baseline", "filter"])
    with RunLog(tmp_path / "a.jsonl") as log:
        live = {job.key: score(job.case, record, REFERENCES) for job, record in bench.run_all(log)}
        records = list(log.records.values())
    with RunLog(tmp_path / "a.jsonl") as log:
        assert [each.to_json() for each in log.records.values()] == [
            json.loads(json.dumps(each.to_json())) for each in records
        ]
    path = tmp_path / "a.json"
    path.write_text(json.dumps(_results(records).to_json()))
    stored = Results.load(path)
    assert {run.record.key: run.score for run in stored.scored} == live
    assert quality_table(stored) == quality_table(_results(records))
    [*tables] = compare_tables(stored, stored)
    assert [table.heads[0] for table in tables] == ["baseline", "filter"]


def test_half_a_surrogate_pair_is_kept_as_it_is_read_again(tmp_path: Path) -> None:
    with RunLog(tmp_path / "a.jsonl") as log:
        list(_bench(Told(_json("final_answer", message="\ud800"))).run_all(log))
        kept = log.records
    with RunLog(tmp_path / "a.jsonl") as log:
        assert log.records == kept
    text = json.dumps(_results(list(kept.values())).to_json(), ensure_ascii=False)
    replace_file(tmp_path / "a.json", text)
    assert json.loads((tmp_path / "a.json").read_bytes()) == json.loads(text)


def test_a_file_is_replaced_as_a_whole_or_not_at_all(tmp_path: Path) -> None:
    path = tmp_path / "a.json"
    path.write_text("before")
    with full_disk(10), pytest.raises(SetupError, match="File too large"):
        replace_file(path, "after " * 10)
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a.json", "before")]
    replace_file(path, "after \ud800")
    assert [(file.name, file.read_text()) for file in tmp_path.iterdir()] == [("a.json", "after ?")]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("change", "said"),
    [
        (lambda stored: stored.update(runs=[]), "no run of its cases"),
        (lambda stored: stored.update(configurations=[]), "no run of its cases"),
        (lambda stored: stored.update(model={}), "'name'"),
        (lambda stored: stored.update(format=1), "its format is 1, and this version reads 2"),
        (lambda stored: stored["runs"][0].update(events=[]), "IndexError"),
        (lambda stored: stored["runs"][0]["events"][-1]["run"].pop("steps"), "'steps'"),
        (lambda stored: stored["runs"][0].update(events=[[]]), "TypeError"),
    ],
)
def test_a_stored_bench_that_cannot_be_scored_is_named(
    tmp_path: Path, change: Callable[[Any], None], said: str
) -> None:
    with RunLog(tmp_path / "a.jsonl") as log:
        list(_bench(Told(FOLDER, DONE)).run_all(log))
        stored = json.loads(json.dumps(_results(list(log.records.values())).to_json()))
    change(stored)
    (tmp_path / "a.json").write_text(json.dumps(stored))
    with pytest.raises(ResultsFileError, match=rf"a\.json is not a JSON file .*{said}"):
        Results.load(tmp_path / "a.json")


@pytest.mark.slow
def test_a_server_at_another_address_is_the_same_model(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    facts = {"name": "llama-server at :1", "file": "m.gguf", "build": "b1", "slots": 1}
    elsewhere = {**facts, "name": "llama-server at :2", "slots": 4}
    assert identity(facts) == identity(elsewhere) != identity({**facts, "file": "n.gguf"})
    assert identity({"name": "a"}) != identity({"name": "b"})
    backend: Any = Told(FOLDER, DONE)
    with RunLog(path) as log:
        list(_bench(backend).run_all(log))
    backend.name = "told elsewhere"
    with RunLog(path) as log:
        assert _bench(backend).remaining(log) == ()


@pytest.mark.slow
def test_each_case_has_its_numbers(tmp_path: Path) -> None:
    with RunLog(tmp_path / "a.jsonl") as log:
        list(_bench(Told(FOLDER, DONE), runs=6).run_all(log))
        stored = _results(list(log.records.values())).to_json()["by_case"]["filter"]
    assert {name: case["converged"]["value"] for name, case in stored.items()} == {
        "small/create-a-folder-trips": 1, "small/what-time-is-it": 0, "small/order-a-pizza": 0,
    }  # fmt: skip
    assert stored["small/what-time-is-it"]["run_p50"].keys() == {"value", "low", "high"}
    assert "steps" not in stored["small/what-time-is-it"]


@pytest.mark.slow
@pytest.mark.parametrize("fault", [BackendUnreachableError("gone"), ServerResponseError(503, "later")])
def test_what_was_done_is_never_done_again(tmp_path: Path, fault: BackendError) -> None:
    path = tmp_path / "a.jsonl"
    backend_error = Told(FOLDER, DONE, lost_after=3, fault=fault)  # in the middle of the second case
    with RunLog(path) as log, pytest.raises(type(fault)):
        list(_bench(backend_error, runs=2).run_all(log))
    again: Any = Told(FOLDER, DONE)
    with RunLog(path) as log:
        bench = _bench(again, runs=2)
        assert len(bench.remaining(log)) == len(bench.jobs) - 1
        list(bench.run_all(log))
        assert len(again.asked) == 2 * (len(bench.jobs) - 1)
        list(bench.run_all(log))
        assert len(again.asked) == 2 * (len(bench.jobs) - 1)
        assert [record.seed for record in log.records.values()] == [0, 1] * 3
        other = Bench([SUITE], named(["filter"]), TOOLS, again, model="another", options=RunOptions())
        assert len(other.remaining(log)) == 3


@pytest.mark.slow
def test_runs_of_other_code_versions_and_seeds_are_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "tools" / "get_now"
    shutil.copytree(next(tool.path.parent for tool in TOOLS if tool.name == "get_now" and tool.path), folder)
    backend: Any = Told(NOW, DONE)

    def bench(**options: Any) -> Bench:
        tools = load_manifests(folder.parent)
        one = suite("now", case("what time is it", calls=[call("get_now")]), tools=tools)
        return Bench([one], named(["text"]), tools, backend, model="m", options=RunOptions(**options))

    def remaining(**options: Any) -> int:
        with RunLog(tmp_path / "a.jsonl") as log:
            return len(bench(**options).remaining(log))

    for seed in (0, 1, 0):
        with RunLog(tmp_path / "a.jsonl") as log:
            list(bench(seed=seed).run_all(log))
    assert len((tmp_path / "a.jsonl").read_bytes().splitlines()) == 2
    (folder / "notes.txt").write_text("no code")
    assert remaining() == 0
    (folder / "helper.py").write_text("")
    assert remaining() == 1
    (folder / "helper.py").unlink()
    assert remaining() == 0
    with (folder / "executor.py").open("a") as file:
        file.write("# changed\n")
    assert remaining() == 1
    with RunLog(tmp_path / "a.jsonl") as log:
        list(bench().run_all(log))
    assert remaining() == 0
    monkeypatch.setattr(code_versions, "version", lambda _package: "9.9.9")
    assert remaining() == 1


def test_a_damaged_log_can_be_begun_anew(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    path.write_text("garbage\n")
    with pytest.raises(RunLogError, match="--fresh"):
        RunLog(path)
    with RunLog(path, fresh=True) as log:
        assert log.records == {}
        with pytest.raises(RunLogError, match="in use"):
            RunLog(path, fresh=True)
    assert path.read_bytes() == b""


@pytest.mark.slow
def test_the_run_of_a_truncated_line_is_repeated(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with RunLog(path) as log:
        list(_bench(Told(FOLDER, DONE)).run_all(log))
    whole = path.read_bytes()
    path.write_bytes(whole[:-10])
    with RunLog(path) as log:
        bench = _bench(Told(FOLDER, DONE))
        assert [job.case.id for job in bench.remaining(log)] == ["order-a-pizza"]
        list(bench.run_all(log))
    assert len(path.read_bytes().splitlines()) == len(whole.splitlines())


def test_a_log_is_not_shared_and_not_guessed_at(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    with RunLog(path), pytest.raises(RunLogError, match="in use"):
        RunLog(path)
    path.write_text('{"a": 1}\n')
    with pytest.raises(RunLogError, match="line 1"):
        RunLog(path)
    for text in ("[]", '{"format": 3}', "{"):
        path.write_text(text)
        with pytest.raises(ResultsFileError, match=r"a\.jsonl"):
            Results.load(path)


@pytest.mark.slow
@settings(max_examples=scaled(8))  # each starts processes
@given(
    st.lists(
        st.sampled_from([FOLDER, NOW, DONE, "no call", _json("create_dirs", paths=["/trips"])]),
        min_size=1,
        max_size=4,
    )
)
def test_scores_are_consistent(texts: list[str]) -> None:
    bench = _bench(Told(*texts, DONE), ["baseline"])
    for job in bench.jobs[:1]:
        record = bench.run(job)
        found = score(job.case, record, REFERENCES)
        again = score(job.case, RunRecord.from_json(json.loads(json.dumps(record.to_json()))), REFERENCES)
        assert found == again
        assert found.converged == (not found.faults)
        assert found.exact_matches <= found.named <= found.needed
        assert found.false_positives + found.exact_matches <= found.executed
        assert found.executed + found.blocked <= found.steps
        made = "trips" in record.after.folders
        assert found.converged == (made and found.outcome == "answered")


@pytest.mark.parametrize(
    ("texts", "converged", "abstained", "false_positives"),
    [((DONE,), True, True, 0), ((NOW, DONE), False, False, 1), (("no call",), False, False, 0)],
)
def test_abstaining_is_answering_without_a_call(
    texts: tuple[str, ...], converged: bool, abstained: bool, false_positives: int
) -> None:
    bench = _bench(Told(*texts))
    [job] = [job for job in bench.jobs if job.case.abstain]
    found = score(job.case, bench.run(job), REFERENCES)
    assert (found.converged, found.abstained, found.false_positives) == (
        converged,
        abstained,
        false_positives,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("said", "faults"), [("undo_last_turn", ()), ("get_now", ("one event that should go has not gone",))]
)
def test_an_event_that_is_taken_back_is_gone(said: str, faults: tuple[str, ...]) -> None:
    dentist = {"title": "Dentist", "starts": ["2026-11-23T09:00"]}
    undo = case(
        "undo that",
        before={"calls": [{"name": "create_events", "arguments": dentist}]},
        calls=[call("undo_last_turn")],
        after={"gone_events": [{"title": "Dentist"}]},
    )
    bench = Bench(
        [suite("undo", undo)], named(["text"]), TOOLS, _told(_json(said)), model="m", options=RunOptions()
    )
    [job] = bench.jobs
    assert score(job.case, bench.run(job), REFERENCES).faults == faults


def _told(*texts: str) -> Any:
    return Told(*texts, DONE)


def test_tables_and_page_show_what_a_model_wrote_as_text(tmp_path: Path) -> None:
    evil = "<script>alert(1)</script>| & \x1b[31m"
    with RunLog(tmp_path / "a.jsonl") as log:
        list(_bench(Told(evil)).run_all(log))
        results = _results(list(log.records.values()))
    page = report(results)
    assert page.count("<script") == 1
    assert " src=" not in page
    assert re.findall(r' href="(.*?)"', page) == ["data:,"]
    assert "&lt;script&gt;alert(1)" in page
    assert case_table(results).rows[0][2] == "✗"


def test_cases_that_are_too_many_to_list_are_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with RunLog(tmp_path / "a.jsonl") as log:
        [first, *_] = [record for _, record in _bench(Told(DONE)).run_all(log)]
    for count in (ROWS_SHOWN, ROWS_SHOWN + 1):
        cases = [case("order a pizza", id=f"c{number}", abstain=True) for number in range(count)]
        records = [dataclasses.replace(first, suite="many", case=f"c{number}") for number in range(count)]
        results = dataclasses.replace(_results(records), suites=(suite("many", *cases),))
        show(results, markdown=False)
        shown = capsys.readouterr().out
        assert ("c39" in shown) == (count == ROWS_SHOWN)
        assert (f"the report lists the {count} cases" in shown) == (count > ROWS_SHOWN)


def test_the_page_confines_long_and_right_to_left_texts(tmp_path: Path) -> None:
    turned = "\u202eturned"
    odd = suite("odd", case("word " * 200, abstain=True), case(turned, abstain=True, answer=contains("no")))
    backend: Any = Told(_json("final_answer", message="yes"))
    bench = Bench([odd], named(["text"]), TOOLS, backend, model="m", options=RunOptions())
    with RunLog(tmp_path / "a.jsonl") as log:
        list(bench.run_all(log))
        results = dataclasses.replace(_results(list(log.records.values())), suites=(odd,))
    page = report(results)
    heads = re.findall(r'<span class="query">(.*?)</span>', page)
    assert [len(head) < 400 for head in heads] == [True, True]
    assert f"<bdi>{turned}</bdi>" in heads[1]
    assert "word " * 199 in page
    assert "expected: <code>{&#34;abstain&#34;: true, &#34;answer&#34;" in page
    assert "Every metric of text, by complexity" in page


def test_a_server_identifies_its_model(llama_server: LlamaServerProcess, tmp_path: Path) -> None:
    with LlamaServer(llama_server.url) as backend:
        facts = describe_model(backend)
        assert facts["file"] == "tiny.gguf"
        assert identity(facts) == identity({**facts})
        bench = Bench(
            [SUITE], named(["union"]), TOOLS, backend, model=identity(facts), options=RunOptions(max_tokens=8)
        )
        with RunLog(tmp_path / "a.jsonl") as log:
            assert len(list(bench.run_all(log))) == 3


@pytest.mark.usefixtures("brief_pauses")
def test_an_unreachable_server_stops_the_bench(tmp_path: Path) -> None:
    with LlamaServer("http://127.0.0.1:1") as backend, pytest.raises(BackendUnreachableError):
        describe_model(backend)
