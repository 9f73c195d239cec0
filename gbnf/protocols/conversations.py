"""The conversation that a backend gets: the client's, or with the project's own description of tools.

With a model's native format, tools and calls go to its chat template as they are. Otherwise the system prompt
describes the tools (`gbnf.prompts`), and calls and results are written in their JSON form.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from hashlib import sha256
from typing import Any

from gbnf.prompts.descriptions import PromptStyle, describe_tool
from gbnf.prompts.messages import Message, call_text
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf.tools import Tool

_INSTRUCTIONS = (
    'To use a tool, answer with one JSON call on a line of its own: {"name": "tool", "arguments": {…}}, and '
    "nothing before or after it. Its result comes back as the next message. When no tool is needed, answer "
    "with plain text."
)


def tools_prompt(tools: Sequence[Tool], style: PromptStyle, *, required: bool = False) -> str:
    """Return the part of the system prompt that describes the tools; `required`: and demands a call."""
    shown = [describe_tool(tool, style, "en") for tool in tools]
    if style == "minimal":
        return "\n".join(["Tools:", *shown])
    demand = ["Your next answer must be a call."] if required else []
    return "\n\n".join([_INSTRUCTIONS, "Tools:", *shown, *demand])


def with_json_calls(messages: Sequence[Message], prompt: str) -> tuple[Message, ...]:
    """Return the conversation for a model without a format of its own; `prompt` describes the tools."""
    system = [message["content"] for message in messages if message["role"] == "system"]
    written = tuple(_written(message for message in messages if message["role"] != "system"))
    first = "\n\n".join(text for text in (prompt, *system) if text)
    return ({"role": "system", "content": first}, *written) if first else written


def _written(messages: Iterator[Message]) -> Iterator[Message]:
    step = 0
    steps: dict[str, int] = {}
    for message in messages:
        if message["role"] == "tool":
            number = steps.get(message.get("tool_call_id", ""), step)
            yield {**_bare(message), "content": call_text({"step": number, **_result(message["content"])})}
            continue
        calls = message.get("tool_calls", ())
        lines = [message["content"]] if message["content"] else []
        for call in calls:
            step += 1
            steps[str(call.get("id", ""))] = step
            lines.append(call_text(call["function"]))
        yield {**_bare(message), "content": "\n".join(lines)}


def _bare(message: Message) -> Message:
    bare: Message = {"role": message["role"], "content": message["content"]}
    if "images" in message:
        bare["images"] = message["images"]
    return bare


def _result(content: str) -> dict[str, Any]:
    """Return the text of a result as a member of a JSON object; JSON in it is not quoted again."""
    try:
        return {"result": parse_json(content)}
    except InvalidJsonError:
        return {"result": content}


def for_template(messages: Sequence[Message], pattern: str) -> tuple[Message, ...]:
    """Return the conversation for a chat template with tools: one system message, and ids that it accepts.

    `pattern`: that of ids. Many templates refuse a system message that is not the first.
    """
    accepts = re.compile(pattern)
    system = "\n\n".join(message["content"] for message in messages if message["role"] == "system")
    first: tuple[Message, ...] = ({"role": "system", "content": system},) if system else ()
    others = (message for message in messages if message["role"] != "system")
    return (*first, *(_with_fitting_id(message, accepts) for message in others))


def fitting_id(identifier: str, accepts: re.Pattern[str]) -> str:
    """Return an id that the template accepts, the same for the same id."""
    if accepts.fullmatch(identifier):
        return identifier
    return sha256(identifier.encode("utf-8", "replace")).hexdigest()[:9]  # what every template accepts


def _with_fitting_id(message: Message, accepts: re.Pattern[str]) -> Message:
    if "tool_call_id" in message:
        return {**message, "tool_call_id": fitting_id(message["tool_call_id"], accepts)}
    if "tool_calls" in message:
        calls = [_with_id(call, fitting_id(str(call["id"]), accepts)) for call in message["tool_calls"]]
        return {**message, "tool_calls": calls}
    return message


def _with_id(call: Mapping[str, Any], identifier: str) -> dict[str, Any]:
    return {**call, "id": identifier}
