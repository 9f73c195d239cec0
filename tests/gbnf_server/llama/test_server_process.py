"""A llama-server of ours: it comes up, says why it does not, and is never left behind."""

from __future__ import annotations

import os
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from gbnf.prompts.messages import Message
from gbnf_server.backends.base import Request
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.llama import api_keys
from gbnf_server.llama import server_process as llama_server_run
from gbnf_server.llama.cpu_support import CpuSupport
from gbnf_server.llama.server_build import start
from gbnf_server.llama.server_process import LlamaServerProcess
from gbnf_server.system.errors import ModelLoadError, SetupError
from gbnf_server.system.supervisor import supervised
from support.crashing_llama import crashing_server
from support.models import make_model
from support.processes import children, is_alive, limits_s, wait_until
from support.server import get, require_llama_server


@pytest.fixture
def model(tiny_model: Path) -> Path:
    require_llama_server()
    return tiny_model


# The server.


def test_it_answers_on_loopback_and_stops(model: Path) -> None:
    with start(model, threads=1) as server:
        assert server.url.startswith("http://127.0.0.1:")
        assert server.is_running
        props = get(f"{server.url}/props")
        assert props["model_alias"] == "tiny"
        assert props["default_generation_settings"]["n_ctx"] == 512
        assert any("listening on" in line for line in server.log())
        pid = server.process.pid
        (inner,) = children(pid)
    assert not server.is_running
    assert not is_alive(inner)
    server.stop()
    assert server.wait() == 0
    with pytest.raises(httpx.ConnectError):
        get(f"{server.url}/health")


