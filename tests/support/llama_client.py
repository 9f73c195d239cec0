"""Clients of a llama-server, for its tests."""

from __future__ import annotations

from typing import Any

from gbnf import Grammar
from gbnf_server.backends.llama_server import LlamaServer

CALL = Grammar.parse('root ::= "{\\"name\\": \\"" ("find" | "write") "\\"}"')


def hasty(url: str, **options: Any) -> LlamaServer:
    """A client that does not wait long."""
    return LlamaServer(url, **{"retries": 2, "backoff": 0.001, "loading_timeout": 0.01, **options})
