"""Answers that come in pieces: the lines of three wire formats, put together to what one answer would be.

    llama-server   data: {"content": "…", "stop": false}
    chat servers   data: {"choices": [{"delta": {"content": "…"}}]}, at the end data: [DONE]
    Ollama         {"message": {"content": "…"}, "done": false}

Each reader takes lines, gives each piece of text to a `ReasoningFilter`, and at the end has the whole: the object that
the server would have sent without a stream, so that both are read by the same code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from typing import Any

from gbnf_server.backends.base import Completion
from gbnf_server.backends.reasoning import KNOWN_REASONING_TAGS, ReasoningTags
from gbnf_server.backends.wire import SurrogateJoiner, abbreviate, message_text, parse_json, value_at
from gbnf_server.errors import BackendError

OnText = Callable[[str], None]


class ReasoningFilter:
    """Gives on the pieces of a text as they come, without the thoughts before it.

    `held`: a grammar holds the answer, and all of it is text. `open_tags`: the prompt has begun the thoughts.
    Else they are known by the marker that they begin with; what only its end shows to have been a thought
    (`thinking.unannounced`) has been given on by then. Else the pieces are what `split_reasoning` calls text.
    """

    def __init__(self, on_text: OnText, *, constrained: bool, open_tags: ReasoningTags | None = None) -> None:
        self._on_text, self._reasoning_tags = on_text, open_tags
        self._state = "text" if constrained else "start" if open_tags is None else "thinking"
        self._kept = ""
        self._said = False

    def feed(self, piece: str) -> None:
        if self._state == "text":
            self._emit(piece)
            return
        self._kept += piece
        if self._state == "start":
            self._begin()
        if self._state == "thinking":
            self._think()
        if self._state == "after":
            self._answer()

    def end(self, completion: Completion) -> Completion:
        """Give on what was held back; the completion, which was read from the whole text."""
        if self._state == "start":
            self._emit(self._kept)
        elif self._state == "after":
            assert self._reasoning_tags is not None
            self._emit(self._reasoning_tags.answer_text(self._kept))
        if not self._said:
            self._emit(completion.text)  # it came by another way, as what is taken back from thoughts
        return completion

    def _begin(self) -> None:
        bare = self._kept.lstrip()
        for each in KNOWN_REASONING_TAGS:
            if bare.startswith(each.begin):
                self._state, self._reasoning_tags = "thinking", each
                return
            if each.direct_answer_prefix and bare.startswith(each.direct_answer_prefix):
                self._state = "text"
                self._emit(bare.removeprefix(each.direct_answer_prefix))
                return
        if not any(
            sign.startswith(bare)
            for each in KNOWN_REASONING_TAGS
            for sign in (each.begin, each.direct_answer_prefix)
        ):
            self._state = "text"
            self._emit(self._kept)

    def _think(self) -> None:
        assert self._reasoning_tags is not None
        _, closed, after = self._kept.partition(self._reasoning_tags.end)
        if closed:
            self._state, self._kept = "after", after
        else:  # thoughts may be long, and only their end is looked for
            self._kept = self._kept[1 - len(self._reasoning_tags.end) :]

    def _answer(self) -> None:
        assert self._reasoning_tags is not None
        text = self._reasoning_tags.answer_text(self._kept)
        if text and not self._reasoning_tags.separator.startswith(
            text
        ):  # else it may yet become what stands between
            self._state = "text"
            self._emit(text)

    def _emit(self, piece: str) -> None:
        if piece:
            self._said = True
            self._on_text(piece)


class _EventStream(ABC):
    """Reads lines as the objects of a stream: server-sent events, or objects alone; then the whole.

    A server or a proxy that does not stream sends one object, on one line or many.
    """

    def __init__(self) -> None:
        self._others: list[str] = []

    def feed(self, line: str) -> None:
        """Raises BackendError where an event is no JSON object."""
        if not self._others:
            if line.startswith("data:"):
                data = line.removeprefix("data:").strip()
                if data not in {"", "[DONE]"}:
                    self._read(_object(data))
                return
            if not line.strip() or line.startswith(_SKIPPED):
                return
            if line.startswith("{"):
                try:
                    event = _object(line)
                except BackendError:
                    pass  # it may go on in the next line
                else:
                    self._read(event)
                    return
        self._others.append(line)

    def end(self) -> dict[str, Any]:
        """The object that the server would have sent without a stream; {} where its end is missing.

        Raises BackendError where lines are left that are neither events nor an object.
        """
        if self._others:
            self._read(_object("\n".join(self._others)))
        return self._whole()

    @abstractmethod
    def _read(self, event: dict[str, Any]) -> None: ...

    @abstractmethod
    def _whole(self) -> dict[str, Any]: ...


class _Message:
    """The texts of an answer, by key, as they come; that of `content` is given on."""

    def __init__(self, reasoning_filter: ReasoningFilter, max_tokens: int | None, *others: str) -> None:
        self._texts: dict[str, list[str]] = {key: [] for key in ("content", *others)}
        self._joined = {
            key: SurrogateJoiner(partial(self._add, key, reasoning_filter)) for key in self._texts
        }
        self._max_tokens = max_tokens
        self._pieces = self._characters = 0

    @property
    def is_empty(self) -> bool:
        return not any(self._texts.values())

    def feed(self, pieces: Any) -> None:
        """Take the pieces in an object that has some.

        Raises BackendError if the content is not a string or longer than the answer may be, MalformedText if
        it is not valid Unicode.
        """
        for key, joined in self._joined.items():
            piece = value_at(pieces, key)
            text = message_text(piece)
            if text is not None:
                self._count(text)
                joined.feed(text)
            elif piece is not None and key == "content":
                raise BackendError(f"the server sent {abbreviate(piece)} where a piece of text was to come")

    def end(self) -> dict[str, str]:
        for joined in self._joined.values():
            joined.end()
        return {key: "".join(texts) for key, texts in self._texts.items()}

    def _count(self, text: str) -> None:
        """Raise BackendError where a server goes on behind the last token.

        A piece is a token, or a part of one where something between cuts the text anew: so both have to be
        too many, the pieces and the characters.
        """
        self._pieces += bool(text)
        self._characters += len(text)
        most = self._max_tokens
        if most is not None and self._pieces > most and self._characters > _LONG_TOKEN * most:
            raise BackendError(
                f"the server did not stop after {most} tokens, which it was told to do. Update the server."
            )

    def _add(self, key: str, reasoning_filter: ReasoningFilter, text: str) -> None:
        self._texts[key].append(text)
        if key == "content":
            reasoning_filter.feed(text)


_LONG_TOKEN = 16
"""Characters of a token that is a long one; a text has hardly more of them for each of its tokens."""


class CompletionStream(_EventStream):
    """llama-server's `/completion`."""

    def __init__(self, reasoning_filter: ReasoningFilter, max_tokens: int | None = None) -> None:
        super().__init__()
        self._message = _Message(reasoning_filter, max_tokens)
        self._last: dict[str, Any] = {}

    def _read(self, event: dict[str, Any]) -> None:
        self._message.feed(event)
        if event.get("stop") or _tells_error(event):
            self._last = event

    def _whole(self) -> dict[str, Any]:
        texts = self._message.end()
        return {**self._last, **texts} if self._last else {}


