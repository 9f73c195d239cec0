"""Fixtures that several rooms of the client share."""

from support.server import llama_server, tiny_model

__all__ = ["llama_server", "tiny_model"]
