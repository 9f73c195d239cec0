"""One message while it is made: events of an answer to content blocks, and to server-sent events.

A call that the limit of tokens truncated has no `content_block_stop`; without streaming, it is left out.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any

from gbnf.tool_formats import CallStarted
from gbnf_server.backends.base import Usage
from gbnf_server.gateway.answers import Enforcement, Finished
from gbnf_server.gateway.anthropic_messages.request import THREAD_REFUSED
from gbnf_server.gateway.api import Block, BlockKind, BlockReply, ServerEvent
from gbnf_server.gateway.chat import ChatRequest
from gbnf_server.web.errors import HttpError

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


class MessagesReply(BlockReply["_ContentBlock"]):
    """A message while it is made."""

    keep_alive = 'event: ping\ndata: {"type": "ping"}\n\n'

    def __init__(self, request: ChatRequest, ignored: Sequence[str], message_id: str) -> None:
        super().__init__(request, ignored)
        self._id = message_id

    def fail(self, error: HttpError) -> str:
        """Return the event that ends a stream."""
        return self._written([error_body(error)])

    def _block(self, kind: BlockKind, index: int, call: CallStarted | None) -> _ContentBlock:
        return _ContentBlock(kind, index, call)

    def _begin(self, enforcement: Enforcement) -> Iterator[ServerEvent]:
        yield {"type": "message_start", "message": self._message([], None, None, Usage(), enforcement)}

    def _close(self) -> Iterator[ServerEvent]:
        """End the last block, unless it is a truncated call."""
        if self._blocks and self._blocks[-1].is_complete:
            yield from self._blocks[-1].end()

    def _finish(self, finished: Finished) -> Iterator[ServerEvent]:
        yield from self._close()
        truncated, stop = finished.reason == "length", finished.stop_string
        reason = _STOP_REASONS[finished.reason] if stop is None else "stop_sequence"
        content = [
            block.content()
            for block in self._blocks
            if block.kind != "call" or (block.is_complete and not truncated)
        ]
        message = self._body = self._message(content, reason, stop, finished.usage, finished.enforcement)
        delta = {"stop_reason": reason, "stop_sequence": stop}
        yield {"type": "message_delta", "delta": delta} | {key: message[key] for key in ("usage", "x_gbnf")}
        yield {"type": "message_stop"}

    def _message(
        self,
        content: list[dict[str, Any]],
        stop_reason: str | None,
        stop_sequence: str | None,
        usage: Usage,
        enforcement: Enforcement,
    ) -> dict[str, Any]:
        return {
            "id": self._id,
            "type": "message",
            "role": "assistant",
            "model": self.request.model,
            "content": content,
            "stop_reason": stop_reason,
            "stop_sequence": stop_sequence,
            "usage": {
                "input_tokens": usage.prompt_tokens - usage.cached_tokens,
                "cache_creation_input_tokens": 0,
                "cache_read_input_tokens": usage.cached_tokens,
                "output_tokens": usage.completion_tokens,
            },
            "x_gbnf": self._enforced(enforcement).as_json(),
        }


class _ContentBlock(Block):
    def __init__(self, kind: BlockKind, index: int, call: CallStarted | None) -> None:
        super().__init__(kind, index)
        self._call = {} if call is None else {"type": "tool_use", "id": call.id, "name": call.name}

    def begin(self) -> Iterator[ServerEvent]:
        yield {"type": "content_block_start", "index": self.index, "content_block": self._content("", {}, "")}

    def delta(self, text: str) -> Iterator[ServerEvent]:
        match self.kind:
            case "text":
                yield self._delta(type="text_delta", text=text)
            case "reasoning":
                yield self._delta(type="thinking_delta", thinking=text)
            case "call":
                yield self._delta(type="input_json_delta", partial_json=text)

    def end(self) -> Iterator[ServerEvent]:
        """Yield the events after the last delta."""
        if self.kind == "reasoning":
            yield self._delta(type="signature_delta", signature=_SIGNATURE)
        yield {"type": "content_block_stop", "index": self.index}

    def content(self) -> dict[str, Any]:
        """Return the block with its deltas. The arguments of a call are complete."""
        return self._content(self.text, json.loads(self.text) if self.kind == "call" else {}, _SIGNATURE)

    def _content(self, text: str, arguments: dict[str, Any], signature: str) -> dict[str, Any]:
        match self.kind:
            case "text":
                return {"type": "text", "text": text}
            case "reasoning":
                return {"type": "thinking", "thinking": text, "signature": signature}
            case "call":
                return {**self._call, "input": arguments}

    def _delta(self, **delta: str) -> ServerEvent:
        return {"type": "content_block_delta", "index": self.index, "delta": delta}


def error_body(error: HttpError) -> dict[str, Any]:
    """Return the JSON of an error. Claude Code compacts its conversation if it reads that it is too long."""
    kind = _ERROR_TYPES.get(error.status, "invalid_request_error" if error.status < 500 else "api_error")
    too_long = error.code == "context_length_exceeded"
    message = f"prompt is too long: {error.message}" if too_long else error.message
    details: dict[str, Any] = {}
    if error.code == THREAD_REFUSED:
        details = {"details": {"error_code": THREAD_REFUSED, "unsupported": [error.param]}}
    return {"type": "error", "error": {"type": kind, "message": message, **details}}