class ChatStream(_EventStream):
    """`/v1/chat/completions`, with `stream_options` that ask for the usage at the end."""

    def __init__(self, reasoning_filter: ReasoningFilter, max_tokens: int | None = None) -> None:
        super().__init__()
        self._message = _Message(reasoning_filter, max_tokens, "reasoning_content", "reasoning")
        self._begun = False
        self._finish: Any = None
        self._usage: Any = None
        self._error: dict[str, Any] | None = None

    def _read(self, event: dict[str, Any]) -> None:
        if _tells_error(event):
            self._error = event
        self._usage = event.get("usage") or self._usage
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        pieces = choice.get("delta")
        if pieces is None and self._message.is_empty:
            pieces = choice.get("message")
        self._begun = self._begun or isinstance(pieces, dict)
        self._message.feed(pieces)
        self._finish = choice.get("finish_reason") or self._finish

    def _whole(self) -> dict[str, Any]:
        message = self._message.end()
        if self._error is not None:
            return self._error
        if not self._begun:
            return {}
        return {"choices": [{"message": message, "finish_reason": self._finish}], "usage": self._usage}


class OllamaStream(_EventStream):
    """Ollama's `/api/chat`."""

    def __init__(self, reasoning_filter: ReasoningFilter, max_tokens: int | None = None) -> None:
        super().__init__()
        self._message = _Message(reasoning_filter, max_tokens, "thinking")
        self._last: dict[str, Any] = {}

    def _read(self, event: dict[str, Any]) -> None:
        self._message.feed(event.get("message"))
        if event.get("done") is True or _tells_error(event):
            self._last = event

    def _whole(self) -> dict[str, Any]:
        message = self._message.end()
        return {**self._last, "message": message} if self._last else {}


_SKIPPED = (":", "event:", "id:", "retry:")
"""What begins the lines of server-sent events that hold no data."""


def _object(text: str) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise BackendError(f"the server sent {text[:200]!r} in its answer, which is no JSON object")
    return value


def _tells_error(event: dict[str, Any]) -> bool:
    return event.get("error") is not None
