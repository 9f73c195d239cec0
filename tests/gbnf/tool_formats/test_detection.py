"""Formats that are derived from chat templates."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import fields
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from chat_templates import WITHOUT_CALLS, chat_templates, templates_with_calls, tool_format
from gbnf.calls.parsing.results import ToolCall, ToolCalls
from gbnf.errors import ToolFormatError
from gbnf.tool_formats import ElementArguments, JsonArguments, Placeholder, ToolFormat, detect
from gbnf.tool_formats.sandbox import TemplateLimitError
from gbnf.tools import Tool
from support.effort import one_in, scaled
from support.json_values import nested
from support.native_formats import written_calls
from support.oracle import engine

HERMES = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ '\\n' }}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments|tojson }}}\n</tool_call>'
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
ELEMENTS = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}"
    "{% for c in m.tool_calls or [] %}{{ '\\n' }}<call>\n<f={{ c.function.name }}>\n"
    "{% for k, v in c.function.arguments|items %}<p={{ k }}>{{ VALUE }}</p>\n{% endfor %}</f>\n</call>"
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


needs_templates = pytest.mark.skipif(not chat_templates(), reason="no sources of llama.cpp")
NAMES = templates_with_calls()


def test_json_in_tags() -> None:
    form = detect(HERMES)
    assert (form.begin, form.separator, form.end) == ("\n", "\n", "")
    assert form.head == ('<tool_call>\n{"name": "', Placeholder("name"), '", "arguments": ')
    assert form.tail == ("}\n</tool_call>",)
    assert form.arguments == JsonArguments("default")
    assert form.marker == "<tool_call>"
    assert form.end_of_turn == ("<|im_end|>",)
    assert form.control_texts == ("<tool_call>", "</tool_call>")
    assert form.reasoning is None
    assert form.text.before_calls == ""
    assert form.notes == ("The template does not show the declared tools.",)


MISTRAL = (
    "{% for m in messages %}{% if m.tool_calls %}[TOOL_CALLS][{% for c in m.tool_calls %}"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments|tojson }}}'
    "{% if loop.last %}{{ ']' + eos_token }}{% else %}, {% endif %}{% endfor %}"
    "{% else %}{{ m.content + eos_token }}{% endif %}{% endfor %}"
)


@pytest.mark.parametrize(
    "template",
    [MISTRAL, *(text for text in map(chat_templates().get, NAMES) if text and "eos_token" in text)],
)
def test_the_token_that_ends_answers_need_not_be_known(template: str) -> None:
    unknown, known = detect(template), detect(template, eos_token="<EOS>")
    for name in (each.name for each in fields(known)):
        shown = repr(getattr(known, name)).replace("<EOS>", "").replace("('',)", "()")
        assert repr(getattr(unknown, name)) == shown or name == "template", name


def test_calls_with_their_numbers() -> None:
    form = detect(HERMES.replace("{{ '\\n' }}<tool_call>", "#{{ loop.index0 }}: <tool_call>"))
    assert form.head[:2] == ("#", Placeholder("index"))


def test_reasoning_between_lines() -> None:
    written = "Thought:\n---\n{{ m.reasoning_content }}\n***\n{% endif %}{{ m.content }}"
    form = detect(HERMES.replace("{{ m.content }}", "{% if m.reasoning_content %}" + written))
    assert form.reasoning is not None
    assert (form.reasoning.begin, form.reasoning.end) == ("Thought:\n---", "***")


@pytest.mark.parametrize(
    ("encoder", "expected"),
    [
        ("c.function.arguments|tojson", JsonArguments("default")),
        ("c.function.arguments|tojson(separators=(',', ':'))", JsonArguments("compact")),
        ("c.function.arguments|tojson(indent=2)", JsonArguments("free")),
        ("c.function.arguments|tojson|tojson", JsonArguments("default", quoted=True)),
        ("c.function.arguments + ''", JsonArguments("default")),  # takes only text
    ],
)
def test_json_arguments(encoder: str, expected: Any) -> None:
    assert detect(HERMES.replace("c.function.arguments|tojson", encoder)).arguments == expected


@pytest.mark.parametrize(
    ("value", "encodings"),
    [
        ("v if v is string else v|tojson", "raw json json json json json"),
        ("v|tojson", "json json json json json json"),
        ("v|string", "raw json python python python python"),
        ("v if v is string else (v|tojson if v is mapping else v)", "raw json python python python json"),
    ],
)
def test_elements(value: str, encodings: str) -> None:
    form = detect(ELEMENTS.replace("VALUE", value))
    elements = form.arguments
    assert isinstance(elements, ElementArguments)
    forms = elements.forms
    each = (forms.string, forms.number, forms.boolean, forms.null, forms.array, forms.object)
    assert " ".join(one[0].encoding for one in each) == encodings
    assert (elements.begin, elements.before_key, elements.separator, elements.end) == ("\n", "<p=", "\n", "")
    assert forms.number[0].before == (">",)
    assert forms.number[0].after == ("</p>",)
    assert form.head == ("<call>\n<f=", Placeholder("name"), ">")
    assert form.tail == ("\n</f>\n</call>",)


def test_trimmed_strings() -> None:
    form = detect(ELEMENTS.replace("VALUE", "v|trim if v is string else v|tojson"))
    assert isinstance(form.arguments, ElementArguments)
    assert form.arguments.forms.string[0].trimmed
    assert "The template removes whitespace around strings." in form.notes


def test_lost_values_are_noted() -> None:
    form = detect(ELEMENTS.replace("VALUE", "v if v is string else ('' if v is none else v|tojson)"))
    assert isinstance(form.arguments, ElementArguments)
    assert form.arguments.forms.null == ()
    assert "The template does not write values of type null." in form.notes


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        ("{% for m in messages %}{{ m.content }}{% endfor %}", "renders no tool call"),
        ("{{ raise_exception('no') }}", "no"),
        ("{% for m in messages %}", "malformed"),
        (
            HERMES.replace(
                "<tool_call>\n" + '{"name": "{{ c.function.name }}"', '{{ c.function.name }} {"a": 1'
            ),
            "mark",
        ),
        (HERMES.replace("{{ c.function.name }}", "{{ c.function.name|upper }}"), "renders no tool call"),
    ],
)
def test_says_why_there_is_no_format(template: str, reason: str) -> None:
    with pytest.raises(ToolFormatError, match=reason):
        detect(template)


@pytest.mark.slow
def test_a_hostile_template_ends_at_the_first_limit() -> None:
    loops = "{% for i in range(100000) %}{% for j in range(100000) %}{% endfor %}{% endfor %}"
    with pytest.raises(TemplateLimitError):
        detect(loops + HERMES)


@needs_templates
@pytest.mark.parametrize("name", sorted(WITHOUT_CALLS))
def test_templates_without_calls(name: str) -> None:
    with pytest.raises(ToolFormatError, match="renders no tool call"):
        detect(chat_templates()[name])


@pytest.mark.slow
@needs_templates
def test_families() -> None:
    kinds = Counter(_family(form) for form in map(tool_format, NAMES))
    # JSON in tags 20, bare 5, [TOOL_CALLS] 4, Kimi-K2 3, DeepSeek 4, Harmony, functionary, Solar;
    # XML parameters 8, key-value tags 8, DSML 3, Kimi-K3, Python-like 3; Gemma 2, MiniMax-M3; Granite 3.3
    assert kinds == {"json": 40, "elements": 23, "nested": 3}


def _family(form: ToolFormat) -> str:
    if isinstance(form.arguments, JsonArguments):
        return "json"
    return "nested" if form.arguments.nested else "elements"


KEYS = st.from_regex(r"[a-z][a-z_0-9]{0,8}", fullmatch=True)
TEXTS = st.text(st.characters(codec="utf-8", categories=["L", "N", "P", "S", "Zs"]), max_size=20)
SCALARS = st.one_of(TEXTS, st.integers(-(10**12), 10**12), st.booleans(), st.none())
VALUES = nested(SCALARS, KEYS)


@st.composite
def drawn_calls(draw: st.DrawFn, values: st.SearchStrategy[Any]) -> list[ToolCall]:
    names = draw(st.lists(st.from_regex(r"[a-z][a-z_0-9]{0,12}", fullmatch=True), min_size=1, max_size=3))
    arguments = st.dictionaries(KEYS, values, max_size=3)
    return [ToolCall(f"abcdefgh{at}", name, draw(arguments)) for at, name in enumerate(names)]


@needs_templates
@pytest.mark.parametrize("name", one_in(20, NAMES))
def test_the_format_put_together_is_what_the_template_writes(name: str) -> None:
    form = tool_format(name)
    plain = isinstance(form.arguments, ElementArguments)
    words = st.from_regex(r"[A-Za-z][A-Za-z0-9 ]{0,10}[a-z]", fullmatch=True)
    values = st.one_of(words, st.integers(-(10**12), 10**12), st.booleans()) if plain else VALUES
    free = isinstance(form.arguments, JsonArguments) and form.arguments.whitespace == "free"

    @settings(max_examples=scaled(20))
    @given(drawn_calls(values))
    def law(calls: list[ToolCall]) -> None:
        calls = calls if form.separator is not None else calls[:1]
        if plain:  # some templates sort parameters
            calls = [ToolCall(c.id, c.name, dict(sorted(c.arguments.items()))) for c in calls]
        rendered, written = form.render(calls), written_calls(form, calls)
        if free:
            rendered, written = "".join(rendered.split()), "".join(written.split())
        assert _decoded(rendered) == _decoded(written)

    law()


def _decoded(text: str) -> str:
    r"""Return a text with `\u` escapes for all but ASCII: one template writes such JSON."""
    return "".join(char if char.isascii() else json.dumps(char)[1:-1] for char in text)


_MESSAGES = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)


def _template(instructions: str) -> str:
    return f"{{% if tools %}}{instructions.replace('TOOLS', '{{ tools|tojson }}')}\n{{% endif %}}{_MESSAGES}"


_LIQUID = "List of tools: TOOLS"
_GRANITE = (
    "Tools: TOOLS. When a tool is required, respond only with <|tool_call|> followed by a JSON list of them."
)
_SHOWN = 'TOOLS Write:\n<tool_call>\n{"name": <function-name>, "arguments": <args-json-object>}\n</tool_call>'
_OTHER = 'TOOLS Write <call>{"tool": <name>, "input": <object>}</call>'

_SCHEMA: dict[str, Any] = {
    "type": "object",
    "properties": {
        "text": {"type": "string", "maxLength": 20},
        "n": {"type": "integer", "minimum": 0, "maximum": 9},
        "on": {"type": ["boolean", "null"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 5}, "maxItems": 2},
    },
    "required": ["text"],
    "additionalProperties": False,
}
_TOOLS = (Tool("note", args=_SCHEMA), Tool("note_all", args=_SCHEMA))


_GIVEN = [("note", {"text": "a", "on": True}), ("note_all", {"text": "b", "tags": ["c"]})]
_PYTHON = 'note(text="a", on=True), note_all(text="b", tags=["c"])'
_JSON = [f'{{"name": "{name}", "arguments": {json.dumps(arguments)}}}' for name, arguments in _GIVEN]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("instructions", "text"),
    [
        (_LIQUID, f"<|tool_call_start|>[{_PYTHON}]<|tool_call_end|>"),
        (_GRANITE, f"<|tool_call|>[{', '.join(_JSON)}]"),
        (_SHOWN, "\n".join(f"<tool_call>\n{call}\n</tool_call>" for call in _JSON)),
        (
            _OTHER,
            "\n".join(
                f'<call>{{"tool": "{name}", "input": {json.dumps(arguments)}}}</call>'
                for name, arguments in _GIVEN
            ),
        ),
    ],
)
def test_what_the_models_write(instructions: str, text: str) -> None:
    form = detect(_template(instructions))
    parsed = form.parse(text, _TOOLS)
    assert isinstance(parsed, ToolCalls)
    assert [(call.name, call.arguments) for call in parsed.calls] == _GIVEN
    assert engine().match(form.grammar(_TOOLS, parallel=True), text).complete
    assert not engine().match(form.grammar(_TOOLS), text).complete
    assert form.render(parsed.calls) == text
    assert _prompt(form, _GIVEN).count(text) == 1


def _prompt(form: ToolFormat, calls: list[tuple[str, Any]]) -> str:
    """Return the prompt after an answer with calls and their results."""
    made = [
        {"id": f"c{at}", "type": "function", "function": {"name": name, "arguments": arguments}}
        for at, (name, arguments) in enumerate(calls)
    ]
    results = [{"role": "tool", "tool_call_id": f"c{at}", "content": "Done."} for at in range(len(calls))]
    answer = {"role": "assistant", "content": "I try.", "tool_calls": made}
    prompt = form.prompt([{"role": "user", "content": "Hi"}, answer, *results])
    assert prompt.count("Done.") == len(calls)
    assert "I try." in prompt
    return prompt


@settings(max_examples=scaled(50))
@given(
    st.sampled_from([_LIQUID, _GRANITE, _SHOWN]),
    st.fixed_dictionaries(
        {
            "text": st.text(max_size=25)
            | st.sampled_from(['")]', "<|tool_call_end|>", "</tool_call>", "True"])
        },
        optional={
            "n": st.integers(-1, 10),
            "on": st.none() | st.booleans(),
            "tags": st.lists(st.text("ab", max_size=5), max_size=3),
        },
    ),
)
def test_what_is_written_is_read(instructions: str, arguments: dict[str, Any]) -> None:
    form = detect(_template(instructions))
    arguments = {key: arguments[key] for key in _SCHEMA["properties"] if key in arguments}
    text = form.render([ToolCall("call_1", "note", arguments)])
    parsed = form.parse(text, _TOOLS)
    assert isinstance(parsed, ToolCalls)
    assert [(call.name, call.arguments) for call in parsed.calls] == [("note", arguments)]
    if all(char not in json.dumps(arguments) for char in ("\\u0000", "\\u007f")):
        is_valid = jsonschema.Draft202012Validator(_SCHEMA).is_valid(arguments)
        assert engine().match(form.grammar(_TOOLS), text).complete == is_valid


def test_elements_may_stand_between_tags_of_their_own() -> None:
    begin = "{% if c.function.arguments %}<args>{% endif %}{% for k"
    form = detect(ELEMENTS.replace("VALUE", "v").replace("{% for k", begin))
    call = ToolCall("call_1", "note", {"text": "a"})
    parsed = form.parse(form.render([call]), _TOOLS)
    assert isinstance(parsed, ToolCalls)
    assert parsed.calls == (call,)


def test_a_template_that_says_nothing_has_no_format() -> None:
    for instructions in ("TOOLS", "Call a tool: <tool_call>"):
        with pytest.raises(ToolFormatError, match="renders no tool call"):
            detect(_template(instructions))
