"""Addresses of hosts, and that of a llama-server on this machine."""

from __future__ import annotations

from contextlib import suppress
from ipaddress import ip_address

LLAMA_SERVER_PORT = 8080
"""The default port of `gbnf server start`, and of llama-server so far."""
_NEXT_PORT = 9931
"""That of coming releases of llama-server (pull request 26508 of ggml-org/llama.cpp)."""


def llama_server_url() -> str:
    """Return the URL of the llama-server on a default port of this machine.

    It is the next one if a program listens there: hardly any other does, while many listen on 8080.
    """
    import socket  # noqa: PLC0415  # of no use to most commands

    with suppress(OSError), socket.create_connection(("127.0.0.1", _NEXT_PORT), timeout=1):
        return f"http://127.0.0.1:{_NEXT_PORT}"
    return f"http://127.0.0.1:{LLAMA_SERVER_PORT}"


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches a server on `host`."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def is_unspecified(host: str) -> bool:
    """Return whether a host stands for every interface: 0.0.0.0 or [::]."""
    try:
        return ip_address(host).is_unspecified
    except ValueError:
        return False
