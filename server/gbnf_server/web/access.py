"""Who may send requests: API keys, the names of the server (against DNS rebinding), and origins of web pages.

A web page may send requests to a server on loopback through its visitor's browser. The browser tells its
origin, and, where the page's own name was made to resolve to 127.0.0.1, the name in `Host`: so both are
checked. Requests without `Origin` come from no web page.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from gbnf_server.system.addresses import is_unspecified
from gbnf_server.web.errors import HttpError

LOOPBACK_NAMES = frozenset({"127.0.0.1", "localhost", "::1"})
OPEN_PATHS = frozenset({"/health"})
"""Answered without a key: what watches a server needs none."""
_OWNER = b"gbnf owner"


@dataclass(frozen=True, slots=True)
class Access:
    """Which requests are accepted. `keys`: none accepts requests without one.

    `hosts`: the names of the server, None for any. `origins`: of web pages, beside the server's own names;
    "*" for any.
    """

    keys: tuple[str, ...] = ()
    hosts: frozenset[str] | None = LOOPBACK_NAMES
    origins: tuple[str, ...] = ()

    @classmethod
    def of(
        cls, host: str, keys: Iterable[str] = (), allowed: Iterable[str] = (), origins: Iterable[str] = ()
    ) -> Access:
        """Return the access to a server that listens on `host`; `allowed` are more names of it."""
        names = frozenset(name.lower() for name in allowed)
        anyone = is_unspecified(host) and not names
        return cls(tuple(keys), None if anyone else LOOPBACK_NAMES | {host.lower()} | names, tuple(origins))

    def check(self, path: str, headers: Mapping[str, str]) -> str:
        """Check a request by its headers, with names in lower case. Raises HttpError (401, 403).

        Returns its owner: a name of its key, as unguessable as that, and the same in every gateway; "" unless
        there are several keys.
        """
        host = headers.get("host", "")
        if self.hosts is not None and _name(f"//{host}") not in self.hosts:
            problem = f"the host {host[:100]!r} is not a name of this server. Allow it with --allowed-host."
            raise HttpError(403, problem, "forbidden")
        origin = headers.get("origin")
        is_foreign = origin is not None and {"*", origin}.isdisjoint(self.origins)
        if origin is not None and is_foreign and (self.hosts is None or _name(origin) not in self.hosts):
            problem = f"requests of the web page {origin[:100]!r} need --cors {origin[:100]}"
            raise HttpError(403, problem, "forbidden")
        if not self.keys or path in OPEN_PATHS:
            return ""
        key = self._check_key(headers)
        return hmac.new(key.encode(), _OWNER, "sha256").hexdigest() if len(self.keys) > 1 else ""

    def _check_key(self, headers: Mapping[str, str]) -> str:
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        sent = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        digest = _digest(sent)
        # all of them, whichever fits: the time tells nothing
        matching = [key for key in self.keys if hmac.compare_digest(digest, _digest(key))]
        if not matching:
            problem = "an API key is needed: send Authorization: Bearer KEY, or x-api-key: KEY."
            raise HttpError(401, problem, "invalid_api_key")
        return matching[0]


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()


def _name(url: str) -> str | None:
    """Return the host of a URL in lower case, without its port; None if it has none."""
    try:
        return urlsplit(url).hostname
    except ValueError:
        return None
