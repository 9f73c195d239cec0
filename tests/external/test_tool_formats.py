"""The law of tool-call formats, for every template of llama.cpp's sources that has tools.

What the template itself renders for valid calls is accepted by llama.cpp's engine under the format's grammar,
and parses back to the same calls; what it renders for others is refused. jsonschema decides what is valid.
Where a format cannot write a value so that it is read back, the grammar refuses it and its report says so.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chat_templates import BOS, EOS, chat_templates, templates_with_calls, tool_format
from gbnf.calls.parsing.results import ToolCall, ToolCalls
from gbnf.compiler.grammar import Grammar
from gbnf.errors import PoolError, SchemaError, ToolFormatError
from gbnf.tool_formats import ElementArguments, ToolFormat
from gbnf.tool_formats.probing import Call, find_shape, without_reasoning
from gbnf.tool_formats.template import TemplateRenderer
from gbnf.tools import Tool
from support.argument_schemas import ARGUMENTS, near
from support.effort import scaled
from support.oracle import engine
from support.unreadable_values import unreadable
from support.values import is_valid

NAMES = ("get_note", "get_notes")
#: Templates that write characters beyond ASCII as `\\u` escapes, which the grammar refuses: a note says so.
ESCAPING = {"Reka-Edge"}
UNKNOWN = ("get_not", "get_notes_", "put")
THOUGHT = "Which tool?\nThe first <one>."
ORDERED = {"text": "string", "days": "integer", "ratio": "number", "done": "boolean"}


pytestmark = pytest.mark.skipif(not chat_templates(), reason="no sources of llama.cpp")
templates = pytest.mark.parametrize("template", templates_with_calls())


@dataclass(frozen=True)
class Case:
    """Two tools, and arguments of each."""

    schemas: tuple[Any, Any]
    arguments: tuple[Any, Any]

    @property
    def tools(self) -> tuple[Tool, ...]:
        return tuple(Tool(name, args=schema) for name, schema in zip(NAMES, self.schemas, strict=True))

    def call(self, at: int) -> ToolCall:
        return ToolCall(f"abcdefgh{at}", NAMES[at], self.arguments[at])

    def is_valid(self, name: str, arguments: Any) -> bool:
        return name in NAMES and is_valid(self.schemas[NAMES.index(name)], arguments)

    def is_readable(self, form: ToolFormat, at: int) -> bool:
        return not unreadable(form, self.schemas[at], self.arguments[at])


@st.composite
def _cases(draw: st.DrawFn) -> Case:
    schemas = (draw(ARGUMENTS), draw(ARGUMENTS))
    arguments = (draw(near(schemas[0])), draw(near(schemas[1])))
    case = Case(schemas, arguments)
    assume(all(map(case.is_valid, NAMES, arguments)))
    return case


cases = _cases()


def compiled(form: ToolFormat, case: Case, **options: Any) -> Grammar | None:
    """The grammar, None if no call can be written."""
    try:
        grammar = form.grammar(case.tools, **options)
    except (PoolError, SchemaError):
        return None
    assert grammar.exact, grammar.report
    return grammar


def complete(grammar: Grammar | None, text: str) -> bool:
    return grammar is not None and engine().match(grammar, text).complete


def same(found: Any, expected: Sequence[ToolCall]) -> bool:
    """Whether these are the calls, types of numbers included."""
    return isinstance(found, ToolCalls) and not found.invalid and _written(found.calls) == _written(expected)


def _written(calls: Sequence[ToolCall]) -> str:
    return json.dumps([(call.name, dict(call.arguments)) for call in calls], sort_keys=True)


def reported(grammar: Grammar | None, name: str) -> bool:
    """Whether the report says that some calls of a tool cannot be written."""
    kinds = {"inexpressible", "left_out"}
    return grammar is None or any(one.tool == name and one.kind in kinds for one in grammar.report)


def is_another(form: ToolFormat, case: Case, text: str, call: ToolCall) -> bool:
    """Whether a text is that of another valid call, such as `5` of the string "5" instead of the number."""
    found = form.parse(text, case.tools)
    return (
        isinstance(form.arguments, ElementArguments)
        and isinstance(found, ToolCalls)
        and all("twice" in other.error for other in found.invalid)  # no grammar counts undeclared keys
        and not same(found, [call])
        and all(case.is_valid(other.name, dict(other.arguments)) for other in found.calls)
    )


@templates
def test_what_the_template_writes_is_accepted_and_read(template: str) -> None:
    form = tool_format(template)

    @settings(max_examples=scaled(3))
    @given(cases)
    def law(case: Case) -> None:
        assume(template not in ESCAPING or json.dumps(case.arguments, ensure_ascii=False).isascii())
        required = compiled(form, case, tool_choice="required")
        for at, name in enumerate(NAMES):
            call = case.call(at)
            text = form.render([call])
            if not case.is_readable(form, at):
                assert reported(required, name), (text, case.schemas[at])
                assert not complete(required, text) or is_another(form, case, text, call), (
                    text,
                    call,
                    case.schemas[at],
                )
                continue
            assert complete(required, text), (text, case.schemas[at])
            assert same(form.parse(text, case.tools), [call]), (
                text,
                form.parse(text, case.tools),
                call,
                case.schemas[at],
            )
            for options in ({}, {"tool_choice": name}, {"tool_choice": "required", "parallel": True}):
                assert complete(compiled(form, case, **options), text), options
            for options in ({"tool_choice": "none"}, {"tool_choice": NAMES[1 - at]}):
                assert not complete(compiled(form, case, **options), text), options
        if form.separator is not None and all(case.is_readable(form, at) for at in (0, 1)):
            calls = [case.call(0), case.call(1)]
            text = form.render(calls)
            for choice in ("required", "auto"):
                assert complete(compiled(form, case, tool_choice=choice, parallel=True), text)
                assert not complete(compiled(form, case, tool_choice=choice), text)
            assert same(form.parse(text, case.tools), calls), (text, calls, case.schemas)

    law()


@templates
def test_arguments_come_in_any_order(template: str) -> None:
    form = tool_format(template)
    schema = {
        "type": "object",
        "properties": {key: {"type": kind} for key, kind in ORDERED.items()}
        | {
            "place": {"type": "object", "properties": {"floor": {"type": "integer"}, "wing": {"enum": ["B"]}}}
        },
        "required": ["text", "days"],
        "additionalProperties": False,
    }
    values = {"text": "x y", "days": -3, "ratio": 0.5, "done": True, "place": {"floor": 2, "wing": "B"}}
    tool = Tool(NAMES[0], args=schema)
    grammar = form.grammar([tool], tool_choice="required")

    @settings(max_examples=scaled(9))
    @given(st.permutations(list(values.items())), st.booleans())
    def law(items: list[tuple[str, Any]], backwards: bool) -> None:
        arguments = dict(items)
        if backwards:
            arguments |= {"place": {"wing": "B", "floor": 2}}
        call = ToolCall("abcdefgh0", NAMES[0], arguments)
        text = form.render([call])
        assert complete(grammar, text), text
        assert same(form.parse(text, [tool]), [call]), text

    law()


@templates
def test_what_is_not_valid_is_refused(template: str) -> None:
    form = tool_format(template)

    @settings(max_examples=scaled(3))
    @given(cases, near(None), st.sampled_from(UNKNOWN))
    def law(case: Case, other: Any, unknown: str) -> None:
        own, foreign = case.arguments
        made = [(NAMES[0], foreign), (NAMES[1], own), (unknown, own)]
        made += [(NAMES[0], own | {"other": other})]
        made += [(NAMES[0], {key: value for key, value in own.items() if key != left}) for left in own]
        made += [(NAMES[0], own | {key: other}) for key in own]
        grammars = [compiled(form, case), compiled(form, case, tool_choice="required", parallel=True)]
        for name, arguments in made:
            if case.is_valid(name, arguments):
                continue
            text = form.render([ToolCall("abcdefgh0", name, arguments)])
            if any(complete(grammar, text) for grammar in grammars):
                call = ToolCall("", name, arguments)
                assert is_another(form, case, text, call), (text, arguments, form.parse(text, case.tools))

    law()


@templates
def test_notes_name_what_the_template_writes_otherwise(template: str) -> None:
    form = tool_format(template)
    escapes = any("escapes" in note for note in form.notes)
    assert escapes == (template in ESCAPING)
    nulls = any("null" in note for note in form.notes)
    assert nulls == (template == "MiniMax-M3")


NOTE = Tool(
    NAMES[0],
    args={
        "type": "object",
        "properties": {"text": {"type": "string"}, "days": {"type": "integer"}},
        "required": ["text"],
        "additionalProperties": False,
    },
)
CALL = ToolCall("abcdefgh0", NAMES[0], {"text": "5 < 6\nand 7", "days": -3})
SAID = "Let me look.\n\nIt is 5 < 6, [sic] {1}."


def rendered_answer(form: ToolFormat, text: str, thought: str) -> str:
    """What the template writes for an answer with text, a call and reasoning; "" where it leaves one out."""
    prober = find_shape(TemplateRenderer(form.template, bos_token=BOS, eos_token=EOS))
    calls = [Call(CALL.name, CALL.arguments, CALL.id)]
    message = prober.assistant(calls, text or None, reasoning=thought or None)
    try:
        answer = prober.answer(
            message, [part for part in (thought, text, CALL.name) if part], reasoning=bool(thought)
        )
    except ToolFormatError:
        return ""
    answer = answer if thought else without_reasoning(answer, form.reasoning)
    places = [answer.find(part) for part in (thought, text, CALL.name)]
    tags = form.reasoning
    if not thought and tags is not None and tags.begin and tags.begin in answer:
        return ""  # gpt-oss: a text before a call is reasoning
    if min(places) < 0 or places != sorted(places) or not answer.endswith(form.turn_end):
        return ""
    answer = answer.removesuffix(form.turn_end)
    return "" if any(end in answer for end in form.end_of_turn) else answer


@templates
def test_text_and_reasoning_come_before_calls(template: str) -> None:
    form = tool_format(template)
    written = form.render([CALL])
    between = form.text.before_calls
    begun = written.removesuffix(rendered_answer(form, "", ""))  # what the template's own prompts end with
    answers = [("", "", written)]
    if between is not None:
        answers.append((SAID, "", form.text.begin + SAID + between + written))
        if answer := rendered_answer(form, SAID, ""):
            answers.append((SAID, "", begun + answer))
    tags = form.reasoning
    if tags is not None:
        begin = "" if tags.prompt == "open" else tags.begin
        answers += [
            (text, THOUGHT, begin + "\n" + THOUGHT + tags.closing + answer)
            for text, _, answer in answers
            if answer
        ]
        answers += [
            ("", THOUGHT, rendered_answer(form, "", THOUGHT)),
            (SAID, THOUGHT, rendered_answer(form, SAID, THOUGHT)),
        ]
    for text, thought, answer in answers:
        if not answer:
            continue
        grammar = form.grammar([NOTE], reasoning=bool(thought))
        assert complete(grammar, answer), answer
        assert complete(form.grammar([NOTE], tool_choice="required", reasoning=bool(thought)), answer) == (
            not text
        )
        found = form.parse(answer, [NOTE], reasoning=bool(thought))
        assert same(found, [CALL]), (answer, found)
        assert (found.content.strip(), found.reasoning.strip()) == (text, thought), (answer, found)


def quoting() -> list[str]:
    """The templates that write strings in Python's quotes, without escapes."""
    return [
        name
        for name, form in zip(templates_with_calls(), map(tool_format, templates_with_calls()), strict=True)
        if isinstance(form.arguments, ElementArguments) and form.arguments.forms.string[0].after == ("'",)
    ]


@pytest.mark.parametrize("template", quoting())
@pytest.mark.parametrize(
    "text", ["it's", "a', days='1", "x')", "5", 'say "no"', "a\nb\\", "]<|tool_call_end|>"]
)
def test_a_string_may_be_in_the_other_quotes(template: str, text: str) -> None:
    """What the template cannot write, since it escapes nothing: models write other quotes around it."""
    form = tool_format(template)
    call = ToolCall("abcdefgh0", NAMES[0], {"text": text, "days": -3})
    written = form.render([call]).replace(f"'{text}'", json.dumps(text))
    assert json.dumps(text) in written
    for choice in ("auto", "required"):
        assert complete(form.grammar([NOTE], tool_choice=choice), written)
    assert same(form.parse(written, [NOTE]), [call])
