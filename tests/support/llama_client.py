"""Clients of a llama-server, for its tests."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from gbnf import Grammar
from gbnf.prompts.messages import Message
from gbnf_server.backends.base import Completion, Request
from gbnf_server.backends.llama_server import LlamaServer
from support.backends import acomplete

ASK: list[Message] = [{"role": "system", "content": "Plan."}, {"role": "user", "content": "hello"}]
CALL = Grammar.parse('root ::= "{\\"name\\": \\"" ("find" | "write") "\\"}"')


class Ask(Protocol):
    """Both drivers, as one function of client and options."""

    def __call__(self, client: LlamaServer, messages: list[Message] = ASK, **options: Any) -> Completion: ...


def asking(driver: str) -> Ask:
    """The way to ask that the driver, "sync" or "async", has."""

    def call(client: LlamaServer, messages: list[Message] = ASK, **options: Any) -> Completion:
        options.setdefault("grammar", CALL)
        if driver == "sync":
            return client.complete(Request(messages, **options))
        return asyncio.run(acomplete(client, Request(messages, **options)))

    return call


def hasty(url: str, **options: Any) -> LlamaServer:
    """A client that does not wait long."""
    return LlamaServer(url, **{"retries": 2, "backoff": 0.001, "loading_timeout": 0.01, **options})
