"""Anthropic's Messages API: `POST /v1/messages`, and `POST /v1/messages/count_tokens`.

Without I/O: JSON to a `ChatRequest`, and the events of its answer to JSON or server-sent events.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from gbnf_server.gateway.anthropic_messages.reply import MessagesReply, error_body
from gbnf_server.gateway.anthropic_messages.request import read_count_request, read_request
from gbnf_server.gateway.chat import ChatRequest
from gbnf_server.gateway.edge import Edge
from gbnf_server.web.errors import HttpError


class Messages(Edge):
    """The Messages API."""

    path = "/v1/messages"

    def parse(self, body: Mapping[str, Any], owner: str = "") -> MessagesReply:  # noqa: ARG002 - see Edge
        """Read the JSON of a request. Raises HttpError."""
        return MessagesReply(*read_request(body), f"msg_{secrets.token_hex(16)}")

    def parse_count(self, body: Mapping[str, Any]) -> ChatRequest:
        """Read the JSON of a request whose prompt's tokens are counted. Raises HttpError."""
        return read_count_request(body)

    def count(self, tokens: int) -> dict[str, Any]:
        """Return the JSON of a number of tokens."""
        return {"input_tokens": tokens}

    def error(self, error: HttpError) -> dict[str, Any]:
        """Return the JSON of an error."""
        return error_body(error)
