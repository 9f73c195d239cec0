"""Conversations as a model's chat template takes them: roles, escapes, tools, reasoning. Pure.

Some templates refuse a role, and others drop its messages silently. So a template is probed with marked
messages (`PROBES`), and `adapt_messages` has a fallback for each role that it refuses or drops:

    system   its text becomes the beginning of the first user message (a template may move it to the last)
    tool     becomes a user message, "Result of step 2: {…}" or "Error in step 2: …"

Consecutive user messages are then joined, since such templates also require user and assistant to alternate.

Finally, the names of control tokens are escaped in every text of a message (calls and declared tools too),
whether it comes from a tool, a manifest, a person or the model: all backends send only messages that were
adapted here. The texts are changed, rather than tokenized apart from the template's own, because templates
trim, compare and split them, and because chat servers take no tokens.

A llama-server renders the adapted messages itself wherever its engine may differ from ours
(`template_copy`).
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gbnf.errors import ToolFormatError
from gbnf.prompts.control_tokens import Escape, escape_control_tokens
from gbnf.prompts.messages import Message
from gbnf.strict_json import map_texts
from gbnf.tool_formats import ToolFormat
from gbnf_server.backends.base import Request
from gbnf_server.backends.model_traits import ModelTraits
from gbnf_server.backends.reasoning import (
    ReasoningTags,
    append_reasoning,
    close_reasoning,
    split_reasoning_message,
)
from gbnf_server.system.errors import ChatTemplateError, ConversationRefusedError, RequestNotSupportedError

_SYSTEM, _USER, _ASSISTANT, _TOOL = (
    Message(role=role, content=f"7c1f-{role}") for role in ("system", "user", "assistant", "tool")
)
PROBES = ([_SYSTEM, _USER, _ASSISTANT, _USER], [_USER, _ASSISTANT, _TOOL], [_USER])
"""Conversations whose prompts tell which roles a template supports; see `read_roles`."""


@dataclass(frozen=True, slots=True)
class TemplateRoles:
    """Whether a chat template renders system and tool messages."""

    system: bool
    tool: bool


def read_roles(prompts: Sequence[str | ChatTemplateError | ToolFormatError]) -> TemplateRoles:
    """Return the roles that a template supports, by the prompts of `PROBES`, or what it refuses them with.

    A system message before the last message of the user would move with each, and with it all that a server
    has cached. Raises one of these errors if the template fails for a plain question.
    """
    first, second, plain = (prompt if isinstance(prompt, str) else "" for prompt in prompts)
    system = 0 <= first.find(_SYSTEM["content"]) < first.find(_USER["content"])
    roles = TemplateRoles(system, _TOOL["content"] in second)
    if not (roles.system or roles.tool) and _USER["content"] not in plain:
        error = prompts[2]
        raise ChatTemplateError("it leaves out user messages") if isinstance(error, str) else error
    return roles


def roles_of(render: Callable[[list[Message]], str]) -> TemplateRoles:
    """Return the roles of a template. Raises what `read_roles` does."""

    def attempt(messages: list[Message]) -> str | ChatTemplateError | ToolFormatError:
        try:
            return render(messages)
        except (ChatTemplateError, ToolFormatError) as error:
            return error

    return read_roles([*map(attempt, PROBES)])


def adapt_messages(
    messages: Sequence[Message], roles: TemplateRoles, escape: Escape = escape_control_tokens
) -> list[Message]:
    """Return the conversation in roles that the template supports, with control tokens' names escaped."""
    adapted = list(messages)
    if not roles.tool:
        adapted = [_as_user_message(turn) if turn["role"] == "tool" else turn for turn in adapted]
    if not roles.system:
        adapted = [{**turn, "role": "user"} if turn["role"] == "system" else turn for turn in adapted]
    if roles.system and roles.tool:
        return [_escaped(message, escape) for message in adapted]
    joined: list[Message] = []
    for message in adapted:
        if joined and message["role"] == joined[-1]["role"] == "user":
            joined[-1] = _joined(joined[-1], message)
        else:
            joined.append(message)
    return [_escaped(message, escape) for message in joined]


def _escaped(message: Message, escape: Escape) -> Message:
    texts = {key: value for key, value in message.items() if key not in _NO_TEXTS}
    return {**message, **map_texts(texts, escape)}


_NO_TEXTS = {"role", "images", "thinking"}


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


@dataclass(frozen=True, slots=True)
class Conversation:
    """A request as a template takes it. `tools`: the declared ones, in OpenAI's form.

    `tool_format`: that of the answer, None for plain text. `reasons`: whether the model is to reason.
    `variables`: more of the template.
    """

    messages: Sequence[Message]
    tools: Sequence[Mapping[str, Any]]
    tool_format: ToolFormat | None
    reasons: bool
    variables: Mapping[str, Any]
    _begun: Message | None
    _tags: ReasoningTags | None
    _is_whole_text: bool

    def render(self) -> str:
        """Return the prompt of an answer in the tool-call format. Raises ConversationRefusedError."""
        assert self.tool_format is not None
        texts, variables = (self.messages, self.tools), self.variables
        try:
            return self.finish(self.tool_format.prompt(*texts, reasoning=self.reasons, variables=variables))
        except ToolFormatError as error:
            raise ConversationRefusedError(error) from None

    def finish(self, prompt: str) -> str:
        """Return the rendered prompt with the reasoning that was begun, or without any if there is none."""
        if self._begun is not None and self._tags is not None:
            return append_reasoning(prompt, self._begun, self._tags)
        return close_reasoning(prompt) if self._is_whole_text and not (self.reasons or self.tools) else prompt


@dataclass(frozen=True, slots=True)
class TemplateRules:
    """What a chat template supports, and what is escaped for it."""

    roles: TemplateRoles
    escape: Escape
    traits: ModelTraits

    def conversation(self, request: Request) -> Conversation:
        """Return a request as the template takes it. Raises RequestNotSupportedError for tools without any.

        The model reasons if the request asks for it, or after a `reasoning_message`; otherwise an answer with
        a grammar has no reasoning.
        """
        if request.tool_choice is not None:
            raise RequestNotSupportedError("the backend", "tool_choice", "Declare the tools without it.")
        if request.tools and self.traits.tool_format is None:
            hint = "Describe them in a message."
            raise RequestNotSupportedError("the model's chat template", "tools", hint)
        roles = self.roles
        if request.tools and self.traits.tool_format is not None:  # the format says where results go
            roles = TemplateRoles(roles.system, self.traits.tool_format.result_role == "tool")
        messages, begun = split_reasoning_message(adapt_messages(request.messages, roles, self.escape))
        tags = None if begun is None else self.traits.reasoning_tags
        return Conversation(
            messages,
            map_texts(request.tools, self.escape),
            self.traits.tool_format if request.is_native else None,
            request.reasoning or tags is not None,
            map_texts(request.template_variables, self.escape),
            begun,
            tags,
            request.is_whole_text,
        )
