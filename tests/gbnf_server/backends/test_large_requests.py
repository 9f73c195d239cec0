"""What takes long for a large request is no part of the event loop's work."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.prompts.messages import Image
from gbnf_server.backends import http_client, prompts, upstreams
from gbnf_server.backends.base import Backend, Request
from gbnf_server.backends.ollama import Ollama
from gbnf_server.backends.openai_compatible import OpenAICompatible
from gbnf_server.system.errors import BackendError
from support.backends import acomplete
from support.json_values import json_values
from support.llama_client import hasty
from support.server import completion, scripted

SMALL: list[Any] = [{"role": "user", "content": "x" * 9000}]
LARGE: list[list[Any]] = [
    [{"role": "user", "content": "x" * 300_000}],
    [{"role": "user", "content": "x"}] * 10_000,
    [{"role": "user", "content": "x", "images": [Image(b"x" * 300_000, "image/png")]}],
]


@pytest.mark.parametrize(("value", "is_large"), [(SMALL, False), *((each, True) for each in LARGE)])
def test_only_large_work_is_handed_to_a_thread(value: Any, is_large: bool) -> None:
    worker = asyncio.run(http_client.run_beside(threading.current_thread, value))
    assert (worker is not threading.current_thread()) == is_large


@given(json_values, st.booleans())
def test_a_body_is_the_same_in_pieces(value: Any, is_large: bool) -> None:
    body = {"a": value, "b": "é😀" * 100_000 if is_large else ""}
    assert json.loads(http_client._encoded(body)) == body


@pytest.mark.parametrize("messages", [SMALL, LARGE[0], LARGE[1]])
@pytest.mark.parametrize("kind", ["chat", "ollama", "llama"])
def test_messages_are_prepared_in_a_thread_if_they_are_large(
    kind: str, messages: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    workers = set[threading.Thread]()
    escaped = prompts._escaped

    def noting(*given: Any) -> Any:
        workers.add(threading.current_thread())
        return escaped(*given)

    async def ask(backend: Backend) -> None:
        await backend.facts()
        monkeypatch.setattr(prompts, "_escaped", noting)
        await acomplete(backend, Request(messages))

    async def lost(*_given: Any, **_options: Any) -> Any:
        raise BackendError("not sent")
        yield

    if kind == "llama":
        with scripted(completion=[completion("hi")]) as script, hasty(script.url) as client:
            asyncio.run(ask(client))
    else:
        chat = OpenAICompatible("http://localhost:9", "vllm", model="m", context_length=99)
        monkeypatch.setattr(http_client.HttpSession, "lines", lost)
        with Ollama("m") if kind == "ollama" else chat as backend, pytest.raises(BackendError, match="sent"):
            asyncio.run(ask(backend))
    assert (threading.current_thread() in workers) == (messages is SMALL)
    assert workers


def test_a_prefix_is_bounded() -> None:
    class Read(list[Any]):
        read = 0

        def __iter__(self) -> Iterator[Any]:
            for each in super().__iter__():
                self.read += 1
                yield each

    system = "x" * upstreams._PREFIX
    long = [
        Request([{"role": "system", "content": system + more}, {"role": "user", "content": "hi"}])
        for more in ("", "x" * 10**6)
    ]
    assert len({upstreams._prefix(each) for each in long}) == 1
    messages = Read([{"role": "system", "content": "ab"}] * 100_000)
    upstreams._prefix(Request(messages))
    assert messages.read < 10_000
