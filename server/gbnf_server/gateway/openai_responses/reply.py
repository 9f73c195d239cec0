"""One response while it is made: events of an answer to items, and to server-sent events.

A call's `response.output_item.done` waits for the end of the answer, since clients execute the call then: so
an answer that was truncated, or that the backend did not constrain, has no complete call.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

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
from gbnf_server.gateway.openai_responses.output import (
    CallOutput,
    Event,
    MessageOutput,
    OutputItem,
    ReasoningOutput,
    Status,
)
from gbnf_server.gateway.openai_responses.request import ResponsesRequest
from gbnf_server.gateway.openai_responses.store import ResponseStore, StoredResponse, memory_of
from gbnf_server.gateway.reply_headers import reply_headers
from gbnf_server.web.errors import HttpError
from gbnf_server.web.event_streams import COMMENT


class ResponsesReply:
    """A response while it is made. `new_id(prefix)` returns an id; `clock()` the seconds since 1970."""

    keep_alive = COMMENT

    def __init__(
        self,
        request: ResponsesRequest,
        store: ResponseStore,
        new_id: Callable[[str], str],
        clock: Callable[[], float],
    ) -> None:
        self.request = request.chat
        self._parsed, self._store, self._new_id, self._clock = request, store, new_id, clock
        self._base = _base(request, new_id("resp"), int(clock()))
        # measured here, in the thread that parses: both may be large
        self._size = memory_of(self._base) + memory_of(request.items) if request.stored else 0
        self._response: dict[str, Any] = self._base
        self._items: list[OutputItem] = []
        self._complete: set[int] = set()  # the places of complete calls
        self._sent = 0
        self._begun = False
        self._receipt: Receipt | None = None

    def headers(self) -> Mapping[str, str]:
        """Return the header of the receipt, and the one that lists what has no effect."""
        return reply_headers(self._receipt, self._parsed.ignored)

    def feed(self, event: AnswerEvent) -> str:
        """Add an event. Return the server-sent events to send now, "" if it is not streamed."""
        return self._send(self._events(event))

    def fail(self, error: HttpError) -> str:
        """Return the events that end a stream."""
        self._response = self._base | {"status": "failed", "error": _stream_error(error)}
        return self._send([*self._begin(), {"type": "response.failed", "response": self._response}])

    def body(self) -> dict[str, Any]:
        """Return the response, after its last event."""
        return self._response

    def _events(self, event: AnswerEvent) -> Iterator[Event]:
        match event:
            case Started(receipt=receipt):
                self._receipt = receipt
                yield from self._begin()
            case TextDelta(text=text):
                yield from self._delta(MessageOutput, text)
            case ReasoningDelta(text=text):
                yield from self._delta(ReasoningOutput, text)
            case CallStarted(id=call_id, name=name):
                yield from self._close()
                place = self._parsed.tools.place(name)
                yield from self._open(CallOutput(len(self._items), self._new_id("fc"), call_id, *place))
            case ArgumentsDelta(json_text=text):
                yield self._items[-1].add(text)
            case CallEnded():
                self._complete.add(len(self._items) - 1)
            case Finished():
                yield from self._finish(event)

    def _begin(self) -> Iterator[Event]:
        if not self._begun:
            self._begun = True
            for kind in ("response.created", "response.in_progress"):
                yield {"type": kind, "response": self._base}

    def _delta(self, kind: type[MessageOutput | ReasoningOutput], text: str) -> Iterator[Event]:
        if not self._items or not isinstance(self._items[-1], kind):
            yield from self._close()
            yield from self._open(self._new(kind))
        yield self._items[-1].add(text)

    def _new(self, kind: type[MessageOutput | ReasoningOutput]) -> OutputItem:
        index = len(self._items)
        if kind is MessageOutput:
            return MessageOutput(index, self._new_id("msg"))
        return ReasoningOutput(index, self._new_id("rs"), as_summary=self._parsed.summarized)

    def _open(self, item: OutputItem) -> Iterator[Event]:
        self._items.append(item)
        yield from item.begin()

    def _close(self) -> Iterator[Event]:
        """End the last item, unless it is a call, which ends with the answer."""
        if (
            self._items
            and not isinstance(self._items[-1], CallOutput)
            and self._items[-1].status == "in_progress"
        ):
            yield from self._items[-1].end("completed")

    def _finish(self, finished: Finished) -> Iterator[Event]:
        truncated = finished.reason == "length"
        if not truncated and all(isinstance(item, ReasoningOutput) for item in self._items):
            yield from self._close()
            yield from self._open(self._new(MessageOutput))  # clients read the text of an empty answer, too
        if logprobs := [_logprob(each) for each in finished.logprobs]:
            messages = [item for item in self._items if isinstance(item, MessageOutput)]
            if len(messages) == len(self._items) == 1:
                messages[0].logprobs = logprobs
        status: Status = "incomplete" if truncated else "completed"
        output: list[OutputItem] = []
        for item in self._items:
            if isinstance(item, CallOutput) and (truncated or item.index not in self._complete):
                continue
            output.append(item)
            if item.status == "in_progress":
                yield from item.end(status)
        self._response = self._base | _end(finished, output, status, int(self._clock()))
        self._keep()
        yield {"type": f"response.{status}", "response": self._response}

    def _keep(self) -> None:
        if self._parsed.stored:
            size = self._size + memory_of([self._response["output"], self._response["x_gbnf"]])
            self._store.put(StoredResponse(self._response, self._parsed.items, size))

    def _send(self, events: Iterable[Event]) -> str:
        sent = []
        for event in events:  # also if it is not streamed: that builds the items
            if self.request.stream:
                numbered = {**event, "sequence_number": self._sent}
                sent.append(f"event: {event['type']}\ndata: {json.dumps(numbered)}\n\n")
                self._sent += 1
        return "".join(sent)


def _base(request: ResponsesRequest, response_id: str, now: int) -> dict[str, Any]:
    """Return the response before its output."""
    body, chat = request.body, request.chat
    text = body.text.format if body.text is not None and body.text.format is not None else {"type": "text"}
    reasoning = body.reasoning
    return {
        "id": response_id,
        "object": "response",
        "created_at": now,
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "instructions": body.instructions,
        "max_output_tokens": body.max_output_tokens,
        "metadata": body.metadata or {},
        "model": body.model,
        "output": [],
        "parallel_tool_calls": chat.parallel,
        "previous_response_id": body.previous_response_id,
        "prompt_cache_key": body.prompt_cache_key,
        "reasoning": {
            "effort": reasoning.effort if reasoning is not None else None,
            "summary": reasoning.summary if reasoning is not None else None,
        },
        "safety_identifier": body.safety_identifier,
        "temperature": chat.sampling.temperature,
        "text": {"format": text},
        "tool_choice": body.tool_choice or "auto",
        "tools": body.tools or [],
        "top_p": chat.sampling.top_p,
        "truncation": "disabled",
        "usage": None,
        "user": body.user,
    }


def _end(finished: Finished, output: Iterable[OutputItem], status: Status, now: int) -> dict[str, Any]:
    """Return what a response has at its end."""
    usage = finished.usage
    end: dict[str, Any] = {
        "status": status,
        "output": [item.item() for item in output],
        "usage": {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": usage.reasoning_tokens},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        },
        "x_gbnf": finished.receipt.as_json(),
    }
    if status == "completed":
        return end | {"completed_at": now}
    return end | {"incomplete_details": {"reason": "max_output_tokens"}}


def _stream_error(error: HttpError) -> dict[str, str]:
    """Return the error of a failed response. Codex compacts its conversation if it is too long."""
    if error.code == "context_length_exceeded":
        code = error.code
    elif error.status == 429:
        code = "rate_limit_exceeded"
    else:
        code = "invalid_prompt" if error.status < 500 else "server_error"
    return {"code": code, "message": error.message}


def _logprob(token: TokenLogprob) -> dict[str, Any]:
    top = [_token(piece, logprob) for piece, logprob in token.top]
    return _token(token.token, token.logprob) | {"top_logprobs": top}


def _token(piece: bytes, logprob: float) -> dict[str, Any]:
    return {"token": piece.decode(errors="replace"), "bytes": [*piece], "logprob": logprob}
