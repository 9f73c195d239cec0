"""The chat format of the model: marks, roles, and the template.

Beside the marks, the fixed pieces of a conversation (a tool's line in the prompt, the text between the values
of a call or of a result) are tokens of their own, so that a conversation has few tokens besides its content.
Invariants: a piece ends where a grammar leaves a choice, so that forced text has the same tokens as sampled
text.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

from gbnf.prompts.messages import system_prompt
from gbnf.tools import FINAL_ANSWER, load_manifests
from gbnf_server.system.folders import manifests_path

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

END, PAD = "<|end|>", "<|pad|>"
ROLES = ("system", "user", "assistant", "tool")
SPECIAL = (END, PAD, *(f"<|{role}|>" for role in ROLES))
CHAT_TEMPLATE = "".join(
    line.strip()
    for line in r"""
    {#- gbnf-planner-demo -#}
    {%- if tools -%}
        {{- '<|system|>' -}}
        {%- if messages[0].role == 'system' and messages[0].content -%}
            {{- messages[0].content + '\n\n' -}}
        {%- endif -%}
        {{- 'Tools:' -}}
        {%- for tool in tools -%}
            {%- set parameters = tool.function.parameters -%}
            {{- '\n' + tool.function.name + '(' -}}
            {%- for name in parameters.properties -%}
                {{- ('' if loop.first else ', ') + name -}}
                {{- '' if name in (parameters.required or []) else '?' -}}
            {%- endfor -%}
            {{- ')' -}}
        {%- endfor -%}
        {{- '<|end|>' -}}
    {%- endif -%}
    {%- for message in messages -%}
        {%- if message.tool_calls -%}
            {%- if message.tool_calls | length > 1 -%}
                {{- raise_exception('this model makes one call at a time') -}}
            {%- endif -%}
            {%- set call = message.tool_calls[0].function -%}
            {{- '<|assistant|>{"name": ' + call.name | tojson + ', "arguments": ' -}}
            {{- call.arguments if call.arguments is string else call.arguments | tojson -}}
            {{- '}<|end|>' -}}
        {%- elif not (tools and loop.first and message.role == 'system') -%}
            {{- '<|' + message.role + '|>' + (message.content or '') + '<|end|>' -}}
        {%- endif -%}
    {%- endfor -%}
    {%- if add_generation_prompt -%}
        {{- '<|assistant|>' -}}
    {%- endif -%}
    """.splitlines()
)
"""Renders declared tools, calls and results as the conversations of the training are written."""
_CALL = ('{"name": "', '", "arguments": {"', '", "arguments": {}}')
_BETWEEN = ('", "', '"], "', ', "', '"}, {"', '"}, "', '"}}], "')
_CLOSING = ("}}", '"}}', '"]}}', '"}]}}', '"}}]}}', '"]}}]}}', "]}}")
_RESULT = ('{"step": ', ', "result": {"', ', "error": "', 'entries": ["', 'entries": []', 'count": ')
_FIELDS = ('values": {"', 'sent_to": ["', 'file": "', 'date": "', 'time": "', 'weekday": "', 'value": ')


def conversation(turns: Iterable[tuple[str, str]]) -> str:
    """Return (role, content) turns as the chat template renders them."""
    return "".join(f"<|{role}|>{content}{END}" for role, content in turns)


@cache
def pieces() -> tuple[str, ...]:
    """Return the fixed pieces that are one token each, without the marks."""
    tools = [*load_manifests(manifests_path()), FINAL_ANSWER]
    head, *lines = system_prompt(tools, style="minimal").split("\n")
    found = [head, *(f"\n{line}" for line in lines), *(tool.name for tool in tools if "_" in tool.name)]
    found += [*_CALL, *_BETWEEN, *_CLOSING, *_RESULT, *_FIELDS]
    for tool in tools:
        found += _openings(tool.model_args())
    return tuple(dict.fromkeys(found))


def _openings(schema: Mapping[str, Any]) -> Iterator[str]:
    """Return the text from a property's name to its value, for every property of a schema, at any depth."""
    for name, inner in schema.get("properties", {}).items():
        items = inner.get("items", {})
        if inner.get("type") == "integer":
            yield f'{name}": '
        elif "properties" in inner:
            yield f'{name}": {{"'
            yield from _openings(inner)
        elif "properties" in items:
            yield f'{name}": [{{"'
            yield from _openings(items)
        else:
            yield f'{name}": ["' if inner.get("type") == "array" else f'{name}": "'
        yield from (value for value in inner.get("enum", ()) if "_" in value)
