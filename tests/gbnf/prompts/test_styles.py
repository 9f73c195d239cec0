"""Every style names every tool, says the same twice, shows placeholders and never the runtime's arguments."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.prompts.descriptions import call_skeleton, copied_placeholder, describe_tool
from gbnf.prompts.messages import PROMPT_STYLES, PromptStyle, system_prompt
from gbnf.tools import OfferPolicy, Tool
from support.pools import BUNDLED

PLACEHOLDER = re.compile(r"<[^<>]+>")
TOOL = Tool.from_mapping(
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
    st.lists(st.sampled_from(BUNDLED), unique=True, min_size=1),
    st.sampled_from(PROMPT_STYLES),
    st.sampled_from("ei"),
)
def test_a_prompt_names_every_tool_in_order_and_nothing_of_the_runtime(
    pool: Any, style: Any, first: Any
) -> None:
    language = {"e": "en", "i": "it"}[first]
    prompt = system_prompt(pool, style=style, language=language)
    at = [prompt.index(describe_tool(tool, style, language)) for tool in pool]
    assert at == sorted(at)
    assert all(tool.name in describe_tool(tool, style, language).split("\n")[0] for tool in pool)
    assert prompt == system_prompt(list(pool), style=style, language=language)
    assert "actor" not in prompt
    assert "entries?" not in prompt


@pytest.mark.parametrize("tool", BUNDLED, ids=lambda tool: tool.name)
@pytest.mark.parametrize("optional", [None, "optional"])
def test_a_skeleton_is_a_call_of_placeholders(tool: Tool, optional: str | None) -> None:
    call = json.loads(call_skeleton(tool, optional=optional))
    args = tool.model_args()
    assert call["name"] == tool.name
    assert set(args.get("required", ())) <= call["arguments"].keys() <= args.get("properties", {}).keys()
    assert optional is None or call["arguments"].keys() == args.get("properties", {}).keys()
    assert all(PLACEHOLDER.fullmatch(leaf) for leaf in leaves(call["arguments"]))
    for name, value in call["arguments"].items():
        typed = any(": " in leaf for leaf in leaves(value))
        assert bool(copied_placeholder({name: value})) == typed, value


@pytest.mark.parametrize(
    "text", ["<p>Hello: you</p>", "<b>", "a <text: string>", "text: string", "<other: string>"]
)
def test_other_values_are_no_placeholders(text: str) -> None:
    assert not copied_placeholder({"text": text, "list": [text]})


def leaves(value: Any) -> list[Any]:
    if isinstance(value, dict | list):
        members = value.values() if isinstance(value, dict) else value
        return [leaf for member in members for leaf in leaves(member)]
    return [value]


def test_descriptions_in_each_style() -> None:
    assert describe_tool(TOOL, "minimal", "en") == "book_room(size, hours?, guests?)"
    assert describe_tool(TOOL, "default", "en") == describe_tool(TOOL, "full", "en")
    assert describe_tool(TOOL, "default", "en") == (
        'book_room(size: "small"|"large", hours?: integer, guests?: string[])\n'
        "  Book a room.\n"
        "  size: How large"
    )
    assert describe_tool(TOOL, "skeleton", "it").endswith(
        '  Chiamata: {"name": "book_room", "arguments": {"size": "<size: small|large>"}}'
    )
    assert describe_tool(TOOL, "placeholder", "en") == (
        'book_room: Book a room.\n  {"name": "book_room", "arguments": {"size": "<size: small|large>", '
        '"hours": "<optional hours: integer>", "guests": ["<optional guests: string>"]}}'
    )
    assert describe_tool(TOOL, "verbose", "en") == (
        "Tool: book_room\n"
        "  Book a room.\n"
        "  Arguments:\n"
        '  - size ("small"|"large", required): How large\n'
        "  - hours (integer, optional, ≥ 1, ≤ 8, default 2)\n"
        "  - guests (string[], optional)\n"
        '  Call: {"name": "book_room", "arguments": {"size": "<size: small|large>"}}'
    )


@pytest.mark.parametrize("style", PROMPT_STYLES)
def test_a_description_says_the_order(style: PromptStyle) -> None:
    ordered = replace(TOOL, offer=OfferPolicy(after=("log_in", "find_rooms"), terminal=True))
    plain = describe_tool(TOOL, style, "en")
    gap = "  " if style == "minimal" else "\n  "
    assert describe_tool(ordered, style, "en") == f"{plain}{gap}only after log_in, find_rooms; ends the work"
    assert describe_tool(ordered, style, "it").endswith("solo dopo log_in, find_rooms; conclude il lavoro")


def test_a_prompt_names_what_ends_the_work_instead_of_final_answer() -> None:
    for language, finish in (("en", "finish with book_room."), ("it", "concludi con book_room.")):
        for lines in (False, True):
            prompt = system_prompt([TOOL], language=language, lines=lines, endings=["book_room"])
            assert finish in prompt
            assert "final_answer" not in prompt


def test_a_style_that_is_none_is_an_error() -> None:
    with pytest.raises(ValueError, match="Use one of default"):
        system_prompt([TOOL], style="terse")  # type: ignore[arg-type]  # that is the point
