"""Render prompts and answers through the chat template from which a format was derived."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from gbnf.calls.parsing.results import ToolCall
from gbnf.schema.keywords import map_subschemas
from gbnf.tool_formats.format import FormatFields
from gbnf.tool_formats.probing import (
    Call,
    Prober,
    call_id,
    find_shape,
    message_of_calls,
    openai_call,
    switches,
    without_reasoning,
)
from gbnf.tool_formats.sandbox import RefusedError
from gbnf.tool_formats.template import TemplateRenderer
from gbnf.work_limits import schema_cache


def render_prompt(
    form: FormatFields,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    *,
    reasoning: bool,
    variables: Mapping[str, Any],
) -> str:
    """Return a conversation up to where the answer begins; see `ToolFormat.prompt`."""
    prober = _prober(form.template, form.bos_token, form.eos_token)
    adapted = adapt_conversation(form, messages)

    def render(declared: Sequence[Mapping[str, Any]]) -> str:
        own = {**prober.extra_variables(declared), **switches(form.template, reasoning=reasoning)}
        return prober.renderer.render(adapted, tools=declared, **{**variables, **own})

    try:
        prompt = render(tools)
    except RefusedError:
        if not tools:
            raise
        prompt = render(completed_tools(tools))  # some templates read keywords that a schema may lack
    return close_prompt(form, prompt, reasoning=reasoning)


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
    prompt = prompt.removesuffix(_prompted(form))
    tags = form.reasoning
    if tags is not None and not reasoning and tags.begin and prompt.rstrip().endswith(tags.begin):
        return prompt + tags.closing
    return prompt


def render_calls(form: FormatFields, calls: Sequence[ToolCall]) -> str:
    """Return the text of an answer that consists of calls; see `ToolFormat.render`."""
    prober = _prober(form.template, form.bos_token, form.eos_token)
    given = [Call(call.name, call.arguments, _fitting_id(form, call.id, at)) for at, call in enumerate(calls)]
    answer = prober.answer(prober.assistant(given), [given[0].name])
    return _prompted(form) + without_reasoning(answer, form.reasoning).removesuffix(form.turn_end)


@schema_cache(maxsize=64)
def _prober(template: str, bos_token: str, eos_token: str) -> Prober:
    return find_shape(TemplateRenderer(template, bos_token=bos_token, eos_token=eos_token))


def _prompted(form: FormatFields) -> str:
    """Return what begins every answer, and ends the template's own prompts: functionary's `>>>`."""
    lead = form.head[0]
    both = isinstance(lead, str) and not form.begin and lead and form.text.begin.startswith(lead)
    return str(lead) if both else ""


def _fitting_id(form: FormatFields, name: str, index: int) -> str:
    """Return an identifier that the template accepts."""
    return name if re.fullmatch(form.id_pattern, name) else call_id(index)


def adapt_conversation(form: FormatFields, messages: Sequence[Mapping[str, Any]]) -> list[dict[str, Any]]:
    """Return messages with calls, identifiers and results as the format's template takes them."""
    prober = _prober(form.template, form.bos_token, form.eos_token)
    adapted = []
    ids: dict[str, str] = {}
    names: dict[str, str] = {}
    for message in messages:
        given = {key: value for key, value in message.items() if key not in ("images", "thinking")}
        if given.get("tool_calls"):
            calls = []
            for call in given["tool_calls"]:
                index, name = len(ids), call["function"]["name"]
                original = call.get("id") or f"call_{index + 1}"
                ids[original], names[original] = _fitting_id(form, original, index), name
                made = Call(name, call["function"]["arguments"], ids[original])
                calls.append(openai_call(prober.shape, made, index))
            given["tool_calls"] = calls
            given["content"] = given.get("content") or prober.shape.content
            given = message_of_calls(prober.shape, given)
        elif given["role"] == "tool":
            answered = given.get("tool_call_id") or next(reversed(ids), "")
            given = {
                "name": names.get(answered, ""),
                **given,
                "tool_call_id": ids.get(answered) or _fitting_id(form, answered, len(ids)),
                "role": form.result_role,
            }
        if "reasoning_content" in given:
            given |= {
                field: given["reasoning_content"]
                for field in ("reasoning", "thinking", "thought")
                if f".{field}" in form.template or f"'{field}'" in form.template
            }
        adapted.append(given)
    return adapted
