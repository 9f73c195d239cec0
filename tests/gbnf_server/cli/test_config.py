"""`gbnf.toml`: which file is used, and what it sets."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from gbnf_server.cli.config import find_config_file
from gbnf_server.cli.errors import ExitCode
from gbnf_server.system.errors import SetupError
from support.command_line import Gbnf
from support.models import make_model
from support.server import completion, scripted
from support.toys import make_tool


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with a model, a tool and a folder below it, which is the current one."""
    monkeypatch.delenv("GBNF_CONFIG")
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "user"))
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    folder = tmp_path / "project"
    (folder / "below" / "further").mkdir(parents=True)
    make_model(folder / "tiny.gguf", context=4096)
    make_tool(folder / "tools", "ping", 'return {"entries": ["pong"]}')
    monkeypatch.chdir(folder / "below" / "further")
    return folder


SETTINGS = """
model = "tiny.gguf"
manifests = "tools"
workspace = "work"
max-tokens = 100

[run]
max_steps = 1
json = true

[server.start]
port = 0
"""


@pytest.mark.slow
def test_options_come_from_the_file_and_paths_are_relative_to_it(gbnf: Gbnf, project: Path) -> None:
    (project / "gbnf.toml").write_text(SETTINGS)
    result = gbnf("run", "ping")
    assert result.err.startswith(f"config: {project / 'gbnf.toml'}\nworkspace: {project / 'work'}\ntiny, ")
    value = json.loads(result.out)
    assert value["events"][0]["tools"] == ["ping"]
    assert len(value["steps"]) == 1


@pytest.mark.slow
def test_the_command_line_wins(gbnf: Gbnf, project: Path, tmp_path: Path) -> None:
    (project / "gbnf.toml").write_text(SETTINGS + "[generate]\ntemperature = 0.5\n")
    result = gbnf("run", "ping", "--workspace", tmp_path / "other", "--max-steps=2", "--no-salvage")
    assert f"workspace: {tmp_path / 'other'}" in result.err
    assert len(json.loads(result.out)["steps"]) == 2
    for option in (["--server", "http://127.0.0.1:1"], ["--server=http://127.0.0.1:1"]):
        result = gbnf("run", "ping", *option)
        assert result.code == ExitCode.ENVIRONMENT, "the configured model does not apply beside a server"
        assert "http://127.0.0.1:1" in result.err


