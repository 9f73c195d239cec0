"""One MCP server: its session, which is started again after it broke, its tools and their calls.

Everything here runs in the event loop of `gbnf_server.system.event_loop`.

Invariants: whatever a server does, `start` and `list_tools` end within their time limits, and `call` with the
cancellation of its caller; a broken session fails the calls in flight, and the next call starts another.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import anyio
import httpx2
import mcp_types
from mcp import Client, MCPError
from mcp.client import Transport
from mcp.client.session import ClientRequestContext, IncomingMessage
from mcp.client.sse import sse_client
from mcp.client.streamable_http import streamable_http_client
from mcp.client.subscriptions import SubscriptionLost
from mcp.shared.dispatcher import ProgressFnT
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from pydantic import ValidationError

from gbnf.errors import clip
from gbnf_server.mcp.config import HttpServer, McpServerConfig, StdioServer
from gbnf_server.mcp.log import OnLog, ServerLog
from gbnf_server.mcp.stdio import LONGEST_MESSAGE, TOO_LONG, StdioTransport
from gbnf_server.system.errors import ExecutorError, SetupError

MOST_TOOLS = 4000
_MOST_PAGES = 1000
_LIST_S = 30.0
_REQUEST_S = 30.0  # to connect and to send a request
_LONGEST_S = 24 * 3600.0  # without an event of a server
_SHOWN_LINES = 5
_LONGEST_REASON = 500

logging.getLogger("mcp").addHandler(logging.NullHandler())  # its errors are reported here


class McpServerError(SetupError):
    """An MCP server that does not start, or does not list its tools. Fields: `server`, `problem`, `log`."""

    def __init__(self, server: str, problem: str, log: str = "", hint: str = "") -> None:
        self.server, self.problem, self.log = server, problem, log
        last_lines = f" Its last lines:\n{log}" if log else ""
        super().__init__(
            f"the MCP server '{server}' cannot be used: {problem}.{f' {hint}' if hint else ''}{last_lines}"
        )


@dataclass(frozen=True, slots=True)
class Caller:
    """Who calls a tool, in which run: `ask` passes a server's question on, `root` is their workspace."""

    ask: Callable[[mcp_types.ElicitRequestParams], Awaitable[mcp_types.ElicitResult]]
    run: str
    root: Path


_caller: ContextVar[Caller | None] = ContextVar("caller", default=None)


