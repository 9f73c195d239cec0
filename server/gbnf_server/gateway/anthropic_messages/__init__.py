"""Anthropic's Messages API: `POST /v1/messages`, and `POST /v1/messages/count_tokens`.

Without I/O: JSON to a `ChatRequest`, and the events of its answer to JSON or server-sent events.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from gbnf_server.gateway.anthropic_messages.reply import MessagesReply, error_body
from gbnf_server.gateway.anthropic_messages.request import read_count_request, read_request, stable_request
from gbnf_server.gateway.api import Api
from gbnf_server.gateway.chat import ChatRequest


class Messages(Api):
    """The Messages API. `verbatim`: keep in prompts what differs in each request, see `stable_request`."""

    path = "/v1/messages"
    error = staticmethod(error_body)

    def __init__(self, *, verbatim: bool = False) -> None:
        self._verbatim = verbatim

    def parse(self, body: Mapping[str, Any], *_: Any, **__: Any) -> MessagesReply:
        """Read the JSON of a request. Raises HttpError."""
        return MessagesReply(*read_request(self._read(body)), f"msg_{secrets.token_hex(16)}")

    def parse_count(self, body: Mapping[str, Any]) -> ChatRequest:
        """Read the JSON of a request whose prompt's tokens are counted. Raises HttpError."""
        return read_count_request(self._read(body))

    def _read(self, body: Mapping[str, Any]) -> Mapping[str, Any]:
        return body if self._verbatim else stable_request(body)
