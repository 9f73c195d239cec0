"""An answer of OpenAI's chat API as JSON or as chunks.

Source: OpenAI's API reference, "The chat completion object" and "The chat completion chunk object".
Extensions: `reasoning_content`, and `x_gbnf`, the enforcement.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Sequence
from typing import Any

from gbnf.tool_formats import ArgumentsDelta, CallEnded, CallStarted, ReasoningDelta, TextDelta
from gbnf_server.gateway.answers import Finished, ReplyEvent, Started
from gbnf_server.gateway.api import Reply, logprob_json, openai_error
from gbnf_server.gateway.chat import ChatRequest
from gbnf_server.web.errors import HttpError


class ChatReply(Reply):
    """A request, and its answers while they are made. `include_usage`: a stream ends with the usage."""

    def __init__(self, request: ChatRequest, ignored: Sequence[str], *, include_usage: bool) -> None:
        super().__init__(request, ignored)
        self._include_usage = include_usage
        self._head = {
            "id": f"chatcmpl-{secrets.token_hex(14)}",
            "created": int(time.time()),
            "model": request.model,
        }
        self._choices: list[list[ReplyEvent]] = []

    def feed(self, event: ReplyEvent) -> str:
        """Add an event. Return the chunks of a streamed answer."""
        if isinstance(event, Started):
            self._enforcement = self._enforcement or event.enforcement
            self._choices.append([])
        self._choices[-1].append(event)
        if not self.request.stream:
            return ""
        if isinstance(event, Finished):
            return self._end(event)
        delta = _delta(event)
        return "" if delta is None else self._chunk({"delta": delta, "logprobs": None, "finish_reason": None})

    def fail(self, error: HttpError) -> str:
        """Return the event that ends a stream with an error."""
        return _event(openai_error(error))

    def body(self) -> dict[str, Any]:
        """Return the JSON of the whole answer."""
        finished = self._finished()
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [
                _whole(index, events, end)
                for index, (events, end) in enumerate(zip(self._choices, finished, strict=True))
            ],
            "usage": _usage(finished),
            "x_gbnf": self._enforced(finished[0].enforcement).as_json(),
        }

    def _finished(self) -> list[Finished]:
        return [event for events in self._choices for event in events if isinstance(event, Finished)]

    def _end(self, finished: Finished) -> str:
        """Return the last chunk of an answer, and after the last answer the end of the stream."""
        last = {"delta": {}, "logprobs": _logprobs(finished), "finish_reason": finished.reason}
        text = self._chunk(last, x_gbnf=self._enforced(finished.enforcement).as_json())
        if len(self._choices) < self.request.count:
            return text
        if self._include_usage:
            text += _event({**self._head, "object": _CHUNK, "choices": [], "usage": _usage(self._finished())})
        return f"{text}data: [DONE]\n\n"

    def _chunk(self, choice: dict[str, Any], **fields: Any) -> str:
        indexed = {"index": len(self._choices) - 1, **choice}
        usage = {"usage": None} if self._include_usage else {}
        return _event({**self._head, "object": _CHUNK, "choices": [indexed], **usage, **fields})


_CHUNK = "chat.completion.chunk"


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n"


def _delta(event: ReplyEvent) -> dict[str, Any] | None:
    """Return the delta of an event, None if it has none."""
    match event:
        case Started():
            return {"role": "assistant", "content": None}
        case TextDelta(text):
            return {"content": text}
        case ReasoningDelta(text):
            return {"reasoning_content": text}
        case CallStarted(index=index):
            return {"tool_calls": [{"index": index, **_call(event, "")}]}
        case ArgumentsDelta(index, piece):
            return {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
        case CallEnded() | Finished():
            return None


def _whole(index: int, events: Sequence[ReplyEvent], finished: Finished) -> dict[str, Any]:
    text = "".join(delta.text for delta in events if isinstance(delta, TextDelta))
    message: dict[str, Any] = {"role": "assistant", "content": text, "refusal": None}
    if reasoning := "".join(delta.text for delta in events if isinstance(delta, ReasoningDelta)):
        message["reasoning_content"] = reasoning
    if finished.reason == "tool_calls":
        pieces = [delta for delta in events if isinstance(delta, ArgumentsDelta)]
        message["tool_calls"] = [
            _call(delta, "".join(piece.json_text for piece in pieces if piece.index == delta.index))
            for delta in events
            if isinstance(delta, CallStarted)
        ]
        message["content"] = text or None
    logprobs, reason = _logprobs(finished), finished.reason
    return {"index": index, "message": message, "logprobs": logprobs, "finish_reason": reason}


def _call(started: CallStarted, arguments: str) -> dict[str, Any]:
    function = {"name": started.name, "arguments": arguments}
    return {"id": started.id, "type": "function", "function": function}


def _usage(finished: Sequence[Finished]) -> dict[str, Any]:
    """Return the tokens of all answers; they have the same prompt."""
    prompt = max(end.usage.prompt_tokens for end in finished)
    completion = sum(end.usage.completion_tokens for end in finished)
    reasoning = sum(end.reasoning_tokens for end in finished)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": finished[0].usage.cached_tokens},
        "completion_tokens_details": {"reasoning_tokens": reasoning},
    }


def _logprobs(finished: Finished) -> dict[str, Any] | None:
    if not finished.logprobs:
        return None
    return {"content": [logprob_json(token) for token in finished.logprobs], "refusal": None}