class Connection:
    """The connection with one server. `tools`: its present ones; `changed`: whether they may have changed."""

    def __init__(self, server: McpServerConfig, on_log: OnLog | None, start_timeout_s: float) -> None:
        self.server = server
        self.name = server.name
        self.tools: tuple[mcp_types.Tool, ...] = ()
        self.changed = False
        self.log = ServerLog(server.name or str(server), on_log)
        self._start_timeout_s = start_timeout_s
        self._client: Client | None = None
        self._stdio: StdioTransport | None = None
        self._life: asyncio.Task[None] | None = None
        self._callers: list[Caller] = []
        self._starting = asyncio.Lock()

    async def start(self) -> None:
        """Start a session, and list the tools. Raises McpServerError."""
        started: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._life = asyncio.create_task(self._live(started))
        problem, hint = "", ""
        try:
            async with asyncio.timeout(self._start_timeout_s):
                await asyncio.shield(started)
        except TimeoutError:
            problem = f"it did not start within {self._start_timeout_s:g} s"
            hint = "Start it by hand to see what it waits for."
        except Exception as error:  # noqa: BLE001  # whatever the SDK raises, the server has not started
            problem, hint = _reason(error), _hint(self.server, error)
        finally:
            if not started.done() or started.cancelled() or started.exception() is not None:
                await self.close()
        if problem:
            if self._stdio is not None and self._stdio.ended_itself:
                problem = self._stdio.ended
            raise McpServerError(str(self.server), problem, self.log.last(_SHOWN_LINES), hint)

    async def close(self) -> None:
        """End the session, and the server if it was started here."""
        life, self._life = self._life, None
        if life is not None:
            life.cancel()
            with suppress(asyncio.CancelledError, Exception):
                await life

    async def refresh(self) -> None:
        """List the tools again. Raises McpServerError; the known tools remain then."""
        client = await self._session()
        self.changed = False
        try:
            async with asyncio.timeout(_LIST_S):
                self.tools = await self._list_tools(client)
        except TimeoutError:
            raise McpServerError(
                str(self.server), f"it did not list its tools within {_LIST_S:g} s"
            ) from None
        except Exception as error:  # noqa: BLE001  # as in start
            raise McpServerError(str(self.server), _reason(error), self.log.last(_SHOWN_LINES)) from None

    async def call(self, name: str, arguments: dict[str, Any], caller: Caller) -> mcp_types.CallToolResult:
        """Call a tool. Raises ExecutorError."""
        try:
            client = await self._session()
        except McpServerError as error:
            failure = ExecutorError(
                f"the MCP server '{self.server}' has ended, and does not start again: {error.problem}"
            )
            failure.add_note(error.log)
            raise failure from None
        stdio = self._stdio
        token = _caller.set(caller)
        self._callers.append(caller)
        try:
            return await client.call_tool(name, arguments, progress_callback=self._progress(name))
        except Exception as error:  # noqa: BLE001  # whatever the SDK raises, this call has failed
            raise await self._failure(name, error, client, stdio) from None
        finally:
            self._callers.remove(caller)
            _caller.reset(token)

    async def _session(self) -> Client:
        """Return the session; start another if it broke. Raises McpServerError."""
        async with self._starting:
            if self._stdio is not None and self._stdio.ended:
                await self.close()
            if self._client is None:
                await self.start()
        assert self._client is not None
        return self._client

    async def _failure(
        self, name: str, error: Exception, client: Client, stdio: StdioTransport | None
    ) -> ExecutorError:
        """Return the error of a call, after closing its session if that broke, and not a later one."""
        inner = _innermost(error)
        broke = isinstance(inner, httpx2.HTTPError | OSError) or (
            isinstance(inner, MCPError)
            and (
                inner.code == mcp_types.CONNECTION_CLOSED
                or (inner.code, inner.message) == (mcp_types.INVALID_REQUEST, "Session terminated")
            )
        )
        if not broke:
            return ExecutorError(f"'{name}' failed: {_reason(inner)}")
        how = stdio.ended if stdio is not None and stdio.ended_itself else _reason(inner)
        if self._client is client:
            await self.close()
        return ExecutorError(
            f"'{name}' failed: the connection with its MCP server broke ({how}). "
            "Its effects are unknown; the next call starts the server again."
        )

    async def _live(self, started: asyncio.Future[None]) -> None:
        """Keep a session open until the task is cancelled."""
        first, *others = self._transports()
        try:
            try:
                await self._live_over(first, started)
            except Exception as error:
                if started.done() or not others or not isinstance(_innermost(error), MCPError):
                    raise  # only a server that answers may speak the other transport
                with suppress(httpx2.HTTPError):
                    await self._live_over(others[0], started)
                raise
        except Exception as error:  # noqa: BLE001  # as in start
            if not started.done():
                started.set_exception(error)

    async def _live_over(self, transport: Transport, started: asyncio.Future[None]) -> None:
        client = Client(
            transport,
            elicitation_callback=self._elicit,
            list_roots_callback=self._roots,
            logging_callback=self._on_log_message,
            message_handler=self._on_message,
            cache=None,
        )
        try:
            async with client:
                # Results are validated by `results`, within limits and outside of the event loop.
                client.session.validate_tool_result = _accept  # type: ignore[method-assign]  # it has no option
                self.name = self.server.name or (client.server_info.name if client.server_info else "")
                self.tools = await self._list_tools(client)
                self._client = client
                started.set_result(None)
                await self._listen(client)
        finally:
            if self._client is client:
                self._client = None

    def _transports(self) -> list[Transport]:
        """Return the transports to try, in order."""
        match self.server:
            case StdioServer():
                self._stdio = StdioTransport(self.server, self.log)
                return [self._stdio.streams()]
            case HttpServer(transport="sse"):
                return [self._sse(self.server)]
            case HttpServer(transport="http"):
                return [_http(self.server)]
            case HttpServer():
                return [_http(self.server), self._sse(self.server)]

    def _sse(self, server: HttpServer) -> Transport:
        headers = dict(server.headers)
        return sse_client(server.url, headers, timeout=self._start_timeout_s, sse_read_timeout=_LONGEST_S)

    async def _list_tools(self, client: Client) -> tuple[mcp_types.Tool, ...]:
        tools: list[mcp_types.Tool] = []
        cursor: str | None = None
        for _ in range(_MOST_PAGES):
            page = await client.list_tools(cursor=cursor)
            tools += page.tools
            if page.next_cursor is None or page.next_cursor == cursor or len(tools) > MOST_TOOLS:
                break
            cursor = page.next_cursor
        if len(tools) > MOST_TOOLS:
            self.log.add("", f"it lists more than {MOST_TOOLS} tools; the others are left out")
        return tuple(tools[:MOST_TOOLS])

    async def _listen(self, client: Client) -> None:
        """Notice changes of the tools, until cancelled. Servers up to 2025-11-25 notify without a stream."""
        changes = client.server_capabilities.tools and client.server_capabilities.tools.list_changed
        if changes and client.protocol_version in MODERN_PROTOCOL_VERSIONS:
            with suppress(MCPError, SubscriptionLost, TimeoutError):
                async with client.listen(tools_list_changed=True) as changed:
                    async for _ in changed:
                        self.changed = True
            self.changed = True  # nobody tells any more
        await anyio.sleep_forever()

    async def _on_message(self, message: IncomingMessage) -> None:
        if isinstance(message, mcp_types.ToolListChangedNotification):
            self.changed = True
        elif isinstance(message, Exception):
            self.log.add("transport", _reason(message))

    async def _on_log_message(self, params: mcp_types.LoggingMessageNotificationParams) -> None:
        self.log.add(params.level, params.data if isinstance(params.data, str) else repr(params.data))

    def _progress(self, name: str) -> ProgressFnT:
        async def report(progress: float, total: float | None, message: str | None) -> None:
            of_total = "" if total is None else f"/{total:g}"
            self.log.add(name, f"{progress:g}{of_total}{f' {message}' if message else ''}")

        return report

    def _current_caller(self, what: str, same: Callable[[Caller], object]) -> Caller | None:
        """Return who made the call that a server's request belongs to; None if that is unknown.

        Up to 2025-11-25, requests over stdio and SSE, and for roots, name no call. Then it is unknown if
        calls are in progress that differ in `same`.
        """
        if (caller := _caller.get()) is not None or not self._callers:
            return caller
        if len({same(pending) for pending in self._callers}) == 1:
            return self._callers[-1]
        self.log.add("", f"{what} refused: the request names none of the calls in progress")
        return None

    async def _elicit(
        self,
        context: ClientRequestContext,
        params: mcp_types.ElicitRequestParams,
    ) -> mcp_types.ElicitResult | mcp_types.ErrorData:
        caller = self._current_caller("a question is", lambda pending: pending.run)
        return mcp_types.ElicitResult(action="cancel") if caller is None else await caller.ask(params)

    async def _roots(self, context: ClientRequestContext) -> mcp_types.ListRootsResult | mcp_types.ErrorData:
        """Return the workspace of the call; none outside of one, so that a server keeps its own folders."""
        caller = self._current_caller("the roots are", lambda pending: pending.root)
        roots = [] if caller is None else [mcp_types.Root(uri=caller.root.as_uri(), name=caller.root.name)]  # type: ignore[arg-type]  # pydantic parses it
        return mcp_types.ListRootsResult(roots=roots)


