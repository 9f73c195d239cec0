"""`gbnf bench` as a person types it, with the embedded model."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gbnf_bench.results import Results
from gbnf_bench.run_log import RunLog, RunRecord
from gbnf_bench.snapshots import Snapshot
from gbnf_server.cli import main
from gbnf_server.cli.errors import ExitCode
from gbnf_server.system.errors import SetupError
from support.folders import full_disk
from support.server import Reply, scripted

SUITE = """
[[cases]]
query = "create a folder trips"
calls = [{ name = "create_dirs", arguments = { paths = ["trips"] } }]
after.folders = ["trips"]

[[cases]]
query = "what time is it"
complexity = "ambiguous"
calls = [{ name = "get_now" }]
answer.pattern = "10:32"
"""


PINGS = """
from gbnf_bench.dsl import call, case, suite
SUITE = DEFAULT = suite("pings", case("ping it", calls=[call("ping")]))
"""


def _gbnf(*arguments: str) -> int:
    with pytest.raises(SystemExit) as exited:
        main(["bench", *arguments])
    return int(exited.value.code or 0)


@pytest.fixture
def suite(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "small.toml").write_text(SUITE)
    (tmp_path / "broken.py").write_text("x = (")
    (tmp_path / "pings.py").write_text(PINGS)
    (tmp_path / "ping.toml").write_text(
        'name = "ping"\ndescription = "Ping a host."\n[args]\ntype = "object"\n'
    )
    return "small.toml"


@pytest.mark.slow
def test_from_requests_to_a_table(suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ("--suite", suite, "--configuration", "filter", "--configuration", "baseline", "--label", "one")
    assert _gbnf(*command) == ExitCode.SUCCESS
    shown = capsys.readouterr()
    assert "baseline create-a-folder-trips" in shown.err
    lines = [line.split() for line in shown.out.splitlines()]
    assert ["baseline", "100%", "100%", "100%", "0%", "0%", "0.0", "1.00"] in lines
    assert ["what-time-is-it", "ambiguous", "✓", "✓"] in lines
    folder = tmp_path / "gbnf-bench"
    assert {path.name for path in folder.iterdir()} == {"one.jsonl", "one.json", "one.html"}
    log = (folder / "one.jsonl").read_bytes()

    assert _gbnf(*command, "--markdown") == ExitCode.SUCCESS
    again = capsys.readouterr()
    assert "4 runs of 4 are already done" in again.err
    assert "| filter | 100% | 100% | 100% | 0% | 0% | 0.0 | 1.00 |" in again.out
    assert (folder / "one.jsonl").read_bytes() == log

    stored = json.loads((folder / "one.json").read_text())
    assert len(stored["model"]["sha256"]) == 64
    assert stored["numbers"]["filter"]["all"]["converged"]["value"] == 1
    assert {"python", "gbnf-toolkit", "llama-cpp-python"} <= stored["versions"].keys()
    assert stored["options"] == {
        "runs": 1, "temperature": 0.0, "seed": 0, "max_tokens": 512, "warm": False,
    }  # fmt: skip
    before = Results.load(folder / "one.json").scored
    assert {run.record.configuration for run in before if run.score.grammar_s} == {"filter"}
    (folder / "one.html").unlink()
    assert _gbnf("score", "gbnf-bench/one.json", "--markdown") == ExitCode.SUCCESS
    assert (folder / "one.html").is_file()
    assert Results.load(folder / "one.json").scored[0].score == before[0].score
    capsys.readouterr()

    assert _gbnf("compare", "gbnf-bench/one.json", "gbnf-bench/one.json") == ExitCode.SUCCESS
    compared = capsys.readouterr().out
    assert ["converged", "100%", "100%", "0"] in [line.split() for line in compared.splitlines()]

    (folder / "one.html").unlink()
    (folder / "one.html").mkdir()
    for last in (("score", "gbnf-bench/one.json"), command):
        assert _gbnf(*last) == ExitCode.ENVIRONMENT
        assert "one.html can't be written: Is a directory" in capsys.readouterr().err


CLOCK = """
[[cases]]
query = "what time is it"
calls = [{ name = "get_now" }]
answer.pattern = "10:32"

