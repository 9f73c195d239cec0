"""`gbnf launch`: programs that stand for the clients read their configuration, and ask the gateway by it."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from gbnf_server.cli.errors import ExitCode
from gbnf_server.cli.launch import _CLIENTS
from support.command_line import Gbnf

#: How each client finds the URL of its server, as an expression of `argv` and `environ`.
URLS = {
    "claude": "environ['ANTHROPIC_BASE_URL'] + '/v1'",
    "codex": "json.loads(next(a for a in argv if 'base_url' in a).partition('=')[2])",
    "opencode": "json.load(open(environ['OPENCODE_CONFIG']))['provider']['gbnf']['options']['baseURL']",
    "qwen": "environ['OPENAI_BASE_URL']",
    "cline": (
        "json.load(open(argv[argv.index('--data-dir') + 1] + '/settings/providers.json'))"
        "['providers']['openai-compatible']['settings']['baseUrl']"
    ),
    "pi": "json.loads(open(argv[argv.index('-e') + 1]).read().partition('baseUrl\": ')[2].partition(',')[0])",
    "cn": "json.load(open(argv[argv.index('--config') + 1]))['models'][0]['apiBase']",
    "llm": "json.load(open(environ['LLM_USER_PATH'] + '/extra-openai-models.yaml'))[0]['api_base']",
}
PROGRAM = """#!{python}
import json, urllib.request
from os import environ
from sys import argv, exit
url = {url}
urllib.request.install_opener(urllib.request.build_opener(urllib.request.ProxyHandler({{}})))
models = json.load(urllib.request.urlopen(url + "/models"))
with open({seen!r}, "w") as file:
    json.dump([url, models["data"][0]["id"], argv[1:]], file)
exit(7)
"""


@pytest.mark.parametrize("client", _CLIENTS)
def test_a_client_finds_the_gateway_and_its_exit_status_is_that_of_the_command(
    gbnf: Gbnf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, client: str
) -> None:
    seen = tmp_path / "seen.json"
    program = tmp_path / client
    program.write_text(PROGRAM.format(python=sys.executable, url=URLS[client], seen=str(seen)))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=os.pathsep)
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    result = gbnf("launch", client, "--", "-x", "list the files")
    assert result.code == 7, result.err
    url, model, arguments = json.loads(seen.read_text())
    assert model in result.err
    assert url.removesuffix("/v1") in result.err
    assert arguments[-2:] == ["-x", "list the files"]
    assert not [*(tmp_path / "temporary").iterdir()], "the folder of the run is gone"


@pytest.mark.slow
def test_sigterm_ends_the_client_and_leaves_no_folder(tmp_path: Path) -> None:
    program = tmp_path / "opencode"
    program.write_text(f"#!{sys.executable}\nprint('here', flush=True)\ninput()\n")
    program.chmod(0o755)
    (tmp_path / "temporary").mkdir()
    path = os.pathsep.join([str(tmp_path), os.environ["PATH"]])
    process = subprocess.Popen(
        [sys.executable, "-m", "gbnf_server", "launch", "opencode"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PATH": path, "TMPDIR": str(tmp_path / "temporary")},
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "here\n"
    process.terminate()
    assert process.wait(60) == 128 + signal.SIGTERM
    process.communicate()
    assert not [*(tmp_path / "temporary").glob("gbnf-launch-*")]


@pytest.mark.parametrize("client", _CLIENTS)
def test_what_would_be_started_is_printed(gbnf: Gbnf, client: str) -> None:
    result = gbnf("launch", client, "--print", "--ctx-size", "4321", "--", "hello there")
    assert result.code == 0
    assert "http://127.0.0.1:PORT" in result.out
    assert result.out.rstrip().endswith("'hello there'")


def test_a_client_that_is_not_installed_says_how_it_is_installed(
    gbnf: Gbnf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    result = gbnf("launch", "codex")
    assert result.code == ExitCode.USAGE
    assert "npm install -g @openai/codex" in result.err
    assert gbnf("launch", "vim").code == ExitCode.USAGE
