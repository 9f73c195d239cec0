"""Answers that come in pieces: the lines of three wire formats, put together to what one answer would be.

    llama-server   data: {"content": "…", "stop": false}
    chat servers   data: {"choices": [{"delta": {"content": "…"}}]}, at the end data: [DONE]
    Ollama         {"message": {"content": "…"}, "done": false}

Each reader takes lines, gives each piece of text to a `Spoken`, and has the whole as `answer`: the object
that the server would have sent without a stream, so that both are read by the same code.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from gbnf_server.backends.base import Completion
from gbnf_server.backends.thinking import KNOWN, Markers

OnText = Callable[[str], None]


class Spoken:
    """Gives on the pieces of a text as they come, without the thoughts before it.

    `held`: a grammar holds the answer, and all of it is text. `opened`: the prompt has begun the thoughts.
    Else they are known by the marker that they begin with; what only turns out later to have been a thought
    has been given on, and stays text.
    """

    def __init__(self, on_text: OnText, *, held: bool, opened: Markers | None = None) -> None:
        self._on_text, self._markers = on_text, opened
        self._state = "text" if held else "start" if opened is None else "thinking"
        self._kept = ""
        self.text = self.reasoning = ""

    def feed(self, piece: str) -> None:
        if self._state == "text":
            self._say(piece)
            return
        self._kept += piece
        if self._state == "start":
            self._begin()
        if self._state == "thinking":
            self._think()
        if self._state == "after":
            self._answer()

    def end(self, completion: Completion) -> Completion:
        """The completion, with text and thoughts as they were given on."""
        kept, self._kept = self._kept, ""
        if self._state == "start":
            self._say(kept)
        elif self._state == "thinking":
            self.reasoning = kept.strip()
        if not self.text and completion.text and completion.text != self.reasoning:
            self._say(completion.text)
        return replace(completion, text=self.text, reasoning=completion.reasoning or self.reasoning)

    def _begin(self) -> None:
        bare = self._kept.lstrip()
        for each in KNOWN:
            opening, final = each.opening.strip(), each.answering.removeprefix(each.generation)
            if bare.startswith(opening):
                self._state, self._markers, self._kept = "thinking", each, bare.removeprefix(opening)
                return
            if each.generation and bare.startswith(final):
                self._state, self._kept = "text", ""
                self._say(bare.removeprefix(final))
                return
            if opening.startswith(bare) or (each.generation and final.startswith(bare)):
                return  # it may yet become one
        self._state, kept, self._kept = "text", self._kept, ""
        self._say(kept)

    def _think(self) -> None:
        assert self._markers is not None
        before, closed, after = self._kept.partition(self._markers.closing)
        if closed:
            self._state, self._kept, self.reasoning = "after", after, before.strip()

    def _answer(self) -> None:
        assert self._markers is not None
        bare, answering = self._kept.lstrip(), self._markers.answering.strip()
        if bare.startswith(answering):
            bare = bare.removeprefix(answering).lstrip()
        elif answering.startswith(bare):
            return
        if bare:
            self._state, self._kept = "text", ""
            self._say(bare)

    def _say(self, piece: str) -> None:
        if piece:
            self.text += piece
            self._on_text(piece)


class CompletionLines:
    """llama-server's `/completion`."""

    def __init__(self, spoken: Spoken) -> None:
        self._spoken, self._text = spoken, ""
        self.answer: dict[str, Any] = {}

    def feed(self, line: str) -> None:
        event = _data(line)
        if event is None:
            return
        piece = event.get("content")
        if isinstance(piece, str):
            self._text += piece
            self._spoken.feed(piece)
        if event.get("stop") or "error" in event:
            self.answer = event if "error" in event else {**event, "content": self._text}


class ChatLines:
    """`/v1/chat/completions`, with `stream_options` that ask for the usage at the end."""

    def __init__(self, spoken: Spoken) -> None:
        self._spoken = spoken
        self._begun = False
        self._message: dict[str, str] = {}
        self._finish: str | None = None
        self._usage: dict[str, Any] = {}
        self._error: dict[str, Any] | None = None

    def feed(self, line: str) -> None:
        event = _data(line)
        if event is None:
            return
        if "error" in event:
            self._error = event
        if isinstance(event.get("usage"), dict):
            self._usage = event["usage"]
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        self._begun = True
        delta = choice.get("delta")
        for key, piece in (delta if isinstance(delta, dict) else {}).items():
            if key in {"content", "reasoning_content", "reasoning"} and isinstance(piece, str):
                self._message[key] = self._message.get(key, "") + piece
                if key == "content":
                    self._spoken.feed(piece)
        self._finish = choice.get("finish_reason") or self._finish

    @property
    def answer(self) -> dict[str, Any]:
        if self._error is not None:
            return self._error
        if not self._begun:
            return {}
        return {
            "choices": [{"message": self._message, "finish_reason": self._finish}],
            "usage": self._usage,
        }


class OllamaLines:
    """Ollama's `/api/chat`."""

    def __init__(self, spoken: Spoken) -> None:
        self._spoken = spoken
        self._message = {"content": "", "thinking": ""}
        self.answer: dict[str, Any] = {}

    def feed(self, line: str) -> None:
        event = _object(line)
        if event is None:
            return
        message = event.get("message")
        for key in self._message:
            piece = message.get(key) if isinstance(message, dict) else None
            if isinstance(piece, str):
                self._message[key] += piece
                if key == "content":
                    self._spoken.feed(piece)
        if event.get("done") is True or "error" in event:
            self.answer = event if "error" in event else {**event, "message": self._message}


def _data(line: str) -> dict[str, Any] | None:
    """The object of a line of server-sent events; None for other lines, and for the one that ends them."""
    return _object(line.removeprefix("data:")) if line.startswith(("data:", "{")) else None


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = json.loads(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
