"""From a conversation to what a chat template takes: pure, the same for every backend.

Not every template knows every role, and some drop what they do not know without a word. So a template is
probed with marked messages (`probe_roles`), and for a role that it refuses or drops there is a fallback (`adapt_messages`):

    system   its text opens the first user message
    tool     it becomes a user message, "Result of step 2: {…}" or "Error in step 2: …"

Neighbouring user messages are then joined, since such templates also ask that user and assistant alternate.

Last, the names of control tokens are escaped in every message, whoever wrote it: a tool, a manifest, a person
or the model. Here the contents are final, and no backend sends any that did not come through here. The
contents themselves are changed, rather than tokenized apart from the template's text: templates trim, compare
and cut contents, so that nothing can be wrapped around them, and chat servers take no tokens.
"""

from __future__ import annotations

import json
from collections.abc import Generator, Sequence
from dataclasses import dataclass

from gbnf.prompts.control_tokens import Escape, escape_control_tokens
from gbnf.prompts.messages import Message
from gbnf_server.errors import ChatTemplateError

_SYSTEM, _USER, _ASSISTANT, _TOOL = "7c1f-system", "7c1f-user", "7c1f-assistant", "7c1f-tool"


@dataclass(frozen=True, slots=True)
class TemplateRoles:
    """Which of the roles beside user and assistant a chat template renders."""

    system: bool
    tool: bool


def probe_roles() -> Generator[list[Message], str, TemplateRoles]:
    """Find out which roles a template knows: yields conversations, is sent each one rendered.

    Throw ChatTemplateError in where the template refuses; the last one, for a plain question, comes out again.
    """
    user: Message = {"role": "user", "content": _USER}
    system = yield from _renders([{"role": "system", "content": _SYSTEM}, user], _SYSTEM)
    tool = yield from _renders(
        [user, {"role": "assistant", "content": _ASSISTANT}, {"role": "tool", "content": _TOOL}], _TOOL
    )
    if not (system or tool) and _USER not in (yield [user]):
        raise ChatTemplateError("it leaves out what the user says")
    return TemplateRoles(system, tool)


def _renders(messages: list[Message], mark: str) -> Generator[list[Message], str, bool]:
    try:
        return mark in (yield messages)
    except ChatTemplateError:
        return False


def adapt_messages(
    messages: Sequence[Message], roles: TemplateRoles, escape: Escape = escape_control_tokens
) -> list[Message]:
    """Return the same conversation in the roles that the template knows, without names of control tokens."""
    adapted = list(messages)
    if not roles.tool:
        adapted = [_as_user_message(message) if message["role"] == "tool" else message for message in adapted]
    if not roles.system:
        adapted = [
            {**message, "role": "user"} if message["role"] == "system" else message for message in adapted
        ]
    if not (roles.system and roles.tool):
        adapted = _alternating(adapted)
    return [{**message, "content": escape(message["content"])} for message in adapted]


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