@asynccontextmanager
async def _http(server: HttpServer) -> AsyncIterator[Any]:
    http = httpx2.AsyncClient(
        headers={"Accept-Encoding": "identity", **server.headers},
        timeout=httpx2.Timeout(_REQUEST_S, read=_LONGEST_S),  # a call is cancelled by its caller
        event_hooks={"response": [_limit_body]},
    )
    async with (
        http,
        streamable_http_client(server.url, http_client=http, max_sse_event_size=LONGEST_MESSAGE) as streams,
    ):
        yield streams


async def _limit_body(response: httpx2.Response) -> None:
    """Limit a response. The SDK limits the events of a stream itself."""
    limit, fault = LONGEST_MESSAGE, TOO_LONG
    if "content-encoding" in response.headers:
        limit, fault = 0, "it sent a compressed message, which was not asked for"
    elif response.headers.get("content-type", "").startswith("text/event-stream"):
        return
    assert isinstance(response.stream, httpx2.AsyncByteStream)
    response.stream = _LimitedBody(response.stream, limit, fault)


class _LimitedBody(httpx2.AsyncByteStream):
    def __init__(self, body: httpx2.AsyncByteStream, limit: int, fault: str) -> None:
        self._body, self._limit, self._fault = body, limit, fault

    async def __aiter__(self) -> AsyncIterator[bytes]:
        length = 0
        async for chunk in self._body:
            length += len(chunk)
            if length > self._limit:
                raise httpx2.StreamError(self._fault)
            yield chunk

    async def aclose(self) -> None:
        await self._body.aclose()


async def _accept(name: str, result: mcp_types.CallToolResult) -> None:
    """Accept any result."""


def _innermost(error: BaseException) -> BaseException:
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error


def _reason(error: BaseException) -> str:
    """Return why something failed, without the line breaks and the length of foreign messages."""
    error = _innermost(error)
    match error:
        case ValidationError():
            faults = error.errors(include_url=False, include_context=False)
            location = ".".join(str(step) for step in faults[0]["loc"])
            text = f"an invalid message of the server: {location}: {faults[0]['msg']}"
        case OSError(strerror=str(reason)) if not isinstance(error, FileNotFoundError):
            text = reason
        case _:
            text = str(error) or type(error).__name__
    return clip(" ".join(text.split()), _LONGEST_REASON)


def _hint(server: McpServerConfig, error: BaseException) -> str:
    error = _innermost(error)
    if isinstance(server, HttpServer):
        return "Check that it runs, and that the URL is its MCP endpoint, which often ends in /mcp."
    if isinstance(error, FileNotFoundError):
        programs = {"npx": "Node.js", "node": "Node.js", "uvx": "uv", "docker": "Docker"}
        return f"Install {programs.get(server.command, 'it')}, or give its path."
    return "Run the command in a terminal to see why."
