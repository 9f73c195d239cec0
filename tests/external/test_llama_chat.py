"""llama.cpp's own test of chat templates as a judge: what models wrote, and what it reads in it.

Every case is compared: calls, text and reasoning. `DIFFERENCES` lists the cases that are read otherwise, with
the reason; the test fails when a case joins them or leaves them. In the sources of llama-cpp-python 0.3.36,
386 of 389 cases have a format, and 374 of them are read as there: of those with calls, 271 of 274.
"""

from __future__ import annotations

import json
from functools import lru_cache
from typing import Any

import pytest

from chat_templates import chat_templates, llama_cpp_source
from gbnf.calls.parsing.results import ParseResult, ToolCalls
from gbnf.errors import ToolFormatError
from gbnf.tool_formats import Placeholder, ToolFormat, detect
from gbnf.tool_formats.template import TemplateRenderer
from gbnf.tools import Tool
from support.llama_chat_tests import ChatCase, read_cases, same_json

#: Templates that neither render a call nor say how to write one.
WITHOUT_CALLS = {
    "google-gemma-2-2b-it": "the template has no calls",
}

# Who is right, and why.
_CODE_BLOCK = "either: for an answer by a schema, llama.cpp removes the code block around it; here it is kept"
_PROMPT = "here: the words are the prompt's, not the model's"
_UNDECLARED = "either: a message to a tool that is not declared; llama.cpp drops it, here it is text"
_TWO_HEADERS = "llama.cpp: the model writes two headers of a message, and the first has no content"

DIFFERENCES: dict[str, str] = {
    "Apriel-1.6-15b-Thinker-fixed-1": _PROMPT,
    "Apriel-1.6-15b-Thinker-fixed-2": _PROMPT,
    "CohereForAI-c4ai-command-r-plus-tool_use-1": "llama.cpp: the model repeats the prompt's last token",
    "MiniMax-M3-18": "here: the elements are how the template writes the object that the schema allows",
    "Qwen3.5-4B-15": "here: the start tag that the model repeats is no part of the reasoning",
    "google-gemma-4-31B-it-26": "llama.cpp: a start tag without reasoning is no part of the text",
    "meta-llama-Llama-3.1-8B-Instruct-2": _CODE_BLOCK,
    "mistralai-Ministral-3-14B-Reasoning-2512-7": _CODE_BLOCK,
    "openai-gpt-oss-120b-13": _UNDECLARED,
    "openai-gpt-oss-120b-14": _UNDECLARED,
    "openai-gpt-oss-120b-15": _TWO_HEADERS,
    "openai-gpt-oss-120b-16": _TWO_HEADERS,
}


def _parsed(case: ChatCase, form: ToolFormat) -> ParseResult:
    tools = [Tool(name, args=json.loads(schema)) for name, _, schema in case.tools]
    reasoning = case.options.get("enable_thinking", True)
    truncated = bool(case.options.get("is_partial"))
    text = _begun(form) + case.text
    return form.parse(text, tools, truncated=truncated, reasoning=reasoning)


@lru_cache(maxsize=100)
def _format(name: str) -> ToolFormat | None:
    try:
        return detect(chat_templates()[name], bos_token="<s>", eos_token="</s>")
    except ToolFormatError:
        return None


@lru_cache(maxsize=100)
def _begun(form: ToolFormat) -> str:
    """Return what the prompt ends with and an answer in the format begins with: llama.cpp leaves it out."""
    renderer = TemplateRenderer(form.template, bos_token=form.bos_token, eos_token=form.eos_token)
    try:
        prompt = renderer.render([{"role": "user", "content": "Hi"}], functions="[]", datetime="")
    except ToolFormatError:  # it needs tools
        return ""
    literals = [
        form.text.begin,
        form.begin + "".join(part for part in form.head[:1] if not isinstance(part, Placeholder)),
    ]
    shared = [
        literal[:length]
        for literal in literals
        for length in range(2, len(literal) + 1)
        if prompt.endswith(literal[:length]) and literal[:length].strip()
    ]
    return max(shared, key=len, default="")


def _difference(case: ChatCase, form: ToolFormat) -> str:
    """Return in what the readings differ, "" if in nothing."""
    found = _parsed(case, form)
    calls = found.calls if isinstance(found, ToolCalls) else ()
    expected = case.expected
    partial = bool(case.options.get("is_partial"))
    names = [call.name for call in calls] == [name for name, _, _ in expected.calls]
    if not names or (partial and expected.calls and not any(call.truncated for call in calls)):
        return f"calls: {calls} {getattr(found, 'invalid', '')}"
    for call, (_, arguments, _) in zip(calls, expected.calls, strict=True):
        if not partial and not same_json(json.dumps(call.arguments), arguments or "{}"):
            return f"arguments: {call.arguments}"
    if case.options.get("reasoning_format", "COMMON_REASONING_FORMAT_NONE").endswith("NONE"):
        # llama.cpp leaves reasoning in the text, with its tags, where it separates none
        inside = _squeezed(expected.content).endswith(_squeezed(found.content))
        whole = _squeezed(found.reasoning) in _squeezed(expected.content)
        return "" if inside and whole else f"text: {found.reasoning!r} {found.content!r}"
    if found.reasoning.strip() != expected.reasoning.strip():
        return f"reasoning: {found.reasoning!r}"
    return "" if found.content.strip() == expected.content.strip() else f"text: {found.content!r}"


def _squeezed(text: str) -> str:
    return "".join(text.split())


@lru_cache(maxsize=1)
def _cases() -> tuple[list[ChatCase], int]:
    source = llama_cpp_source()
    test = source / "tests" / "test-chat.cpp" if source else None
    return read_cases(test.read_text(encoding="utf-8")) if test and test.is_file() else ([], 0)


pytestmark = pytest.mark.skipif(not _cases()[0], reason="llama.cpp's sources are not on this machine")


def test_the_source_is_read() -> None:
    cases, left_out = _cases()
    assert len(cases) > 350
    assert sum(bool(case.expected.calls) for case in cases) > 250
    assert left_out < 5


def test_every_difference_is_listed() -> None:
    found: dict[str, Any] = {}
    for case in _cases()[0]:
        form = _format(case.template.removesuffix(".jinja"))
        if form is not None and (difference := _difference(case, form)):
            found[str(case)] = difference
    new = {name: difference for name, difference in found.items() if name not in DIFFERENCES}
    assert not new, "\n".join(f"{name}: {difference}" for name, difference in new.items())
    assert not DIFFERENCES.keys() - found.keys()


def test_the_templates_without_calls_are_listed() -> None:
    names = {case.template.removesuffix(".jinja") for case in _cases()[0]}
    assert {name for name in names if _format(name) is None} == WITHOUT_CALLS.keys()
