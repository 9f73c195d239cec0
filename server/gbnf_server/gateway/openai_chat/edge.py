"""Requests of OpenAI's chat API, their answers as JSON or as chunks, and its errors.

Source: OpenAI's API reference, "The chat completion object" and "The chat completion chunk object".
Extensions: `reasoning_content`, and `x_gbnf`, the receipt.
"""

from __future__ import annotations

import json
import secrets
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, assert_never

from gbnf_server.backends.base import TokenLogprob
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
)
from gbnf_server.gateway.openai_chat.conversion import ParsedBody, parse_body
from gbnf_server.gateway.reply_headers import reply_headers
from gbnf_server.web.errors import HttpError
from gbnf_server.web.event_streams import COMMENT


class ChatCompletions:
    """`POST /v1/chat/completions`."""

    path = "/v1/chat/completions"

    def parse(self, body: Mapping[str, Any], headers: Mapping[str, str], owner: str = "") -> ChatReply:  # noqa: ARG002 - see Edge
        """Read the JSON of a request. Raises HttpError (400)."""
        return ChatReply(parse_body(body))

    def error(self, error: HttpError) -> dict[str, Any]:
        """Return the JSON of an error."""
        kind = _ERROR_TYPES.get(
            error.status, "invalid_request_error" if error.status < 500 else "server_error"
        )
        return {
            "error": {"message": error.message, "type": kind, "param": error.param, "code": error.code},
        }


_ERROR_TYPES = {401: "authentication_error", 403: "permission_error", 429: "rate_limit_error"}


@dataclass(slots=True)
class _StreamedChoice:
    """What one answer consists of so far."""

    text: list[str] = field(default_factory=list)
    reasoning: list[str] = field(default_factory=list)
    calls: list[_StreamedCall] = field(default_factory=list)
    finished: Finished | None = None


@dataclass(slots=True)
class _StreamedCall:
    id: str
    name: str
    arguments: list[str] = field(default_factory=list)


class ChatReply:
    """A request, and its answer while it is made."""

    keep_alive = COMMENT

    def __init__(self, parsed: ParsedBody) -> None:
        self.request = parsed.request
        self._parsed = parsed
        self._head = {
            "id": f"chatcmpl-{secrets.token_hex(14)}",
            "created": int(time.time()),
            "model": parsed.request.model,
        }
        self._choices: list[_StreamedChoice] = []
        self._receipt: Receipt | None = None

    def feed(self, event: AnswerEvent) -> str:
        """Add an event. Return the chunks of a streamed answer."""
        delta = self._add(event)
        if not self.request.stream:
            return ""
        if isinstance(event, Finished):
            return self._end(event)
        return "" if delta is None else self._chunk({"delta": delta, "logprobs": None, "finish_reason": None})

    def fail(self, error: HttpError) -> str:
        """Return the event that ends a stream with an error."""
        return _event(ChatCompletions().error(error))

    def headers(self) -> Mapping[str, str]:
        """Return the header of the receipt, and the one that lists parameters without effect."""
        return reply_headers(self._receipt, self._parsed.ignored)

    def body(self) -> dict[str, Any]:
        """Return the JSON of the whole answer."""
        finished = [choice.finished for choice in self._choices if choice.finished is not None]
        return {
            **self._head,
            "object": "chat.completion",
            "choices": [_whole(choice, index) for index, choice in enumerate(self._choices)],
            "usage": _usage(finished),
            "x_gbnf": finished[0].receipt.as_json(),
        }

    def _add(self, event: AnswerEvent) -> dict[str, Any] | None:
        """Keep an event. Return its delta, None if it has none."""
        if isinstance(event, Started):
            self._receipt = self._receipt or event.receipt
            self._choices.append(_StreamedChoice())
            return {"role": "assistant", "content": None}
        choice = self._choices[-1]
        match event:
            case TextDelta(text):
                choice.text.append(text)
                return {"content": text}
            case ReasoningDelta(text):
                choice.reasoning.append(text)
                return {"reasoning_content": text}
            case CallStarted(index, identifier, name):
                choice.calls.append(_StreamedCall(identifier, name))
                function = {"name": name, "arguments": ""}
                called = {"index": index, "id": identifier, "type": "function", "function": function}
                return {"tool_calls": [called]}
            case ArgumentsDelta(index, piece):
                choice.calls[index].arguments.append(piece)
                return {"tool_calls": [{"index": index, "function": {"arguments": piece}}]}
            case CallEnded():
                return None
            case Finished():
                choice.finished = event
                return None
            case other:
                assert_never(other)

    def _end(self, finished: Finished) -> str:
        """Return the last chunk of an answer, and after the last answer the end of the stream."""
        last = {"delta": {}, "logprobs": _logprobs(finished.logprobs), "finish_reason": finished.reason}
        text = self._chunk(last, x_gbnf=finished.receipt.as_json())
        if len(self._choices) < self.request.count:
            return text
        if self._parsed.include_usage:
            ends = [choice.finished for choice in self._choices if choice.finished is not None]
            text += _event({**self._head, "object": _CHUNK, "choices": [], "usage": _usage(ends)})
        return f"{text}data: [DONE]\n\n"

    def _chunk(self, choice: dict[str, Any], **more: Any) -> str:
        indexed = {"index": len(self._choices) - 1, **choice}
        usage = {"usage": None} if self._parsed.include_usage else {}
        return _event({**self._head, "object": _CHUNK, "choices": [indexed], **usage, **more})


_CHUNK = "chat.completion.chunk"


def _event(value: dict[str, Any]) -> str:
    return f"data: {json.dumps(value, ensure_ascii=False, separators=(',', ':'))}\n\n"


def _whole(choice: _StreamedChoice, index: int) -> dict[str, Any]:
    finished = choice.finished
    assert finished is not None
    message: dict[str, Any] = {"role": "assistant", "content": "".join(choice.text), "refusal": None}
    if choice.reasoning:
        message["reasoning_content"] = "".join(choice.reasoning)
    if choice.calls and finished.reason == "tool_calls":
        message["content"] = message["content"] or None
        message["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {"name": call.name, "arguments": "".join(call.arguments)},
            }
            for call in choice.calls
        ]
    return {
        "index": index,
        "message": message,
        "logprobs": _logprobs(finished.logprobs),
        "finish_reason": finished.reason,
    }


def _usage(finished: list[Finished]) -> dict[str, Any]:
    """Return the tokens of all answers; they have the same prompt."""
    prompt = max(each.usage.prompt_tokens for each in finished)
    completion = sum(each.usage.completion_tokens for each in finished)
    return {
        "prompt_tokens": prompt,
        "completion_tokens": completion,
        "total_tokens": prompt + completion,
        "prompt_tokens_details": {"cached_tokens": finished[0].usage.cached_tokens},
        "completion_tokens_details": {
            "reasoning_tokens": sum(each.usage.reasoning_tokens for each in finished)
        },
    }


def _logprobs(tokens: tuple[TokenLogprob, ...]) -> dict[str, Any] | None:
    if not tokens:
        return None
    content = [
        {
            **_token(token.token, token.logprob),
            "top_logprobs": [_token(other, logprob) for other, logprob in token.top],
        }
        for token in tokens
    ]
    return {"content": content, "refusal": None}


def _token(token: bytes, logprob: float) -> dict[str, Any]:
    return {"token": token.decode("utf-8", "replace"), "logprob": logprob, "bytes": list(token)}
