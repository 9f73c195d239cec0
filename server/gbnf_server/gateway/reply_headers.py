"""The headers of an answer: the receipt, and what of the request has no effect."""

from __future__ import annotations

from collections.abc import Sequence

from gbnf_server.gateway.answers import Receipt

_LONGEST = 2000
"""Characters: clients limit the size of headers."""


def reply_headers(receipt: Receipt | None, ignored: Sequence[str]) -> dict[str, str]:
    """Return the headers. `ignored`: paths in the request, in any characters."""
    headers = {} if receipt is None else {"x-gbnf": receipt.header()}
    if ignored:
        paths = f"without effect: {', '.join(ignored)}".encode("ascii", "replace").decode()
        plain = (character if character.isprintable() else "?" for character in paths[:_LONGEST])
        headers["x-gbnf-warning"] = "".join(plain)
    return headers
