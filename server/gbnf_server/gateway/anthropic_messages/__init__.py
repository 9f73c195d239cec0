"""Anthropic's Messages API: `POST /v1/messages`, and `POST /v1/messages/count_tokens`.

Without I/O: JSON to a `ChatRequest`, and the events of its answer to JSON or server-sent events.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from gbnf_server.gateway.anthropic_messages.reply import MessagesReply, error_body
from gbnf_server.gateway.anthropic_messages.request import read_count_request, read_request
from gbnf_server.gateway.api import Api


class Messages(Api):
    """The Messages API."""

    path = "/v1/messages"
    error = staticmethod(error_body)
    parse_count = staticmethod(read_count_request)

    def parse(self, body: Mapping[str, Any], owner: str = "") -> MessagesReply:  # noqa: ARG002 - see Api
        """Read the JSON of a request. Raises HttpError."""
        return MessagesReply(*read_request(body), f"msg_{secrets.token_hex(16)}")
