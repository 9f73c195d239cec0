"""API keys of the llama-servers that this user has started, for the user's own clients.

Without a key, every web page and every user of the machine could use a server on loopback. A key is in a file
that only its user can read, named by the server's port, while the server runs. The file of a killed process
remains, but no server accepts its key any more.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from urllib.parse import urlsplit

from gbnf_server.system.folders import cache_folder

_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


def fits_header(key: str) -> bool:
    """Return whether a key can be sent: a header takes printable ASCII only."""
    return key.isascii() and key.isprintable()


def save(url: str, key: str) -> None:
    """Write the key of the server at this address. Raises OSError."""
    file = key_file(url)
    assert file is not None, url
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with NamedTemporaryFile("w", dir=file.parent, delete=False) as stream:  # only its user can read it
        stream.write(key)
    Path(stream.name).replace(file)


def find(url: str) -> str | None:
    """Return the key of a server that this user started at this address, None if there is none."""
    file = key_file(url)
    if file is not None:
        with suppress(OSError, UnicodeDecodeError):
            return file.read_text("ascii")
    return None


def delete(url: str, key: str | None = None) -> None:
    """Delete this key, unless another server has taken the address since; by default any key."""
    file = key_file(url)
    if file is not None and key in (None, find(url)):
        with suppress(OSError):
            file.unlink()


def key_file(url: str) -> Path | None:
    """Return the file of the key for this address; None for an address that is not on loopback."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.hostname not in _LOOPBACK or port is None:
        return None
    return cache_folder() / "server-keys" / f"{port}.key"
