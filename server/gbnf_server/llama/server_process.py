"""Run a llama-server on this machine's loopback interface, until this process stops it.

Invariants: no server outlives the process that started it (`gbnf_server.system.supervisor`); the error for a
server that does not start, or crashes, has the end of its log.
"""

from __future__ import annotations

import os
import re
import secrets
import socket
import subprocess
import threading
import time
import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Self

from gbnf_server.llama import api_keys
from gbnf_server.llama.cpu_support import cpu_support
from gbnf_server.system.errors import SetupError
from gbnf_server.system.processes import CRASH_SIGNALS, describe_exit, exit_signal, kill_group
from gbnf_server.system.supervisor import supervised

API_KEY_VARIABLE = "LLAMA_API_KEY"
CRASH_HINT = "The build may not fit the CPU: run `gbnf doctor`"

_KEPT_LINES = 400  # of the log
_SHOWN_LINES = 15  # of the log, in an error
_LISTENING = re.compile(r"listening on (http://\S+:\d+)")
_NO_REPACK = "--no-repack"
_GRACE_PERIOD = 10.0  # seconds for a server to stop before it is killed


class LlamaServerProcess:
    """A running llama-server. A context manager; `stop` or the end of this process ends it."""

    def __init__(self, command: Sequence[str], environment: dict[str, str], api_key: str) -> None:
        """Start the program. It is not ready yet."""
        self.url, self.api_key = "", api_key
        self._lines: deque[str] = deque(maxlen=_KEPT_LINES)
        self.process = subprocess.Popen(  # noqa: S603  # a program that the user has chosen or built
            supervised(command, 0, _GRACE_PERIOD / 2),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            env=environment,
            start_new_session=True,  # Ctrl-C goes to this process only
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        self._end = weakref.finalize(self, _end, self.process)

    @property
    def is_running(self) -> bool:
        """Whether the server has not ended."""
        return self.process.poll() is None

    def log(self, lines: int = _SHOWN_LINES) -> list[str]:
        """Return the last lines that the server logged."""
        return list(self._lines)[-lines:]

    def wait(self) -> int:
        """Wait until the server ends by itself, and return its status."""
        return self.process.wait()

    def stop(self) -> None:
        """End the server. Idempotent."""
        self._end()
        if self.url:
            api_keys.delete(self.url, self.api_key)
        self._reader.join(_GRACE_PERIOD)

    def wait_ready(self, timeout: float) -> None:
        """Wait until the model is loaded. Stops the server and raises SetupError if that fails."""
        try:
            self._await_ready(timeout)
        except BaseException:
            self.stop()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def _await_ready(self, timeout: float) -> None:
        deadline = time.monotonic() + timeout
        while not self._is_ready():
            if not self.is_running:
                self._reader.join(_GRACE_PERIOD)
                raise self.failure()
            if time.monotonic() > deadline:
                raise SetupError(self._with_log(f"llama-server was not ready after {timeout:g} s"))
            time.sleep(0.05)

    def _read(self) -> None:
        """Read the server's log, so that it never blocks on a full pipe."""
        assert self.process.stdout is not None
        with self.process.stdout as log:
            for line in log:
                self._lines.append(line.rstrip())
                if not self.url and (listening := _LISTENING.search(line)):
                    self.url = listening[1]

    def _is_ready(self) -> bool:
        """Query `/health`, once the log has the port, which the system may have chosen."""
        if not self.url:
            return False
        import httpx  # noqa: PLC0415  # `gbnf doctor` gets along without it

        try:
            return httpx.get(f"{self.url}/health", trust_env=False).is_success
        except httpx.TransportError:
            return False

    @property
    def has_crashed(self) -> bool:
        """Whether the server was killed by a signal of its own fault."""
        status = self.process.poll()
        return status is not None and exit_signal(status) in CRASH_SIGNALS

    def failure(self) -> SetupError:
        """Return the error for a server that ended by itself."""
        hint = f". {CRASH_HINT}" if self.has_crashed else ""
        return SetupError(self._with_log(f"llama-server {describe_exit(self.process.wait())}{hint}"))

    def _with_log(self, problem: str) -> str:
        shown = "\n".join(f"    {line}" for line in self.log())
        return f"{problem}. The end of its log:\n{shown}"


def check_port(port: int) -> None:
    """Raise SetupError if no server can listen on this port of loopback; 0 is a free one."""
    with socket.socket() as tried:
        # a server that has just ended does not block the port
        tried.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            tried.bind(("127.0.0.1", port))
        except OSError as error:
            raise SetupError(
                f"port {port} cannot be used: {error.strerror or error}. "
                "Choose another port, or 0 for a free one."
            ) from None


def start_binary(
    command: Sequence[str],
    extra: Sequence[str],
    api_key: str | None,
    timeout: float,
    *,
    keeps_prompts: bool = True,
) -> LlamaServerProcess:
    """Run a llama-server, with `extra` as its last arguments; see `gbnf_server.llama.server_build.start`.

    `keeps_prompts`: whether it copies the KV caches of earlier prompts to main memory (`--cache-ram`).
    """
    chosen = api_key or os.environ.get(API_KEY_VARIABLE)
    key = chosen or secrets.token_urlsafe(32)
    environment = {
        "LLAMA_ARG_CORS_ORIGINS": "",  # no web page may use it; its default allows all
        **({} if keeps_prompts else {"LLAMA_ARG_CACHE_RAM": "0"}),
        **os.environ,
        API_KEY_VARIABLE: key,  # every user of the machine can see arguments
    }
    repacks = cpu_support().repacks
    server = LlamaServerProcess([*command, *([] if repacks else [_NO_REPACK]), *extra], environment, key)
    try:
        server.wait_ready(timeout)
    except SetupError:
        if not (repacks and server.has_crashed):
            raise
        # Built by another compiler than the library, it may crash where the library does not.
        server = LlamaServerProcess([*command, _NO_REPACK, *extra], environment, key)
        server.wait_ready(timeout)
    if chosen:
        api_keys.delete(server.url)  # that of a killed server at the same address
    else:
        with suppress(OSError):  # without the file, clients need the key as an argument
            api_keys.save(server.url, key)
    return server


def _end(process: subprocess.Popen[str]) -> None:
    """Close the supervisor's input, which ends the server; kill it if that takes too long."""
    assert process.stdin is not None
    try:
        process.stdin.close()
        process.wait(_GRACE_PERIOD)
    except (OSError, subprocess.TimeoutExpired):
        kill_group(process)
