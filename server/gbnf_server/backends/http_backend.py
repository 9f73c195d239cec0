"""The common part of the HTTP backends: send a body, and yield the events of the answer as they arrive.

Answers are streamed in three wire formats:

    llama-server   data: {"content": "…", "stop": false}
    chat servers   data: {"choices": [{"delta": {"content": "…"}}]}, at the end data: [DONE]
    Ollama         {"message": {"content": "…"}, "done": false}

A parser of each takes lines, passes each piece of text to a `ReasoningSplitter`, and keeps what else the
server tells of the answer.
"""

from __future__ import annotations

import json
import reprlib
from abc import ABC, abstractmethod
from asyncio import timeout
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field, replace
from functools import cached_property
from json import JSONDecodeError
from time import monotonic
from typing import Any, ClassVar, TypeVar

import httpx

from gbnf.protocols.call_protocols import server_calls_text
from gbnf.protocols.protocol import AnswerFormat
from gbnf.protocols.readers import CALL_MARK
from gbnf.tool_formats import TextDelta
from gbnf_server.backends.answer import RequestBackend
from gbnf_server.backends.base import BackendEvent, Completion, Request, Usage
from gbnf_server.backends.http_client import HttpClient, HttpSession, RetryPolicy
from gbnf_server.backends.reasoning import ReasoningSplitter, ReasoningTags
from gbnf_server.backends.wire import (
    ENDED_EARLY,
    SurrogateJoiner,
    join_surrogates,
    message_text,
    parse_json,
    parse_logprobs,
    value_at,
)
from gbnf_server.llama.repetition import RepetitionDetector
from gbnf_server.system.errors import (
    AnswerTimeoutError,
    BackendError,
    BackendUnreachableError,
    GrammarRefusedError,
    RequestNotSupportedError,
)

_Value = TypeVar("_Value")
_LONG_TOKEN = 16
"""Characters of a long token; hardly any text has more per token on average."""
_PROBE_POLICY = RetryPolicy(timeout=10.0, retries=0, loading_timeout=0.0)
_SKIPPED = (":", "event:", "id:", "retry:")
"""Prefixes of lines of server-sent events without data."""


class HttpBackend(RequestBackend):
    """A backend whose model runs in a server. `_events` sends requests and parses the responses."""

    _http: HttpClient

    @cached_property
    def _prober(self) -> HttpClient:
        """A client that asks once, and does not wait long."""
        client = self._http
        return HttpClient(
            client.url, server_name="the server", api_key=client.api_key, retry_policy=_PROBE_POLICY
        )

    async def is_there(self) -> bool:
        """Return whether the server lists its models; see `Backend`."""
        async with self._prober.session() as session:
            return (await session.request("GET", "/v1/models")).status_code < 500

    async def count_tokens(self, request: Request) -> int:
        """Refuse: most servers count tokens only while they answer. Raises RequestNotSupportedError."""
        hint = "Use a llama-server, or a model in this process."
        raise RequestNotSupportedError("the server", "counting tokens", hint)

    def close(self) -> None:
        """Allow no further call. Idempotent."""
        self._http.close()

    async def _timed(self, request: Request, preparing: Awaitable[_Value]) -> tuple[_Value, Request]:
        """Return what a request needs first, and the request with the time that is left for its answer.

        Raises AnswerTimeoutError if there is none.
        """
        if request.timeout_s is None:
            return await preparing, request
        until = monotonic() + request.timeout_s
        try:
            async with timeout(request.timeout_s):
                value = await preparing
        except TimeoutError:
            raise AnswerTimeoutError(self._http.explain(httpx.ReadTimeout(""), request.timeout_s)) from None
        return value, replace(request, timeout_s=max(until - monotonic(), 0.0))

    @abstractmethod
    def _events(self, request: Request, session: HttpSession) -> AsyncGenerator[BackendEvent, None]: ...

    async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        """Yield the events of one answer; see `Backend`. Closing them closes the connection."""
        for name in ("trace", "evidence"):
            if getattr(request, name):
                raise RequestNotSupportedError("a model server", name, "Run the model in this process.")
        async with self._http.session() as session, aclosing(self._events(request, session)) as events:
            async for event in events:
                yield event


def schema_of(server: str, grammar: AnswerFormat) -> Mapping[str, Any]:
    """Return the JSON Schema for a server. Raises GrammarRefusedError if it is a grammar instead."""
    if not isinstance(grammar, Mapping):
        raise GrammarRefusedError(f"{server} takes a JSON Schema, not GBNF. Use gbnf.dialects.call_schema.")
    return grammar


