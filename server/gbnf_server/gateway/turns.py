"""Build the messages of a conversation from the parts in which APIs give it.

Chat templates expect one system message, which comes first, and turns of user and assistant that alternate.
So the system texts before the first turn are one message, later ones are part of a user's turn unless the API
has a role for them, and consecutive parts of one side are one message. Results of tools follow the
assistant's message with their calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from gbnf.prompts.messages import Image, Message
from gbnf_server.web.errors import invalid_request


@dataclass(slots=True)
class _GrowingMessage:
    """A message that grows. Its texts are joined at the end: else each part would copy those before it."""

    message: Message
    texts: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[Mapping[str, Any]] = field(default_factory=list)

    def whole(self) -> Message:
        """Return the message."""
        joined: Message = {**self.message, "content": _paragraphs(self.texts)}
        if self.reasoning:
            joined["reasoning_content"] = _paragraphs(self.reasoning)
        if self.calls:
            joined["tool_calls"] = self.calls
        return joined


class Turns:
    """Messages, part by part. `keeps_system`: whether system texts after the first turn keep their role."""

    def __init__(self, *, keeps_system: bool = False) -> None:
        self._keeps_system = keeps_system
        self._turns: list[_GrowingMessage] = []
        self._names: dict[str, str] = {}

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages so far."""
        return tuple(turn.whole() for turn in self._turns)

    def system(self, text: str) -> None:
        """Add instructions."""
        if self._turns and self._turns[-1].message["role"] != "system" and not self._keeps_system:
            self.user(text)
        else:
            self._joined("system").texts.append(text)

    def user(self, text: str, images: Sequence[Image] = ()) -> None:
        """Add a text of the user, with images."""
        turn = self._joined("user")
        turn.texts.append(text)
        if images:
            turn.message["images"] = [*turn.message.get("images", ()), *images]

    def reasoning(self, text: str) -> None:
        """Add reasoning of the model."""
        self._joined("assistant").reasoning.append(text)

    def assistant(self, text: str) -> None:
        """Add a text of the model."""
        self._joined("assistant").texts.append(text)

    def call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> None:
        """Add a call of the model. A later call with the same id takes the results after it."""
        self._names[call_id] = name
        function = {"name": name, "arguments": arguments}
        turn = self._joined("assistant")
        turn.calls.append({"id": call_id, "type": "function", "function": function})

    def result(
        self, call_id: str, text: str, images: Sequence[Image] = (), param: str = "", name: str | None = None
    ) -> None:
        """Add the result of a call. Raises HttpError if no call before it has the id at `param`, if given."""
        if param and call_id not in self._names:
            raise invalid_request(f"there is no call with the id {call_id!r} before this result.", param)
        message: Message = {"role": "tool", "content": "", "tool_call_id": call_id}
        if name := name or self._names.get(call_id):
            message["name"] = name
        self._turns.append(_GrowingMessage({**message, "images": images} if images else message, [text]))

    def _joined(self, role: str) -> _GrowingMessage:
        """Return the present turn of a role."""
        if not self._turns or self._turns[-1].message["role"] != role:
            self._turns.append(_GrowingMessage({"role": role, "content": ""}))
        return self._turns[-1]


def _paragraphs(texts: Sequence[str]) -> str:
    return "\n\n".join(text for text in texts if text)
