"""What the server needs of an API: one small object without I/O.

The server reads the body, calls `Api.parse` (in a thread, since the body may be large), waits for a free
place, has the engine answer the request of the `Reply`, feeds it the events, and sends what it returns.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Generic, Literal, TypeAlias, TypeVar

from gbnf.tool_formats import ArgumentsDelta, CallEnded, CallStarted, ReasoningDelta, TextDelta
from gbnf_server.gateway.answers import Enforcement, Finished, ReplyEvent, Started
from gbnf_server.gateway.chat import ChatRequest
from gbnf_server.llama.token_values import TokenLogprob
from gbnf_server.web.errors import HttpError
from gbnf_server.web.responses import COMMENT

ServerEvent: TypeAlias = dict[str, Any]
"""A server-sent event: its data, whose `type` is also its name."""

BlockKind: TypeAlias = Literal["text", "reasoning", "call"]

NOT_CONTINUED = "the last message as the beginning of the answer"
"""What has no effect if the last message is the assistant's: the answer is a new one."""
_ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}
_LONGEST_WARNING = 2000
"""Characters: clients limit the size of headers."""


def nothing(_size: int) -> None:
    """Reserve nothing."""


class Api(ABC):
    """One API: a path, and what is exchanged there. `parse_blocks`: `parse` may wait, or take long."""

    path: str
    parse_blocks = False

    @abstractmethod
    def parse(
        self, body: Mapping[str, Any], owner: str = "", reserve: Callable[[int], None] = nothing
    ) -> Reply:
        """Read the JSON of a request of `owner`, see `Access.check`. Raises HttpError.

        `reserve`: called before so many more bytes of memory are used; it may raise HttpError.
        """

    @abstractmethod
    def error(self, error: HttpError) -> dict[str, Any]:
        """Return the JSON of an error."""


class Reply(ABC):
    """A request, and its answer while it is made: collects the events, and writes them as the API does.

    If the request is streamed, `feed` returns server-sent events; otherwise `body` returns the answer.
    `keep_alive`: the event that says nothing, for a stream in which nothing happens. `ignored`: the paths of
    what in the request has no effect.
    """

    keep_alive = COMMENT

    def __init__(self, request: ChatRequest, ignored: Sequence[str] = ()) -> None:
        self.request, self.ignored = request, tuple(ignored)
        if request.messages[-1]["role"] == "assistant":
            self.ignored += (NOT_CONTINUED,)
        _ = request.content  # read in a thread if the body is large
        self._enforcement: Enforcement | None = None

    def blocks(self, event: ReplyEvent) -> bool:
        """Return whether to feed an event may wait, or take long, so that a thread does it."""
        return False

    @abstractmethod
    def feed(self, event: ReplyEvent) -> str:
        """Add an event. Return the text to send now: server-sent events, "" for none or if not streamed."""

    @abstractmethod
    def fail(self, error: HttpError) -> str:
        """Return the text that ends a stream that has begun, as the API reports an error in its midst."""

    @abstractmethod
    def body(self) -> dict[str, Any]:
        """Return the JSON of an answer that is not streamed, after its last event."""

    def headers(self) -> dict[str, str]:
        """Return more headers, before the first byte is sent: the enforcement, and what has no effect."""
        enforcement = self._enforced(self._enforcement or Enforcement())
        headers = {} if self._enforcement is None else {"x-gbnf": enforcement.header()}
        if enforcement.ignored:
            paths = f"without effect: {', '.join(enforcement.ignored)}".encode("ascii", "replace").decode()
            plain = (character if character.isprintable() else "?" for character in paths[:_LONGEST_WARNING])
            headers["x-gbnf-warning"] = "".join(plain)
        return headers

    def _enforced(self, enforcement: Enforcement) -> Enforcement:
        """Return the enforcement of an answer with what of the request has no effect in this API."""
        return replace(enforcement, ignored=(*self.ignored, *enforcement.ignored))


