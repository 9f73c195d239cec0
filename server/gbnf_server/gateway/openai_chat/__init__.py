"""OpenAI's chat API: `POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gbnf_server.gateway.api import Api
from gbnf_server.gateway.openai_chat.reply import ChatReply, error_body
from gbnf_server.gateway.openai_chat.request import parse_body


class ChatCompletions(Api):
    """The chat API."""

    path = "/v1/chat/completions"
    error = staticmethod(error_body)

    def parse(self, body: Mapping[str, Any], owner: str = "") -> ChatReply:  # noqa: ARG002 - see Api
        """Read the JSON of a request. Raises HttpError (400)."""
        return parse_body(body)