async def stream_answer(
    session: HttpSession,
    path: str,
    body: dict[str, Any],
    request: Request,
    parser: type[EventStream],
    read: Callable[[httpx.Response, EventStream], Completion],
    open_tags: ReasoningTags | None = None,
) -> AsyncGenerator[BackendEvent, None]:
    """Send the body, and yield the events of the response. `open_tags`: see `ReasoningSplitter`.

    `read` returns a completion, without its text, reasoning and log-probabilities.
    """
    arrived: list[BackendEvent] = []
    splitter = ReasoningSplitter(arrived.append, open_tags, constrained=request.is_whole_text)
    stream = parser(splitter, request.max_tokens, reads_calls=request.tool_choice is not None)
    response = httpx.Response(200)
    sent = {**body, **parser.FIELDS}
    received = session.lines("POST", path, sent, tokens=request.max_tokens, timeout=request.timeout_s)
    async with aclosing(received):
        async for line in received:
            if isinstance(line, httpx.Response):
                response = line
                continue
            repeats = bool(stream.detector.repeated)
            stream.feed(line)
            for event in arrived:
                yield event
            arrived.clear()
            if repeats and line.strip():  # and this line did not end it
                break
    stream.end()
    is_broken_off = stream.detector.repeated and not stream.last
    if is_broken_off:
        completion = Completion("", "length", Usage(0, stream.pieces))
    else:
        logprobs = parse_logprobs(stream.logprobs, request.reported_logprobs)
        completion = replace(read(response, stream), logprobs=logprobs)
    reasoning, text = splitter.close()
    if calls := stream.calls_text():
        arrived.append(TextDelta(calls))
    completion = replace(completion, text=text + calls, reasoning=stream.reasoning or reasoning)
    if stream.detector.repeated and completion.finish_reason == "length":
        completion = replace(completion, shortened_at=len(completion.text), repeated=stream.detector.repeated)
    for event in arrived:
        yield event
    yield completion


@dataclass(slots=True)
class _CallPieces:
    """A call of a tool as far as it has come."""

    index: Any
    identifier: Any
    name: str
    arguments: list[str] = field(default_factory=list)


class EventStream(ABC):
    """Parses lines: server-sent events, or one object per line.

    A server or a proxy that does not stream sends one object, on one line or several. `last`: what the server
    tells of the whole answer, {} if it ended too early; `logprobs` and `pieces`: those that have come.
    `detector`: of what the text or the reasoning repeats without an end; what has arrived is then truncated.
    `reads_calls`: whether the server calls tools.
    """

    FIELDS: ClassVar[Mapping[str, Any]] = {"stream": True}
    """The fields of a request for a stream."""
    REASONING: ClassVar[tuple[str, ...]] = ()
    """The keys of the reasoning in a message; some servers send the same under two."""

    def __init__(
        self, splitter: ReasoningSplitter, max_tokens: int | None = None, *, reads_calls: bool = False
    ) -> None:
        self._splitter, self._max_tokens, self._reads_calls = splitter, max_tokens, reads_calls
        self._calls: list[_CallPieces] = []
        self._others: list[str] = []
        self._unreadable = ""  # a text that is not an object
        self._texts: dict[str, list[str]] = {key: [] for key in ("content", *self.REASONING)}
        self._joiners = {key: SurrogateJoiner() for key in self._texts}
        self._reasoning_key = ""
        self._is_done = self._has_deltas = False
        self.pieces = self._characters = 0
        self.detector = RepetitionDetector()
        self.last: dict[str, Any] = {}
        self.logprobs: list[Any] = []

    def feed(self, line: str) -> None:
        """Parse a line. Raises BackendError if an event before it is not a JSON object."""
        if self._unreadable:
            raise _not_an_object(self._unreadable)
        if not self._others:
            if line.startswith("data:"):
                data = line.removeprefix("data:").strip()
                self._is_done = data == "[DONE]"
                if data and not self._is_done:
                    self._read_last(data)
                return
            if not line.strip() or line.startswith(_SKIPPED):
                return
            if line.startswith("{"):
                event = _object(line)
                if event is not None:  # or it may continue on the next line
                    self._read(event)
                    return
        self._others.append(line)

    def end(self) -> None:
        """Parse the rest. Raises BackendError for lines that are neither events nor an object.

        It is a BackendUnreachableError if the answer ended within one.
        """
        if self._others:
            self._read_last("\n".join(self._others))
        if self._unreadable:
            is_cut = _is_beginning(self._unreadable)
            raise BackendUnreachableError(ENDED_EARLY) if is_cut else _not_an_object(self._unreadable)
        for joiner in self._joiners.values():
            joiner.end()

    def _read_last(self, text: str) -> None:
        """Parse an object that may be the last text: until another comes, it may just have been cut."""
        event = _object(text)
        if event is None:
            self._unreadable = text
        else:
            self._read(event)

    @property
    def reasoning(self) -> str:
        """The reasoning that the server has separated from the text."""
        return "".join(self._texts.get(self._reasoning_key, ()))

    def _add(self, message: Any) -> None:
        """Add the pieces of text in an object: the content, and the reasoning of the first key that comes.

        Raises BackendError if the content is not a string or too long, MalformedTextError if it is not valid
        Unicode.
        """
        for key, joiner in self._joiners.items():
            piece = value_at(message, key)
            text = message_text(piece)
            if text is None:
                if piece is not None and key == "content":
                    raise BackendError(f"the server sent {reprlib.repr(piece)} instead of text")
                continue
            self._count(text)
            if not (text := joiner.feed(text)):
                continue
            self._texts[key].append(text)
            if key == "content":
                text = text.replace(CALL_MARK, "\u241e") if self._reads_calls else text
                self.detector.feed(text)
                self._splitter.feed(text)
            else:
                self._reasoning_key = self._reasoning_key or key
                if key == self._reasoning_key:
                    self.detector.feed(text)
                    self._splitter.feed_reasoning(text)

    def calls_text(self) -> str:
        """Return the calls so far as text. Raises MalformedTextError."""
        calls = (
            (join_surrogates(call.name), join_surrogates("".join(call.arguments))) for call in self._calls
        )
        return server_calls_text(calls)

    def _add_calls(self, pieces: Any) -> None:
        """Add the pieces of calls in an object: each of the call with its index, unless the id is another."""
        for piece in pieces if self._reads_calls and isinstance(pieces, list) else ():
            index, identifier = value_at(piece, "index"), value_at(piece, "id")
            name, arguments = value_at(piece, "function", "name"), value_at(piece, "function", "arguments")
            is_numbered = isinstance(index, int)
            same = [call for call in self._calls if is_numbered and call.index == index]
            calls = same or ([] if name else self._calls)
            if not calls or (identifier and calls[-1].identifier not in (None, identifier)):
                calls = [_CallPieces(index, identifier, str(name or ""))]
                self._calls += calls
            if arguments is not None:
                text = arguments if isinstance(arguments, str) else json.dumps(arguments, ensure_ascii=False)
                self._count(text)
                self.detector.feed(text)
                calls[-1].arguments.append(text)

    def _count(self, text: str) -> None:
        """Raise BackendError if a server continues after `max_tokens`.

        A piece is a token, or a part of one if a proxy splits the text: so both the pieces and the characters
        have to be too many.
        """
        self.pieces += bool(text)
        self._characters += len(text)
        most = self._max_tokens
        if most is not None and self.pieces > most and self._characters > _LONG_TOKEN * most:
            raise BackendError(
                f"the server did not stop after {most} tokens as requested. Update the server."
            )

    def _add_logprobs(self, entries: Any) -> None:
        if isinstance(entries, list):
            self.logprobs += entries

    @abstractmethod
    def _read(self, event: dict[str, Any]) -> None: ...


