"""Fixtures that several packages of tests share."""

from support.server import llama_server, tiny_model

__all__ = ["llama_server", "tiny_model"]
