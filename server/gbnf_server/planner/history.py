"""The messages of a step, in the call format of the run. Pure.

In native formats a call is an entry of `tool_calls`, and its outcome a message of the role "tool" with the
call's id; a text that is no call is answered by the user, since templates refuse an outcome without a call.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from gbnf.calls import ToolCall, render_tool_calls
from gbnf.prompts.messages import Message, call_text
from gbnf.tools import FINAL_ANSWER
from gbnf_server.planner import calls
from gbnf_server.planner.options import ResolvedOptions


def call_message(call: Mapping[str, Any], number: int, options: ResolvedOptions) -> Message:
    """Return the message of a call, or of the answer; `number` identifies it in the conversation."""
    if options.call_format == "native":
        if call["name"] == FINAL_ANSWER.name and not options.declares_answer:
            return {"role": "assistant", "content": call["arguments"]["message"]}
        function = {"name": call["name"], "arguments": dict(call["arguments"])}
        native = {"id": _call_id(number), "type": "function", "function": function}
        return {"role": "assistant", "content": "", "tool_calls": [native]}
    if options.call_format == "lines":
        text = render_tool_calls(ToolCall("", call["name"], dict(call["arguments"])), "yaml")
        return {"role": "assistant", "content": text}
    return {"role": "assistant", "content": call_text(call)}


def outcome_message(content: str, name: str, number: int, options: ResolvedOptions) -> Message:
    """Return the message of a call's result or error."""
    if options.call_format == "native":
        return {"role": "tool", "content": content, "tool_call_id": _call_id(number), "name": name}
    return {"role": "tool", "content": content}


def refused_messages(
    text: str, call: Mapping[str, Any] | None, error: str, number: int, options: ResolvedOptions
) -> tuple[Message, Message]:
    """Return the messages of a refused text, and of the error; `call` is the call in the text, if known."""
    if options.call_format != "native":
        return {"role": "assistant", "content": calls.clip(text)}, {"role": "tool", "content": error}
    if call is not None and call["name"] != FINAL_ANSWER.name:
        return call_message(call, number, options), outcome_message(error, call["name"], number, options)
    return {"role": "assistant", "content": calls.clip(text)}, {"role": "user", "content": error}


def message_size(message: Message) -> int:
    """Return the bytes of a message's texts and calls."""
    called = message.get("tool_calls")
    texts = message["content"] + (json.dumps(called, ensure_ascii=False) if called else "")
    return len(texts.encode("utf-8", "replace"))


def _call_id(number: int) -> str:
    return f"call{number:05d}"  # nine letters and digits, as Mistral's templates require
