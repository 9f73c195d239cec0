"""`gbnf run` and `gbnf tune`: every way to have a model call, on every server, and what was found best."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import typer
from PIL import Image

from gbnf import load_manifests
from gbnf_bench.profile_files import profile_text
from gbnf_bench.tune_command import TuneOptions, compare_strategies, make_profile
from gbnf_server.cli.errors import ExitCode
from gbnf_server.cli.model_options import ModelSource, PlanningOptions, SamplingOptions
from gbnf_server.planner import PlannerOptions
from gbnf_server.planner.profiles import load
from support.command_line import Gbnf
from support.models import make_model
from support.server import PROPS, Reply, completion, scripted
from support.toys import make_tool

PING = '{"name": "ping", "arguments": {}}'
ANSWER = '{"name": "final_answer", "arguments": {"message": "It said pong."}}'
LINES = ["tool: ping\nargs: {}", "tool: final_answer\nargs:\n  message: It said pong."]
FENCED = [f"Sure:\n```json\n{text}\n```" for text in (PING, ANSWER)]


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    monkeypatch.setenv("GBNF_PROFILES", str(tmp_path / "profiles"))
    make_tool(tmp_path / "tools", "ping", 'return {"entries": ["pong"]}')
    return ["--manifests", tmp_path / "tools", "--workspace", tmp_path / "work"]


def said(*texts: str) -> list[Any]:
    return [completion(text) for text in texts]


def streamed(*pieces: str, stop_type: str = "eos") -> Reply:
    end = {**completion("", stop_type).body, "stop": True}
    events = [*({"content": piece, "stop": False} for piece in pieces), end]
    return Reply(200, "".join(f"data: {json.dumps(event)}\n\n" for event in events))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("way", "texts"),
    [
        (["--call-format", "text"], FENCED),
        (["--call-format", "json"], [PING, ANSWER]),
        (["--call-format", "lines"], LINES),
        (["--reasoning", "field"], ['{"thought": "so", ' + text[1:] for text in (PING, ANSWER)]),
        (["--reasoning", "free", "--reasoning-budget", "9"], ["hm", PING, "so", ANSWER]),
        (["--style", "verbose"], [PING, ANSWER]),
    ],
)
def test_ways_to_call(gbnf: Gbnf, options: list[Any], way: list[str], texts: list[str]) -> None:
    with scripted(completion=said(*texts)) as script:
        result = gbnf("run", "ping", "--server", script.url, *options, *way, "--no-salvage")
        asked = [body for path, body in script.asked if path == "/completion"]
    assert (result.code, result.out) == (ExitCode.SUCCESS, "It said pong.\n")
    constrained = ["grammar" in body for body in asked]
    match way[0]:
        case "--call-format" if way[1] != "json":
            assert not any(constrained)
        case "--reasoning" if way[1] == "free":
            assert constrained == [False, True, False, True]
            assert [body["n_predict"] for body in asked] == [9, 512, 9, 512]
        case _:
            assert all(constrained)
    if "lines" in way[-1]:
        assert "one call in lines" in asked[0]["prompt"]
        assert "tool: ping" in asked[1]["prompt"]
    if way[0] == "--style":
        assert "Tool: ping" in asked[0]["prompt"]


def test_what_follows_a_double_dash_is_no_option(gbnf: Gbnf) -> None:
    result = gbnf("check", "--", "--call-format", "x")
    assert result.code == ExitCode.INPUT
    assert "--call-format" in result.err


def test_the_command_line_has_the_defaults_of_the_planner() -> None:
    assert PlanningOptions().planner_options(SamplingOptions()) == PlannerOptions()
    assert PlanningOptions(max_depth=6).planner_options() == PlannerOptions(max_depth=6)


def test_strategies_are_those_that_the_backend_supports(options: list[Any], tmp_path: Path) -> None:
    lines: list[str] = []
    pool = load_manifests(tmp_path / "tools")
    chosen = TuneOptions(strategies=["grammar", "text"], max_tokens=9)
    replies: dict[str, list[Any]] = {"v1/chat/completions": [chat(PING)]}
    with scripted(**replies) as script:
        source = ModelSource("m", server=script.url, backend="openai", context_size=4096)
        results = compare_strategies(source, pool, chosen, lines.append)
        assert [each.name for each in results.configurations] == ["text"]
        assert len(lines) == len(results.records) > 0
        assert make_profile(source, pool, results, None).settings == {"call_format": "text"}
        with pytest.raises(typer.BadParameter, match="takes no grammar"):
            compare_strategies(source, pool, replace(chosen, strategies=["grammar"]))


def chat(text: str) -> Reply:
    return Reply(200, {"choices": [{"message": {"content": text}, "finish_reason": "stop"}], "usage": {}})


def ollama(text: str) -> Reply:
    message = {"role": "assistant", "content": text}
    counts = {"prompt_eval_count": 9, "eval_count": 3}
    return Reply(200, {"message": message, "done": True, "done_reason": "stop", **counts})


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "path", "reply", "field"),
    [
        ("ollama", "api/chat", ollama, "format"),
        ("openai", "v1/chat/completions", chat, None),
    ],
)
def test_other_kinds_of_servers(
    gbnf: Gbnf, options: list[Any], kind: str, path: str, reply: Any, field: str
) -> None:
    # a server that takes tools is not told of the tool final_answer
    answers: dict[str, list[Any]] = {path: [reply(PING), reply("It said pong." if field is None else ANSWER)]}
    with scripted(**answers) as script:
        source = ["--backend", kind, "--server", script.url, "--model", "m", "--ctx-size", "4096"]
        result = gbnf("run", "ping", *source, *options)
    assert (result.code, result.out) == (ExitCode.SUCCESS, "It said pong.\n")
    body = script.asked[0][1]
    assert body["model"] == "m"
    assert field is None or field in body


@pytest.mark.parametrize("command", ["run", "batch", "bench"])
def test_a_key_that_a_server_wants_is_asked_for(
    gbnf: Gbnf, options: list[Any], tmp_path: Path, command: str
) -> None:
    (tmp_path / "asked.jsonl").write_text('"ping"\n')
    more = {
        "run": ["ping", *options],
        "batch": [tmp_path / "asked.jsonl", *options],
        "bench": ["--out", tmp_path / "out"],
    }[command]
    with scripted(props=[Reply(401, {"error": {"message": "Invalid API Key"}})]) as script:
        result = gbnf(command, *more, "--server", script.url)
    assert result.code == ExitCode.ENVIRONMENT
    assert "HTTP 401: Invalid API Key. Set its API key: --api-key, LLAMA_API_KEY" in result.err


@pytest.mark.slow
def test_a_stream_prints_the_answer_as_it_comes(gbnf: Gbnf, options: list[Any]) -> None:
    turns: list[Any] = [streamed(PING[:9], PING[9:]), streamed(ANSWER[:50], ANSWER[50:60], ANSWER[60:])]
    with scripted(completion=turns) as script:
        result = gbnf("run", "ping", "--server", script.url, *options, "--stream")
    assert (result.code, result.out) == (ExitCode.SUCCESS, "It said pong.\n")
    turns = [streamed(PING), streamed(ANSWER[:50], ANSWER[50:])]
    with scripted(completion=turns) as script:
        result = gbnf("run", "ping", "--server", script.url, *options, "--stream", "--json", "--quiet")
    kinds = [json.loads(line)["event"] for line in result.out.splitlines()]
    assert kinds.count("text_written") == 3
    assert (kinds[0], kinds[-1]) == ("run_started", "run_finished")


@pytest.mark.slow
def test_an_answer_truncated_while_it_was_streamed_is_not_final(gbnf: Gbnf, options: list[Any]) -> None:
    cut = streamed(ANSWER[:-8], stop_type="limit")
    with scripted(completion=[streamed(PING), cut, streamed(ANSWER)]) as script:
        result = gbnf("run", "ping", "--server", script.url, *options, "--stream")
    assert result.code == ExitCode.SUCCESS
    assert result.out == "It said \nIt said pong.\n"


@pytest.mark.slow
@pytest.mark.parametrize("sees", [True, False])
def test_an_image_is_shown_or_described(gbnf: Gbnf, options: list[Any], tmp_path: Path, sees: bool) -> None:
    Image.new("RGB", (8, 8), "black").save(tmp_path / "frame.png")
    props = Reply(200, {**PROPS, "modalities": {"vision": sees}})
    describe = '{"name": "describe_frame", "arguments": {"path": "frame.png"}}'
    answer = '{"name": "final_answer", "arguments": {"message": "It is dark."}}'
    with scripted(props=[props], completion=said(PING if sees else describe, answer)) as script:
        result = gbnf("run", "look", "--server", script.url, *options, "--image", tmp_path / "frame.png")
    assert (result.code, result.out) == (ExitCode.SUCCESS, "It is dark.\n")
    prompt = script.asked[-1][1]["prompt"]
    if sees:
        assert len(prompt["multimodal_data"]) == 1
        assert "describe_frame" not in prompt["prompt_string"]
    else:
        assert "describe_frame(" in prompt
        assert "mostly dark; uniform" in prompt
        (tmp_path / "frame.png").write_bytes(b"GIF89a")
        again = gbnf("run", "look", "--server", script.url, *options, "--image", tmp_path / "frame.png")
        assert again.code != ExitCode.SUCCESS


@pytest.mark.slow
def test_the_result_of_tune_is_used_and_reported(gbnf: Gbnf, options: list[Any], tmp_path: Path) -> None:
    """Tuned in process on the user's own tool; the same file on a server is the same model."""
    path = make_model(tmp_path / "tiny.gguf", context=4096)
    manifests = options[:2]
    strategies = ["--strategy", "none", "--strategy", "grammar"]
    tuned = gbnf("tune", "--model", path, *manifests, *strategies, "--markdown", "--max-tokens", "40",
                 "--style", "minimal")  # fmt: skip
    assert tuned.code == ExitCode.SUCCESS
    assert [line.split(" | ")[0] for line in tuned.out.splitlines()[2:]] == ["| none", "| grammar"]
    [kept] = (tmp_path / "profiles").iterdir()
    profile = load(kept)
    assert (profile.model.name, profile.model.size) == ("tiny.gguf", path.stat().st_size)
    assert (profile.strategy, profile.settings) == (
        "grammar",
        {"call_format": "json", "prompt_style": "minimal"},
    )
    assert f"saved to {kept}" in tuned.err
    assert profile.measured["sha256"] == hashlib.sha256(path.read_bytes()).hexdigest()

    kept.write_text(profile_text(profile).replace("[settings]", '[settings]\nreasoning = "free"'))
    props = Reply(200, {**PROPS, "model_path": "/models/tiny.gguf"})

    def run(*more: str) -> tuple[str, int]:
        with scripted(props=[props], completion=said("hm", PING, "so", ANSWER)) as script:
            result = gbnf("run", "ping", "--server", script.url, *options, *more, "--max-steps", "2")
            return result.err, [path for path, _ in script.asked].count("/completion")

    shown, asked = run()
    assert "profile of tiny.gguf: grammar" in shown
    assert asked == 4
    for more in (["--no-profile"], ["--reasoning", "off"]):
        shown, asked = run(*more)
        assert "profile" not in shown
        assert asked < 4
    shown, _ = run("--quiet")
    assert "profile of tiny.gguf: grammar" in shown  # it changes the run
    make_tool(tmp_path / "tools", "pong")
    shown, asked = run()
    assert "profile" not in shown  # other tools
    assert asked < 4
    kept.write_text("strategy = 1")
    broken = gbnf("run", "ping", "--model", path, *options)
    assert broken.code == ExitCode.ENVIRONMENT
    assert "--no-profile" in broken.err


@pytest.mark.slow
def test_tuning_on_a_suite_runs_its_tools(
    gbnf: Gbnf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GBNF_PROFILES", str(tmp_path / "profiles"))
    suite = tmp_path / "mine.toml"
    suite.write_text('[[cases]]\nquery = "create a folder trips"\nafter = { folders = ["trips"] }\n'
                     'first = ["create_dirs"]\nsteps = 2\n')  # fmt: skip
    result = gbnf("tune", "--suite", suite, "--strategy", "grammar", "--dry-run", "--quiet")
    assert result.code == ExitCode.SUCCESS
    assert "100%" in result.out
    assert "best: grammar" in result.err
    assert not (tmp_path / "profiles").exists()
    assert gbnf("tune", "--strategy", "handrail").code == ExitCode.USAGE
