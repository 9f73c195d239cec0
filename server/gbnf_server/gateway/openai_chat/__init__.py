"""OpenAI's chat API: `POST /v1/chat/completions`."""

from gbnf_server.gateway.openai_chat.edge import ChatCompletions

__all__ = ["ChatCompletions"]
