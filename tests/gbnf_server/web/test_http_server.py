"""How connections are kept."""

from __future__ import annotations

import httpx
import pytest

from gbnf_server.web.http_server import KEEP_ALIVE_S, server_config


async def _app(*_: object) -> None:
    raise NotImplementedError


@pytest.mark.parametrize("client", [httpx.Client, httpx.AsyncClient])
def test_an_idle_connection_is_closed_by_the_client_first(client: type[httpx.Client]) -> None:
    pool = client()._transport._pool  # type: ignore[attr-defined]  # how long it keeps a connection
    assert 2 * pool._keepalive_expiry < KEEP_ALIVE_S == server_config(_app).timeout_keep_alive
