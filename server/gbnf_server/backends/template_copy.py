"""A llama-server's chat template, rendered here as the server renders it: one request less for each call.

The server's engine differs from ours on one template in ten, and on some texts. So a prompt is rendered here
only if both engines have rendered the first prompt of its conversation alike, and messages of all its shapes,
wherever one was among `samples`; and if it contains nothing on which engines differ.
"""

from __future__ import annotations

import hashlib
import re
import string
from collections import OrderedDict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from gbnf.errors import ToolFormatError
from gbnf.prompts.messages import Message
from gbnf.tool_formats import TemplateRenderer
from gbnf_server.backends.base import Request

_MOST_KNOWN = 1000
_LARGEST = 2**53
"""The largest integer that every JSON library writes as it was."""
_TIMED = re.compile(r"strftime_now(?!\(['\"](?:%[YmdBby]|[ ,./-])*['\"]\))")
"""The use of a time that may be another one a moment later: not a date."""


@dataclass(frozen=True, slots=True)
class TemplateInput:
    """What a chat template renders: messages, declared tools, and its variables."""

    messages: Sequence[Mapping[str, Any]]
    variables: Mapping[str, Any]
    tools: Sequence[Any] = ()

    @property
    def begin(self) -> bytes:
        """A hash of what the prompts of a conversation begin with, and of the day, which may be in them."""
        roles = [message["role"] for message in self.messages]
        first = self.messages[: roles.index("user") + 1 if "user" in roles else len(roles)]
        given = (datetime.now().astimezone().date(), self.variables, self.tools, first)
        return hashlib.sha256(repr(given).encode("utf-8", "surrogatepass")).digest()

    @property
    def shapes(self) -> set[tuple[str, ...]]:
        """What of each message decides how a template treats it: its role, and which members it has."""
        case = repr((self.variables, bool(self.tools)))
        return {
            (case, message["role"], *sorted(key for key, value in message.items() if value))
            for message in self.messages
        }


class TemplateCopy:
    """The template of a server, as its `/props` describe it. `is_used`: whether prompts are rendered here."""

    def __init__(self, source: str, begin: str, end: str) -> None:
        self._begin, self._left_out = begin, ""
        self._known: OrderedDict[bytes, bool] = OrderedDict()
        self._shapes: set[tuple[str, ...]] = set()
        self._differing: set[tuple[str, ...]] = set()
        self._renderer = None
        if source and not _TIMED.search(source):
            with suppress(ToolFormatError):  # the server may render it all the same
                self._renderer = TemplateRenderer(source, bos_token=begin, eos_token=end)

    @property
    def is_used(self) -> bool:
        """See the class."""
        return self._renderer is not None

    def render(self, given: TemplateInput) -> str | None:
        """Return the prompt as the server would, None if only the server can."""
        is_known = self.is_used and self._known.get(given.begin) and self._shapes >= given.shapes
        return self._rendered(given) if is_known and _is_plain(given.messages) else None

    def compare(self, given: TemplateInput, prompt: str | None, *, is_sample: bool = False) -> None:
        """Remember whether the prompt of the server, None if it refuses, is the same here."""
        if self._renderer is None:
            return
        here, shapes = self._rendered(given), given.shapes
        if here is not None and prompt is not None and here.removeprefix(self._begin) == prompt:
            here, self._left_out = prompt, self._begin  # a server may put it before each prompt itself
        self._known[given.begin] = here == prompt
        if len(self._known) > _MOST_KNOWN:
            self._known.popitem(last=False)
        if here == prompt is not None:
            self._shapes |= shapes - self._differing
        elif here != prompt and is_sample:
            if shapes <= self._shapes:
                self._renderer = None
            self._differing |= shapes - self._shapes

    def _rendered(self, given: TemplateInput) -> str | None:
        assert self._renderer is not None
        try:
            text = self._renderer.render(given.messages, tools=given.tools, **given.variables)
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
        case bool() | None:
            return True
        case int():
            return abs(value) <= _LARGEST
        case _:
            return False


def samples(*, with_tools: bool) -> Iterator[Request]:
    """Yield conversations of each shape, of texts and arguments that engines may render in several ways."""
    odd = ' \n"It\'s" <b>\\è\x7f\u2028😀</b> {{ x }} \n'
    system, user, said, told = (
        Message(role=role, content=odd) for role in ("system", "user", "assistant", "tool")
    )
    arguments: dict[str, Any] = {
        "text": odd,
        "è": [3, -1, True, None, {}, [], ""],
        "object": {"of": {"b": "c", "a": False}},
    }
    function = {"name": "find", "arguments": arguments}
    ids = ("abcdefgh0", "abcdefgh1")
    calls = [{"id": each, "type": "function", "function": function} for each in ids]
    one, several = (Message(role="assistant", content="", tool_calls=made) for made in (calls[:1], calls))
    result, other = (Message(role="tool", content=odd, name="find", tool_call_id=each) for each in ids)
    schema = {"type": "object", "properties": {"text": {"type": "string", "description": odd}}}
    tool = {"type": "function", "function": {"name": "find", "description": odd, "parameters": schema}}
    for reasoning in (False, True):
        for messages in ([user, said, user], [system, user, said, user], [system, user, said, told, user]):
            yield Request(messages, reasoning=reasoning)
        called = [user, one, result, said, user], [system, user, several, result, other]
        reasoned = [user, Message(**{**one, "reasoning_content": odd}), result]
        for messages in (*called, reasoned) if with_tools else ():
            yield Request(messages, tools=[tool], reasoning=reasoning)
