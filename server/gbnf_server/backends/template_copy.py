"""A llama-server's chat template, rendered here as the server renders it: one request less for each call.

The server's engine differs from ours on one template in ten, and on some texts. So a prompt is rendered here
only if both engines have rendered the first prompt of its conversation alike, and messages of all its shapes,
wherever one was among `samples`; and if it contains nothing on which engines differ.
"""

from __future__ import annotations

import re
import string
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gbnf.errors import ToolFormatError
from gbnf.prompts.messages import Message
from gbnf.tool_formats import TemplateRenderer
from gbnf_server.backends.base import Request

_MOST_KNOWN = 10_000
_TIMED = re.compile(r"strftime_now(?!\(['\"](?:%[YmdBby]|[ ,./-])*['\"]\))")
"""The use of a time that may be another one a moment later: not a date."""


@dataclass(frozen=True, slots=True)
class TemplateInput:
    """What a chat template renders: messages, declared tools, and its variables."""

    messages: Sequence[Mapping[str, Any]]
    variables: Mapping[str, Any]
    tools: Sequence[Any] = ()

    @property
    def begin(self) -> int:
        """A hash of what the prompts of a conversation begin with, and of the day, which may be in them."""
        roles = [message["role"] for message in self.messages]
        first = self.messages[: roles.index("user") + 1 if "user" in roles else None]
        return hash(repr((datetime.now().astimezone().date(), self.variables, self.tools, first)))

    @property
    def shapes(self) -> set[str]:
        """What of each message decides how a template treats it: its role, and which members it has."""
        case = self.variables, bool(self.tools)
        members = (sorted(key for key, value in turn.items() if value) for turn in self.messages)
        return {repr((case, turn["role"], kind)) for turn, kind in zip(self.messages, members, strict=True)}


class TemplateCopy:
    """The template of a server, as its `/props` describe it. `renderer`: None if it is of no use."""

    def __init__(self, source: str, begin: str, end: str) -> None:
        self.renderer: TemplateRenderer | None = None
        self._begin, self._left_out = begin, ""
        self._begun, self._alike, self._differing = set[int](), set[str](), set[str]()
        if source and not _TIMED.search(source):
            with suppress(ToolFormatError):  # the server may render it all the same
                self.renderer = TemplateRenderer(source, bos_token=begin, eos_token=end)

    def render(self, source: TemplateInput) -> str | None:
        """Return the prompt as the server would, None if only the server can."""
        is_known = source.begin in self._begun and source.shapes <= self._alike
        return self._rendered(source) if is_known and _is_plain(source.messages) else None

    def compare(self, source: TemplateInput, prompt: object, *, is_sample: bool = False) -> None:
        """Remember whether the prompt of the server, or what it refuses one with, is the same here."""
        here, shapes = self._rendered(source), source.shapes
        if here is not None and here.removeprefix(self._begin) == prompt:
            self._left_out = self._begin  # a server may put it before each prompt itself
            here = here.removeprefix(self._begin)
        if here == prompt:
            if len(self._begun) >= _MOST_KNOWN:
                self._begun.clear()
            self._begun.add(source.begin)
            self._alike |= shapes - self._differing
            return
        self._begun.discard(source.begin)
        if is_sample and (here is not None or isinstance(prompt, str)):
            self.renderer = None if shapes <= self._alike else self.renderer
            self._differing |= shapes - self._alike

    def _rendered(self, source: TemplateInput) -> str | None:
        if self.renderer is None:
            return None
        try:
            text = self.renderer.render(source.messages, tools=source.tools, **source.variables)
        except ToolFormatError:
            return None
        return text.removeprefix(self._left_out)


def _is_plain(value: Any) -> bool:
    """Return whether engines do not differ on a value: on fractions, and on what whitespace is."""
    match value:
        case str():
            return value.strip() == value.strip(string.whitespace)
        case Mapping():
            return all(map(_is_plain, value.values()))
        case list() | tuple():
            return all(map(_is_plain, value))
        case _:  # JSON libraries read a larger integer as a fraction
            return value is None or (isinstance(value, int) and abs(value) <= 2**53)


def samples(*, with_tools: bool) -> Iterator[Request]:
    """Yield conversations of each shape, of texts and arguments that engines may render in several ways."""
    odd = ' \n"It\'s" <b>\\è\x7f\u2028😀</b> {{ x }} \n'
    system, user, text, note = (
        Message(role=role, content=odd) for role in ("system", "user", "assistant", "tool")
    )
    listed: list[Any] = [3, -1, True, None, {}, [], ""]
    arguments: dict[str, Any] = {"text": odd, "è": listed, "object": {"of": {"b": "c", "a": False}}}
    ids, function = ("abcdefgh0", "abcdefgh1"), {"name": "find", "arguments": arguments}
    calls = [{"id": key, "type": "function", "function": function} for key in ids]
    call, several = (Message(role="assistant", content="", tool_calls=part) for part in (calls[:1], calls))
    result, other = (Message(role="tool", content=odd, name="find", tool_call_id=key) for key in ids)
    reasoned = Message(**{**call, "reasoning_content": odd})
    schema = {"type": "object", "properties": {"text": {"type": "string", "description": odd}}}
    tool = {"type": "function", "function": {"name": "find", "description": odd, "parameters": schema}}
    called = (
        [user, call, result, text, user],
        [system, user, several, result, other],
        [user, reasoned, result],
    )
    for reasoning in (False, True):
        for plain in ([user, text, user], [system, user, text, user], [system, user, text, note, user]):
            yield Request(plain, reasoning=reasoning)
        for native in called if with_tools else ():
            yield Request(native, tools=[tool], reasoning=reasoning)
