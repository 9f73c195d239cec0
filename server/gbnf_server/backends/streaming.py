"""Parse streamed answers of three wire formats.

    llama-server   data: {"content": "…", "stop": false}
    chat servers   data: {"choices": [{"delta": {"content": "…"}}]}, at the end data: [DONE]
    Ollama         {"message": {"content": "…"}, "done": false}

Each parser takes lines, passes each piece of text to a `ReasoningFilter`, and returns at the end the object
that the server would have sent without streaming, so that both are parsed by the same code.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, ClassVar

from gbnf.tool_formats.cursor import Stripped
from gbnf_server.backends.base import Completion
from gbnf_server.backends.reasoning import KNOWN_REASONING_TAGS, ReasoningTags
from gbnf_server.backends.wire import SurrogateJoiner, abbreviate, message_text, parse_json, value_at
from gbnf_server.llama.repetition import RepetitionDetector
from gbnf_server.system.errors import BackendError

OnText = Callable[[str], None]


class ReasoningFilter:
    """Passes on the pieces of an answer's text as they arrive, and those of the reasoning before it.

    `constrained`: there is a grammar, so that all of the answer is text. `open_tags`: the tags of the
    reasoning that the prompt began. Otherwise its opening tag shows it; reasoning that only a closing tag
    shows (`find_unopened_end`) is passed on as text. In all other cases the pieces add up to the text and the
    reasoning of `split_reasoning`.
    """

    def __init__(
        self,
        on_text: OnText,
        on_reasoning: OnText,
        *,
        constrained: bool,
        open_tags: ReasoningTags | None = None,
    ) -> None:
        self._on_text, self._reasoning_tags = on_text, open_tags
        self._constrained = constrained
        self._think = Stripped(on_reasoning)
        self._is_opening = True  # the model may repeat the tag that the prompt ends with
        self._state = "text" if constrained else "start" if open_tags is None else "thinking"
        self._pending = ""
        self._has_emitted = False

    def feed(self, piece: str) -> None:
        """Add a piece of the answer."""
        if self._state == "text":
            self._emit(piece)
            return
        self._pending += piece
        if self._state == "start":
            self._begin()
        if self._state == "thinking":
            self._skip_reasoning()
        if self._state == "after":
            self._answer()

    def feed_reasoning(self, piece: str) -> None:
        """Add a piece of reasoning that the server itself has separated from the text."""
        if not self._constrained:  # otherwise it may be the text; see `reclaim`
            self._think(piece)

    def end(self, completion: Completion) -> Completion:
        """Pass on the rest. Returns the completion, which was parsed from the whole answer."""
        if self._state == "start":
            self._emit(self._pending)
        elif self._state == "thinking":
            assert self._reasoning_tags is not None
            self._think(self._pending.rstrip().removesuffix(self._reasoning_tags.closing))
        elif self._state == "after":
            assert self._reasoning_tags is not None
            self._emit(self._reasoning_tags.answer_text(self._pending))
        if not self._has_emitted:
            self._emit(completion.text)  # from another field, if the text was reclaimed from reasoning
        return completion

    def _begin(self) -> None:
        bare = self._pending.lstrip()
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
            self._emit(self._pending)

    def _skip_reasoning(self) -> None:
        assert self._reasoning_tags is not None
        if self._is_opening:
            bare = self._pending.lstrip()
            if len(bare) < len(self._reasoning_tags.begin) and self._reasoning_tags.begin.startswith(bare):
                return
            self._pending, self._is_opening = bare.removeprefix(self._reasoning_tags.begin), False
        before, closed, after = self._pending.partition(self._reasoning_tags.end)
        if closed:
            self._think(before)
            self._state, self._pending = "after", after
        else:  # its last characters may begin the closing tag
            certain = max(len(self._pending) - len(self._reasoning_tags.end) + 1, 0)
            self._think(self._pending[:certain])
            self._pending = self._pending[certain:]

    def _answer(self) -> None:
        assert self._reasoning_tags is not None
        text = self._reasoning_tags.answer_text(self._pending)
        if text and not self._reasoning_tags.separator.startswith(
            text
        ):  # otherwise it may become the separator
            self._state = "text"
            self._emit(text)

    def _emit(self, piece: str) -> None:
        if piece:
            self._has_emitted = True
            self._on_text(piece)


class EventStream(ABC):
    """Parses lines: server-sent events, or one object per line.

    A server or a proxy that does not stream sends one object, on one line or several.
    """

    FIELDS: ClassVar[Mapping[str, Any]] = {"stream": True}
    """The fields of a request for a stream."""
    REASONING: ClassVar[tuple[str, ...]] = ()
    """The keys of the reasoning in a message."""

    def __init__(self, reasoning_filter: ReasoningFilter, max_tokens: int | None = None) -> None:
        self._others: list[str] = []
        self._message = _Message(reasoning_filter, max_tokens, *self.REASONING)
        self._last: dict[str, Any] = {}
        self._logprobs: list[Any] = []

    def feed(self, line: str) -> None:
        """Parse a line. Raises BackendError if an event is not a JSON object."""
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
                    pass  # it may continue on the next line
                else:
                    self._read(event)
                    return
        self._others.append(line)

    def end(self) -> dict[str, Any]:
        """Return the object that the server would have sent without streaming; {} if the stream ended early.

        Raises BackendError for lines that are neither events nor an object.
        """
        if self._others:
            self._read(_object("\n".join(self._others)))
        return self._whole()

    @property
    def repeated(self) -> str:
        """What the text repeats without an end, "" if it does not. What has arrived of it is truncated."""
        return self._message.repeated

    def _add_logprobs(self, found: Any) -> None:
        if isinstance(found, list):
            self._logprobs += found

    @abstractmethod
    def _read(self, event: dict[str, Any]) -> None: ...

    @abstractmethod
    def _whole(self) -> dict[str, Any]: ...


class _Message:
    """The texts of an answer by key. `content`, and the first of the others that comes, are passed on."""

    def __init__(self, reasoning_filter: ReasoningFilter, max_tokens: int | None, *others: str) -> None:
        self._texts: dict[str, list[str]] = {key: [] for key in ("content", *others)}
        self._joined = {
            key: SurrogateJoiner(partial(self._add, key, reasoning_filter)) for key in self._texts
        }
        self._max_tokens = max_tokens
        self._reasoning_key: str | None = None  # some servers send the same under two keys
        self._pieces = self._characters = 0
        self._detector = RepetitionDetector()

    @property
    def repeated(self) -> str:
        """What the content repeats without an end, "" if it does not."""
        return self._detector.repeated

    @property
    def piece_count(self) -> int:
        """The number of pieces: about one per token."""
        return self._pieces

    @property
    def is_empty(self) -> bool:
        """Whether no text has arrived."""
        return not any(self._texts.values())

    def feed(self, pieces: Any) -> None:
        """Add the pieces in an object, if it has some.

        Raises BackendError if the content is not a string or too long, MalformedTextError if it is not valid
        Unicode.
        """
        for key, joined in self._joined.items():
            piece = value_at(pieces, key)
            text = message_text(piece)
            if text is not None:
                self._count(text)
                joined.feed(text)
            elif piece is not None and key == "content":
                raise BackendError(f"the server sent {abbreviate(piece)} instead of text")

    def end(self) -> dict[str, str]:
        """Return the whole texts."""
        for joined in self._joined.values():
            joined.end()
        return {key: "".join(texts) for key, texts in self._texts.items()}

    def _count(self, text: str) -> None:
        """Raise BackendError if a server continues after `max_tokens`.

        A piece is a token, or a part of one if a proxy splits the text: so both the pieces and the characters
        have to be too many.
        """
        self._pieces += bool(text)
        self._characters += len(text)
        most = self._max_tokens
        if most is not None and self._pieces > most and self._characters > _LONG_TOKEN * most:
            raise BackendError(
                f"the server did not stop after {most} tokens as requested. Update the server."
            )

    def _add(self, key: str, reasoning_filter: ReasoningFilter, text: str) -> None:
        self._texts[key].append(text)
        if key == "content":
            self._detector.feed(text)
            reasoning_filter.feed(text)
            return
        self._reasoning_key = self._reasoning_key or key
        if key == self._reasoning_key:
            reasoning_filter.feed_reasoning(text)


_LONG_TOKEN = 16
"""Characters of a long token; hardly any text has more per token on average."""


class CompletionStream(EventStream):
    """llama-server's `/completion`."""

    def _read(self, event: dict[str, Any]) -> None:
        self._message.feed(event)
        self._add_logprobs(event.get("completion_probabilities"))
        if event.get("stop") or _has_error(event):
            self._last = event

    def _whole(self) -> dict[str, Any]:
        texts: dict[str, Any] = {**self._message.end()}
        if self._logprobs:
            texts |= {"completion_probabilities": self._logprobs}
        if self.repeated and not self._last:
            return {"stop_type": "limit", "tokens_predicted": self._message.piece_count, **texts}
        return {**self._last, **texts} if self._last else {}


