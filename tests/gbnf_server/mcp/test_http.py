"""HTTP servers that send too much, or what was not asked for."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from gbnf_server.executors import Context, run_executor
from gbnf_server.mcp import McpServerError, mcp_tools
from gbnf_server.system.errors import ExecutorError
from support.mcp_servers import named
from support.server import serving

INFO = {
    "protocolVersion": "2025-06-18",
    "capabilities": {"tools": {}},
    "serverInfo": {"name": "web", "version": "1"},
}
LISTED = {
    "tools": [{"name": "ping", "inputSchema": {"type": "object"}, "annotations": {"readOnlyHint": True}}]
}


class Handler(BaseHTTPRequestHandler):
    """Answers as an MCP server with one tool, whose result `mode` spoils. `seen`: the requests' headers."""

    mode = ""
    seen: list[dict[str, str]]

    def do_POST(self) -> None:
        self.seen.append(dict(self.headers))
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if "id" not in request:
            self.reply(202, b"")
            return
        known: dict[str, Any] = {"initialize": INFO, "tools/list": LISTED}
        if request["method"] == "tools/call":
            self.call(request)
        elif request["method"] in known:
            self.reply(200, encoded(request, known[request["method"]]))
        else:
            self.reply(404, b"")

    def do_GET(self) -> None:
        self.reply(405, b"")

    def call(self, request: dict[str, Any]) -> None:
        result = {"content": [{"type": "text", "text": "pong"}]}
        match self.mode:
            case "bomb":
                self.reply(200, gzip.compress(encoded(request, result)), **{"Content-Encoding": "gzip"})
            case "endless":
                self.send_response(200)
                self.send_header("Content-Type", "application/json")
                self.end_headers()
                while True:
                    self.wfile.write(b" " * (1 << 20))
            case "page":
                self.reply(200, b"<html>", **{"Content-Type": "text/html"})
            case "broken":
                self.reply(200, b"{")
            case _:
                self.reply(200, encoded(request, result))

    def reply(self, status: int, body: bytes, **headers: str) -> None:
        self.send_response(status)
        for name, value in {"Content-Type": "application/json", **headers}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: Any) -> None:
        pass


def encoded(request: dict[str, Any], result: Any) -> bytes:
    return json.dumps({"jsonrpc": "2.0", "id": request["id"], "result": result}).encode()


class Quiet(ThreadingHTTPServer):
    def handle_error(self, *_: Any) -> None:
        """Clients that leave early are expected."""


@contextmanager
def web_server(mode: str) -> Iterator[tuple[str, list[dict[str, str]]]]:
    seen: list[dict[str, str]] = []
    with serving(type("Served", (Handler,), {"mode": mode, "seen": seen}), Quiet) as url:
        yield f"{url}/mcp", seen


@pytest.mark.parametrize(
    ("mode", "message"),
    [
        ("bomb", "a compressed message, which was not asked for"),
        ("endless", "it sent a message of more than 32 MB"),
        ("page", "'ping' failed: Unexpected content type"),
        ("broken", "'ping' failed: Failed to parse JSON response"),
    ],
)
def test_a_response_that_is_no_use_fails_the_call(mode: str, message: str, there: Context) -> None:
    with web_server(mode) as (url, _), mcp_tools(url) as mcp:
        for _ in range(2):
            with pytest.raises(ExecutorError, match=message):
                run_executor(named(mcp, "ping"), {}, there)


def test_headers_are_sent_and_compression_is_not_asked_for(there: Context) -> None:
    with web_server("") as (url, seen):
        config = {"servers": {"web": {"type": "http", "url": url, "headers": {"X-Key": "k"}}}}
        with mcp_tools(config) as mcp:
            assert run_executor(named(mcp, "ping"), {}, there) == {"text": "pong"}
    assert seen
    for headers in seen:
        lowered = {name.lower(): value for name, value in headers.items()}
        assert (lowered["x-key"], lowered["accept-encoding"]) == ("k", "identity")


def test_a_page_that_is_no_server_is_named() -> None:
    class Page(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.send_error(404)

        do_GET = do_POST  # noqa: N815  # the name that the library calls

        def log_message(self, *_: Any) -> None:
            pass

    refused = pytest.raises(McpServerError, match=r"Not Found.*often ends in /mcp")
    with serving(Page, Quiet) as url, refused, mcp_tools(f"{url}/"):
        pass
