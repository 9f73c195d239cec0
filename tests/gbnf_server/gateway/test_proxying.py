"""A llama-server's own endpoints, reached through the gateway."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any

import httpx
import pytest

from gbnf_server.gateway.app import create_app
from gbnf_server.gateway.proxying import PASSED, PassThrough
from gbnf_server.llama.server_process import LlamaServerProcess
from gbnf_server.web.access import Access
from gbnf_server.web.limits import Limits
from support.gateways import ScriptedEngine, make_gateway
from support.server import serving


@contextmanager
def upstream(
    status: int = 200, headers: dict[str, str] | None = None, end: bytes = b"0\r\n\r\n"
) -> Iterator[tuple[str, list[Any]]]:
    """The URL of a server that answers with what it was asked."""
    seen: list[Any] = []

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def _answer(self) -> None:
            body = self.rfile.read(int(self.headers.get("content-length", 0)))
            seen.append((self.command, self.path, {k.lower(): v for k, v in self.headers.items()}, body))
            self.send_response(status)
            for name, value in (headers or {}).items():
                self.send_header(name, value)
            self.send_header("Transfer-Encoding", "chunked")
            self.end_headers()
            for piece in (b'{"a":', b" 1}"):
                self.wfile.write(b"%x\r\n%s\r\n" % (len(piece), piece))
            self.wfile.write(end)

        do_GET = do_POST = _answer  # noqa: N815  # the names that http.server looks for

        def log_message(self, *_: object) -> None:
            pass

    with serving(Handler) as url:
        yield url, seen


def ask(
    url: str,
    method: str,
    path: str,
    *,
    api_key: str | None = None,
    keys: tuple[str, ...] = ("ours",),
    **options: Any,
) -> httpx.Response:
    gateway = make_gateway(ScriptedEngine(), limits=Limits(body_bytes=1000))
    app = create_app(gateway, Access(keys=keys), passed=PassThrough(lambda: url, api_key))

    async def run() -> httpx.Response:
        transport = httpx.ASGITransport(app=app)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            headers = {"authorization": "Bearer ours", **options.pop("headers", {})}
            return await client.request(method, path, headers=headers, **options)

    response = asyncio.run(run())
    assert gateway.budget.reserved == 0
    return response


@pytest.mark.parametrize(("method", "path"), PASSED)
def test_its_endpoints_are_passed_on_with_its_own_key(method: str, path: str) -> None:
    body = b'{"content": "x"}' if method == "POST" else b""
    with upstream() as (url, seen):
        headers = {"cookie": "secret", "x-api-key": "ours", "connection": "x-hop", "x-hop": "1"}
        response = ask(url, method, f"{path}?a=b%20c", api_key="theirs", content=body, headers=headers)
    assert (response.status_code, response.json()) == (200, {"a": 1})
    [(asked_method, asked_path, sent, asked_body)] = seen
    assert (asked_method, asked_path, asked_body) == (method, f"{path}?a=b%20c", body)
    assert sent["authorization"] == "Bearer theirs"
    assert not {"cookie", "x-api-key", "x-hop"} & sent.keys()
    assert "ours" not in str(sent)


def test_one_of_several_keys_does_not_see_what_the_slots_do() -> None:
    with upstream() as (url, seen):
        assert ask(url, "GET", "/slots", keys=("ours", "another")).status_code == 404
        assert ask(url, "GET", "/props", keys=("ours", "another")).status_code == 200
    assert len(seen) == 1


def test_without_a_key_of_its_own_it_gets_none() -> None:
    with upstream() as (url, seen):
        ask(url, "GET", "/props")
    assert "authorization" not in seen[0][2]


def test_what_generates_or_changes_is_not_passed_on() -> None:
    requests = [
        ("POST", "/props", 405),
        ("POST", "/slots/0", 404),
        ("POST", "/models/load", 404),
        ("POST", "/models/unload", 404),
        ("POST", "/completion", 404),
        ("POST", "/completions", 404),
        ("POST", "/infill", 404),
        ("GET", "/models/../completion", 404),
        ("GET", "/props/%2e%2e/completion", 404),
        ("DELETE", "/models", 405),
    ]
    with upstream() as (url, seen):
        for method, path, status in requests:
            assert ask(url, method, path).status_code == status, (method, path)
    assert seen == []


def test_our_key_is_needed_and_the_body_is_limited() -> None:
    with upstream() as (url, seen):
        assert ask(url, "GET", "/props", headers={"authorization": "Bearer wrong"}).status_code == 401
        assert ask(url, "POST", "/tokenize", content=b"x" * 1001).status_code == 413
    assert seen == []


def test_errors_and_redirects_are_passed_on_as_they_are() -> None:
    headers = {"Location": "http://evil.example/", "Set-Cookie": "a=b", "Keep-Alive": "x", "X-Other": "y"}
    with upstream(307, headers) as (url, seen):
        response = ask(url, "GET", "/props")
    assert (response.status_code, len(seen)) == (307, 1)
    assert response.headers["x-other"] == "y"
    assert not {"set-cookie", "keep-alive", "transfer-encoding"} & response.headers.keys()


def test_a_response_that_breaks_gets_no_end() -> None:
    with upstream(end=b"no chunk\r\n") as (url, _), pytest.raises(httpx.RemoteProtocolError):
        ask(url, "GET", "/props")


def test_no_server_is_an_error_in_the_shape_of_the_api() -> None:
    response = ask("http://127.0.0.1:1", "GET", "/props")
    assert (response.status_code, response.json()["error"]["code"]) == (503, "backend_unreachable")


def test_a_real_llama_server(llama_server: LlamaServerProcess) -> None:
    props = ask(llama_server.url, "GET", "/props")
    assert props.json()["default_generation_settings"]["n_ctx"] > 0
    tokens = ask(llama_server.url, "POST", "/tokenize", content=json.dumps({"content": "abc"}))
    text = ask(llama_server.url, "POST", "/detokenize", json=tokens.json())
    assert text.json()["content"].strip() == "abc"
