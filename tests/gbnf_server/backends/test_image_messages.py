"""Images go to each server in its own form, and are refused where none are taken."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gbnf import compile_pool
from gbnf.dialects import call_schema
from gbnf.prompts.messages import Image, Message
from gbnf.tools import FINAL_ANSWER
from gbnf_server.backends.base import Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.backends.ollama import Ollama
from gbnf_server.backends.openai_compatible import OpenAICompatible
from gbnf_server.llama.server_process import LlamaServerProcess
from gbnf_server.system.errors import BackendError
from support.backends import CALL
from support.hostile_server import WIRES
from support.server import PROPS, Reply, completion, scripted

ASK: list[Message] = [{"role": "user", "content": "hello"}]
SEEN: list[Message] = [{"role": "user", "content": "what is it?", "images": [Image(b"\x89PNG", "image/png")]}]
GBNF = compile_pool([FINAL_ANSWER])
SCHEMA = call_schema([FINAL_ANSWER])
SEEING = {**PROPS, "modalities": {"vision": True, "audio": False}}


def test_a_chat_server_takes_an_image_as_a_data_url() -> None:
    models = Reply(200, {"data": [{"id": "m", "max_model_len": 4096}]})
    answers: Any = {"v1/models": [models], "v1/chat/completions": [Reply(200, WIRES["chat"].whole(CALL))]}
    with scripted(**answers) as script, OpenAICompatible(script.url, "vllm") as backend:
        backend.complete(Request(SEEN, grammar=GBNF))
        [message] = script.asked[-1][1]["messages"]
    assert message["content"] == [
        {"type": "text", "text": "what is it?"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,iVBORw=="}},
    ]


def test_ollama_takes_an_image_beside_the_text() -> None:
    answers: Any = {"api/chat": [Reply(200, WIRES["ollama"].whole(CALL))]}
    with scripted(**answers) as script, Ollama("m", script.url) as backend:
        backend.complete(Request(SEEN, grammar=SCHEMA))
        [message] = script.asked[-1][1]["messages"]
    assert message == {"role": "user", "content": "what is it?", "images": ["iVBORw=="]}


def test_llama_server_takes_a_marker_for_each_image() -> None:
    with (
        scripted(props=[Reply(200, SEEING)], completion=[completion(CALL)]) as script,
        LlamaServer(script.url) as server,
    ):
        assert server.info().takes_images
        server.complete(Request([*SEEN, {"role": "assistant", "content": "a cat"}, *SEEN], grammar=GBNF))
        prompt = script.asked[-1][1]["prompt"]
        server.complete(Request(ASK, grammar=GBNF))
        assert isinstance(script.asked[-1][1]["prompt"], str)
    assert prompt["multimodal_data"] == ["iVBORw=="] * 2
    assert prompt["prompt_string"].count("<__media__>") == 2


@pytest.mark.parametrize("marker", ["<__media__>", "(the image)"])
def test_a_text_that_contains_the_image_marker_is_text(marker: str) -> None:
    seeing = Reply(200, {**SEEING, "media_marker": marker})
    with scripted(props=[seeing], completion=[completion(CALL)]) as script, LlamaServer(script.url) as server:
        server.complete(Request([{"role": "system", "content": f"a {marker}"}, *SEEN], grammar=GBNF))
        prompt = script.asked[-1][1]["prompt"]
    assert prompt["prompt_string"].count(marker) == len(prompt["multimodal_data"]) == 1


def test_images_where_none_are_taken(llama_server: LlamaServerProcess, tiny_model: Path) -> None:
    with LlamaServer(llama_server.url) as real:
        assert not real.info().takes_images
        with pytest.raises(BackendError, match="takes no images"):
            real.complete(Request(SEEN, grammar=GBNF))
    with InProcess(tiny_model, threads=1) as model, pytest.raises(BackendError, match="takes no images"):
        model.complete(Request(SEEN, grammar=GBNF))
