"""Build the messages of a conversation from the parts in which APIs give it.

Chat templates expect one system message, which comes first, and turns of user and assistant that alternate.
So the system texts before the first turn are one message, later ones are part of a user's turn, and
consecutive parts of one side are one message. Results of tools follow the assistant's message with their
calls.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gbnf.prompts.messages import Image, Message
from gbnf_server.web.errors import invalid_request


class Turns:
    """Messages, part by part."""

    def __init__(self) -> None:
        self._messages: list[Message] = []
        self._names: dict[str, str] = {}

    @property
    def messages(self) -> tuple[Message, ...]:
        """The messages so far."""
        return tuple(self._messages)

    def system(self, text: str) -> None:
        """Add instructions."""
        if self._messages and self._last_role() != "system":
            self.user(text)
        else:
            self._joined("system", text)

    def user(self, text: str, images: Sequence[Image] = ()) -> None:
        """Add a text of the user, with images."""
        message = self._joined("user", text)
        if images:
            message["images"] = [*message.get("images", ()), *images]

    def reasoning(self, text: str) -> None:
        """Add reasoning of the model."""
        message = self._joined("assistant", "")
        message["reasoning_content"] = _paragraphs(message.get("reasoning_content", ""), text)

    def assistant(self, text: str) -> None:
        """Add a text of the model."""
        self._joined("assistant", text)

    def call(self, call_id: str, name: str, arguments: Mapping[str, Any]) -> None:
        """Add a call of the model. A later call with the same id takes the results after it."""
        self._names[call_id] = name
        message = self._joined("assistant", "")
        function = {"name": name, "arguments": arguments}
        call = {"id": call_id, "type": "function", "function": function}
        message["tool_calls"] = [*message.get("tool_calls", ()), call]

    def result(
        self, call_id: str, text: str, images: Sequence[Image] = (), param: str = "", name: str | None = None
    ) -> None:
        """Add the result of a call. Raises HttpError if no call before it has the id at `param`, if given."""
        if param and call_id not in self._names:
            raise invalid_request(f"there is no call with the id {call_id!r} before this result.", param)
        message: Message = {"role": "tool", "content": text, "tool_call_id": call_id}
        if name := name or self._names.get(call_id):
            message["name"] = name
        self._messages.append({**message, "images": images} if images else message)

    def _last_role(self) -> str | None:
        return self._messages[-1]["role"] if self._messages else None

    def _joined(self, role: str, text: str) -> Message:
        """Return the message of the present turn, with the text added."""
        if self._last_role() == role:
            self._messages[-1]["content"] = _paragraphs(self._messages[-1]["content"], text)
        else:
            self._messages.append({"role": role, "content": text})
        return self._messages[-1]


def _paragraphs(first: str, second: str) -> str:
    return f"{first}\n\n{second}" if first and second else first or second
