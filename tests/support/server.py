"""Servers for tests: a real llama-server with the model of `support.models`, and one that answers by script.

The scripted one is for what a real server cannot be made to do: to fail at a chosen moment, or to lie.
"""

from __future__ import annotations

import asyncio
import json
import random
import shlex
import socket
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from gbnf_server.llama import api_keys
from gbnf_server.llama import server_build as build
from gbnf_server.llama.server_process import LlamaServerProcess
from gbnf_server.system.errors import SetupError
from support.models import make_model

CONTEXT = 512


def get(url: str) -> Any:
    """The JSON that a server on loopback answers: no proxy is asked, and a busy machine is waited for."""
    headers = {"Authorization": f"Bearer {api_keys.find(url)}"}
    return httpx.get(url, headers=headers, trust_env=False, timeout=60).json()


def rare_port() -> int:
    """A port that nobody has, below those that Linux gives to whoever asks for any."""
    while True:
        port = random.SystemRandom().randrange(20_000, 30_000)
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port


def require_llama_server() -> str:
    """The command of a llama-server; skips where there is none, not even a prebuilt one."""
    try:
        return shlex.join(build.server_command())
    except SetupError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model file that says nonsense; see `support.models`."""
    return make_model(tmp_path_factory.mktemp("models") / "tiny.gguf", context=CONTEXT)


@pytest.fixture(scope="session")
def llama_server(tiny_model: Path) -> Iterator[LlamaServerProcess]:
    """A real llama-server that runs the tiny model; skips where none is installed."""
    require_llama_server()
    with build.start(tiny_model, threads=1) as server:
        yield server


@pytest.fixture
def brief_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let clients wait only a thousandth as long before they ask a server again."""

    async def sleep(seconds: float) -> None:
        await asyncio.sleep(seconds / 1000)

    monkeypatch.setattr("gbnf_server.backends.http_client.sleep", sleep)


@dataclass(frozen=True)
class Reply:
    """What a scripted server answers: a status, a body (text, or a value sent as JSON), and more headers."""

    status: int
    body: Any
    headers: Mapping[str, str] = field(default_factory=dict)


PROPS = {"default_generation_settings": {"n_ctx": CONTEXT}, "model_alias": "scripted"}


def completion(content: str, stop_type: str = "eos", **fields: Any) -> Reply:
    """A /completion answer as llama-server gives it."""
    timings = {"cache_n": 2, "prompt_ms": 5.0, "predicted_ms": 7.0}
    shape = {"tokens_evaluated": 9, "tokens_predicted": 3, "truncated": False, "timings": timings}
    return Reply(200, {"content": content, "stop": True, "stop_type": stop_type, **shape, **fields})


@contextmanager
def serving(
    handler: type[BaseHTTPRequestHandler], kind: type[ThreadingHTTPServer] = ThreadingHTTPServer
) -> Iterator[str]:
    """Serve on loopback in a thread; yield the URL."""
    handler.disable_nagle_algorithm = True  # or each body waits 40 ms for the client's ACK of the headers
    with kind(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


@dataclass
class Script:
    """The scripted server's answers by path, in turn, the last one for ever; and what it was asked.

    `connection` is the one that asked last.
    """

    answers: dict[str, list[Reply | Callable[[], None]]]
    url: str = ""
    asked: list[tuple[str, Any]] = field(default_factory=list)
    connection: socket.socket | None = None

    def next(self, path: str) -> Reply | Callable[[], None]:
        if path == "/apply-template" and path not in self.answers:
            return Reply(200, {"prompt": json.dumps(self.asked[-1][1]["messages"])})
        if path == "/props" and path not in self.answers:
            return Reply(200, PROPS)
        turns = self.answers[path]
        return turns.pop(0) if len(turns) > 1 else turns[0]


@contextmanager
def scripted(**answers: list[Reply | Callable[[], None]]) -> Iterator[Script]:
    """Serve on loopback: `scripted(completion=[Reply(503, {}), completion("a")])`.

    A callable among the answers is called, and the connection then closed without one. `props` and
    `apply_template` answer well where they are not given.
    """
    script = Script({"/" + name.replace("_", "-"): turns for name, turns in answers.items()})

    class Handler(BaseHTTPRequestHandler):
        def _answer(self) -> None:
            size = int(self.headers.get("content-length", 0))
            script.connection = self.connection
            asked = json.loads(self.rfile.read(size) or b"null")
            if self.path == "/v1/models" and self.path not in script.answers:
                reply: Reply | Callable[[], None] = Reply(404, {})  # not every server says what its model is
            else:
                script.asked.append((self.path, asked))
                reply = script.next(self.path)
            if not isinstance(reply, Reply):
                reply()
                return
            body = reply.body if isinstance(reply.body, str) else json.dumps(reply.body)
            raw = body.encode()
            self.send_response(reply.status)
            self.send_header("content-length", str(len(raw)))
            for name, value in reply.headers.items():
                self.send_header(name, value)
            self.end_headers()
            self.wfile.write(raw)

        do_GET = do_POST = _answer  # noqa: N815  # the names that http.server looks for

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as script.url:
        yield script
