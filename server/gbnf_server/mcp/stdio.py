"""The stdio transport: an MCP server as a process, with messages on its standard streams.

The SDK's own transport neither tells how a server ended nor limits what it writes. Here:

- a message has at most `LONGEST_MESSAGE` bytes; a longer one ends the connection;
- a line that is no message is logged and ignored;
- standard error goes to the log, never to this process's output;
- the server ends with the transport, and with this process even if that is killed.
"""

from __future__ import annotations

import shutil
import socket
import subprocess
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import TypeAlias

import anyio
from anyio.abc import ByteReceiveStream, ByteSendStream, Process
from anyio.streams.buffered import BufferedByteReceiveStream
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

_LONGEST_LINE = 1 << 14  # bytes of standard error
_CLOSED = "it was closed"
_FLUSH_S = 0.5  # for the last messages to a server
_EXIT_S = 2.0  # for a server whose input has ended
_GRACE_PERIOD_S = 2.0  # between SIGTERM and SIGKILL
_END_S = 10.0  # for its supervisor, which ends everything


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
        connection, theirs = socket.socketpair()
        with connection:
            with theirs:
                process = await _start(self._server, theirs.fileno())
            received, reading = anyio.create_memory_object_stream[SessionMessage | Exception](0)
            writing, sent = anyio.create_memory_object_stream[SessionMessage](0)
            async with process, received, reading, writing, sent, anyio.create_task_group() as tasks:
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
                        await self._end(process, connection)
                        with anyio.move_on_after(_EXIT_S):
                            await all_logged.wait()
                    tasks.cancel_scope.cancel()

    async def _end(self, process: Process, connection: socket.socket) -> None:
        """End the server, whose input is closed: have its supervisor end it if that is not enough."""
        with anyio.move_on_after(0.0 if self.ended_itself else _EXIT_S):
            await process.wait()
        with suppress(OSError):
            connection.shutdown(socket.SHUT_WR)
        with anyio.move_on_after(_END_S):
            await process.wait()
        if process.returncode is None:
            process.kill()

    async def _receive(
        self, process: Process, received: MemoryObjectSendStream[SessionMessage | Exception]
    ) -> None:
        complete = await _read_lines(
            process.stdout, LONGEST_MESSAGE, lambda line: self._deliver(line, received)
        )
        how = TOO_LONG
        if complete:
            with anyio.move_on_after(_EXIT_S):
                await process.wait()
            status = process.returncode
            how = "it closed its standard output" if status is None else f"it {describe_exit(status)}"
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
        process: Process,
        sent: MemoryObjectReceiveStream[SessionMessage],
        received: MemoryObjectSendStream[SessionMessage | Exception],
        scope: anyio.CancelScope,
        end: anyio.Event,
    ) -> None:
        try:
            with scope:
                async for message in sent:
                    text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                    await _input(process).send(f"{text}\n".encode())
        except (OSError, anyio.BrokenResourceError):
            # it has closed its input, so it answers no request any more
            self.ended = self.ended or "it closed its standard input"
            received.close()
        finally:
            await _input(process).aclose()
            end.set()

    async def _log_errors(self, process: Process, end: anyio.Event) -> None:
        async def log(line: bytes) -> None:
            self._log.add("", line)

        await _read_lines(process.stderr, _LONGEST_LINE, log, in_parts=True)
        end.set()


async def _start(server: StdioServer, connection: int) -> Process:
    """Start a server below its supervisor, which ends it when the other end of `connection` closes."""
    environment = get_default_environment() | dict(server.env)
    if shutil.which(server.command, path=environment.get("PATH")) is None:
        raise FileNotFoundError(f"there is no program {server.command!r}")
    return await anyio.open_process(
        supervised([server.command, *server.args], connection, _GRACE_PERIOD_S),
        pass_fds=[connection],
        stderr=subprocess.PIPE,
        cwd=server.cwd,
        env=environment,
        start_new_session=True,  # Ctrl-C is for this process, which ends its servers
    )


def _input(process: Process) -> ByteSendStream:
    assert process.stdin is not None
    return process.stdin


async def _read_lines(
    stream: ByteReceiveStream | None,
    longest: int,
    on_line: Callable[[bytes], Awaitable[None]],
    *,
    in_parts: bool = False,
) -> bool:
    """Pass on each line that is not blank, until the end or a line that is too long; return whether the end.

    `in_parts`: pass on a line that is too long in parts.
    """
    assert stream is not None
    lines = BufferedByteReceiveStream(stream)
    is_end = False
    while not is_end:
        try:
            line = await lines.receive_until(b"\n", longest)
        except anyio.DelimiterNotFound:
            if not in_parts:
                return False
            line = await lines.receive(longest)
        except anyio.IncompleteRead:
            line, is_end = lines.buffer, True
        if line := line.strip():
            await on_line(line)
    return True