class ChatStream(EventStream):
    """`/v1/chat/completions`, with `stream_options` for the usage at the end."""

    FIELDS: ClassVar[Mapping[str, Any]] = {"stream": True, "stream_options": {"include_usage": True}}
    REASONING = ("reasoning_content", "reasoning")

    def __init__(self, reasoning_filter: ReasoningFilter, max_tokens: int | None = None) -> None:
        super().__init__(reasoning_filter, max_tokens)
        self._begun = False
        self._finish: Any = None
        self._stop_reason: Any = None
        self._usage: Any = None

    def _read(self, event: dict[str, Any]) -> None:
        if _has_error(event):
            self._last = event
        self._usage = event.get("usage") or self._usage
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        if not isinstance(choice, dict):
            return
        pieces = choice.get("delta")
        if pieces is None and isinstance(choice.get("text"), str):  # of /v1/completions
            pieces = {"content": choice["text"]}
        elif pieces is None and self._message.is_empty:
            pieces = choice.get("message")
        self._begun = self._begun or isinstance(pieces, dict)
        self._message.feed(pieces)
        self._add_logprobs(value_at(choice, "logprobs", "content"))
        self._stop_reason = choice.get("stop_reason") or choice.get("matched_stop") or self._stop_reason
        self._finish = choice.get("finish_reason") or self._finish

    def _whole(self) -> dict[str, Any]:
        message = self._message.end()
        if self._last:
            return self._last
        if not self._begun:
            return {}
        choice = {
            "message": message,
            "finish_reason": self._finish or ("length" if self.repeated else None),
            "stop_reason": self._stop_reason,
            "logprobs": {"content": self._logprobs},
        }
        return {"choices": [choice], "usage": self._usage}


class OllamaStream(EventStream):
    """Ollama's `/api/chat`."""

    REASONING = ("thinking",)

    def _read(self, event: dict[str, Any]) -> None:
        self._message.feed(event.get("message"))
        if event.get("done") is True or _has_error(event):
            self._last = event

    def _whole(self) -> dict[str, Any]:
        message = self._message.end()
        if self.repeated and not self._last:
            count = self._message.piece_count
            return {"done": True, "done_reason": "length", "eval_count": count, "message": message}
        return {**self._last, "message": message} if self._last else {}


_SKIPPED = (":", "event:", "id:", "retry:")
"""Prefixes of lines of server-sent events without data."""


def _object(text: str) -> dict[str, Any]:
    try:
        value = parse_json(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise BackendError(f"the server sent {text[:200]!r} in its answer, which is not a JSON object")
    return value


def _has_error(event: dict[str, Any]) -> bool:
    return event.get("error") is not None
