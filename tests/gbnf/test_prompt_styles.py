"""Every style names every tool, says the same twice, shows placeholders and never the runtime's arguments."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.descriptions import described, skeleton
from gbnf.manifests import Executor, load_manifests
from gbnf.prompt import STYLES, system_prompt

SHIPPED = load_manifests(Path(__file__).parents[2] / "manifests")
PLACEHOLDER = re.compile(r"<[^<>]+>")
TOOL = Executor.from_mapping(
    {
        "name": "book_room",
        "description": {"en": "Book a room.", "it": "Prenota una stanza."},
        "args": {
            "type": "object",
            "required": ["size"],
            "properties": {
                "size": {"enum": ["small", "large"], "description": "How large"},
                "hours": {"type": "integer", "minimum": 1, "maximum": 8, "default": 2},
                "guests": {"type": "array", "items": {"type": "string"}},
                "secret": {"type": "string", "runtime_resolved": True},
            },
        },
    }
)


@given(
    st.lists(st.sampled_from(SHIPPED), unique=True, min_size=1),
    st.sampled_from(STYLES),
    st.sampled_from("ei"),
)
def test_a_prompt_names_every_tool_in_order_and_nothing_of_the_runtime(
    pool: Any, style: Any, first: Any
) -> None:
    language = {"e": "en", "i": "it"}[first]
    prompt = system_prompt(pool, style=style, language=language)
    at = [prompt.index(described(tool, style, language)) for tool in pool]
    assert at == sorted(at)
    assert all(tool.name in described(tool, style, language).split("\n")[0] for tool in pool)
    assert prompt == system_prompt(list(pool), style=style, language=language)
    assert "actor" not in prompt


@pytest.mark.parametrize("tool", SHIPPED, ids=lambda tool: tool.name)
@pytest.mark.parametrize("optional", [None, "optional"])
def test_a_skeleton_is_a_call_of_placeholders(tool: Executor, optional: str | None) -> None:
    call = json.loads(skeleton(tool, optional=optional))
    args = tool.model_args()
    assert call["name"] == tool.name
    assert set(args.get("required", ())) <= call["arguments"].keys() <= args.get("properties", {}).keys()
    assert optional is None or call["arguments"].keys() == args.get("properties", {}).keys()
    assert all(PLACEHOLDER.fullmatch(leaf) for leaf in leaves(call["arguments"]))


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict | list):
        members = value.values() if isinstance(value, dict) else value
        return [leaf for member in members for leaf in leaves(member)]
    return [value]


def test_what_each_style_says() -> None:
    assert described(TOOL, "minimal", "en") == "book_room(size, hours?, guests?)"
    assert described(TOOL, "default", "en") == described(TOOL, "full", "en")
    assert described(TOOL, "default", "en") == (
        'book_room(size: "small"|"large", hours?: integer, guests?: string[])\n'
        "  Book a room.\n"
        "  size: How large"
    )
    assert described(TOOL, "skeleton", "it").endswith(
        '  Chiamata: {"name": "book_room", "arguments": {"size": "<size: small|large>"}}'
    )
    assert described(TOOL, "placeholder", "en") == (
        'book_room: Book a room.\n  {"name": "book_room", "arguments": {"size": "<size: small|large>", '
        '"hours": "<optional hours: integer>", "guests": ["<optional guests: string>"]}}'
    )
    assert described(TOOL, "verbose", "en") == (
        "Tool: book_room\n"
        "  Book a room.\n"
        "  Arguments:\n"
        '  - size ("small"|"large", required): How large\n'
        "  - hours (integer, optional, ≥ 1, ≤ 8, default 2)\n"
        "  - guests (string[], optional)\n"
        '  Call: {"name": "book_room", "arguments": {"size": "<size: small|large>"}}'
    )


def test_a_style_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="none of default"):
        system_prompt([TOOL], style="terse")  # type: ignore[arg-type]  # that is the point
