"""Listen on a port, for the commands that serve HTTP."""

from __future__ import annotations

import socket

from gbnf_server.system.errors import SetupError


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens; port 0: any. Raises SetupError."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    try:
        listening = socket.create_server((host, port), family=family)
        # Connections inherit it. Otherwise the body of an answer may wait 40 ms for the receipt of its head.
        listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return listening
    except OSError as error:
        reason = error.strerror or str(error)
        raise SetupError(
            f"{host} port {port} cannot be used: {reason}. Choose another port; 0 is any."
        ) from None


def url_of(host: str, listening: socket.socket) -> str:
    """Return the URL of a server on a socket."""
    shown = f"[{host}]" if ":" in host else host
    return f"http://{shown}:{listening.getsockname()[1]}"
