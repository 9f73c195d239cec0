"""Clients of a llama-server, for its tests."""

from __future__ import annotations

from typing import Any

from gbnf import Grammar
from gbnf_server.backends.http_client import RetryPolicy
from gbnf_server.backends.llama_server import LlamaServer

CALL = Grammar.parse('root ::= "{\\"name\\": \\"" ("find" | "write") "\\"}"')


def hasty(url: str, *, timeout: float = 600.0, loading_timeout: float = 0.01, **options: Any) -> LlamaServer:
    """A client that does not wait long."""
    policy = RetryPolicy(timeout, retries=2, backoff=0.001, loading_timeout=loading_timeout)
    return LlamaServer(url, retry_policy=policy, **options)
