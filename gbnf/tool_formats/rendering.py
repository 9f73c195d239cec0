"""Prepare conversations for the chat template from which a format was derived, and end its prompts."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gbnf.schema.keywords import map_subschemas
from gbnf.schema_caches import schema_cache
from gbnf.tool_formats.format import FormatFields
from gbnf.tool_formats.probing import (
    Call,
    Prober,
    call_id,
    find_shape,
    message_of_calls,
    openai_call,
)
from gbnf.tool_formats.template import TemplateRenderer


def completed_tools(tools: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return declarations of tools in which every property has a description, and every object its others."""
    completed = []
    for tool in tools:
        function = {"description": "", **tool["function"]}
        if "parameters" in function:
            function["parameters"] = _completed(function["parameters"])
        completed.append({**tool, "function": function})
    return completed


def _completed(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    completed = map_subschemas({"description": "", **schema}, lambda _path, member: _completed(member))
    if schema.get("type") == "object" and not isinstance(schema.get("additionalProperties"), Mapping):
        completed["additionalProperties"] = {"type": "string"}
    return completed


def close_prompt(form: FormatFields, prompt: str, *, reasoning: bool) -> str:
    """Return a prompt that its template rendered, changed so that it ends where the format's answer begins.

    Reasoning that is not asked for is closed. What begins every call and every text is left to the answer.
    """
    prompt = prompt.removesuffix(prompted(form))
    tags = form.reasoning
    if tags is not None and not reasoning and tags.begin and prompt.rstrip().endswith(tags.begin):
        return prompt + tags.closing
    return prompt


@schema_cache(maxsize=64)
def prober_of(form: FormatFields) -> Prober:
    """Return what renders a format's template."""
    return find_shape(TemplateRenderer(form.template, bos_token=form.bos_token, eos_token=form.eos_token))


def prompted(form: FormatFields) -> str:
    """Return what begins every answer, and ends the template's own prompts: functionary's `>>>`."""
    lead = form.head[0]
    both = isinstance(lead, str) and not form.begin and lead and form.text.begin.startswith(lead)
    return str(lead) if both else ""


def numbered_id(form: FormatFields, name: str, index: int) -> str:
    """Return an identifier that the template accepts: the same one, or one made of a call's index."""
    return name if re.fullmatch(form.id_pattern, name) else call_id(index)


def adapt_conversation(form: FormatFields, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages with calls, identifiers and results as the format's template takes them."""
    shape = prober_of(form).shape
    adapted = []
    ids: dict[str, str] = {}
    names: dict[str, str] = {}
    for message in messages:
        taken = {key: value for key, value in message.items() if key not in ("images", "thinking")}
        if taken.get("tool_calls"):
            calls = []
            for call in taken["tool_calls"]:
                index, name = len(ids), call["function"]["name"]
                original = call.get("id") or f"call_{index + 1}"
                ids[original], names[original] = numbered_id(form, original, index), name
                with_id = Call(name, call["function"]["arguments"], ids[original])
                calls.append(openai_call(shape, with_id, index))
            taken["tool_calls"] = calls
            taken["content"] = taken.get("content") or shape.content
            taken = message_of_calls(shape, taken)
        elif taken["role"] == "tool":
            answered = taken.get("tool_call_id") or next(reversed(ids), "")
            taken = {
                "name": names.get(answered, ""),
                **taken,
                "tool_call_id": ids.get(answered) or numbered_id(form, answered, len(ids)),
                "role": form.result_role,
            }
        if "reasoning_content" in taken:
            taken |= {
                field: taken["reasoning_content"]
                for field in ("reasoning", "thinking", "thought")
                if f".{field}" in form.template or f"'{field}'" in form.template
            }
        adapted.append(taken)
    return adapted
