"""The answer in a call that is still being generated: its characters, as soon as they are certain. Pure."""

from __future__ import annotations

import json
import re

from gbnf.tool_formats import TextDelta, ToolFormat
from gbnf.tools import FINAL_ANSWER
from gbnf_server.planner.events import Purpose
from gbnf_server.planner.reasoning import REASONING_KEY
from gbnf_server.planner.salvaging import looks_like_call

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


class PartialAnswer:
    """Extracts the answer from a model's text, piece by piece.

    `answer_format`: the tool-call format in which a text is the answer; it may also precede a call.
    `reasoning`: the template is asked for reasoning, which comes first.
    """

    def __init__(
        self, purpose: Purpose, answer_format: ToolFormat | None = None, *, reasoning: bool = False
    ) -> None:
        self._purpose = purpose
        self._deltas = None if answer_format is None else answer_format.stream((), reasoning=reasoning)
        self._text = ""
        self._position: int | None = None

    def feed(self, piece: str) -> str:
        """Return the new characters of the answer, "" for any other text."""
        match self._purpose:
            case "salvage":
                return self._speak(piece)
            case "thought":
                return ""
            case "call" if self._deltas is not None:
                return "".join(each.text for each in self._deltas.feed(piece) if isinstance(each, TextDelta))
            case "call":
                return self._read(piece)

    def _speak(self, piece: str) -> str:
        """Return plain text; nothing of a text that begins like a call."""
        if self._position is not None:
            return piece if self._position == 0 else ""
        self._text += piece
        bare = self._text.lstrip()
        if not bare or bare.rstrip() in {"[", "<"}:
            return ""
        self._position = -1 if looks_like_call(bare) else 0
        return self._text if self._position == 0 else ""

    def _read(self, piece: str) -> str:
        self._text += piece
        if self._position is None:
            # the head ends with a quote; without this test, each piece would match long reasoning again
            head = _HEAD.match(self._text) if '"' in piece else None
            if head is None:
                return ""
            self._position = head.end()
        whole = _WHOLE.match(self._text, self._position)
        assert whole is not None
        self._position = whole.end()
        answer: str = json.loads(f'"{whole[0]}"', strict=False)
        return answer
