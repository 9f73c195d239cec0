"""A llama-server's own endpoints, passed through: some clients read `/props`, or count tokens with it.

Only the endpoints listed here are reachable: no text is generated around the queue and the grammar, and
nothing of the server's settings and files is changed. The gateway's key is checked before, and replaced by
the server's own.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import httpx
from starlette.types import Send

from gbnf_server.backends.http_client import proxy_of
from gbnf_server.llama.api_keys import find as find_api_key
from gbnf_server.system.errors import BackendUnreachableError

PASSED = (
    ("GET", "/props"),
    ("GET", "/slots"),
    ("GET", "/lora-adapters"),
    ("GET", "/models"),
    ("POST", "/tokenize"),
    ("POST", "/detokenize"),
    ("POST", "/apply-template"),
)
"""The methods and paths of the endpoints. `/models` is of llama-server's router mode."""

OF_ALL_REQUESTS = frozenset({"/slots"})
"""The paths that show parameters and counts of others' requests: not for one of several keys."""

_KEPT_OF_REQUEST = frozenset({"accept", "content-type"})
_DROPPED_OF_RESPONSE = frozenset(
    {
        b"connection", b"keep-alive", b"proxy-authenticate", b"proxy-authorization", b"te", b"trailer",
        b"transfer-encoding", b"upgrade",  # RFC 9110, 7.6.1: they are of one connection
        b"set-cookie", b"date", b"server",
    }
)  # fmt: skip
_TIMEOUT = httpx.Timeout(600.0, connect=5.0)


class PassThrough:
    """Passes requests to the llama-server at `url()`, which is called for each."""

    def __init__(self, url: Callable[[], str], api_key: str | None) -> None:
        self._url, self._api_key = url, api_key

    async def forward(
        self, method: str, path: str, query: bytes, headers: Mapping[str, str], body: bytes, send: Send
    ) -> None:
        """Send a request on, and its response back as it arrives. Names of `headers` are in lower case.

        Raises BackendUnreachableError if no response begins.
        """
        base = httpx.URL(self._url())
        target = base.raw_path.rstrip(b"/") + path.encode() + (b"?" + query if query else b"")
        request = httpx.Request(
            method,
            base.copy_with(raw_path=target),
            headers=self._headers(headers, str(base)),
            content=body or None,
            extensions={"timeout": _TIMEOUT.as_dict()},
        )
        # a transport, not a client: no redirect is followed, and no cookie is kept for the next client
        async with httpx.AsyncHTTPTransport(proxy=proxy_of(base)) as transport:
            try:
                response = await transport.handle_async_request(request)
            except httpx.RequestError as error:
                raise BackendUnreachableError(f"no llama-server answers at {base} ({error}).") from None
            try:
                await send(
                    {
                        "type": "http.response.start",
                        "status": response.status_code,
                        "headers": [*_end_to_end(response.headers)],
                    }
                )
                async for piece in response.aiter_raw():
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            finally:
                await response.aclose()

    def _headers(self, request_headers: Mapping[str, str], url: str) -> dict[str, str]:
        headers = {name: value for name, value in request_headers.items() if name in _KEPT_OF_REQUEST}
        headers["accept-encoding"] = "identity"
        if key := self._api_key or find_api_key(url):
            headers["authorization"] = f"Bearer {key}"
        return headers


def _end_to_end(headers: httpx.Headers) -> Iterator[tuple[bytes, bytes]]:
    """Yield the headers that are not of one connection, nor named by its `Connection` header."""
    named = {name.strip().lower().encode() for name in headers.get("connection", "").split(",")}
    for name, value in headers.raw:
        if name.lower() not in _DROPPED_OF_RESPONSE | named:
            yield name.lower(), value
