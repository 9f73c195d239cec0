"""Where a command's tools come from, in every command that takes tools."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from gbnf_server.cli.errors import ExitCode
from support.command_line import CommandResult, Gbnf
from support.models import make_model
from support.toys import make_tool

SCHEMA = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
OPENAI = [
    {"type": "function", "function": {"name": "weather", "description": "Tell it.", "parameters": SCHEMA}}
]
ANTHROPIC = [{"name": "forecast", "input_schema": SCHEMA}]


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    make_tool(tmp_path / "mine", "ping")
    (tmp_path / "openai.json").write_text(json.dumps(OPENAI))
    (tmp_path / "anthropic.txt").write_text(json.dumps({"tools": ANTHROPIC}))
    return tmp_path


def names(result: CommandResult) -> list[str]:
    assert result.code == ExitCode.SUCCESS, result.err
    return [row["name"] for row in json.loads(result.out)]


def test_sources_are_joined(gbnf: Gbnf, tools: Path) -> None:
    files = ["--tools", tools / "openai.json", "--tools", tools / "anthropic.txt"]
    assert names(gbnf("manifests", *files, "--json")) == ["weather", "forecast"]
    assert names(gbnf("manifests", tools / "mine", *files, "--json")) == ["ping", "weather", "forecast"]
    assert names(gbnf("manifests", "--manifests", tools / "mine", "--json")) == ["ping"]
    result = gbnf("manifests", "--tools", "-", "--json", stdin=json.dumps(OPENAI))
    assert names(result) == ["weather"]


@pytest.mark.parametrize("name", ["openai.json", "anthropic.txt"])
def test_a_path_is_recognised_by_its_content(gbnf: Gbnf, tools: Path, name: str) -> None:
    [tool] = names(gbnf("manifests", tools / name, "--json"))
    result = gbnf("compile", tools / name)
    assert tool in result.out
    assert gbnf("compile", "--tools", tools / name).out == result.out
    assert result.code == gbnf("test", tools / name, "--examples", "1").code == ExitCode.SUCCESS


@pytest.mark.slow
def test_every_command_takes_them(gbnf: Gbnf, tools: Path) -> None:
    model = make_model(tools / "tiny.gguf", context=4096)
    source = ["--tools", tools / "openai.json"]
    work = ["--model", model, "--workspace", tools / "work", "--max-steps", "1"]
    (tools / "asked.jsonl").write_text('"go"\n')
    result = gbnf("run", "go", *source, *work, "--json", "--no-salvage")
    assert json.loads(result.out)["events"][0]["tools"] == ["weather"]
    assert gbnf("batch", tools / "asked.jsonl", *source, *work).code == ExitCode.FAILURE
    assert "weather" in gbnf("chat", *source, *work, stdin="/tools").err
    result = gbnf("call", "weather", '{"city": "Rome"}', *source, "--workspace", tools / "work")
    assert result.code == ExitCode.FAILURE
    assert "was loaded without code" in result.err
    assert gbnf("call", "weather", "{}", *source).code == ExitCode.USAGE


def test_problems_are_all_named(gbnf: Gbnf, tools: Path) -> None:
    (tools / "bad.json").write_text('[{"name": 3, "parameters": {}}, {"type": "web_search"}]')
    result = gbnf("compile", "--tools", tools / "bad.json", "--tools", tools / "none.json")
    assert result.code == ExitCode.INPUT
    for problem in ("bad.json: [0]", "bad.json: [1]", "none.json: cannot be read"):
        assert problem in result.err
    again = json.dumps([{"name": "weather", "parameters": {}}])
    result = gbnf("compile", "--tools", tools / "openai.json", "--tools", "-", stdin=again)
    assert result.code == ExitCode.INPUT
    assert "another tool has the same name" in result.err


def test_standard_input_is_read_once(gbnf: Gbnf, tools: Path) -> None:
    assert gbnf("call", "weather", "-", "--tools", "-", stdin="[]").code == ExitCode.USAGE
    assert gbnf("run", "-", "--tools", "-", stdin="[]").code == ExitCode.USAGE
    assert gbnf("compile", "--tools", "-", "--tools", "-", stdin="[]").code == ExitCode.USAGE


@pytest.mark.slow
def test_tools_on_the_command_line_replace_configured_ones(
    gbnf: Gbnf, tools: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tools / "gbnf.toml").write_text('manifests = "mine"\ntools = ["openai.json"]\n')
    monkeypatch.setenv("GBNF_CONFIG", str(tools / "gbnf.toml"))
    assert names(gbnf("manifests", "--json")) == ["ping", "weather"]
    assert names(gbnf("manifests", "--tools", tools / "anthropic.txt", "--json")) == ["forecast"]
    assert names(gbnf("manifests", tools / "anthropic.txt", "--json")) == ["forecast"]
    (tools / "schema.json").write_text(json.dumps(SCHEMA))
    assert gbnf("compile", tools / "schema.json").code == ExitCode.SUCCESS
    assert gbnf("call", tools / "mine" / "ping", "--workspace", tools / "work").code == ExitCode.SUCCESS


@pytest.mark.slow
def test_mcp_servers_of_the_configuration(gbnf: Gbnf, tools: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    own = f"-m gbnf_server mcp --manifests {tools / 'mine'} --workspace {tools / 'there'}"
    servers = {"own": {"command": sys.executable, "args": own.split(" ")}}
    (tools / "mcp.json").write_text(json.dumps({"mcpServers": servers}))
    (tools / "gbnf.toml").write_text('mcp = "mcp.json"')
    monkeypatch.setenv("GBNF_CONFIG", str(tools / "gbnf.toml"))
    left = gbnf("manifests", "--json")
    assert names(left) == ["ping"]
    assert left.err.startswith("config: ")
    assert names(gbnf("manifests", tools / "openai.json", "--json")) == ["weather"]
