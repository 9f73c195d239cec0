"""Read the body of a request, within limits of bytes and time, and notice when its client leaves."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.types import Receive, Scope

from gbnf_server.web.errors import HttpError
from gbnf_server.web.limits import Limits, MemoryShare

_Result = TypeVar("_Result")


class ClientLeftError(Exception):  # nothing is wrong here
    """The client has closed the connection, so that nobody reads the answer."""


async def read_body(scope: Scope, receive: Receive, limits: Limits, share: MemoryShare) -> bytes:
    """Return the body; its bytes are added to `share` as they arrive.

    Raises HttpError (408, 413, 503), and ClientLeftError.
    """
    declared = dict(scope["headers"]).get(b"content-length", b"")
    if declared.isdigit() and (len(declared) > 18 or int(declared) > limits.body_bytes):
        raise _too_large(limits)
    body = bytearray()
    try:
        async with asyncio.timeout(limits.body_s):
            while True:
                message = await receive()
                if message["type"] == "http.disconnect":
                    raise ClientLeftError
                piece = message.get("body", b"")
                if len(body) + len(piece) > limits.body_bytes:
                    raise _too_large(limits)
                share.add(len(piece))
                body += piece
                if not message.get("more_body", False):
                    return bytes(body)
    except TimeoutError:
        raise HttpError(408, f"the body did not arrive within {limits.body_s:g} s.", "timeout") from None


def _too_large(limits: Limits) -> HttpError:
    return HttpError(413, f"the body is larger than {limits.body_bytes} bytes.", "request_too_large")


async def while_connected(receive: Receive, work: Coroutine[Any, Any, _Result]) -> _Result:
    """Return what `work` returns; cancel it and raise ClientLeftError if the client leaves before.

    `receive` must have returned the whole body.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_left(receive))
    try:
        await asyncio.wait({working, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise ClientLeftError
        return working.result()
    finally:
        leaving.cancel()
        working.cancel()
        # what the work holds is given back before its caller goes on
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
