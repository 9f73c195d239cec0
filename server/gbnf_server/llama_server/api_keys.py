"""API keys of the llama-servers that this user has started, so that the user's own clients find them.

Without a key every web page and every user of the machine could use a server on loopback. A key lies in a
file that only its user can read, named by the server's port, for as long as the server runs. A file that a
killed process left behind holds a key that nothing accepts any more.
"""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from urllib.parse import urlsplit

from gbnf_server.system.folders import cache_folder

_LOOPBACK = {"127.0.0.1", "localhost", "::1"}


def save(url: str, key: str) -> None:
    """Write the key of the server at this address. Raises OSError."""
    file = key_file(url)
    assert file is not None, url
    file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    arriving = file.with_suffix(f".{os.getpid()}")
    with suppress(FileNotFoundError):  # what a killed process of the same number left
        arriving.unlink()
    with os.fdopen(os.open(arriving, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as opened:
        opened.write(key)
    arriving.replace(file)


def find(url: str) -> str | None:
    """Return the key of a server that this user started at this address, None if there is none."""
    file = key_file(url)
    if file is not None:
        with suppress(OSError, UnicodeDecodeError):
            return file.read_text("ascii")
    return None


def delete(url: str, key: str) -> None:
    """Remove this key; another one, of a server that took the address since, stays."""
    file = key_file(url)
    if file is not None and find(url) == key:
        with suppress(OSError):
            file.unlink()


def key_file(url: str) -> Path | None:
    """Return where the key of a server at this address lies; None for an address that is not on loopback."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        return None
    if parts.hostname not in _LOOPBACK or port is None:
        return None
    return cache_folder() / "server-keys" / f"{port}.key"
