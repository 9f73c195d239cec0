"""`gbnf inspect`: the file that it writes, what it refuses, and the server as a process."""

from __future__ import annotations

import asyncio
import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import pytest

from gbnf_server.backends.base import Completion, Usage
from gbnf_server.cli.model_options import ModelSource
from gbnf_server.inspect.inspection import Inspection
from gbnf_server.inspect.live_decoding import DecodingOptions
from support.backends import FakeBackend
from support.command_line import Gbnf
from support.models import make_model

SCHEMA = {"type": "object", "properties": {"count": {"type": "integer", "minimum": 5}}}
TOOLS = [{"name": f"tool_{number}", "inputSchema": SCHEMA} for number in range(3)]


class Model(FakeBackend):
    """Answers with an empty object."""

    def respond(self, *_given: Any, **_limits: Any) -> Completion:
        return Completion("{}", "stop", Usage(1, 1))


def test_the_file_contains_every_tool_and_nothing_from_elsewhere(gbnf: Gbnf, tmp_path: Path) -> None:
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    result = gbnf("inspect", "--tools", tmp_path / "tools.json", "--html", tmp_path / "page.html")
    assert (result.code, result.out) == (0, "")
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count('<template id="tool-') == 3
    assert "https://" not in page
    assert re.findall(r"""(?:src|href)=["'](?!#|data:,)""", page) == []
    assert "data-token" not in page
    assert "connect-src" not in page


def test_the_file_of_a_schema(gbnf: Gbnf, tmp_path: Path) -> None:
    (tmp_path / "count.json").write_text(json.dumps({**SCHEMA, "titel": "x", "title": "Counts"}))
    for given in (["--schema", tmp_path / "count.json"], [tmp_path / "count.json"]):
        assert gbnf("inspect", *given, "--html", tmp_path / "page.html").code == 0
        page = (tmp_path / "page.html").read_text("utf-8")
        assert "Counts" in page
        assert "tool-0" not in page


def test_the_grammar_is_that_of_the_options(gbnf: Gbnf, tmp_path: Path) -> None:
    (tmp_path / "schema.json").write_text(
        json.dumps({"type": "object", "required": ["a", "b"], "properties": {"a": {}, "b": {}}})
    )
    pages = {}
    for options in ([], ["--whitespace", "free"], ["--property-order", "declared"]):
        page = tmp_path / "page.html"
        assert gbnf("inspect", tmp_path / "schema.json", *options, "--html", page).code == 0
        pages[" ".join(options)] = page.read_text("utf-8")
    assert len(set(pages.values())) == 3
    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    tools = tmp_path / "tools.json"
    assert gbnf("inspect", "--tools", tools, "--call-format", "native", "--html", page).code == 0
    assert "textRest" in page.read_text("utf-8")  # a rule of answers in text


@pytest.mark.parametrize("is_schema", [True, False])
@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--open"],
        ["--whitespace", "free"],
        ["--property-order", "declared"],
        ["--max-depth", "0"],
        ["--open", "--whitespace", "compact", "--property-order", "declared", "--max-depth", "1"],
    ],
)
def test_compile_prints_the_grammar_that_inspect_shows_and_decodes_with(
    gbnf: Gbnf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, options: list[str], is_schema: bool
) -> None:
    inner = {"type": "object", "properties": {"b": {"type": "boolean"}}}
    properties = {"count": {"type": "integer"}, "list": {"type": "array", "items": inner}}
    schema = {"type": "object", "properties": properties, "required": ["count", "list"]}
    path = tmp_path / "given.json"
    path.write_text(json.dumps(schema if is_schema else [{"name": "use", "inputSchema": schema}]))
    shown: list[Inspection] = []
    monkeypatch.setattr(
        "gbnf_server.cli.inspect._serve", lambda inspection, *_, **__: shown.append(inspection)
    )
    monkeypatch.setattr(ModelSource, "open", lambda _: Model())
    model = make_model(tmp_path / "model.gguf")
    assert gbnf("inspect", path, *options, "--model", model).code == 0
    [inspection] = shown
    assert inspection.decoder is not None

    def compiled(*more: str) -> str:
        return gbnf("compile", path, *options, *more).out

    grammar = inspection._view(0).grammar
    assert grammar is not None
    assert str(grammar) == (compiled() if is_schema else compiled("--step", "1"))
    assert str(inspection._checker.grammar) == str(grammar)
    [decoding] = asyncio.run(inspection.decoder.decode(DecodingOptions("use it", ("json",))))
    assert decoding.grammar == (compiled() if is_schema else compiled("--final-answer"))
    if is_schema:
        assert grammar.matcher.match('{"count":1,"list":[],"z":1}').complete is ("--open" in options)


def test_a_model_without_a_call_format_is_refused(gbnf: Gbnf, tmp_path: Path) -> None:
    model = make_model(tmp_path / "plain.gguf")
    result = gbnf("inspect", "--call-format", "native", "--model", model, "--html", tmp_path / "page.html")
    assert result.code != 0
    assert "the chat template of plain.gguf has no tools" in " ".join(result.err.replace("│", " ").split())


@pytest.mark.slow
def test_the_server_answers_until_it_is_interrupted(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "gbnf_server", "inspect", "--no-open"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env={**os.environ, "GBNF_CONFIG": ""},
    )
    try:
        assert process.stdout is not None
        url = process.stdout.readline().strip()
        assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\?token=[\w-]{32}", url)
        assert httpx.get(url).status_code == 200
        assert httpx.get(url.partition("?")[0]).status_code == 401
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=30)
        assert (process.returncode, err) == (0, "press Ctrl-C to stop\n")
    finally:
        process.kill()
        process.wait()


@pytest.mark.slow
def test_a_recorded_run_becomes_one_file(gbnf: Gbnf, tmp_path: Path) -> None:
    options = ["--workspace", tmp_path / "work", "--yes", "--quiet"]
    result = gbnf("run", "create a folder trips", *options, "--record", tmp_path / "run.json")
    assert result.code == 0
    assert gbnf("inspect", "--run", tmp_path / "run.json", "--html", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    assert page.count('<template id="decoding-') == 2
    assert "create_dirs" in page
    assert 'id="tab-grammar"' not in page
    assert 'id="decode"' not in page
    assert re.findall(r"""(?:src|href)=["'](?!#|data:,)""", page) == []

    (tmp_path / "tools.json").write_text(json.dumps(TOOLS))
    with_tools = ["--tools", tmp_path / "tools.json", "--run", tmp_path / "run.json"]
    assert gbnf("inspect", *with_tools, "--html", tmp_path / "page.html").code == 0
    page = (tmp_path / "page.html").read_text("utf-8")
    assert 'id="tab-run"' in page
    assert 'id="tab-grammar"' in page


@pytest.mark.parametrize(("content", "message"), [("{", "is not JSON"), ('{"outcome": 3}', "/outcome")])
def test_a_damaged_run_is_an_error_of_its_file(
    gbnf: Gbnf, tmp_path: Path, content: str, message: str
) -> None:
    (tmp_path / "run.json").write_text(content)
    result = gbnf("inspect", "--run", tmp_path / "run.json", "--html", tmp_path / "page.html")
    assert result.code == 3
    assert message in " ".join(result.err.split())
    assert not (tmp_path / "page.html").exists()
