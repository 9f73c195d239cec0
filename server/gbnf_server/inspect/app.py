"""The ASGI application of the page: one person's browser on this machine, which knows a token.

Invariants: no request without the token is answered, and none that names another host; the page loads
nothing from elsewhere; what takes long runs beside the event loop, and the size of a body is limited.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from types import UnionType
from typing import Any

from anyio import CapacityLimiter
from anyio.to_thread import run_sync
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import HTMLResponse, JSONResponse, Response
from starlette.routing import Route
from starlette.types import ASGIApp

from gbnf_server.inspect.inspection import Inspection
from gbnf_server.inspect.live_decoding import DecodingOptions
from gbnf_server.inspect.rendering import content_security_policy
from gbnf_server.web.access import Access
from gbnf_server.web.bodies import ClientLeftError, read_body, while_connected
from gbnf_server.web.errors import HttpError
from gbnf_server.web.limits import Limits, MemoryBudget, read_object

_LIMITS = Limits(body_bytes=1024 * 1024, memory_bytes=16 * 1024 * 1024)
_THREADS = 2
_HEADERS = {
    "cache-control": "no-store",
    "content-security-policy": content_security_policy(live=True),
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}


def create_app(inspection: Inspection, token: str) -> ASGIApp:
    """Return the application. The page is at `/?token=…`; its script sends the token in a header."""
    handlers = _PageHandlers(inspection, token)
    routes = [
        Route("/", handlers.page, methods=["GET"]),
        Route("/tool", handlers.tool, methods=["GET"]),
        Route("/diagram", handlers.diagram, methods=["GET"]),
        Route("/text", handlers.text, methods=["POST"]),
        Route("/pool", handlers.pool, methods=["POST"]),
        Route("/decode", handlers.decode, methods=["POST"]),
    ]
    return Starlette(routes=routes)


def _checked(
    handler: Callable[[_PageHandlers, Request], Awaitable[str]],
) -> Callable[[_PageHandlers, Request], Awaitable[Response]]:
    """Answer a request that is allowed with the HTML of a handler, and a problem with its message."""

    async def answer(self: _PageHandlers, request: Request) -> Response:
        try:
            self.check(request)
            html = await handler(self, request)  # a schema or a text may contain a lone surrogate
            return HTMLResponse(html.encode("utf-8", "replace"), headers=_HEADERS)
        except HttpError as error:
            return JSONResponse({"error": str(error)}, error.status, headers=_HEADERS)
        except ClientLeftError:
            return Response(status_code=499)

    return answer


class _PageHandlers:
    """What the endpoints do."""

    def __init__(self, inspection: Inspection, token: str) -> None:
        self._inspection, self._token = inspection, token
        self._access = Access(keys=(token,))
        self._budget = MemoryBudget(_LIMITS.memory_bytes)
        self._limiter: CapacityLimiter | None = None

    def check(self, request: Request) -> None:
        """Check the host, the origin and the token. Raises HttpError (401, 403)."""
        headers = dict(request.headers)
        if request.url.path == "/":  # a person opens it, whose browser sends no header
            headers["authorization"] = f"Bearer {request.query_params.get('token', '')}"
        self._access.check(request.url.path, headers)

    @_checked
    async def page(self, _request: Request) -> str:
        return await self._run(partial(self._inspection.page, self._token))

    @_checked
    async def tool(self, request: Request) -> str:
        return await self._run(partial(self._inspection.grammar, self._index(request)))

    @_checked
    async def diagram(self, request: Request) -> str:
        rule = request.query_params.get("rule", "")
        return await self._run(partial(self._inspection.diagram, self._index(request), rule))

    @_checked
    async def text(self, request: Request) -> str:
        body = await self._body(request)
        return await self._run(partial(self._inspection.text, _member(body, "text", str)))

    @_checked
    async def pool(self, request: Request) -> str:
        body = await self._body(request)
        wanted, limit = _member(body, "request", str), _member(body, "limit", int)
        return await self._run(partial(self._inspection.pool, wanted, max(1, limit)))

    @_checked
    async def decode(self, request: Request) -> str:
        body = await self._body(request)
        options = DecodingOptions(
            _member(body, "request", str),
            tuple(_member(body, "strategies", list)),
            _member(body, "max_tokens", int),
            _member(body, "temperature", int | float),
            _member(body, "seed", int),
        )
        return await while_connected(request.receive, self._inspection.decode(options))

    def _index(self, request: Request) -> int:
        """Return the number of the tool that a request names. Raises HttpError (404)."""
        index = request.query_params.get("index", "")
        if not (
            index.isascii() and index.isdecimal() and len(index) < 7 and int(index) < len(self._inspection)
        ):
            raise HttpError(404, f"there is no tool number {index[:20]!r}.", "not_found")
        return int(index)

    async def _run(self, work: Callable[[], str]) -> str:
        """Run work in a thread; a few at a time."""
        if self._limiter is None:
            self._limiter = CapacityLimiter(_THREADS)
        return await run_sync(work, limiter=self._limiter)

    async def _body(self, request: Request) -> Mapping[str, Any]:
        """Return the object of a request's body. Raises HttpError and ClientLeftError."""
        with self._budget.share() as share:
            body = await read_body(request.scope, request.receive, _LIMITS, share)
        return read_object(body, surrogates=True)


def _member(body: Mapping[str, Any], name: str, kind: type[Any] | UnionType) -> Any:
    value = body.get(name)
    if not isinstance(value, kind) or isinstance(value, bool):
        shown = json.dumps(value)[:40]
        raise HttpError(
            400, f"{name!r} must be a {getattr(kind, '__name__', 'number')}, got {shown}.", "invalid_request"
        )
    return value
