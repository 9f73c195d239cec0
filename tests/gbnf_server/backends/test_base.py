"""Which models are small, and which is the bundled one."""

from __future__ import annotations

from typing import Any

import pytest

from gbnf_server.backends.base import SMALL_MODEL, SMALL_NATIVE_MODEL, ModelInfo, default_prompt_style
from support.small_models import FORMAT


@pytest.mark.parametrize(
    ("parameters", "style", "small"),
    [
        (500_000_000, "full", True),
        (SMALL_NATIVE_MODEL, "full", False),
        (None, "full", False),
        (1, "minimal", False),
    ],
)
def test_which_models_are_small(parameters: int | None, style: Any, small: bool) -> None:
    info = ModelInfo(prompt_style=style, tool_format=FORMAT, parameters=parameters)
    assert info.is_small(native=True) == small
    assert info.is_small(native=False) == (small and parameters is not None and parameters < SMALL_MODEL)


@pytest.mark.parametrize(
    ("names", "style"),
    [
        (("gbnf-planner-demo",), "minimal"),
        (("somebody/gbnf-planner-demo:latest",), "minimal"),
        ((r"models\gbnf-planner-demo.gguf",), "minimal"),
        (("", "{#- gbnf-planner-demo -#}{{ messages }}"), "minimal"),
        (("gbnf-planner-demo-2",), "full"),
        (("my-gbnf-planner-demo:latest",), "full"),
        (("gbnf-planner-demo/another",), "full"),
        (("", "{# gbnf-planner-demo-2 #}"), "full"),
        (("", "{{ 'not gbnf-planner-demo' }}"), "full"),
        (("Qwen3-4B",), "full"),
        (("",), "full"),
    ],
)
def test_the_bundled_model_is_known_by_its_name(names: tuple[str, ...], style: str) -> None:
    info = ModelInfo(prompt_style=default_prompt_style(*names), takes_evidence=True)
    assert info.prompt_style == style
    assert info.answers_by_call_only != info.uses_evidence
