"""The ASGI application: endpoints, and what applies to every request.

Invariants:

- Every request gets an id, and an answer in the shape of its API, whatever is wrong with it or here.
- When a client leaves, the work for it is cancelled, and what it held is given back.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import AsyncExitStack, aclosing, asynccontextmanager
from functools import partial
from typing import Any, NoReturn

from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import HTTPConnection, Request
from starlette.routing import Route
from starlette.types import ASGIApp, Receive, Scope, Send

from gbnf_server.gateway.answers import GRAMMAR_IGNORED
from gbnf_server.gateway.anthropic_messages import Messages
from gbnf_server.gateway.api import Api
from gbnf_server.gateway.gateway import Gateway
from gbnf_server.gateway.openai_responses import Responses
from gbnf_server.gateway.proxying import OF_ALL_REQUESTS, PASSED, PassThrough
from gbnf_server.system.errors import BackendUnreachableError
from gbnf_server.web.access import Access
from gbnf_server.web.bodies import ClientLeftError, read_body, while_connected
from gbnf_server.web.errors import HttpError
from gbnf_server.web.limits import MemoryShare
from gbnf_server.web.logs import log, log_error
from gbnf_server.web.responses import ABORT, EventSender, Response

_WATCHED = frozenset({"/health", "/metrics"})
"""Answered while the server drains, and not logged."""
_CREATED = "1970-01-01T00:00:00Z"  # the API requires a time, and files of models tell none
_EXCHANGE = "gbnf.exchange"
_REQUEST_ID = re.compile(r"[\w.:@/+=-]{1,128}", re.ASCII)
_CLIENT_LEFT = 499  # nginx's status, in logs and metrics only


class HttpExchange(Request):
    """A request and its response. `owner`: see `Access.check`."""

    def __init__(self, scope: Scope, receive: Receive, send: Send, send_s: float) -> None:
        super().__init__(scope, receive)
        sent_id = self.headers.get("x-request-id", "")
        self.path: str = scope["path"]
        self.request_id = sent_id if _REQUEST_ID.fullmatch(sent_id) else f"req_{uuid.uuid4().hex}"
        self.owner, self.endpoint = "", "other"
        self.started = time.monotonic()
        self.error: HttpError | None = None
        state = scope.setdefault("state", {})
        state[_EXCHANGE] = self
        headers = {"x-request-id": self.request_id, "request-id": self.request_id}
        self.response = Response(send, headers, send_s, state.get(ABORT))


_Handler = Callable[[HttpExchange], Awaitable[None]]


def create_app(gateway: Gateway, access: Access, *, passed: PassThrough | None = None) -> ASGIApp:
    """Return the application. `passed`: a llama-server, whose own endpoints are reachable, too."""

    @asynccontextmanager
    async def lifespan(_app: Starlette) -> AsyncIterator[None]:
        gateway.start()
        yield
        await gateway.close()

    handlers = _Handlers(gateway, passed)
    routes = [_route(api.path, partial(handlers.answer, api), "POST") for api in gateway.apis]
    for api in gateway.apis:
        if isinstance(api, Responses):
            path = f"{api.path}/{{response_id}}"
            routes.append(_route(path, partial(handlers.stored, api.retrieve), "GET"))
            routes.append(_route(path, partial(handlers.stored, api.delete), "DELETE"))
        if isinstance(api, Messages):
            routes.append(_route(f"{api.path}/count_tokens", partial(handlers.count, api), "POST"))
    routes += [
        _route("/v1/models", handlers.models, "GET"),
        _route("/v1/models/{name:path}", handlers.model, "GET"),
        _route("/health", handlers.health, "GET"),
        _route("/metrics", handlers.show_metrics, "GET"),
    ]
    if passed is not None:
        hidden = OF_ALL_REQUESTS if len(access.keys) > 1 else frozenset()
        routes += [
            _route(path, handlers.pass_on, method, "pass-through")
            for method, path in PASSED
            if path not in hidden
        ]
    middleware = [Middleware(_Guard, gateway=gateway, access=access)]
    if access.origins:
        cors = Middleware(
            CORSMiddleware,
            allow_origins=access.origins,
            allow_methods=["GET", "POST", "DELETE"],
            allow_headers=["*"],
            expose_headers=["*"],
        )
        middleware.insert(0, cors)
    return Starlette(
        routes=routes,
        middleware=middleware,
        lifespan=lifespan,
        exception_handlers={404: _not_found, 405: _not_allowed},
    )


def _route(path: str, handler: _Handler, method: str, label: str | None = None) -> Route:
    return Route(path, _Endpoint(handler, label or path), methods=[method])


class _Endpoint:
    """An endpoint as an ASGI application, which gets its `HttpExchange` from the guard."""

    def __init__(self, handler: _Handler, label: str) -> None:
        self._handler, self._label = handler, label

    async def __call__(self, scope: Scope, _receive: Receive, _send: Send) -> None:
        exchange: HttpExchange = scope["state"][_EXCHANGE]
        exchange.endpoint = self._label
        exchange.scope = scope
        await self._handler(exchange)


async def _not_found(connection: HTTPConnection, _error: Exception) -> NoReturn:
    raise HttpError(404, f"there is no {connection.url.path}.", "not_found")


async def _not_allowed(connection: HTTPConnection, error: Exception) -> NoReturn:
    allowed = getattr(error, "headers", None) or {}
    hint = f"Use {allowed.get('Allow', 'another method')}."
    problem = f"{connection.url.path} does not take {connection.scope['method']}. {hint}"
    raise HttpError(405, problem, "method_not_allowed")


class _Handlers:
    """What the endpoints do."""

    def __init__(self, gateway: Gateway, passed: PassThrough | None) -> None:
        self._gateway, self._passed = gateway, passed

    async def health(self, exchange: HttpExchange) -> None:
        health = await self._gateway.health()
        await exchange.response.send_json(health, 200 if health["status"] == "ok" else 503)

    async def show_metrics(self, exchange: HttpExchange) -> None:
        text = self._gateway.metrics.text()
        await exchange.response.begin(200, {"content-type": "text/plain; version=0.0.4; charset=utf-8"})
        await exchange.response.end(text)

    async def models(self, exchange: HttpExchange) -> None:
        cards = await self._cards(exchange)
        if "anthropic-version" in exchange.headers:
            ends = {"first_id": cards[0]["id"], "last_id": cards[-1]["id"]}
            await exchange.response.send_json({"data": cards, "has_more": False, **ends})
        else:
            await exchange.response.send_json({"object": "list", "data": cards})

    async def model(self, exchange: HttpExchange) -> None:
        name = exchange.path_params["name"]
        card = next((card for card in await self._cards(exchange) if card["id"] == name), None)
        if card is None:
            listed = ", ".join(self._gateway.models)
            raise HttpError(404, f"there is no model {name[:100]!r}. Use {listed}.", "model_not_found")
        await exchange.response.send_json(card)

    async def _cards(self, exchange: HttpExchange) -> list[dict[str, Any]]:
        """Return the models: in Anthropic's shape for its clients, which send `anthropic-version`."""
        length = await self._gateway.context_length()
        if "anthropic-version" in exchange.headers:
            about = {"created_at": _CREATED, "lifecycle": "active", "max_input_tokens": length}
            return [
                {"type": "model", "id": name, "display_name": name, **about} for name in self._gateway.models
            ]
        longest = {} if length is None else {"max_model_len": length}  # the key is vLLM's
        about = {"object": "model", "created": 0, "owned_by": "gbnf", **longest}
        return [{"id": name, **about} for name in self._gateway.models]

    async def stored(
        self, read: Callable[[str, str, Callable[[int], None]], Mapping[str, Any]], exchange: HttpExchange
    ) -> None:
        response_id = exchange.path_params["response_id"]
        with self._gateway.budget.share() as share:
            stored_response = await self._gateway.wait_for(read, response_id, exchange.owner, share.add)
            await exchange.response.send_json(stored_response)

    async def pass_on(self, exchange: HttpExchange) -> None:
        assert self._passed is not None
        gateway = self._gateway
        with gateway.budget.share() as share:
            body = await read_body(exchange.scope, exchange.receive, gateway.limits, share)
            forwarding = self._passed.forward(
                exchange.method,
                exchange.path,
                exchange.scope["query_string"],
                exchange.headers,
                body,
                exchange.response.send,
            )
            await while_connected(exchange.receive, forwarding)

    async def answer(self, api: Api, exchange: HttpExchange) -> None:
        gateway = self._gateway
        with gateway.budget.share() as share:
            body = await read_body(exchange.scope, exchange.receive, gateway.limits, share)
            gateway.log_content(exchange.request_id, "request", body)
            sending = self._send_answer(api, body, share, exchange)
            del body
            await while_connected(exchange.receive, sending)

    async def count(self, api: Messages, exchange: HttpExchange) -> None:
        gateway = self._gateway
        with gateway.budget.share() as share:
            body = await read_body(exchange.scope, exchange.receive, gateway.limits, share)
            request = await gateway.read(api.parse_count, body, share)
            counting = gateway.count_tokens(request, exchange.endpoint, exchange.owner)
            tokens = await while_connected(exchange.receive, counting)
            await exchange.response.send_json({"input_tokens": tokens})

    async def _send_answer(self, api: Api, body: bytes, share: MemoryShare, exchange: HttpExchange) -> None:
        gateway = self._gateway
        parse = partial(api.parse, owner=exchange.owner, reserve=share.add)
        reply = await gateway.read(parse, body, share, blocks=api.parse_blocks)
        del body  # the queue may be long
        response = exchange.response
        stream = EventSender(response, reply.headers)
        try:
            async with AsyncExitStack() as stack:
                if reply.request.stream:
                    alive = stream.kept_alive(reply.keep_alive, gateway.pause)
                    await stack.enter_async_context(alive)
                answer = gateway.answer(reply.request, exchange.endpoint, exchange.owner)
                async for event in await stack.enter_async_context(aclosing(answer)):
                    is_slow = reply.blocks(event)
                    if text := await gateway.wait_for(reply.feed, event) if is_slow else reply.feed(event):
                        gateway.log_content(exchange.request_id, "answer", text)
                        await stream.write(text)
        except ClientLeftError:
            raise
        except Exception as error:  # noqa: BLE001  # whatever it is, the answer ends as the API ends one
            exchange.error = problem_of(error, exchange)
            if response.status is None:
                raise exchange.error from None
            await response.write(reply.fail(exchange.error))
        if response.status is not None:
            await response.end()
        else:
            answer_json = reply.body()
            gateway.log_content(exchange.request_id, "answer", answer_json)
            await response.send_json(answer_json, headers=reply.headers())


