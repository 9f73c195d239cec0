"""One message while it is made: events of an answer to content blocks, and to server-sent events.

A call that the limit of tokens truncated has no `content_block_stop`; without streaming, it is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from gbnf_server.gateway.answers import (
    AnswerEvent,
    ArgumentsDelta,
    CallEnded,
    CallStarted,
    Finished,
    ReasoningDelta,
    Receipt,
    Started,
    TextDelta,
    Usage,
)
from gbnf_server.gateway.anthropic_messages.request import THREAD_REFUSED
from gbnf_server.gateway.chat import ChatRequest
from gbnf_server.gateway.reply_headers import reply_headers
from gbnf_server.web.errors import HttpError

Event: TypeAlias = dict[str, Any]

_SIGNATURE = "gbnf"
"""The signature of reasoning: clients leave out reasoning without one."""

_STOP_REASONS = {"stop": "end_turn", "length": "max_tokens", "tool_calls": "tool_use"}

_ERROR_TYPES = {
    401: "authentication_error",
    403: "permission_error",
    404: "not_found_error",
    429: "rate_limit_error",
    503: "overloaded_error",
    504: "timeout_error",
    529: "overloaded_error",
}


class MessagesReply:
    """A message while it is made."""

    keep_alive = 'event: ping\ndata: {"type": "ping"}\n\n'

    def __init__(self, request: ChatRequest, ignored: Sequence[str], message_id: str) -> None:
        self.request = request
        self._ignored, self._id = ignored, message_id
        self._receipt: Receipt | None = None
        self._blocks: list[_Block] = []
        self._body: dict[str, Any] = {}

    def headers(self) -> Mapping[str, str]:
        """Return the header of the receipt, and the one that lists what has no effect."""
        return reply_headers(self._receipt, self._ignored)

    def feed(self, event: AnswerEvent) -> str:
        """Add an event. Return the server-sent events to send now, "" if it is not streamed."""
        return self._send(self._events(event))

    def fail(self, error: HttpError) -> str:
        """Return the event that ends a stream."""
        return self._send([error_body(error)])

    def body(self) -> dict[str, Any]:
        """Return the message, after its last event."""
        return self._body

    def _events(self, event: AnswerEvent) -> Iterator[Event]:
        match event:
            case Started(receipt=receipt):
                self._receipt = receipt
                message = self._message([], None, None, _usage(Usage(0, 0)), receipt)
                yield {"type": "message_start", "message": message}
            case TextDelta(text=text):
                yield from self._delta("text", text)
            case ReasoningDelta(text=text):
                yield from self._delta("thinking", text)
            case CallStarted(id=call_id, name=name):
                yield from self._close()
                yield from self._open(_Block(len(self._blocks), "tool_use", call_id, name))
            case ArgumentsDelta(json_text=text):
                yield self._blocks[-1].add(text)
            case CallEnded():
                self._blocks[-1].complete = True
            case Finished():
                yield from self._finish(event)

    def _delta(self, kind: Literal["text", "thinking"], text: str) -> Iterator[Event]:
        if not self._blocks or self._blocks[-1].kind != kind:
            yield from self._close()
            yield from self._open(_Block(len(self._blocks), kind))
        yield self._blocks[-1].add(text)

    def _open(self, block: _Block) -> Iterator[Event]:
        self._blocks.append(block)
        yield block.begin()

    def _close(self) -> Iterator[Event]:
        """End the last block, unless it is a truncated call."""
        if self._blocks and self._blocks[-1].complete:
            yield from self._blocks[-1].end()

    def _finish(self, finished: Finished) -> Iterator[Event]:
        yield from self._close()
        truncated = finished.reason == "length"
        reason = "stop_sequence" if finished.stop_string is not None else _STOP_REASONS[finished.reason]
        content = [
            block.content()
            for block in self._blocks
            if block.kind != "tool_use" or (block.complete and not truncated)
        ]
        usage = _usage(finished.usage)
        self._body = self._message(content, reason, finished.stop_string, usage, finished.receipt)
        delta = {"stop_reason": reason, "stop_sequence": finished.stop_string}
        receipt = finished.receipt.as_json()
        yield {"type": "message_delta", "delta": delta, "usage": usage, "x_gbnf": receipt}
        yield {"type": "message_stop"}

    def _message(
        self,
        content: list[dict[str, Any]],
        stop_reason: str | None,
        stop_sequence: str | None,
        usage: dict[str, int],
        receipt: Receipt,
    ) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self.request.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": stop_sequence,
            "usage": usage,
            "x_gbnf": receipt.as_json(),
        }

    def _send(self, events: Iterable[Event]) -> str:
        sent = [  # also if it is not streamed: the events build the blocks
            f"event: {event['type']}\ndata: {json.dumps(event)}\n\n" if self.request.stream else ""
            for event in events
        ]
        return "".join(sent)


class _Block:
    """A content block. `complete`: whether it may end here, which a call may only with its arguments."""

    def __init__(
        self, index: int, kind: Literal["text", "thinking", "tool_use"], call_id: str = "", name: str = ""
    ) -> None:
        self.kind, self.complete = kind, kind != "tool_use"
        self._index, self._pieces = index, list[str]()
        self._call = {"type": "tool_use", "id": call_id, "name": name}

    def begin(self) -> Event:
        """Return the event before the first delta."""
        return {"type": "content_block_start", "index": self._index, "content_block": self._content("", {})}

    def add(self, text: str) -> Event:
        """Add a delta, and return its event."""
        self._pieces.append(text)
        match self.kind:
            case "text":
                return self._delta(type="text_delta", text=text)
            case "thinking":
                return self._delta(type="thinking_delta", thinking=text)
            case "tool_use":
                return self._delta(type="input_json_delta", partial_json=text)

    def end(self) -> Iterator[Event]:
        """Yield the events after the last delta."""
        if self.kind == "thinking":
            yield self._delta(type="signature_delta", signature=_SIGNATURE)
        yield {"type": "content_block_stop", "index": self._index}

    def content(self) -> dict[str, Any]:
        """Return the block with its deltas. The arguments of a call are complete."""
        text = "".join(self._pieces)
        block = self._content(text, json.loads(text) if self.kind == "tool_use" else {})
        return block | {"signature": _SIGNATURE} if self.kind == "thinking" else block

    def _content(self, text: str, arguments: dict[str, Any]) -> dict[str, Any]:
        match self.kind:
            case "text":
                return {"type": "text", "text": text}
            case "thinking":
                return {"type": "thinking", "thinking": text, "signature": ""}
            case "tool_use":
                return {**self._call, "input": arguments}

    def _delta(self, **delta: str) -> Event:
        return {"type": "content_block_delta", "index": self._index, "delta": delta}


def error_body(error: HttpError) -> dict[str, Any]:
    """Return the JSON of an error. Claude Code compacts its conversation if it reads that it is too long."""
    kind = _ERROR_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    too_long = error.code == "context_length_exceeded"
    message = f"prompt is too long: {error.message}" if too_long else error.message
    details: dict[str, Any] = {}
    if error.code == THREAD_REFUSED:
        details = {"details": {"error_code": THREAD_REFUSED, "unsupported": [error.param]}}
    return {"type": "error", "error": {"type": kind, "message": message, **details}}


def _usage(usage: Usage) -> dict[str, int]:
    return {
        "input_tokens": usage.prompt_tokens - usage.cached_tokens,
        "cache_creation_input_tokens": 0,
        "cache_read_input_tokens": usage.cached_tokens,
        "output_tokens": usage.completion_tokens,
    }
