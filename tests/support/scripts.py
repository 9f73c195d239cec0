"""A backend that says what a script has for each request: the n-th text once n calls were made."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from gbnf.prompts.messages import Message
from gbnf_server.backends.base import Completion, Timings, Usage
from gbnf_server.system.errors import BackendError, BackendUnreachableError
from support.backends import FakeBackend


class Script(FakeBackend):
    """`texts` by request. It counts how often it was asked, and the most that asked at a time.

    `lost_after`: after so many answers nobody answers any more, or `fault` is raised instead.
    """

    name = "script"

    def __init__(
        self,
        texts: Mapping[str, Sequence[str]],
        *,
        lost_after: int | None = None,
        fault: BackendError | None = None,
    ) -> None:
        self._fault = fault or BackendUnreachableError("nobody answers")
        self._texts, self.lost_after = texts, lost_after
        self.asked = self.together = self.most_together = 0

    def respond(self, messages: Sequence[Message], **_limits: Any) -> Completion:
        if self.lost_after is not None and self.asked >= self.lost_after:
            raise self._fault
        self.asked += 1
        query = next(message["content"] for message in messages if message["role"] == "user")
        made = sum(message["role"] == "assistant" for message in messages)
        return Completion(self._texts[query][made], "stop", Usage(10, 5))

    async def arespond(self, messages: Sequence[Message], **limits: Any) -> Completion:
        self.together += 1
        self.most_together = max(self.together, self.most_together)
        try:
            await asyncio.sleep(0.001)
            return self.respond(messages, **limits)
        finally:
            self.together -= 1


class Told(FakeBackend):
    """A backend that says its texts in turn, in every run anew, and then the last one again and again.

    `asked`: the query of each request. `lost_after`: after so many answers nobody answers any more, or
    `fault` is raised instead.
    """

    def __init__(self, *texts: str, lost_after: int | None = None, fault: BackendError | None = None) -> None:
        self._texts, self._lost_after = texts, lost_after
        self._fault = fault or BackendUnreachableError("the server is gone")
        self.asked: list[str] = []

    def respond(self, messages: Sequence[Message], **_limits: Any) -> Completion:
        if len(self.asked) == self._lost_after:
            raise self._fault
        self.asked.append(messages[1]["content"])
        said = sum(message["role"] == "assistant" for message in messages)
        text = self._texts[min(said, len(self._texts) - 1)]
        return Completion(text, "stop", Usage(100, 10, 50), Timings(0.01, 0.02))


HANDLE = "<handle>"
"""What stands in a script's text for the handle of a credential that it is told of later."""


class Copying(Script):
    """A script that copies the handle of a credential from what it has read. `read`: every message of all."""

    def __init__(self, texts: Mapping[str, Sequence[str]], *, lost_after: int | None = None) -> None:
        super().__init__(texts, lost_after=lost_after)
        self.read: list[str] = []

    def respond(self, messages: Sequence[Message], **limits: Any) -> Completion:
        contents = [message["content"] for message in messages]
        self.read += contents
        handles = re.findall(r"secret:[0-9a-f]{8,}", "\n".join(contents))
        completion = super().respond(messages, **limits)
        return replace(completion, text=completion.text.replace(HANDLE, handles[0] if handles else HANDLE))