class Block(ABC):
    """A part of an answer with a place of its own: a text, reasoning, or a call.

    `is_complete`: whether it may end here, which a call may only with its arguments.
    """

    def __init__(self, kind: BlockKind, index: int) -> None:
        self.kind, self.index = kind, index
        self.pieces: list[str] = []
        self.is_complete = kind != "call"

    @property
    def text(self) -> str:
        """What the deltas so far join to."""
        return "".join(self.pieces)

    @abstractmethod
    def begin(self) -> Iterator[ServerEvent]:
        """Yield the events before the first delta."""

    @abstractmethod
    def delta(self, text: str) -> Iterator[ServerEvent]:
        """Yield the events of a delta."""


_Block = TypeVar("_Block", bound=Block)


class BlockReply(Reply, Generic[_Block]):
    """A reply whose answer is a list of blocks, one after another."""

    def __init__(self, request: ChatRequest, ignored: Sequence[str]) -> None:
        super().__init__(request, ignored)
        self._blocks: list[_Block] = []
        self._body: dict[str, Any] = {}

    def feed(self, event: ReplyEvent) -> str:
        """Add an event. Return the server-sent events to send now, "" if it is not streamed."""
        return self._written(self._events(event))

    def body(self) -> dict[str, Any]:
        """Return the JSON of the answer, after its last event."""
        return self._body

    def _events(self, event: ReplyEvent) -> Iterator[ServerEvent]:
        match event:
            case Started(enforcement=enforcement):
                self._enforcement = enforcement
                yield from self._begin(enforcement)
            case TextDelta(text) | ReasoningDelta(text):
                kind: BlockKind = "text" if isinstance(event, TextDelta) else "reasoning"
                if not self._blocks or self._blocks[-1].kind != kind:
                    yield from self._open(kind)
                yield from self._add(text)
            case CallStarted():
                yield from self._open("call", event)
            case ArgumentsDelta(json_text=text):
                yield from self._add(text)
            case CallEnded():
                self._blocks[-1].is_complete = True
            case Finished():
                yield from self._finish(event)

    def _open(self, kind: BlockKind, call: CallStarted | None = None) -> Iterator[ServerEvent]:
        yield from self._close()
        block = self._block(kind, len(self._blocks), call)
        self._blocks.append(block)
        yield from block.begin()

    def _add(self, text: str) -> Iterator[ServerEvent]:
        self._blocks[-1].pieces.append(text)
        return self._blocks[-1].delta(text)

    def _written(self, events: Iterable[ServerEvent]) -> str:
        """Return events as they are sent. They build the blocks, so they are made in any case."""
        written = list(events)
        if not self.request.stream:
            return ""
        return "".join(f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" for event in written)

    @abstractmethod
    def _block(self, kind: BlockKind, index: int, call: CallStarted | None) -> _Block:
        """Return a new block."""

    @abstractmethod
    def _begin(self, enforcement: Enforcement) -> Iterator[ServerEvent]:
        """Yield the events before the first block."""

    @abstractmethod
    def _close(self) -> Iterator[ServerEvent]:
        """Yield the events that end the last block, if it may end before another begins."""

    @abstractmethod
    def _finish(self, finished: Finished) -> Iterator[ServerEvent]:
        """Yield the events that end the answer, and set its JSON."""


def openai_error(error: HttpError) -> dict[str, Any]:
    """Return the JSON of an error, as both APIs of OpenAI write it."""
    kind = _ERROR_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "server_error")
    return {"error": {"message": error.message, "type": kind, "param": error.param, "code": error.code}}


def logprob_json(token: TokenLogprob) -> dict[str, Any]:
    """Return the log-probability of a token, as both APIs of OpenAI write it."""
    top = [_token(piece, logprob) for piece, logprob in token.top]
    return {**_token(token.token, token.logprob), "top_logprobs": top}


def _token(piece: bytes, logprob: float) -> dict[str, Any]:
    return {"token": piece.decode("utf-8", "replace"), "logprob": logprob, "bytes": [*piece]}
