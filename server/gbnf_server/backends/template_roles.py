"""Adapt conversations to the roles that a chat template supports. Pure, the same for every backend.

Some templates refuse a role, and others drop its messages silently. So a template is probed with marked
messages (`probe_roles`), and `adapt_messages` has a fallback for each role that it refuses or drops:

    system   its text becomes the beginning of the first user message
    tool     becomes a user message, "Result of step 2: {…}" or "Error in step 2: …"

Consecutive user messages are then joined, since such templates also require user and assistant to alternate.

Finally, the names of control tokens are escaped in every text of a message (calls and declared tools too),
whether it comes from a tool, a manifest, a person or the model: all backends send only messages that were
adapted here. The texts are changed, rather
than tokenized apart from the template's own, because templates trim, compare and split them, and because
chat servers take no tokens.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from gbnf.prompts.control_tokens import Escape, escape_control_tokens
from gbnf.prompts.messages import Message
from gbnf.tool_formats import ToolFormat
from gbnf_server.system.errors import ChatTemplateError

_SYSTEM, _USER, _ASSISTANT, _TOOL = "7c1f-system", "7c1f-user", "7c1f-assistant", "7c1f-tool"


@dataclass(frozen=True, slots=True)
class TemplateRoles:
    """Whether a chat template renders system and tool messages."""

    system: bool
    tool: bool


def probe_roles() -> Generator[list[Message], str, TemplateRoles]:
    """Find out which roles a template supports. Yields conversations; send the prompt of each.

    Throw in a ChatTemplateError if the template refuses one; it is raised again if that was a plain question.
    """
    user: Message = {"role": "user", "content": _USER}
    system = yield from _renders([{"role": "system", "content": _SYSTEM}, user], _SYSTEM)
    tool = yield from _renders(
        [user, {"role": "assistant", "content": _ASSISTANT}, {"role": "tool", "content": _TOOL}], _TOOL
    )
    if not (system or tool) and _USER not in (yield [user]):
        raise ChatTemplateError("it leaves out user messages")
    return TemplateRoles(system, tool)


def native_roles(roles: TemplateRoles, tool_format: ToolFormat | None) -> TemplateRoles:
    """Return the roles in a conversation with declared tools: the format says where results go."""
    return roles if tool_format is None else replace(roles, tool=tool_format.result_role == "tool")


def _renders(messages: list[Message], mark: str) -> Generator[list[Message], str, bool]:
    try:
        return mark in (yield messages)
    except ChatTemplateError:
        return False


def adapt_messages(
    messages: Sequence[Message], roles: TemplateRoles, escape: Escape = escape_control_tokens
) -> list[Message]:
    """Return the conversation in roles that the template supports, with control tokens' names escaped."""
    adapted = list(messages)
    if not roles.tool:
        adapted = [_as_user_message(message) if message["role"] == "tool" else message for message in adapted]
    if not roles.system:
        adapted = [
            {**message, "role": "user"} if message["role"] == "system" else message for message in adapted
        ]
    if not (roles.system and roles.tool):
        adapted = _alternating(adapted)
    return [_escaped(message, escape) for message in adapted]


def escape_texts(value: Any, escape: Escape) -> Any:
    """Return a JSON value with `escape` applied to each string and key in it."""
    match value:
        case str():
            return escape(value)
        case Mapping():
            return {escape(key): escape_texts(member, escape) for key, member in value.items()}
        case list() | tuple():
            return [escape_texts(member, escape) for member in value]
        case _:
            return value


def _escaped(message: Message, escape: Escape) -> Message:
    texts = {key: value for key, value in message.items() if key not in _NO_TEXTS}
    return {**message, **escape_texts(texts, escape)}


_NO_TEXTS = {"role", "images", "thinking"}


def _alternating(messages: Sequence[Message]) -> list[Message]:
    joined: list[Message] = []
    for message in messages:
        if joined and message["role"] == joined[-1]["role"] == "user":
            joined[-1] = _joined(joined[-1], message)
        else:
            joined.append(message)
    return joined


def _joined(first: Message, second: Message) -> Message:
    joined: Message = {"role": first["role"], "content": f"{first['content']}\n\n{second['content']}"}
    images = [*first.get("images", ()), *second.get("images", ())]
    return {**joined, "images": images} if images else joined


def _as_user_message(message: Message) -> Message:
    content = message["content"]
    try:
        value = json.loads(content)
    except ValueError:
        value = None
    match value:
        case {"step": step, "error": str(error)}:
            content = f"Error in step {step}: {error}"
        case {"step": step, "result": result}:
            content = f"Result of step {step}: {json.dumps(result, ensure_ascii=False)}"
        case _:
            content = f"Result: {content}"
    return {"role": "user", "content": content}
