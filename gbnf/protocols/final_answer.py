"""The text of an answer that is still being written: its characters, as soon as they are certain. Pure."""

from __future__ import annotations

import json
import re

from gbnf.tool_formats import Delta, TextDelta
from gbnf.tools import FINAL_ANSWER

REASONING_KEY = "thought"
"""The property of a call that has reasoning, before the others."""

_HEAD = re.compile(
    rf'\s*\{{\s*(?:"{REASONING_KEY}"\s*:\s*"(?:[^"\\]|\\.)*"\s*,\s*)?"name"\s*:\s*"{FINAL_ANSWER.name}"'
    r'\s*,\s*"arguments"\s*:\s*\{\s*"message"\s*:\s*"'
)
_WHOLE = re.compile(
    r'(?:[^"\\]'
    r'|\\["\\/bfnrt]'
    r"|\\u(?![dD][89a-fA-F])[0-9a-fA-F]{4}"
    r"|\\u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2})*"
)
"""The complete characters of a JSON string."""
_CALL_LIKE = re.compile(r"\s*(?:\{|\[\s*\{|<\w)")
"""Plain text does not begin like that, but malformed calls do."""


def looks_like_call(text: str) -> bool:
    """Return whether a text begins like a call, malformed or not."""
    return _CALL_LIKE.match(text) is not None


class FinalAnswerText:
    """The message of a call of `final_answer` that is written as JSON; nothing of any other text."""

    def __init__(self) -> None:
        self._text = ""
        self._position: int | None = None

    def feed(self, chunk: str) -> list[Delta]:
        """Add the next characters; return those of the message."""
        self._text += chunk
        if self._position is None:
            # the head ends with a quote; without this test, each piece would match long reasoning again
            head = _HEAD.match(self._text) if '"' in chunk else None
            if head is None:
                return []
            self._position = head.end()
        whole = _WHOLE.match(self._text, self._position)
        assert whole is not None
        self._position = whole.end()
        answer: str = json.loads(f'"{whole[0]}"', strict=False)
        return [TextDelta(answer)] if answer else []

    def close(self, *, truncated: bool = False) -> list[Delta]:  # noqa: ARG002 - see AnswerReader
        """Return nothing: there is no rest."""
        return []


class SpokenText:
    """A text that is an answer, unless it begins like a call: then nothing of it is."""

    def __init__(self) -> None:
        self._text = ""
        self._is_call: bool | None = None

    def feed(self, chunk: str) -> list[Delta]:
        """Add the next characters; return those that are certain."""
        if self._is_call is None:
            self._text += chunk
            bare = self._text.lstrip()
            if not bare or bare.rstrip() in {"[", "<"}:
                return []
            self._is_call, chunk = looks_like_call(bare), self._text
        return [TextDelta(chunk)] if chunk and not self._is_call else []

    def close(self, *, truncated: bool = False) -> list[Delta]:  # noqa: ARG002 - see AnswerReader
        """Return nothing: a rest of blanks and a bracket is no answer."""
        return []


class Unread:
    """A text that is no part of an answer, such as reasoning before a call."""

    def feed(self, chunk: str) -> list[Delta]:  # noqa: ARG002 - see AnswerReader
        """Return nothing."""
        return []

    def close(self, *, truncated: bool = False) -> list[Delta]:  # noqa: ARG002 - see AnswerReader
        """Return nothing."""
        return []