class _Guard:
    """What applies to every request: who may send it, its id, its errors, its line in the log."""

    def __init__(self, app: ASGIApp, gateway: Gateway, access: Access) -> None:
        self._app, self._gateway, self._access = app, gateway, access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return  # the server closes a WebSocket that is not accepted
        gateway = self._gateway
        exchange = HttpExchange(scope, receive, send, gateway.limits.send_s)
        gateway.open_requests += 1
        status = _CLIENT_LEFT
        try:
            with gateway.caches.use():
                await self._respond(exchange)
            status = exchange.response.status or _CLIENT_LEFT
        except ClientLeftError:
            if exchange.response.is_complete:  # it closed the connection after the last byte
                status = exchange.response.status or _CLIENT_LEFT
            else:
                gateway.metrics.cancelled.labels(exchange.endpoint).inc()
        finally:
            gateway.open_requests -= 1
            self._record(exchange, status)

    async def _respond(self, exchange: HttpExchange) -> None:
        try:
            self._check(exchange)
            await self._app(exchange.scope, exchange.receive, exchange.response.send)
        except ClientLeftError:
            raise
        except Exception as error:
            problem = exchange.error = problem_of(error, exchange)
            if exchange.response.status is not None:
                raise  # the server breaks the connection off, so that the client sees it
            apis = self._gateway.apis
            api = next((api for api in apis if exchange.path.startswith(api.path)), apis[0])
            await exchange.response.send_error(problem, api.error)

    def _check(self, exchange: HttpExchange) -> None:
        exchange.owner = self._access.check(exchange.path, exchange.headers)
        if self._gateway.is_draining and exchange.path not in _WATCHED:
            raise HttpError(503, "the server is shutting down.", "shutting_down", retry_after=5)

    def _record(self, exchange: HttpExchange, status: int) -> None:
        seconds = time.monotonic() - exchange.started
        metrics = self._gateway.metrics
        metrics.requests.labels(exchange.endpoint, str(status)).inc()
        metrics.seconds.labels(exchange.endpoint).observe(seconds)
        if exchange.path in _WATCHED:
            return
        error = {} if exchange.error is None else {"code": exchange.error.code}
        if exchange.error is not None and exchange.error.code == GRAMMAR_IGNORED:
            metrics.grammar_ignored.inc()
        log(
            "request",
            request_id=exchange.request_id,
            method=exchange.method,
            path=exchange.path,
            status=status,
            seconds=round(seconds, 3),
            **error,
        )


def problem_of(error: Exception, exchange: HttpExchange) -> HttpError:
    """Return an error as the client reads it. One that nobody raises on purpose is logged."""
    match error:
        case HttpError():
            return error
        case BackendUnreachableError():
            return HttpError(503, str(error), "backend_unreachable", retry_after=5)
        case _:
            log_error(error, request_id=exchange.request_id)
            problem = f"an internal error, which the server's log describes as {exchange.request_id}."
            return HttpError(500, problem, "internal_error")
