"""Answers in the formats of real models' templates: what a grammar derives is read as valid calls."""

from __future__ import annotations

import random
import re

import jsonschema
import pytest

from chat_templates import chat_templates
from gbnf.calls.parsing.results import FinalAnswer, ToolCall, ToolCalls
from gbnf.errors import ToolFormatError
from gbnf.tool_formats import ToolFormat, detect
from support.element_formats import CLOSED
from support.native_formats import written_calls
from support.oracle import engine
from support.random_texts import generate

_SIGNS = (
    "</parameter>",
    "<tool_call>",
    "[TOOL_CALLS]",
    "</think>",
    '"',
    "'",
    "\n",
    "\\",
    "{",
    "}",
    "é",
    "🙂",
    "5",
)


_TAGS_AT_END = re.compile(r"\s*(?:</parameter>\s*)+\Z")


def _format(name: str) -> ToolFormat:
    try:
        return detect(chat_templates()[name], bos_token="<s>", eos_token="</s>")
    except ToolFormatError as error:
        pytest.skip(str(error))


@pytest.mark.parametrize("name", chat_templates())
def test_the_calls_of_a_template_are_read(name: str) -> None:
    form = _format(name)
    grammar = form.grammar(CLOSED, tool_choice="required", parallel=True)
    # what any order of many properties allows beyond: the report says so, and a reader refuses it
    twice = any("given twice" in finding.reason for finding in grammar.report)
    for seed in range(8):
        text = generate(grammar.rules, random.Random(seed), budget=150)
        parsed = form.parse(text, CLOSED)
        assert isinstance(parsed, ToolCalls), text
        assert not [each for each in parsed.invalid if not (twice and "occurs twice" in each.error)], text
        assert not parsed.truncated, text
        assert not parsed.content, text
        for call in parsed.calls:
            jsonschema.Draft202012Validator(CLOSED[0].args).validate(call.arguments)


@pytest.mark.parametrize("name", chat_templates())
def test_strings_with_signs_of_formats_are_read(name: str) -> None:
    form = _format(name)
    for seed in range(20):
        drawn = random.Random(seed)
        texts = ["".join(drawn.choices(_SIGNS, k=drawn.randint(0, 5))) for _ in range(3)]
        # models write the tag at the end twice, so a text that ends with it loses it
        texts = [_TAGS_AT_END.sub("", text) for text in texts]
        arguments = {"text": texts[0], "map": {"on": texts[1]}, "referred": texts[2:], "count": seed}
        calls = [ToolCall("call00001", "set", arguments)] * (1 if form.separator is None else 1 + seed % 2)
        parsed = form.parse(written_calls(form, calls), CLOSED)
        assert isinstance(parsed, ToolCalls), arguments
        assert [call.arguments for call in parsed.calls] == [arguments] * len(calls)


@pytest.mark.parametrize("name", chat_templates())
def test_no_text_is_read_as_a_call(name: str) -> None:
    form = _format(name)
    grammar = form.grammar(CLOSED, tool_choice="none")
    call = form.render([ToolCall("zqid00000", CLOSED[0].name, {})])
    pieces = [call, *call.split(), *re.split(r"(?<=[>\]|])|(?=[<\[])", call), form.marker]
    pieces += ["".join(each.split()) for each in pieces]
    rng = random.Random(name)
    accepted = 0
    for _ in range(60):
        chosen = [rng.choice(pieces)[rng.choice((0, 0, 0, 1)) :] for _ in range(rng.randrange(1, 4))]
        text = "".join(chosen)
        framed = form.text.begin + text + form.text.end
        if engine().match(grammar, framed).complete:
            accepted += 1
            found = form.parse(framed, ())  # as it is read where no tool may be called
            assert isinstance(found, FinalAnswer), text
            assert found.content.strip() == text.strip()
    assert accepted