[[cases]]
query = "hello"
abstain = true
"""


def _ollama(name: str, **arguments: object) -> Reply:
    text = json.dumps({"name": name, "arguments": arguments})
    body = {"message": {"role": "assistant", "content": text}, "done": True, "done_reason": "stop"}
    return Reply(200, {**body, "prompt_eval_count": 9, "eval_count": 3})


@pytest.mark.slow
def test_a_model_of_ollama_gets_the_same_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "clock.toml").write_text(CLOCK)
    names = ["baseline", "text", "union", "filter", "auto"]
    now, told = _ollama("get_now"), _ollama("final_answer", message="It is 10:32.")
    turns = [now, told] * len(names) + [told] * len(names)
    turns[3] = _ollama("final_answer", message="No idea.")  # of "text"
    command = ["--suite", str(tmp_path / "clock.toml"), "--out", str(tmp_path), "--label", "one", "--quiet"]
    answers: dict[str, list[Any]] = {"api/chat": [*turns]}
    with scripted(**answers) as script:
        command += ["--backend", "ollama", "--model", "m", "--server", script.url]
        assert _gbnf(*command) == ExitCode.SUCCESS
        shown = capsys.readouterr()
        assert f"not run: grammar: Ollama's m at {script.url} takes no such grammar" in " ".join(
            shown.err.split()
        )
        assert len(script.asked) == len(turns)
        assert all(body["model"] == "m" for _, body in script.asked)
        assert ["format" in body for _, body in script.asked[:10:2]] == [False, False, True, True, True]
        for least, code, rare in (
            ("0.5", ExitCode.SUCCESS, ""),
            ("0.51", ExitCode.FAILURE, "converged in fewer than 51 % of the runs: text 1 of 2\n"),
            ("1", ExitCode.FAILURE, "converged in fewer than 100 % of the runs: text 1 of 2\n"),
        ):
            assert _gbnf(*command, "--min-converged", least) == code
            assert capsys.readouterr().err.endswith(rare)
        assert _gbnf(*command, "--configuration", "grammar") == ExitCode.USAGE
        assert "none is left: use baseline or text" in capsys.readouterr().err
    stored = json.loads((tmp_path / "one.json").read_text())
    assert stored["numbers"]["union"]["all"]["calls_made"]["value"] == 0.5
    assert [score["calls_made"] for score in stored["scores"]] == [1] * len(names) + [0] * len(names)
    assert [each["name"] for each in stored["configurations"]] == names
    assert "what time is it" in (tmp_path / "one.html").read_text()
    assert Results.load(tmp_path / "one.json").scored


@pytest.mark.slow
@pytest.mark.parametrize("out", ["small.toml", "/proc/nothing", "taken"])
def test_an_output_path_that_cannot_be_written_is_an_error(
    suite: str, tmp_path: Path, capsys: pytest.CaptureFixture[str], out: str
) -> None:
    (tmp_path / "taken" / "one.jsonl").mkdir(parents=True)
    assert _gbnf("--suite", suite, "--label", "one", "--out", out) == ExitCode.ENVIRONMENT
    said = capsys.readouterr().err
    assert f"{out}/one.jsonl can't be written: " in said
    assert "use another --out" in said


def test_a_run_that_cannot_be_logged_is_an_error(tmp_path: Path) -> None:
    record = RunRecord("s", "c", "union", 0, 0, "f", [], Snapshot(), Snapshot())
    with RunLog(tmp_path / "one.jsonl") as log:
        log.add(record)
        size = log.path.stat().st_size
        refused = pytest.raises(SetupError, match=r"one\.jsonl can't be written: .*\. Free some space")
        with full_disk(size), refused:
            log.add(replace(record, case="d"))
    with RunLog(tmp_path / "one.jsonl") as log:
        assert ("s", "c", "union", 0) in {key for key, _ in log.records}


@pytest.mark.slow
def test_the_calls_of_the_chat_template_are_a_configuration(
    suite: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert _gbnf("--suite", suite, "--configuration", "native", "--quiet") == ExitCode.SUCCESS
    assert ["native", "100%"] in [line.split()[:2] for line in capsys.readouterr().out.splitlines()]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--temperature", "inf"), ExitCode.USAGE, "not a valid temperature"),
        (("--temperature", "nan"), ExitCode.USAGE, "--temperature"),
        (("--temperature", "1", "--seed", "-5"), ExitCode.USAGE, "--seed"),
        (("--seed", "4294967295", "--runs", "2"), ExitCode.USAGE, "4294967295 is the maximum"),
        (
            ("--configuration", "magic"),
            ExitCode.USAGE,
            "union, filter, auto, native",
        ),
        (("--suite", "nothing"), ExitCode.INPUT, "representative"),
        (("--suite", "small.toml", "--suite", "./small.toml"), ExitCode.USAGE, "the same name"),
        (("--suite", "nothing.py"), ExitCode.INPUT, "the file does not exist"),
        (("--suite", "broken.py"), ExitCode.INPUT, "line 1: SyntaxError"),
        (("--suite", "pings.py"), ExitCode.INPUT, "no tool of the pool"),
        (
            ("--suite", "pings.py", "--manifests", "ping.toml", "--model", "none.gguf"),
            ExitCode.ENVIRONMENT,
            "none.gguf",
        ),
        (("--model", "a.gguf", "--server", "http://127.0.0.1:1"), ExitCode.USAGE, "not both"),
        (("--limit", "3"), ExitCode.USAGE, "--bfcl"),
        (("--compile-only",), ExitCode.USAGE, "--bfcl"),
        (("--peer", "llama-server"), ExitCode.USAGE, "a peer answers single requests"),
        (("--bfcl", ".", "--suite", "small.toml"), ExitCode.USAGE, "do not apply to --bfcl"),
        (("--bfcl", ".", "--manifests", "."), ExitCode.USAGE, "do not apply to --bfcl"),
        (("--bfcl", ".", "--runs", "2"), ExitCode.USAGE, "do not apply to --bfcl"),
        (("--bfcl", ".", "--compile-only", "--model", "a.gguf"), ExitCode.USAGE, "--compile-only excludes"),
        (
            ("--bfcl", ".", "--compile-only", "--backend", "ollama", "--model", "a"),
            ExitCode.USAGE,
            "excludes",
        ),
        (("--bfcl", ".", "--min-converged", "1"), ExitCode.USAGE, "do not apply to --bfcl"),
        (("--min-converged", "95"), ExitCode.USAGE, "--min-converged"),
        (("--backend", "ollama"), ExitCode.USAGE, "--backend ollama requires --model NAME"),
        (("--label", "a/b"), ExitCode.USAGE, "is not a file name"),
        (("--label", ""), ExitCode.USAGE, "is not a file name"),
        (("--label", ".."), ExitCode.USAGE, "is not a file name"),
        (("--model", "missing.gguf"), ExitCode.ENVIRONMENT, "missing.gguf"),
        (("--bfcl", "."), ExitCode.INPUT, "bfcl_eval/data"),
        (("compare", "small.toml", "small.toml"), ExitCode.INPUT, "not a JSON file"),
        (
            ("score", "none.json"),
            ExitCode.INPUT,
            "cannot be read: No such file or directory. Use a JSON file",
        ),
        (("compare", "none.json", "none.json"), ExitCode.INPUT, "Use a JSON file from `gbnf bench`"),
        (("--server", "http://127.0.0.1:1"), ExitCode.ENVIRONMENT, "gbnf server start"),
    ],
)
@pytest.mark.usefixtures("brief_pauses")
def test_invalid_options_and_inputs_are_errors(
    suite: str, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: ExitCode, said: str
) -> None:
    assert _gbnf(*arguments) == code
    assert said in " ".join(capsys.readouterr().err.replace("│", " ").split())


def test_a_python_suite_can_be_tuned_on(suite: str, capsys: pytest.CaptureFixture[str]) -> None:
    del suite
    with pytest.raises(SystemExit) as exited:
        main(["tune", "--suite", "pings.py", "--manifests", "ping.toml", "--model", "none.gguf", "--dry-run"])
    assert exited.value.code == ExitCode.ENVIRONMENT
    assert "none.gguf" in capsys.readouterr().err
