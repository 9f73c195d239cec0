"""A call into a library that does not return: /health tells, and the process can be ended."""

from __future__ import annotations

import logging
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from queue import Queue

import httpx
import pytest

from gbnf_server.gateway.serving import end_process_after
from gbnf_server.llama.cancellation import Cancellation
from gbnf_server.system.errors import BackendError
from support.processes import wait_until

STUCK = """
import ctypes, socket, sys
from gbnf_server.backends.in_process import InProcess
from gbnf_server.llama.demo_model import model_path
from gbnf_server.gateway import serving
from gbnf_server.web.access import Access
from gbnf_server.gateway.engine import Engine
from gbnf_server.gateway.gateway import Gateway
from gbnf_server.web.limits import Limits
from gbnf_server.backends.upstreams import Upstream, Upstreams
from gbnf_server.llama import cancellation

serving._GRACE_S = 0.1
cancellation._LONGEST_STEP_S = cancellation._LONGEST_END_S = 0.0
with InProcess(model_path(), context_length=512) as backend:
    def never(*_):
        while True:
            ctypes.CDLL(None).pause()
    backend._kv_cache.evaluate = never
    upstreams = Upstreams([Upstream(backend)])
    gateway = Gateway(Engine(), upstreams, model="m", limits=Limits(drain_s=0.1))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        print(listening.getsockname()[1], flush=True)
        server = serving.GatewayServer(gateway, Access(), end_process=serving.end_process_after)
        server.run(sockets=[listening])
"""
BODY = b'{"model": "m", "messages": [{"role": "user", "content": "hi"}]}'


@contextmanager
def stuck_server() -> Iterator[tuple[subprocess.Popen[str], int]]:
    with subprocess.Popen([sys.executable, "-c", STUCK], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, int(process.stdout.readline())
        finally:
            process.kill()


@pytest.mark.slow
@pytest.mark.parametrize(("number", "leaves"), [(signal.SIGTERM, False), (signal.SIGINT, True)])
def test_a_call_that_does_not_return_is_reported_and_does_not_keep_the_process(
    number: signal.Signals, leaves: bool
) -> None:
    with stuck_server() as (process, port), socket.create_connection(("127.0.0.1", port)) as client:
        url = f"http://127.0.0.1:{port}/health"

        def health() -> httpx.Response:
            return httpx.get(url, trust_env=False, timeout=60)

        wait_until(lambda: health().json() == {"status": "ok"})
        head = f"POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(BODY)}\r\n\r\n"
        client.sendall(head.encode() + BODY)
        wait_until(lambda: health().status_code == 503)
        if leaves:
            client.close()
            wait_until(lambda: "cancelled" in health().json()["problem"])
        found = health().json()
        assert found["status"] == "stuck"
        assert "the next token is chosen" in found["problem"]
        process.send_signal(number)
        assert process.wait(timeout=60) == 128 + number


def test_a_process_that_is_ended_says_why(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    ended: Queue[int] = Queue()
    monkeypatch.setattr("os._exit", ended.put)
    caplog.set_level(logging.INFO, "gbnf_server.gateway")
    end_process_after(0, 143)
    assert ended.get(timeout=30) == 143
    assert caplog.messages == ["forced_exit"]


def test_steps_of_a_call_are_watched() -> None:
    stop = Cancellation()
    now = time.monotonic()
    assert stop.overdue(now + 1e6) == "", "it has not begun"
    stop.begin("one")
    assert stop.overdue(now + 1) == ""
    assert stop.overdue(now + 1e6).endswith("one")
    stop.begin("")
    assert stop.overdue(now + 1e6) == "", "it waits for others"
    stop.begin("two")
    stop.set()
    assert stop.overdue(now + 1) == ""
    assert "cancelled" in stop.overdue(now + 60)
    with pytest.raises(BackendError, match="cancelled"):
        stop.begin("three")
