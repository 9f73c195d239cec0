"""`gbnf batch`: files in, files out, and what an end in the middle leaves."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gbnf_server.cli.errors import ExitCode
from gbnf_server.llama import server_build as build
from gbnf_server.llama.demo_model import model_path
from support.command_line import Gbnf
from support.models import make_model
from support.server import require_llama_server
from support.toys import make_tool


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model(tmp_path_factory.mktemp("model") / "tiny.gguf", context=4096)


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text("utf-8").splitlines()]


@pytest.fixture
def options(model: Path, tmp_path: Path) -> list[object]:
    make_tool(tmp_path / "tools", "ping", 'return {"entries": ["pong"]}')
    work = ["--manifests", tmp_path / "tools", "--workspace", tmp_path / "work", "--max-steps", "1"]
    return ["--model", model, *work]


@pytest.mark.slow
def test_results_stand_beside_the_requests_in_their_order(
    gbnf: Gbnf, options: list[object], tmp_path: Path
) -> None:
    (tmp_path / "asked.jsonl").write_text('"ping"\n{"id": "two", "query": "ping again"}\n')
    result = gbnf("batch", tmp_path / "asked.jsonl", *options)
    found = lines(tmp_path / "asked.results.jsonl")
    assert [one["id"] for one in found] == ["1", "two"]
    assert [one["query"] for one in found] == ["ping", "ping again"]
    assert {one["outcome"] for one in found} <= {"salvaged", "exhausted"}
    assert result.code == ExitCode.FAILURE
    assert "2 requests: " in result.err
    again = gbnf("batch", tmp_path / "asked.jsonl", *options)
    assert (again.code, lines(tmp_path / "asked.results.jsonl")) == (result.code, found)


@pytest.mark.slow
def test_requests_from_standard_input(gbnf: Gbnf, options: list[object], tmp_path: Path) -> None:
    command = ["batch", "-", *options]
    out = tmp_path / "out.jsonl"
    result = gbnf(*command, "--out", out, stdin='"ping"\n"again è"\n')
    assert [one["query"] for one in lines(out)] == ["ping", "again è"]
    assert result.code == ExitCode.FAILURE
    result = gbnf(*command, stdin='"ping"')
    assert result.code == ExitCode.USAGE
    assert "--out FILE" in result.err
    result = gbnf(*command, "--out", out, stdin='"ping"\n{')
    assert result.code == ExitCode.INPUT
    assert "the standard input, line 2" in result.err


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("empty.jsonl", "has no requests"),
        ("object.jsonl", "line 1"),
        ("none.jsonl", "Give a file"),
        (".", "Give a file"),
        ("bytes.jsonl", "as UTF-8"),
    ],
)
def test_requests_that_cannot_be_read(gbnf: Gbnf, tmp_path: Path, name: str, says: str) -> None:
    for stem, content in {"empty": b"", "object": b"{}", "bytes": b'"\xff"\n'}.items():
        (tmp_path / f"{stem}.jsonl").write_bytes(content)
    result = gbnf("batch", tmp_path / name)
    assert result.code == ExitCode.INPUT
    assert says in result.err
    assert not [*tmp_path.glob("*.results.jsonl")]


def test_a_server_that_does_not_exist(gbnf: Gbnf, tmp_path: Path) -> None:
    (tmp_path / "asked.jsonl").write_text('"ping"\n')
    result = gbnf("batch", tmp_path / "asked.jsonl", "--server", "http://127.0.0.1:1", "--quiet")
    assert result.code == ExitCode.ENVIRONMENT
    assert "gbnf server start" in result.err


@pytest.mark.parametrize("name", ["asked.jsonl", "link.jsonl", "hard.jsonl"])
def test_results_never_go_over_the_requests(gbnf: Gbnf, tmp_path: Path, name: str) -> None:
    asked = tmp_path / "asked.jsonl"
    asked.write_text('"ping"\n')
    (tmp_path / "link.jsonl").symlink_to(asked)
    (tmp_path / "hard.jsonl").hardlink_to(asked)
    result = gbnf("batch", asked, "--out", tmp_path / name)
    assert result.code == ExitCode.USAGE
    assert "request file" in result.err.replace("\n", " ")
    assert asked.read_text() == '"ping"\n'


@pytest.mark.parametrize(
    ("out", "code"),
    [("folder", ExitCode.USAGE), (".", ExitCode.USAGE), ("asked.jsonl/x.jsonl", ExitCode.ENVIRONMENT)],
)
def test_results_that_cannot_be_written_are_named(
    gbnf: Gbnf, options: list[object], tmp_path: Path, out: str, code: ExitCode
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "asked.jsonl").write_text('"ping"\n')
    result = gbnf("batch", tmp_path / "asked.jsonl", *options, "--out", tmp_path / out)
    assert result.code == code
    assert "Traceback" not in result.err
    assert not (tmp_path / "folder.log").exists()


@pytest.mark.slow
@pytest.mark.parametrize("end", [signal.SIGINT, signal.SIGKILL])
def test_ended_in_the_middle_it_goes_on(tmp_path: Path, end: signal.Signals) -> None:
    names = ["trips", "north", "books", "letters"]
    (tmp_path / "asked.jsonl").write_text("".join(f'"create a folder {name}"\n' for name in names))
    log = tmp_path / "asked.results.jsonl.log"
    command = [sys.executable, "-m", "gbnf_server", "batch", "asked.jsonl", "--workspace", "work", "--quiet"]
    process = subprocess.Popen(command, cwd=tmp_path, stderr=subprocess.PIPE, text=True)
    while process.poll() is None and (not log.exists() or b'"done"' not in log.read_bytes()):
        time.sleep(0.01)
    process.send_signal(end)
    _, said = process.communicate(timeout=120)
    before = log.read_text("utf-8")
    ended = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False)
    found = lines(tmp_path / "asked.results.jsonl")
    assert log.read_text("utf-8").startswith(before[: before.rfind("\n") + 1])
    assert [one["id"] for one in found] == ["1", "2", "3", "4"]
    made = [json.loads(line) for line in log.read_text("utf-8").splitlines()]
    begun = [one for one in made if one.get("kind") == "begun"]
    assert len({json.dumps([one["id"], one["call"]]) for one in begun}) == len(begun)
    interrupted = {one["id"] for one in found if one["outcome"] == "interrupted"}
    assert len(interrupted) <= (end == signal.SIGKILL), (said, ended.stderr)
    for one in begun:
        if one["id"] not in interrupted:
            assert all((tmp_path / "work" / path).is_dir() for path in one["call"]["arguments"]["paths"])


@pytest.mark.slow
def test_concurrency_defaults_to_the_slots_of_the_server(gbnf: Gbnf, tmp_path: Path) -> None:
    require_llama_server()
    queries = ["what time is it", "create a folder trips", "what is 12 * 7?"]
    (tmp_path / "asked.jsonl").write_text("".join(json.dumps(query) + "\n" for query in queries))
    with build.start(model_path(), threads=1, slots=2) as server:
        result = gbnf(
            "batch", tmp_path / "asked.jsonl", "--server", server.url, "--workspace", tmp_path / "work"
        )
    found = lines(tmp_path / "asked.results.jsonl")
    assert [one["query"] for one in found] == queries
    assert {one["outcome"] for one in found} == {"answered"}, result.err
    assert result.code == ExitCode.SUCCESS
