"""`gbnf serve`: what it refuses before it serves, and a server as a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
import pytest

from gbnf_server.system.model_files import has_smollm2
from support.command_line import Gbnf
from support.oracle import engine
from support.server import completion, scripted

GBNF = [sys.executable, "-m", "gbnf_server"]


def start(tmp_path: Path, *options: str, **variables: str) -> tuple[subprocess.Popen[str], str]:
    """A server as a process, and its URL."""
    environment = {**os.environ, "GBNF_CONFIG": "", **variables}
    process = subprocess.Popen(
        [*GBNF, "serve", "--port", "0", *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=tmp_path,
        env=environment,
    )
    assert process.stdout is not None
    assert process.stderr is not None
    url = process.stdout.readline().strip()
    for line in process.stderr:
        if line.startswith("ready"):
            break
    return process, url


@pytest.mark.slow
def test_a_server_from_its_start_to_sigterm(tmp_path: Path) -> None:
    (tmp_path / "keys.txt").write_text("first\n\nsecond \n")
    process, url = start(tmp_path, "--api-key-file", "keys.txt", GBNF_API_KEYS="third fourth")
    try:
        with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
            assert client.get("/health").json() == {"status": "ok"}
            assert client.get("/v1/models").status_code == 401
            for key in ("first", "second", "third", "fourth"):
                headers = {"authorization": f"Bearer {key}", "x-request-id": f"of-{key}"}
                model = client.get("/v1/models", headers=headers).json()["data"][0]["id"]
                assert model == ("smollm2" if has_smollm2() else "gbnf-planner-demo")
            body = {"model": "x", "messages": [{"role": "user", "content": "secret"}], "max_tokens": 4}
            assert client.post("/v1/chat/completions", json=body, headers=headers).status_code == 200
        process.send_signal(signal.SIGTERM)
        _, err = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 0
    *lines, last = err.splitlines()
    logged = [json.loads(line) for line in lines]
    assert [line["status"] for line in logged] == [401, 200, 200, 200, 200, 200]
    assert logged[-1]["request_id"] == "of-fourth"
    assert (last, "secret" in err) == ("stopped", False)


@pytest.mark.slow
def test_servers_that_answer_are_used_and_their_endpoints_passed_on(tmp_path: Path) -> None:
    with scripted() as script:
        process, url = start(tmp_path, "--server", script.url, "--server", "http://127.0.0.1:1")
        try:
            with httpx.Client(base_url=url, trust_env=False, timeout=60) as client:
                props = client.get("/props")
                assert props.json().get("model_alias") == "scripted", props.text
                metrics = client.get("/metrics").text
        finally:
            process.kill()
            process.communicate()
    assert f'gbnf_upstream_healthy{{upstream="llama-server at {script.url}"}} 1.0' in metrics
    assert 'gbnf_upstream_healthy{upstream="llama-server at http://127.0.0.1:1"} 0.0' in metrics


@pytest.mark.slow
def test_the_depth_of_arguments_holds_for_the_tools_of_clients(tmp_path: Path) -> None:
    how = {"type": "object", "properties": {"level": {"enum": [1]}}, "required": ["level"]}
    parameters = {"type": "object", "properties": {"how": how}, "required": ["how"]}
    tools = [{"type": "function", "function": {"name": "play", "parameters": parameters}}]
    with scripted(completion=[completion("")]) as script:
        process, url = start(tmp_path, "--server", script.url, "--max-depth", "0")
        try:
            body = {"model": "x", "messages": [{"role": "user", "content": "hi"}], "tools": tools}
            httpx.post(f"{url}/v1/chat/completions", json=body, trust_env=False, timeout=60)
        finally:
            process.kill()
            process.communicate()
        [grammar, *_] = [body["grammar"] for path, body in script.asked if path == "/completion"]
    call = '{"name": "play", "arguments": {"how": {"level": 2}}}'
    assert engine().match(grammar, call).complete


def test_keys_of_the_clients_stay_beside_another_server(
    gbnf: Gbnf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gbnf.toml").write_text('[serve]\napi-key = " "\nmanifests = "tools"\n')
    monkeypatch.setenv("GBNF_CONFIG", str(tmp_path / "gbnf.toml"))
    result = gbnf("serve", "--server", "http://127.0.0.1:1")
    assert "there is no key in it" in result.err, "the configured key is read"