VERBOSE = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Handler(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

server = HTTPServer(("127.0.0.1", 0), Handler)
print(f"main: server is listening on http://127.0.0.1:{server.server_port} - starting the main loop")
print("a line of the log\\n" * 10_000, flush=True)
server.serve_forever()
"""


def test_a_server_with_a_long_log_is_ready() -> None:
    """The line with its address is not among those that are kept."""
    with LlamaServerProcess([sys.executable, "-c", VERBOSE], dict(os.environ), "") as server:
        server.wait_ready(60.0)
        assert not any("listening" in line for line in server.log(10_000))


def test_settings_reach_the_server_and_the_default_context_is_limited(tmp_path: Path) -> None:
    require_llama_server()
    long = make_model(tmp_path / "long.gguf", context=100_000)
    for context_length, used in ((1024, 1024), (None, 8192)):
        options: dict[str, Any] = {"context_length": context_length} if context_length else {}
        with start(long, threads=1, slots=2, extra=["--alias", "other"], **options) as server:
            props = get(f"{server.url}/props")
        assert props["total_slots"] == 2
        assert props["default_generation_settings"]["n_ctx"] == used
        assert props["model_alias"] == "other"


def test_a_server_that_does_not_come_up_says_why(model: Path) -> None:
    with pytest.raises(SetupError, match=r"ended with status 1(.|\n)*--nonsense"):
        start(model, extra=["--nonsense"])


# Who may use it.


@pytest.mark.slow
def test_only_this_user_can_use_it(model: Path) -> None:
    with start(model, threads=1) as server:
        key = api_keys.key_file(server.url)
        assert key is not None
        assert stat.S_IMODE(key.stat().st_mode) == 0o600
        body = {"prompt": "hello", "n_predict": 1}
        for headers in ({}, {"Authorization": "Bearer x"}):
            answer = httpx.post(f"{server.url}/completion", json=body, headers=headers, trust_env=False)
            assert answer.status_code == 401
        for origin in ("https://example.com", "http://localhost:3000", "null"):  # web pages
            headers = {"Origin": origin, "Authorization": f"Bearer {server.api_key}"}
            answer = httpx.get(f"{server.url}/props", headers=headers, trust_env=False)
            assert answer.is_success
            assert answer.headers.get("access-control-allow-origin", "") not in {"*", origin}
        with LlamaServer(server.url) as client:
            messages: list[Message] = [{"role": "user", "content": "hello"}]
            assert client.complete(Request(messages, grammar=None, max_tokens=1)).usage.completion_tokens
        with start(model, threads=1) as other:
            assert other.api_key != server.api_key
    assert not key.exists()


@pytest.mark.slow
def test_a_key_that_is_given_is_used(model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("LLAMA_API_KEY", "from-the-environment")
    with start(model, threads=1) as server:
        assert server.api_key == "from-the-environment"
        assert api_keys.find(server.url) is None  # what a person has chosen is written nowhere
    with start(model, threads=1, api_key="given") as server:
        headers = {"Authorization": "Bearer given"}
        assert httpx.get(f"{server.url}/props", headers=headers, trust_env=False).is_success


# A build that dies.


@pytest.mark.slow
def test_a_server_that_dies_of_repacked_weights_is_started_without(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GBNF_LLAMA_SERVER", str(crashing_server(tmp_path, require_llama_server())))
    with start(model, threads=1) as server, LlamaServer(server.url) as client:
        assert client.complete(
            Request([{"role": "user", "content": "hello"}], grammar=None, max_tokens=1)
        ).usage.completion_tokens
    starts = (tmp_path / "starts").read_text().splitlines()
    assert "--no-repack" in starts[-1]


def test_what_the_library_cannot_do_is_not_tried(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        llama_server_run, "cpu_support", lambda: CpuSupport(computes=True, repacks=False, reason="x")
    )
    monkeypatch.setenv("GBNF_LLAMA_SERVER", str(crashing_server(tmp_path, require_llama_server())))
    with start(model, threads=1):
        (only,) = (tmp_path / "starts").read_text().splitlines()
    assert "--no-repack" in only


@pytest.mark.slow
def test_a_server_that_always_dies_says_of_what(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "dies").write_text("#!/bin/sh\necho loading\nkill -SEGV $$\n")
    (tmp_path / "dies").chmod(0o755)
    monkeypatch.setenv("GBNF_LLAMA_SERVER", str(tmp_path / "dies"))
    with pytest.raises(SetupError, match=r"was killed by SIGSEGV(.|\n)*gbnf doctor(.|\n)*loading"):
        start(tiny_model)


def test_a_port_that_is_taken(tiny_model: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken, pytest.raises(SetupError, match="already in use"):
        start(tiny_model, port=taken.getsockname()[1])


def test_a_server_that_is_not_ready_in_time_is_ended(
    tiny_model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A program that never listens: a real server may be ready at once where this process is slow."""
    (tmp_path / "silent").write_text(f"#!/bin/sh\necho $$ > {tmp_path}/pid\nexec sleep 1000\n")
    (tmp_path / "silent").chmod(0o755)
    monkeypatch.setenv("GBNF_LLAMA_SERVER", str(tmp_path / "silent"))
    for timeout in limits_s(0.3):
        with pytest.raises(SetupError, match=f"not ready after {timeout:g} s"):
            start(tiny_model, timeout=timeout)
        if (tmp_path / "pid").exists():
            break
    assert not is_alive(int((tmp_path / "pid").read_text()))


def test_a_file_that_is_no_model_is_found_out_before(tmp_path: Path) -> None:
    require_llama_server()
    with pytest.raises(ModelLoadError, match="no model file"):
        start(tmp_path / "absent.gguf")


@pytest.mark.slow
def test_no_server_outlives_the_process_that_wanted_it(model: Path) -> None:
    program = (
        "import sys, time\n"
        "from gbnf_server.llama.server_build import start\n"
        "server = start(sys.argv[1], threads=1)\n"
        "print(server.process.pid, flush=True)\n"
        "time.sleep(1000)\n"
    )
    with subprocess.Popen(
        [sys.executable, "-c", program, model], stdout=subprocess.PIPE, text=True
    ) as parent:
        assert parent.stdout is not None
        pid = int(parent.stdout.readline())
        (inner,) = children(pid)
        assert is_alive(inner)
        parent.kill()
    wait_until(lambda: not is_alive(inner) and not is_alive(pid))


@pytest.mark.slow
def test_a_server_that_is_never_closed_ends_with_the_program(model: Path) -> None:
    program = (
        "import sys\n"
        "from gbnf_server.llama.server_build import start\n"
        "print(start(sys.argv[1], threads=1).process.pid)\n"
    )
    done = subprocess.run([sys.executable, "-c", program, model], capture_output=True, text=True, check=True)
    wait_until(lambda: not is_alive(int(done.stdout)))
    assert done.stderr == ""


# The keeper.


@pytest.fixture
def keep() -> Iterator[Callable[..., subprocess.Popen[str]]]:
    started: list[subprocess.Popen[str]] = []

    def run(*command: str) -> subprocess.Popen[str]:
        started.append(
            subprocess.Popen(
                supervised(command, 0, 1.0),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
        )
        return started[-1]

    yield run
    for process in started:
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


@pytest.mark.parametrize(("script", "status"), [("exit 0", 0), ("exit 3", 3), ("kill -KILL $$", 137)])
def test_the_status_is_passed_on(
    keep: Callable[..., subprocess.Popen[str]], script: str, status: int
) -> None:
    assert keep("sh", "-c", script).wait() == status


def test_a_program_that_is_not_there(keep: Callable[..., subprocess.Popen[str]]) -> None:
    process = keep("/no/such/program")
    assert process.stdout is not None
    assert process.stdout.read().startswith("/no/such/program: ")  # its input stays open until it has ended
    assert process.wait() == 127


def test_the_program_ends_when_the_input_closes(keep: Callable[..., subprocess.Popen[str]]) -> None:
    process = keep("sh", "-c", "echo up; exec sleep 1000")
    assert process.stdin is not None
    assert process.stdout is not None
    process.stdout.readline()  # before that, the signal could come before the program
    (inner,) = children(process.pid)
    process.stdin.close()
    assert process.wait() == 143
    assert not is_alive(inner)


def test_the_program_ends_when_the_keeper_is_killed(keep: Callable[..., subprocess.Popen[str]]) -> None:
    process = keep("sh", "-c", "echo up; exec sleep 1000")
    assert process.stdout is not None
    process.stdout.readline()
    (inner,) = children(process.pid)
    os.kill(process.pid, signal.SIGKILL)
    wait_until(lambda: not is_alive(inner))
