"""OpenAI's chat API: `POST /v1/chat/completions`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gbnf_server.gateway.api import Api, openai_error
from gbnf_server.gateway.openai_chat.reply import ChatReply
from gbnf_server.gateway.openai_chat.request import parse_body


class ChatCompletions(Api):
    """The chat API."""

    path = "/v1/chat/completions"
    error = staticmethod(openai_error)

    def parse(self, body: Mapping[str, Any], *_: Any, **__: Any) -> ChatReply:
        """Read the JSON of a request. Raises HttpError (400)."""
        return parse_body(body)
