"""The guarantees of an answer in the formats of the chat templates that llama.cpp's sources have."""

from __future__ import annotations

from pathlib import Path

import pytest

from chat_templates import chat_templates
from gbnf_server.backends.in_process import InProcess
from gbnf_server.gateway.chat import ChatRequest, Sampling, ToolChoice
from support.gateway_answers import TOOLS, USER, answer, check_guarantees
from support.models import make_model

REFUSES_PLAIN_QUESTIONS = {"fireworks-ai-llama-3-firefunction-v2"}

NAMES = sorted(chat_templates().keys() - REFUSES_PLAIN_QUESTIONS)
CHOICES = (
    ToolChoice("required"),
    ToolChoice("required", ("go",)),
    ToolChoice("auto"),
    ToolChoice("auto", ("stop", "go")),
)


@pytest.mark.slow
@pytest.mark.skipif(not chat_templates(), reason="no sources of llama.cpp")
@pytest.mark.parametrize("name", NAMES)
def test_every_call_is_valid(name: str, tmp_path: Path) -> None:
    path = make_model(tmp_path / "tiny.gguf", template=chat_templates()[name], context=8192)
    with InProcess(path, threads=1) as backend:
        reasons, seed = divmod(NAMES.index(name), len(CHOICES))  # each template with one of the choices
        request = ChatRequest(
            "m", (USER,), tools=TOOLS, tool_choice=CHOICES[seed], reasoning=bool(reasons % 2),
            sampling=Sampling(max_tokens=80, temperature=2.0, seed=seed),
        )  # fmt: skip
        check_guarantees(request, answer(request, backend))
