"""Fixtures that several packages of tests share."""

from support.server import brief_pauses, llama_server, tiny_model

__all__ = ["brief_pauses", "llama_server", "tiny_model"]
