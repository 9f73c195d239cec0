"""Which servers the sources name, and what is said of those that name none."""

from __future__ import annotations

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.mcp import McpConfigError
from gbnf_server.mcp.config import HttpServer, StdioServer, read_source

_TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0$"))
_WORDS = _TEXT.filter(str.strip)


@given(st.lists(_WORDS, min_size=2))
def test_a_command_line_is_split_as_by_a_shell(words: list[str]) -> None:
    line = shlex.join(words)
    assert read_source(line + " ") == (StdioServer("", words[0], tuple(words[1:])),)


@given(name=_WORDS, command=_WORDS, args=st.lists(_TEXT), env=st.dictionaries(_WORDS, _TEXT))
def test_every_shape_names_the_same_server(
    name: str, command: str, args: list[str], env: dict[str, str]
) -> None:
    entry: dict[str, Any] = {"command": command, "args": args, "env": env}
    expected = (StdioServer(name, command, tuple(args), env),)
    assert read_source({"mcpServers": {name: entry}}) == expected
    assert read_source({"servers": {name: {**entry, "type": "stdio"}}, "inputs": []}) == expected
    assert read_source({"mcp": {"servers": {name: entry}}}) == expected


def test_a_url_and_its_headers() -> None:
    assert read_source(" https://example.org/mcp") == (HttpServer("", "https://example.org/mcp"),)
    entry = {"url": "http://localhost:1/sse", "type": "sse", "headers": {"Authorization": "Bearer x"}}
    assert read_source({"servers": {"a": entry}}) == (
        HttpServer("a", "http://localhost:1/sse", {"Authorization": "Bearer x"}, "sse"),
    )
    for kind in ("http", "streamable-http", "streamableHttp"):
        (server,) = read_source({"servers": {"a": {"url": "http://x", "type": kind}}})
        assert server == HttpServer("a", "http://x", {}, "http")


def test_a_file_may_have_comments_and_last_commas(tmp_path: Path) -> None:
    file = tmp_path / "mcp.json"
    file.write_text(
        """\ufeff{
        // our servers
        "servers": { /* two
           of them */
          "files": {"command": "npx", "args": ["-y", "// no comment", "a, ]",],},
          "off": {"command": "nothing", "disabled": true},
        },
        }"""
    )
    for source in (file, str(file)):
        assert read_source(source) == (StdioServer("files", "npx", ("-y", "// no comment", "a, ]")),)


def test_variables_are_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOY_KEY", "k$1")
    monkeypatch.delenv("TOY_NONE", raising=False)
    folder = tmp_path / ".vscode"
    folder.mkdir()
    file = folder / "mcp.json"
    entry = {
        "command": "${env:TOY_KEY}/bin",
        "args": ["${TOY_KEY}", "${TOY_NONE:-a:b}", "${workspaceFolder}", "${userHome}", "$TOY_KEY"],
        "env": {"K": "<${TOY_KEY}>"},
        "cwd": "sub",
    }
    file.write_text(json.dumps({"servers": {"a": entry}}))
    args = ("k$1", "a:b", str(tmp_path), str(Path.home()), "$TOY_KEY")
    assert read_source(file) == (StdioServer("a", "k$1/bin", args, {"K": "<k$1>"}, folder / "sub"),)


def test_secrets_are_not_in_reprs() -> None:
    (server,) = read_source({"mcpServers": {"a": {"command": "x", "env": {"KEY": "hidden"}}}})
    (other,) = read_source({"mcpServers": {"a": {"url": "http://x", "headers": {"KEY": "hidden"}}}})
    assert "hidden" not in f"{server!r} {server} {other!r} {other}"


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("", "the command line is empty"),
        ("npx 'a", "cannot be split"),
        ("missing.json", r"missing.json: the file cannot be read: No such file"),
        ({}, "neither mcpServers nor servers"),
        ({"mcpServers": []}, "mcpServers: it must be an object"),
        ({"mcpServers": {"a": 1}}, "mcpServers.a: a server must be an object"),
        ({"mcpServers": {"a": {}}}, "mcpServers.a: neither command nor url"),
        ({"mcpServers": {"a": {"command": " "}}}, r"a\.command: it must be a text"),
        ({"mcpServers": {"a": {"command": "x", "args": "y"}}}, r"a\.args: it must be a list"),
        ({"mcpServers": {"a": {"command": "x", "env": {"A": 1}}}}, r"a\.env\.A: it must be a text\."),
        ({"mcpServers": {"a": {"command": "x", "env": ["A=1"]}}}, r"a\.env: it must be an object"),
        ({"mcpServers": {"a": {"url": "ftp://x"}}}, r"a\.url: it is not an HTTP address"),
        ({"mcpServers": {"a": {"url": "http://x", "type": "ws"}}}, r"a\.type: unknown type \(got 'ws'\)"),
        ({"mcpServers": {"a": {"command": "x", "envFile": ".env"}}}, r"a\.envFile: files of variables"),
        ({"mcpServers": {"a": {"command": "${env:TOY_NONE}"}}}, "variable 'TOY_NONE' is not set"),
    ],
)
def test_what_is_wrong_is_named(source: Any, message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TOY_NONE", raising=False)
    with pytest.raises(McpConfigError, match=message):
        read_source(source)


def test_an_input_is_named_with_its_description() -> None:
    inputs = [{"id": "key", "type": "promptString", "description": "API key"}]
    servers = {"a": {"command": "x", "env": {"KEY": "${input:key}"}}}
    with pytest.raises(McpConfigError, match=r"a\.env\.KEY: the input 'key' \(API key\).*env:NAME"):
        read_source({"servers": servers, "inputs": inputs})


@pytest.mark.parametrize("text", ["{", '{"servers": {"a": {}, "a": 1}}', "\x80", "[1]"])
def test_a_broken_file_is_named(tmp_path: Path, text: str) -> None:
    file = tmp_path / "mcp.json"
    file.write_bytes(text.encode("latin-1"))
    with pytest.raises(McpConfigError, match=r"mcp\.json"):
        read_source(file)
