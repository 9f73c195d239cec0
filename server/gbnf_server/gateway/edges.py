"""The APIs that the gateway speaks."""

from __future__ import annotations

from gbnf_server.gateway.edge import Edge
from gbnf_server.gateway.openai_chat import ChatCompletions


def all_edges() -> list[Edge]:
    """Return one object of each API."""
    return [ChatCompletions()]