def test_options_of_a_configured_server_do_not_apply_to_another(
    gbnf: Gbnf, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("LLAMA_API_KEY", raising=False)
    (project / "gbnf.toml").write_text('server = "http://127.0.0.1:1"\napi-key = "secr\u00e9t"\n')
    assert "--api-key must be printable ASCII" in gbnf("run", "x").err
    assert "--api-key" not in gbnf("run", "x", "--server", "http://127.0.0.1:2").err
    (project / "gbnf.toml").write_text('model = "tiny.gguf"\nctx-size = 512\nthreads = 1\n')
    assert "http://127.0.0.1:2" in gbnf("run", "x", "--server", "http://127.0.0.1:2").err


def test_the_nearest_file_is_used(project: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_config_file() is None
    user = tmp_path / "user" / "gbnf" / "gbnf.toml"
    if os.uname().sysname == "Linux":  # elsewhere, the user's folder is another
        user.parent.mkdir(parents=True)
        user.touch()
        assert find_config_file() == user
    for folder in (tmp_path, project, project / "below" / "further"):
        (folder / "gbnf.toml").touch()
        assert find_config_file() == folder / "gbnf.toml"
    monkeypatch.setenv("GBNF_CONFIG", str(project / "gbnf.toml"))
    assert find_config_file() == project / "gbnf.toml"
    monkeypatch.setenv("GBNF_CONFIG", "")
    assert find_config_file() is None


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a file to another user")
def test_a_file_of_another_user_is_refused(gbnf: Gbnf, project: Path) -> None:
    (project / "gbnf.toml").touch()
    os.chown(project / "gbnf.toml", 12345, 12345)
    with pytest.raises(SetupError, match="belongs to another user"):
        find_config_file()
    assert gbnf("manifests").code == ExitCode.ENVIRONMENT


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("model =", "invalid TOML"),
        ("modle = 'x'", "modle: unknown option 'modle'. Did you mean 'model'?"),
        ("max_step = 3", "max_step: unknown option 'max-step'. Did you mean 'max-steps'"),
        ("yes = true", "yes: unknown option"),
        ("[runn]\nx = 1", "runn: unknown command 'runn'. Did you mean 'run'?"),
        ("[run]\nport = 1", "run.port: unknown option 'port'."),
        ("[run.model]\nx = 1", "run.model: unknown command 'model'."),
        ("[server.start]\nmodle = 1", "server.start.modle: unknown option"),
        ("quiet = 'yes'", "quiet: must be true or false, got 'yes'."),
        ("max-steps = true", "max-steps: must be a string or a number, got True."),
        ("model = ['a']", "model: must be a string, got ['a']."),
        ("model = 3", "model: must be a string, got 3."),
        ("manifests = [['a']]", "manifests: must be a string, got ['a']."),
        ("max-steps = 3\nmax_steps = 4", "max_steps: is the same option as max-steps. Keep one of them."),
        ("workspace = 1.5", "workspace: must be a string, got 1.5."),
    ],
)
def test_what_the_file_cannot_say(gbnf: Gbnf, project: Path, content: str, problem: str) -> None:
    (project / "gbnf.toml").write_text(content)
    result = gbnf("run", "x")
    assert (result.code, result.out) == (ExitCode.INPUT, "")
    assert f"{project / 'gbnf.toml'}: {problem}" in result.err


@pytest.mark.parametrize(("key", "value"), [("max-steps", "'many'"), ("max-steps", "0"), ("seed", "1.5")])
def test_a_value_that_the_option_refuses(gbnf: Gbnf, project: Path, key: str, value: str) -> None:
    (project / "gbnf.toml").write_text(f"{key} = {value}")
    result = gbnf("run", "x")
    assert result.code == ExitCode.USAGE
    assert f"--{key}" in result.err
    assert f"config: {project / 'gbnf.toml'}" in result.err


def test_only_commands_that_the_file_concerns_name_it(gbnf: Gbnf, project: Path) -> None:
    (project / "gbnf.toml").write_text("[run]\nmax-steps = 3\n")
    assert "config:" not in gbnf("manifests").err
    (project / "gbnf.toml").write_text("manifests = 'tools'\n")
    assert "config:" not in gbnf("doctor", "--help").err


def test_an_option_may_have_the_name_of_a_command(gbnf: Gbnf, project: Path) -> None:
    (project / "gbnf.toml").write_text("mcp = 'a server'\n[server]\nstart = { threads = 1 }\n")
    assert gbnf("mcp", "--help").code == ExitCode.SUCCESS


@pytest.mark.slow
def test_doctor_says_which_file_is_used(gbnf: Gbnf, project: Path) -> None:
    (project / "gbnf.toml").write_text("[run]\nmax-steps = 3\n")
    found = {check["name"]: check["found"] for check in json.loads(gbnf("doctor", "--json").out)}
    assert found["configuration"] == str(project / "gbnf.toml")


ACME = """
[providers]
_acme = { names = ["acme"], places = ["in my acme"] }
"""


