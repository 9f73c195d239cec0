"""The headers of an answer: the receipt, and what of the request has no effect."""

from __future__ import annotations

from collections.abc import Sequence

from gbnf_server.gateway.answers import Receipt

RECEIPT = "x-gbnf"
WARNINGS = "x-gbnf-warnings"

_MAX_WARNINGS = 2000
"""Characters: clients limit the size of headers."""


def reply_headers(receipt: Receipt, warnings: Sequence[str]) -> dict[str, str]:
    """Return the headers. Warnings are a structured field of HTTP (RFC 9651, a list of strings)."""
    headers = {RECEIPT: receipt.header()}
    shown: list[str] = []
    for warning in warnings:
        shown.append(_string(warning))
        if len(", ".join(shown)) > _MAX_WARNINGS:
            shown[-1] = _string("and more")
            break
    return {**headers, WARNINGS: ", ".join(shown)} if shown else headers


def _string(text: str) -> str:
    ascii_text = text.encode("ascii", "replace").decode()
    plain = "".join(character if character.isprintable() else "?" for character in ascii_text)
    escaped = plain.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
