"""The APIs that the gateway speaks."""

from __future__ import annotations

from gbnf_server.gateway.anthropic_messages import Messages
from gbnf_server.gateway.edge import Edge
from gbnf_server.gateway.openai_chat import ChatCompletions
from gbnf_server.gateway.openai_responses import Responses


def all_edges() -> list[Edge]:
    """Return one object of each API. The first has the shape of errors at other paths."""
    return [ChatCompletions(), Responses(), Messages()]
