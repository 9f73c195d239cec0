"""The stdio transport: an MCP server as a process, with messages on its standard streams.

The SDK's own transport neither tells how a server ended nor limits what it writes. Here:

- a message has at most `LONGEST_MESSAGE` bytes; a longer one ends the connection;
- a line that is no message is logged and ignored;
- standard error goes to the log, never to this process's output;
- the server ends with the transport, and with this process even if that is killed.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Self, TypeAlias

import anyio
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter

from gbnf_server.mcp.config import StdioServer
from gbnf_server.mcp.log import ServerLog
from gbnf_server.system.processes import describe_exit
from gbnf_server.system.supervisor import supervised

LONGEST_MESSAGE = 32 << 20  # bytes
TOO_LONG = f"it sent a message of more than {LONGEST_MESSAGE >> 20} MB"

_Streams: TypeAlias = tuple[
    MemoryObjectReceiveStream[SessionMessage | Exception], MemoryObjectSendStream[SessionMessage]
]

_CHUNK = 1 << 16
_LONGEST_LINE = 1 << 14  # bytes of standard error
_CLOSED = "it was closed"
_FLUSH_S = 0.5  # for the last messages to a server
_EXIT_S = 2.0  # for a server whose input has ended
_GRACE_PERIOD_S = 2.0  # between SIGTERM and SIGKILL
_END_S = 10.0  # for its supervisor, which ends everything
_STEP_S = 0.01


class StdioTransport:
    """A server's process. `ended`: why there is no connection any more, "" while there is one."""

    def __init__(self, server: StdioServer, log: ServerLog) -> None:
        self._server, self._log = server, log
        self.ended = ""

    @property
    def ended_itself(self) -> bool:
        """Whether the connection ended without being closed here."""
        return self.ended not in {"", _CLOSED}

    @asynccontextmanager
    async def streams(self) -> AsyncIterator[_Streams]:
        """Start the process, and yield the streams of its messages; end it at the exit. Raises OSError."""
        with _Process(self._server) as process:
            received, reading = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            writing, sent = anyio.create_memory_object_stream[SessionMessage](0)
            async with received, reading, writing, sent, anyio.create_task_group() as tasks:
                sending, all_sent, all_logged = anyio.CancelScope(), anyio.Event(), anyio.Event()
                tasks.start_soon(self._receive, process, received)
                tasks.start_soon(self._send, process, sent, received, sending, all_sent)
                tasks.start_soon(self._log_errors, process, all_logged)
                try:
                    yield reading, writing
                finally:
                    with anyio.CancelScope(shield=True):
                        self.ended = self.ended or _CLOSED
                        writing.close()
                        with anyio.move_on_after(_FLUSH_S):
                            await all_sent.wait()
                        sending.cancel()
                        await all_sent.wait()
                        await process.end(gracefully=not self.ended_itself)
                        with anyio.move_on_after(_EXIT_S):
                            await all_logged.wait()
                    tasks.cancel_scope.cancel()

    async def _receive(
        self, process: _Process, received: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        complete = await _read_lines(
            process.output, LONGEST_MESSAGE, lambda line: self._deliver(line, received)
        )
        how = await process.how_it_ended() if complete else TOO_LONG
        self.ended = self.ended or how
        received.close()

    async def _deliver(
        self, line: bytes, received: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        try:
            message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            self._log.add("a line on its standard output is not a message", line)
            return
        with suppress(anyio.BrokenResourceError, anyio.ClosedResourceError):
            await received.send(message)

    async def _send(
        self,
        process: _Process,
        sent: MemoryObjectReceiveStream[SessionMessage],
        received: MemoryObjectSendStream[SessionMessage | Exception],
        scope: anyio.CancelScope,
        end: anyio.Event,
    ) -> None:
        try:
            with scope:
                async for message in sent:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await process.write(f"{text}\n".encode())
        except OSError:  # it has closed its input, so it answers no request any more
            self.ended = self.ended or "it closed its standard input"
            received.close()
        finally:
            process.close_input()
            end.set()

    async def _log_errors(self, process: _Process, end: anyio.Event) -> None:
        async def log(line: bytes) -> None:
            self._log.add("", line)

        await _read_lines(process.errors, _LONGEST_LINE, log, in_parts=True)
        end.set()


class _Process:
    """A server below its supervisor, and the pipes of its standard streams."""

    def __init__(self, server: StdioServer) -> None:
        environment = get_default_environment() | dict(server.env)
        if shutil.which(server.command, path=environment.get("PATH")) is None:
            raise FileNotFoundError(f"there is no program {server.command!r}")
        self._connection, theirs = socket.socketpair()
        try:
            self._supervisor = subprocess.Popen(  # noqa: S603 - the user's command
                supervised([server.command, *server.args], theirs.fileno(), _GRACE_PERIOD_S),
                pass_fds=[theirs.fileno()],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                cwd=server.cwd,
                env=environment,
                start_new_session=True,  # Ctrl-C is for this process, which ends its servers
                bufsize=0,
            )
        except BaseException:
            self._connection.close()
            raise
        finally:
            theirs.close()
        streams = (self._supervisor.stdin, self._supervisor.stdout, self._supervisor.stderr)
        self._input, self.output, self.errors = (stream.fileno() for stream in streams if stream)
        self._connection.setblocking(False)
        os.set_blocking(self._input, False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None:
        self._connection.close()
        with suppress(subprocess.TimeoutExpired):
            self._supervisor.wait(_END_S)
        for stream in (self._supervisor.stdin, self._supervisor.stdout, self._supervisor.stderr):
            assert stream is not None
            with suppress(OSError):
                stream.close()

    async def write(self, data: bytes) -> None:
        """Write all of `data`. Raises OSError if the server has closed its input."""
        left = memoryview(data)
        while left:
            try:
                left = left[os.write(self._input, left) :]
            except BlockingIOError:
                await anyio.wait_writable(self._input)

    def close_input(self) -> None:
        """Ask the server to end."""
        assert self._supervisor.stdin is not None
        with suppress(OSError):
            self._supervisor.stdin.close()

    async def how_it_ended(self) -> str:
        """Return how the server ended, which has closed its output."""
        with anyio.move_on_after(_EXIT_S):
            await anyio.wait_readable(self._connection)
        with suppress(OSError, ValueError):
            return f"it {describe_exit(int(self._connection.recv(64)))}"
        return "it closed its standard output"

    async def end(self, *, gracefully: bool) -> None:
        """End the server: close its input, and have its supervisor end it if that is not enough."""
        self.close_input()
        await self._wait(_EXIT_S if gracefully else 0.0)
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
        await self._wait(_END_S)

    async def _wait(self, limit_s: float) -> None:
        with anyio.move_on_after(limit_s):
            while self._supervisor.poll() is None:  # noqa: ASYNC110 - the fact is another process's
                await anyio.sleep(_STEP_S)


async def _read_lines(
    descriptor: int, longest: int, on_line: Callable[[bytes], Awaitable[None]], *, in_parts: bool = False
) -> bool:
    """Pass on each line that is not blank, until the end or a line that is too long; return whether the end.

    `in_parts`: pass on a line that is too long in parts.
    """
    kept = bytearray()
    while True:
        await anyio.wait_readable(descriptor)
        chunk = os.read(descriptor, _CHUNK)
        start = len(kept)
        kept += chunk
        while (end := kept.find(b"\n", start)) >= 0:
            line = bytes(kept[:end]).strip()
            del kept[: end + 1]
            start = 0
            if line:
                await on_line(line)
        if (not chunk or (in_parts and len(kept) > longest)) and kept.strip():
            await on_line(bytes(kept))
            kept.clear()
        if not chunk or len(kept) > longest:
            return not chunk
