"""Chat templates are rendered as Hugging Face does, and end whatever they do."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any, TypeAlias

import pytest

from chat_templates import chat_templates
from gbnf.errors import ToolFormatError
from gbnf.tool_formats import sandbox
from gbnf.tool_formats.sandbox import TemplateLimitError
from gbnf.tool_formats.template import MAX_SOURCE, TemplateRenderer

Messages: TypeAlias = list[dict[str, Any]]

QUESTION: Messages = [{"role": "user", "content": "Ünder <b> & 'q'?"}]
TOOL = {
    "type": "function",
    "function": {
        "name": "f",
        "description": "<b> & 'ü'",
        "parameters": {"type": "object", "properties": {"a": {"type": "string", "description": "x"}}},
    },
}
CALL = {"id": "abcdefghi", "type": "function", "function": {"name": "f", "arguments": {"a": "x<y>"}}}
CONVERSATION: Messages = [
    *QUESTION,
    {"role": "assistant", "content": "", "tool_calls": [CALL]},
    {"role": "tool", "tool_call_id": "abcdefghi", "name": "f", "content": "R"},
]
TEMPLATES = [pytest.param(source, id=name) for name, source in chat_templates().items()]


def rendered(source: str, **variables: Any) -> str:
    return TemplateRenderer(source).render(QUESTION, **variables)


@pytest.mark.skipif(not TEMPLATES, reason="no sources of llama.cpp")
@pytest.mark.slow
@pytest.mark.parametrize("source", TEMPLATES)
def test_agrees_with_hugging_face(source: str) -> None:
    from transformers.utils import chat_template_utils

    renderer = TemplateRenderer(source, bos_token="<s>", eos_token="</s>")
    for messages, tools in ((QUESTION, None), (QUESTION, [TOOL]), (CONVERSATION, [TOOL])):
        try:
            (expected,), _ = chat_template_utils.render_jinja_template(
                [messages],
                tools=tools,
                chat_template=source,
                add_generation_prompt=True,
                bos_token="<s>",
                eos_token="</s>",
            )
        except Exception:  # noqa: BLE001  # what it cannot render is another test's subject
            continue
        assert renderer.render(messages, tools=tools) == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("{{ bos_token }}{{ messages[0].role }}", "<s>user"),
        ("{{ {'a': '<é>', 'b': [1, none]}|tojson }}", '{"a": "<é>", "b": [1, null]}'),
        ("{{ {'b': 1, 'a': 2}|tojson(sort_keys=true, separators=(',', ':')) }}", '{"a":2,"b":1}'),
        ("{{ [1]|tojson(indent=1) }}", "[\n 1\n]"),
        ("{{ [{'a': 1}, {'a': 2}]|map(attribute='a')|tojson }}", "[1, 2]"),
        ("{{ ('[1, 2]'|from_json)[1] }}", "2"),
        ("{% for x in range(9) %}{% if x == 2 %}{% break %}{% endif %}{{ x }}{% endfor %}", "01"),
        ("{% generation %}text{% endgeneration %}", "text"),
        ("{{ strftime_now('%d %b %Y') }}", "02 Jan 2026"),
        ("{{ 'a' ~ 1 ~ none ~ [1] }}", "a1None[1]"),
        ("{% macro m(x) %}<{{ x }}>{% endmacro %}{{ m(10**20) }}", "<100000000000000000000>"),
        (
            "{% set n = namespace(l=[]) %}{% for x in 'ab' %}{% set n.l = n.l + [x] %}{% endfor %}{{ n.l }}",
            "['a', 'b']",
        ),
        ("{% set l = [] %}{{ l.append(1) }}{{ l }}", "None[1]"),  # as Kimi-K2's template
        ("{{ tools is none }}{{ add_generation_prompt }}", "TrueTrue"),
        ("{{ '%s and %05d'|format('a', 3) }}", "a and 00003"),
        ("{{ '{} {name}'.format(1, name='x') }}", "1 x"),
    ],
)
def test_renders(source: str, expected: Any) -> None:
    renderer = TemplateRenderer(source, bos_token="<s>")
    assert renderer.render(QUESTION, now=datetime(2026, 1, 2, tzinfo=UTC)) == expected


def test_given_messages_never_change() -> None:
    messages = [{"role": "user", "content": "q", "list": [1]}]
    TemplateRenderer("{{ messages[0].list.append(2) }}").render(messages)
    assert messages == [{"role": "user", "content": "q", "list": [1]}]


FOR = "{% for i in range(100000) %}"
DOUBLE = (
    "{% set ns = namespace(a=START) %}{% for i in range(60) %}{% set ns.a = STEP %}{% endfor %}{{ ns.a }}"
)


@pytest.mark.parametrize(
    "source",
    [
        FOR * 2 + "{% endfor %}" * 2,
        FOR + "{% for j in range(100000) if false %}{% endfor %}{% endfor %}",
        FOR + "{{ range(100000)|list|length }}{% endfor %}",
        FOR + "x" * 10_000 + "{% endfor %}",
        "{% filter upper %}" + FOR + "x" * 10_000 + "{% endfor %}{% endfilter %}",
        "{% set a %}" + "x" * 10_000 + "{% endset %}" + FOR + "{{ a }}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(40) }}",
        "{{ 'a' * 10**9 }}",
        "{{ [1] * 10**9 }}",
        "{{ 10**(10**9) }}",
        "{{ 'a'|center(10**9) }}",
        "{{ [1]|batch(10**9, 1)|list }}",
        "{{ '%1000000000d' % 1 }}",
        "{{ '%*d'|format(1000000000, 1) }}",
        "{{ '{:1000000000}'.format(1) }}",
        "{{ '{:{}}'.format(1, 1000000000) }}",
        "{{ ('{0}' * 10000).format('a' * 20000) }}",
        "{{ ('a' * 10000).replace('', 'b' * 100000) }}",
        "{{ ('a' * 100000).join(range(100000)|map('string')) }}",
        "{{ ('<' * 20000000)|e|e|e }}",
        "{{ [[1]]|tojson(indent=10**9) }}",
        "{{ range(100000)|map('string')|sum(start=[]) }}",
        "{% set s = 'ab' * 1000000 %}" + FOR + "{{ 'c' in s }}{% endfor %}",
        "{% set s = 'ab' * 1000000 %}" + FOR + "{% if s[1:] %}{% endif %}{% endfor %}",
        "{% set s = 'ab' * 1000000 %}" + FOR + "{{ s.count('b') }}{% endfor %}",
        DOUBLE.replace("START", "'ab'").replace("STEP", "ns.a ~ ns.a"),
        DOUBLE.replace("START", "'ab'").replace("STEP", "ns.a + ns.a"),
        DOUBLE.replace("START", "[1]").replace("STEP", "[ns.a, ns.a]"),
        DOUBLE.replace("START", "{}").replace("STEP", "{'a': ns.a, 'b': ns.a}"),
        DOUBLE.replace("START", "{}").replace("STEP", "dict(a=ns.a, b=ns.a)"),
        DOUBLE.replace("START", "7").replace("STEP", "ns.a * ns.a"),
        "{% set l = [1] %}{% for i in range(60) %}{{ l.extend(l) }}{% endfor %}",
        "{% set l = [] %}{{ l.append(l) }}{{ l }}",
    ],
)
def test_a_counter_ends_templates_that_take_too_much(source: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sandbox, "MAX_STEPS", sandbox.MAX_STEPS // 50)  # they are counted in less time
    with pytest.raises(TemplateLimitError) as raised:
        rendered(source)
    assert raised.value.reason


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("{{ raise_exception('Use other roles') }}", "Use other roles"),
        ("{% if %}", "line 1"),
        ("{{ messages.__class__.__mro__ }}", "unsafe"),
        ("{% include 'other' %}", "no loader"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "RecursionError"),
        ("{{" + "(" * 5000 + "1" + ")" * 5000 + "}}", "RecursionError"),
        ("{{ ('[' * 100000)|from_json }}", "RecursionError"),
        ("{{ strftime_now('%999999999d') }}", "date"),
        ("{{ lipsum() }}", "lipsum"),
        ("x" * (MAX_SOURCE + 1), "characters"),
    ],
)
def test_says_why_a_template_fails(source: str, reason: str) -> None:
    with pytest.raises(ToolFormatError, match=reason):
        rendered(source)


def test_long_conversations_stay_far_below_the_limits() -> None:
    messages = [{"role": "user", "content": json.dumps(list(range(200)))}] * 2000
    source = "{% for m in messages %}{{ m.role ~ ': ' ~ m.content|trim }}\n{% endfor %}"
    assert len(TemplateRenderer(source).render(messages)) > 1_000_000