class CompletionStream(EventStream):
    """llama-server's `/completion`."""

    def _read(self, event: dict[str, Any]) -> None:
        self._add(event)
        self._add_logprobs(event.get("completion_probabilities"))
        if event.get("stop") or _has_error(event):
            self.last = event


class ChatStream(EventStream):
    """`/v1/chat/completions`, with `stream_options` for the usage at the end."""

    FIELDS: ClassVar[Mapping[str, Any]] = {"stream": True, "stream_options": {"include_usage": True}}
    REASONING = ("reasoning_content", "reasoning")
    _TOLD = ("usage", "finish_reason", "stop_reason", "matched_stop")

    def end(self) -> None:
        """Parse the rest, and forget an answer whose end has not come."""
        super().end()
        if self._has_deltas and not (self._is_done or {"error", "finish_reason"} & set(self.last)):
            self.last = {}

    def _read(self, event: dict[str, Any]) -> None:
        if _has_error(event):
            self.last = event
        choices = event.get("choices")
        choice = choices[0] if isinstance(choices, list) and choices else None
        message = value_at(choice, "delta")
        self._has_deltas |= message is not None
        if message is None and isinstance(text := value_at(choice, "text"), str):  # of /v1/completions
            message = {"content": text}
        elif message is None and not any(self._texts.values()):
            message = value_at(choice, "message")
        self._add(message)
        self._add_calls(value_at(message, "tool_calls"))
        self._add_logprobs(value_at(choice, "logprobs", "content"))
        if isinstance(message, dict) or self.last:
            told = {**event, **(choice if isinstance(choice, dict) else {})}
            facts = {key: told[key] for key in self._TOLD if told.get(key)}
            self.last = {"usage": None, **self.last, **facts}


class OllamaStream(EventStream):
    """Ollama's `/api/chat`."""

    REASONING = ("thinking",)

    def _read(self, event: dict[str, Any]) -> None:
        self._add(event.get("message"))
        self._add_calls(value_at(event, "message", "tool_calls"))
        if event.get("done") is True or _has_error(event):
            self.last = event


def _object(text: str) -> dict[str, Any] | None:
    try:
        value = parse_json(text)
    except ValueError:
        return None
    return value if isinstance(value, dict) else None


def _is_beginning(text: str) -> bool:
    """Return whether a text may be the beginning of an event."""
    try:
        parse_json(text)
    except JSONDecodeError:
        return text.startswith("{") or "data:".startswith(text)
    except ValueError:  # it is whole, and nested too deeply
        pass
    return False


def _not_an_object(text: str) -> BackendError:
    return BackendError(f"the server sent {text[:200]!r} in its answer, which is not a JSON object")


def _has_error(event: dict[str, Any]) -> bool:
    return event.get("error") is not None