@pytest.mark.parametrize(
    ("query", "kept"),
    [
        ("ping", ["ping"]),
        ("ping on acme", ["ping", "ping_acme"]),
        ("ping in my acme", ["ping_acme"]),
        ("ping in notion", ["ping_notion"]),  # those of the package are there, too
    ],
)
def test_a_provider_takes_one_line(gbnf: Gbnf, project: Path, query: str, kept: list[str]) -> None:
    for provider in ("acme", "notion"):
        make_tool(project / "tools", f"ping_{provider}", effect="write")
    asked = ["compile", project / "tools", "--json", "--query", query]
    without = json.loads(gbnf(*asked).out)["kept"]
    assert "ping_acme" in without
    (project / "gbnf.toml").write_text(ACME)
    offered = json.loads(gbnf(*asked).out)["kept"]
    assert offered == kept
    with scripted(
        completion=[completion('{"name": "final_answer", "arguments": {"message": "no"}}')]
    ) as script:
        run = gbnf("run", query, "--server", script.url, "--manifests", project / "tools", "--json")
    [started] = [event for event in json.loads(run.out)["events"] if event["event"] == "step_started"]
    assert set(started["tools"]) == {*offered, "final_answer"}
    (project / "gbnf.toml").unlink()
    assert json.loads(gbnf(*asked).out)["kept"] == without


def test_bench_and_tune_have_the_providers(gbnf: Gbnf, project: Path) -> None:
    make_tool(project / "tools", "ping_acme", effect="write")
    suite = project / "suite.toml"
    suite.write_text('[[cases]]\nquery = "ping"\ncalls = [{ name = "ping" }]\n')
    (project / "gbnf.toml").write_text(ACME)
    chosen = ["--suite", suite, "--manifests", project / "tools", "--quiet"]
    with scripted(
        completion=[completion('{"name": "final_answer", "arguments": {"message": "no"}}')] * 2
    ) as script:
        server = ["--server", script.url]
        gbnf("bench", *chosen, *server, "--configuration", "filter", "--out", project, "--label", "a")
        gbnf("tune", *chosen, *server, "--strategy", "grammar", "--dry-run")
        asked = [body["prompt"] for path, body in script.asked if path == "/completion"]
    assert ["ping_acme" in prompt for prompt in asked] == [False, False]
    offered = [event["tools"] for event in events_of(project / "a.jsonl") if event["event"] == "step_started"]
    assert offered == [["ping", "final_answer"]]


def events_of(log: Path) -> list[dict[str, Any]]:
    [run] = map(json.loads, log.read_text().splitlines())
    return list(run["events"])


def test_a_tool_of_a_provider_that_nobody_named_is_not_left_undone(gbnf: Gbnf, project: Path) -> None:
    make_tool(project / "tools", "pong_acme", effect="write")
    (project / "gbnf.toml").write_text(ACME)
    with scripted(
        completion=[completion('{"name": "final_answer", "arguments": {"message": "no"}}')]
    ) as script:
        for query, code in (("pong", ExitCode.SUCCESS), ("pong on acme", ExitCode.FAILURE)):
            run = gbnf("run", query, "--server", script.url, "--manifests", project / "tools")
            assert run.code == code, run.err


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("providers = 1", "providers."),
        ("[providers]\n'' = { names = ['a'] }", "providers."),
        ("[providers]\n_acme = 'acme'", "providers._acme"),
        ("[providers]\n_acme = {}", "providers._acme"),
        ("[providers]\n_acme = { names = [] }", "providers._acme"),
        ("[providers]\n_acme = { names = 'acme' }", "providers._acme"),
        ("[providers]\n_acme = { names = ['acme', ' '] }", "providers._acme"),
        ("[providers]\n_acme = { names = ['acme', 1] }", "providers._acme"),
        ("[providers]\n_acme = { name = ['acme'] }", "providers._acme"),
        ("[providers]\n_acme = { names = ['acme'], places = {} }", "providers._acme"),
    ],
)
def test_a_provider_that_cannot_be_read(gbnf: Gbnf, project: Path, line: str, place: str) -> None:
    (project / "gbnf.toml").write_text(line)
    result = gbnf("manifests")
    assert (result.code, result.out) == (ExitCode.INPUT, "")
    example = 'must be as in _dropbox = { names = ["dropbox"], places = ["in my dropbox"] }'
    assert f"{project / 'gbnf.toml'}: {place}: {example}, got " in result.err
