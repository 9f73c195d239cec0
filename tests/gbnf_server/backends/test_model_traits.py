"""Which models are small, and which is the bundled one."""

from __future__ import annotations

from typing import Any

import pytest

from gbnf_server.backends.model_traits import SMALL_MODEL, SMALL_NATIVE_MODEL, model_traits


@pytest.mark.parametrize(
    ("parameters", "name", "small"),
    [
        (500_000_000, "other", True),
        (SMALL_NATIVE_MODEL, "other", False),
        (None, "other", False),
        (1, "gbnf-planner-demo", False),
    ],
)
def test_which_models_are_small(parameters: int | None, name: str, small: bool) -> None:
    traits = model_traits(name, parameters=parameters)
    assert traits.is_small(native=True) == small
    assert traits.is_small(native=False) == (small and parameters is not None and parameters < SMALL_MODEL)


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
    traits = model_traits(*names, in_process=True)
    assert traits.prompt_style == style
    assert (traits.answers_by_call_only, traits.takes_evidence) == (style == "minimal", style == "full")


@pytest.mark.parametrize(("name", "answers_by_call"), [("other", False), ("gbnf-planner-demo", True)])
@pytest.mark.parametrize("style", ["full", "minimal", "verbose"])
def test_a_given_prompt_style_changes_nothing_else(name: str, answers_by_call: bool, style: Any) -> None:
    """A model that is shown the minimal style still writes texts, and takes evidence."""
    traits = model_traits(name, prompt_style=style, parameters=1, in_process=True)
    assert traits.prompt_style == style
    assert traits.answers_by_call_only == answers_by_call
    assert traits.takes_evidence == traits.is_small(native=True) != answers_by_call
