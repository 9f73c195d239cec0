"""A TCP proxy that counts what passes: connections, and requests by their paths."""

from __future__ import annotations

import re
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from urllib.parse import urlsplit

_REQUEST = re.compile(rb"(?:GET|POST) (\S+) HTTP/1\.1\r\n")


@dataclass
class Counted:
    """What has passed the proxy at `url`."""

    url: str
    connections: int = 0
    paths: list[str] = field(default_factory=list)


@contextmanager
def counting_proxy(url: str) -> Iterator[Counted]:
    """Pass connections on to the server at `url`, and count them."""
    target = urlsplit(url)
    assert target.hostname is not None
    listening = socket.create_server(("127.0.0.1", 0))
    counted = Counted(f"http://127.0.0.1:{listening.getsockname()[1]}")
    opened: list[socket.socket] = [listening]

    def accept() -> None:
        with suppress(OSError):
            while True:
                client, _ = listening.accept()
                counted.connections += 1
                server = socket.create_connection((target.hostname, target.port))
                opened.extend((client, server))
                for source, sink in ((client, server), (server, client)):
                    source.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    passing = threading.Thread(
                        target=pump, args=(source, sink, source is client), daemon=True
                    )
                    passing.start()

    def pump(source: socket.socket, sink: socket.socket, is_client: bool) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if is_client:
                    counted.paths += [path.decode() for path in _REQUEST.findall(data)]
                sink.sendall(data)
        with suppress(OSError):
            sink.shutdown(socket.SHUT_WR)

    accepting = threading.Thread(target=accept, daemon=True)
    accepting.start()
    try:
        yield counted
    finally:
        with suppress(OSError):
            listening.shutdown(socket.SHUT_RDWR)  # it ends `accept`, so that no connection is opened any more
        accepting.join(30)
        for each in opened:
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
