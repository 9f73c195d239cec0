"""A server of tools for MCP clients, over stdio and streamable HTTP.

Invariants:

- A call runs only if `validate_call` accepts it, and, if its tool needs approval, once the person has
  approved this call: through the client (elicitation), or beforehand (`approve_all`).
- A call that its client cancels changes nothing any more, and has its place until it has ended.
- What a client sends back of an earlier answer (`requestState`) is sealed, and valid for the same call only.
- Over HTTP, requests need the API key if there is one; on loopback, the Host and Origin of loopback.

Up to protocol 2025-11-25 a server asks in the middle of a call. From 2026-07-28 on it ends the request with
its question, and the client calls again with the answer; so the executor of a tool that only reads runs again
from its beginning, and one that writes may not ask.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import CancelledError, Future
from contextlib import suppress
from dataclasses import replace
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import mcp_types
from mcp import MCPError
from mcp.server import ServerRequestContext
from mcp.server.lowlevel import Server
from mcp.server.request_state import RequestStateBoundary, RequestStateSecurity
from mcp.server.stdio import stdio_server
from mcp.server.transport_security import TransportSecuritySettings
from mcp_types.version import MODERN_PROTOCOL_VERSIONS
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Receive, Scope, Send

from gbnf.calls.validation import validate_call
from gbnf.calls.validation.argument_schemas import validation_schema
from gbnf.errors import GbnfError
from gbnf.prompts.descriptions import plain_schema, with_groups
from gbnf.tools import Tool
from gbnf.tools.tool import offered_args
from gbnf_server.executors import (
    Context,
    Form,
    Person,
    Workspace,
    describe_paths,
    prepare_executors,
    run_executor,
)
from gbnf_server.mcp.elicitation import form_answers, form_params
from gbnf_server.system.addresses import is_loopback, is_unspecified
from gbnf_server.system.errors import ExecutorError
from gbnf_server.system.event_loop import run_in_thread

_NAME = "gbnf"
_MOST_CALLS = 16  # at a time; others wait
_APPROVAL, _APPROVED, _FORM = "approval", "approve", "form"


class ToolServer:
    """Offers tools to MCP clients; each call is a turn of `context`.

    Tools that need an earlier step are left out. `approve_all`: approve every call; otherwise calls that need
    approval are refused for clients that cannot ask. `language`: of the descriptions.
    """

    def __init__(
        self, tools: Sequence[Tool], context: Context, *, approve_all: bool = False, language: str = "en"
    ) -> None:
        self._tools = {tool.name: tool for tool in tools if offered_args(tool, ()) is not None}
        self._context, self._approve_all = context, approve_all
        self._free = asyncio.Semaphore(_MOST_CALLS)
        prepare_executors(tools, context)
        self._listed = [_listed(tool, language) for tool in self._tools.values()]
        self._server: Server[Any] = Server(
            _NAME, version=_version(), on_list_tools=self._list_tools, on_call_tool=self._call_tool
        )
        self._server.middleware.append(
            RequestStateBoundary(RequestStateSecurity.ephemeral(), default_audience=_NAME)
        )

    async def serve_stdio(self) -> None:
        """Serve one client on standard input and output, until the input ends."""
        async with stdio_server() as (received, sent):
            await self._server.run(received, sent, self._server.create_initialization_options())

    def http_app(self, host: str, api_key: str | None = None) -> ASGIApp:
        """Return the ASGI application that serves `/mcp` on `host`, for clients that have the API key."""
        app: ASGIApp = self._server.streamable_http_app(host=host, transport_security=_security(host))
        return app if api_key is None else _ApiKeyCheck(app, api_key)

    async def _list_tools(
        self,
        _request: ServerRequestContext[Any],
        _params: mcp_types.PaginatedRequestParams | None,
    ) -> mcp_types.ListToolsResult:
        return mcp_types.ListToolsResult(tools=self._listed)

    async def _call_tool(
        self, request: ServerRequestContext[Any], params: mcp_types.CallToolRequestParams
    ) -> mcp_types.CallToolResult | mcp_types.InputRequiredResult:
        tool = self._tools.get(params.name)
        arguments = params.arguments or {}
        verdict = validate_call({"name": params.name, "arguments": arguments}, list(self._tools.values()))
        if tool is None:
            raise MCPError(mcp_types.INVALID_PARAMS, verdict.errors[0])
        if not verdict.ok:
            return _error("; ".join(verdict.errors))
        context = replace(self._context.for_turn(), ended=threading.Event())
        person = _ClientPerson(request, params, tool, context)
        ask = partial(person.approve, {"name": tool.name, "arguments": arguments})
        work = partial(run_executor, tool, arguments, replace(context, person=person))
        try:
            asks = tool.run.confirm and not self._approve_all
            if asks and not await asyncio.wrap_future(run_in_thread(ask)):
                return _error(f"the person did not approve the call of '{tool.name}'; it was not executed")
            await self._free.acquire()
            running = run_in_thread(work)
            running.add_done_callback(partial(self._release, asyncio.get_running_loop()))
            result = await asyncio.wrap_future(running)
        except GbnfError as error:
            return person.question or _error(str(error))
        finally:
            context.ended.set()
            person.close()
        text = json.dumps(result, ensure_ascii=False)
        return mcp_types.CallToolResult(content=[mcp_types.TextContent(text=text)], structured_content=result)

    def _release(self, loop: asyncio.AbstractEventLoop, _running: Future[Any]) -> None:
        """Free the place of a call once it has ended, which may be after its client has cancelled it."""
        with suppress(RuntimeError):  # the server has ended before
            loop.call_soon_threadsafe(self._free.release)


class _ClientPerson(Person):
    """The person at an MCP client: the answers in the rounds of one call, and further questions.

    `question`: what ends this request, which the client answers with its next one.
    """

    def __init__(
        self,
        request: ServerRequestContext[Any],
        params: mcp_types.CallToolRequestParams,
        tool: Tool,
        context: Context,
    ) -> None:
        self._session, self._request_id = request.session, request.request_id
        self._tool, self._context = tool, context
        self._loop = asyncio.get_running_loop()
        self._in_rounds = request.protocol_version in MODERN_PROTOCOL_VERSIONS
        self._asked = 0
        self._question: Future[mcp_types.ElicitResult] | None = None  # that the client is asked now
        self.question: mcp_types.InputRequiredResult | None = None
        state = json.loads(params.request_state) if params.request_state else {}
        responses = (params.input_responses or {}) if state else {}
        self._state: dict[str, Any] = {
            "approved": state.get("approved", False),
            "forms": state.get("forms", []),
        }
        response = responses.get(_APPROVAL)
        self._approval = response if isinstance(response, mcp_types.ElicitResult) else None
        response = responses.get(_FORM)
        if isinstance(response, mcp_types.ElicitResult):
            self._state["forms"].append(response.model_dump(mode="json"))

    def approve(self, call: Mapping[str, Any]) -> bool:
        """Return whether the person approves the call, in a thread. Raises ExecutorError."""
        if not self._state["approved"]:
            self._check_that_it_asks(
                f"'{self._tool.name}' needs a person's approval",
                "Use another client, or start the server with --yes to approve every call.",
            )
            params = _approval_params(self._tool, call["arguments"], self._context.workspace)
            answer = self._approval or self._ask(_APPROVAL, params)
            is_approved = answer.action == "accept" and (answer.content or {}).get(_APPROVED) is True
            self._state["approved"] = is_approved
        return bool(self._state["approved"])

    def answer(self, form: Form) -> dict[str, Any]:
        """Return the answers of the person, in the thread of the executor. Raises ExecutorError."""
        number, self._asked = self._asked, self._asked + 1
        self._check_that_it_asks(f"'{self._tool.name}' asks the person", "Use another client.")
        forms: list[Any] = self._state["forms"]
        if number < len(forms):
            return form_answers(form, mcp_types.ElicitResult.model_validate(forms[number]), self._context)
        params = form_params(form)
        if self._in_rounds and self._tool.run.effect == "write":
            raise ExecutorError(
                f"'{self._tool.name}' asks the person in the middle of a change, which this client's "
                "protocol does not allow; connect with protocol 2025-11-25"
            )
        return form_answers(form, self._ask(_FORM, params), self._context)

    def close(self) -> None:
        """Cancel a question that is not answered."""
        if self._question is not None:
            self._question.cancel()

    def _ask(self, key: str, params: mcp_types.ElicitRequestFormParams) -> mcp_types.ElicitResult:
        """Ask the client, from another thread. Raises ExecutorError, also if that ends this request."""
        if self._in_rounds:
            self.question = mcp_types.InputRequiredResult(
                input_requests={key: mcp_types.ElicitRequest(params=params)},
                request_state=json.dumps(self._state),
            )
            raise ExecutorError("the client is asked first")
        self._question = asyncio.run_coroutine_threadsafe(self._elicit(params), self._loop)
        if self._context.ended.is_set():
            self.close()
        try:
            return self._question.result()
        except CancelledError:
            raise ExecutorError("the client cancelled the call") from None

    async def _elicit(self, params: mcp_types.ElicitRequestFormParams) -> mcp_types.ElicitResult:
        try:
            return await self._session.elicit_form(params.message, params.requested_schema, self._request_id)
        except MCPError as error:
            raise ExecutorError(f"the client could not ask the person: {error}") from None

    def _check_that_it_asks(self, why: str, hint: str) -> None:
        capabilities = self._session.client_capabilities
        asks = capabilities.elicitation if capabilities is not None else None
        if asks is None or (asks.url is not None and asks.form is None):
            raise ExecutorError(
                f"{why}, and this MCP client cannot ask: it does not support elicitation. {hint}"
            )


class _ApiKeyCheck:
    """ASGI middleware that refuses requests without ``Authorization: Bearer KEY``."""

    def __init__(self, app: ASGIApp, api_key: str) -> None:
        self._app, self._expected = app, f"Bearer {api_key}".encode()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "http":
            header = dict(scope["headers"]).get(b"authorization", b"")
            if not hmac.compare_digest(header, self._expected):
                refusal = PlainTextResponse(
                    "an API key is needed: send Authorization: Bearer KEY",
                    status_code=401,
                    headers={"WWW-Authenticate": "Bearer"},
                )
                await refusal(scope, receive, send)
                return
        await self._app(scope, receive, send)


def _security(host: str) -> TransportSecuritySettings:
    """Return the allowed Host and Origin: those of `host`, or any if it stands for every interface."""
    names = (
        ["127.0.0.1", "localhost", "[::1]"] if is_loopback(host) else [f"[{host}]" if ":" in host else host]
    )
    return TransportSecuritySettings(
        enable_dns_rebinding_protection=not is_unspecified(host),
        allowed_hosts=[f"{name}:*" for name in names],
        allowed_origins=[f"http://{name}:*" for name in names],
    )


def _listed(tool: Tool, language: str) -> mcp_types.Tool:
    offered = offered_args(tool, ())
    assert offered is not None
    schema = plain_schema(validation_schema(offered, frozenset(), closed=True), language)
    return mcp_types.Tool(
        name=tool.name,
        description=tool.description(language) or None,
        input_schema=with_groups(schema, offered),
        annotations=mcp_types.ToolAnnotations(
            read_only_hint=tool.run.effect == "read",
            destructive_hint=tool.run.confirm if tool.run.effect == "write" else None,
        ),
    )


def _approval_params(
    tool: Tool, arguments: Mapping[str, Any], workspace: Workspace
) -> mcp_types.ElicitRequestFormParams:
    shown = json.dumps(arguments, ensure_ascii=False, indent=2)
    return mcp_types.ElicitRequestFormParams(
        message="\n".join([f"Allow {tool.name} to run with {shown}?", *describe_paths(arguments, workspace)]),
        requested_schema={
            "type": "object",
            "properties": {_APPROVED: {"type": "boolean", "title": "Allow it"}},
            "required": [_APPROVED],
        },
    )


def _error(text: str) -> mcp_types.CallToolResult:
    return mcp_types.CallToolResult(content=[mcp_types.TextContent(text=text)], is_error=True)


def _version() -> str:
    try:
        return version("gbnf-toolkit")
    except PackageNotFoundError:
        return ""
