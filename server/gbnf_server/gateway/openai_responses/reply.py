"""One response while it is made: events of an answer to items, and to server-sent events.

An item begins (`response.output_item.added`), grows by deltas, and ends (`response.output_item.done`). That
of a call ends with the answer, since clients execute the call then: so an answer that was truncated, or that
the backend did not constrain, has no complete call.
"""

from __future__ import annotations

import json
import secrets
import time
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from typing import Any, Literal, NamedTuple, TypeAlias

from gbnf.protocols.readers import StringMember
from gbnf.tool_formats import CallStarted, TextDelta
from gbnf_server.gateway.answers import Enforcement, Finished, ReplyEvent, Started
from gbnf_server.gateway.api import Block, BlockKind, BlockReply, ServerEvent, logprob_json
from gbnf_server.gateway.openai_responses.items import INPUT, ToolPlace
from gbnf_server.gateway.openai_responses.request import ResponsesRequest
from gbnf_server.gateway.openai_responses.store import ResponseStore, item_id
from gbnf_server.web.errors import HttpError

_REPEATED = (
    "instructions", "max_output_tokens", "previous_response_id", "prompt_cache_key", "safety_identifier",
    "user",
)  # fmt: skip
"""The parameters that a response repeats as they are."""
_LARGE = 32 * 1024  # characters of what is repeated: written in about a millisecond
_PREFIXES: dict[BlockKind, str] = {"call": "fc", "text": "msg", "reasoning": "rs"}  # of the ids of items
_Status: TypeAlias = Literal["in_progress", "completed", "incomplete"]


class ResponsesReply(BlockReply["_OutputItem"]):
    """A response while it is made."""

    def __init__(self, request: ResponsesRequest, store: ResponseStore) -> None:
        super().__init__(request.chat, request.ignored)
        self._parsed, self._store = request, store
        self._base = self._body = _base(request)
        self._is_stored = request.body.store is not False
        reasoning = request.body.reasoning
        has_summary = reasoning is not None and (reasoning.summary or reasoning.generate_summary)
        self._reasoning = _SUMMARY if has_summary else _REASONING
        self._sent = 0
        self._has_begun = False

    def blocks(self, event: ReplyEvent) -> bool:
        """Return whether an event is stored, or repeats a large request."""
        size = self.request.content[1] + len(self._parsed.body.instructions or "")
        return (self._is_stored and isinstance(event, Finished)) or (
            size > _LARGE and isinstance(event, Started | Finished)
        )

    def fail(self, error: HttpError) -> str:
        """Return the events that end a stream."""
        code = "invalid_prompt" if error.status < 500 else "server_error"
        if error.code == "context_length_exceeded":  # Codex compacts its conversation then
            code = error.code
        elif error.status == 429:
            code = "rate_limit_exceeded"
        failed = {"status": "failed", "error": {"code": code, "message": error.message}}
        self._body = self._base | failed
        return self._written([*self._begin(), {"type": "response.failed", "response": self._body}])

    def _block(self, kind: BlockKind, index: int, call: CallStarted | None) -> _OutputItem:
        identifier = item_id(_PREFIXES[kind], self._base["id"], index)
        if call is not None:
            place = self._parsed.places.get(call.name, ToolPlace(None, call.name))
            return _CALLS[place.kind](index, identifier, call.id, place)
        return _OutputText(kind, index, identifier, _TEXT if kind == "text" else self._reasoning)

    def _begin(self, enforcement: Enforcement | None = None) -> Iterator[ServerEvent]:
        if not self._has_begun:
            self._has_begun = True
            for kind in ("response.created", "response.in_progress"):
                yield {"type": kind, "response": self._base}

    def _close(self) -> Iterator[ServerEvent]:
        """End the last item, unless it is a call, which ends with the answer."""
        if self._blocks and self._blocks[-1].kind != "call" and self._blocks[-1].status == "in_progress":
            yield from self._blocks[-1].end("completed")

    def _finish(self, finished: Finished) -> Iterator[ServerEvent]:
        truncated = finished.reason == "length"
        if not truncated and all(item.kind == "reasoning" for item in self._blocks):
            yield from self._open("text")  # clients read the text of an empty answer, too
        if finished.logprobs and [item.kind for item in self._blocks] == ["text"]:
            self._blocks[0].logprobs["logprobs"] = [logprob_json(logprob) for logprob in finished.logprobs]
        status: _Status = "incomplete" if truncated else "completed"
        output = [
            item for item in self._blocks if item.kind != "call" or (item.is_complete and not truncated)
        ]
        for item in output:
            if item.status == "in_progress":
                yield from item.end(status)
        self._body = self._base | _end(finished, self._enforced(finished.enforcement), output, status)
        if self._is_stored and not self._store.put(self._body, self._parsed.items):
            self._body["x_gbnf"] = {**self._body["x_gbnf"], "stored": False}
        yield {"type": f"response.{status}", "response": self._body}

    def _written(self, events: Iterable[ServerEvent]) -> str:
        first = self._sent
        numbered = [{**event, "sequence_number": first + index} for index, event in enumerate(events)]
        self._sent += len(numbered)
        return super()._written(numbered)


class _OutputItem(Block):
    """An item of the output. `logprobs`: of a text's tokens, which are known at its end."""

    status: _Status = "in_progress"

    def __init__(self, kind: BlockKind, index: int, item_id: str) -> None:
        super().__init__(kind, index)
        self.item_id = item_id
        self.logprobs: dict[str, Any] = {"logprobs": []} if kind == "text" else {}

    @abstractmethod
    def item(self) -> dict[str, Any]:
        """Return the item as it is now."""

    def end(self, status: _Status) -> Iterator[ServerEvent]:
        """Yield the events after the last delta."""
        self.status = status
        yield self._of_item("done", self.item())

    def _of_item(self, event: str, item: dict[str, Any]) -> ServerEvent:
        return {"type": f"response.output_item.{event}", "output_index": self.index, "item": item}

    def _at(self, event: str, **fields: Any) -> ServerEvent:
        place = {"type": f"response.{event}", "item_id": self.item_id, "output_index": self.index}
        return {**place, **fields}


class _Names(NamedTuple):
    """How the text of an item is called: the type of its part, in events, and in the item."""

    type: str
    text: str
    part: str
    member: str
    position: str


_TEXT = _Names("output_text", "output_text", "content_part", "content", "content_index")
_REASONING = _Names("reasoning_text", "reasoning_text", "content_part", "content", "content_index")
_SUMMARY = _Names(
    "summary_text", "reasoning_summary_text", "reasoning_summary_part", "summary", "summary_index"
)


class _OutputText(_OutputItem):
    """The text of an answer, or its reasoning: as content, or as the summary if the client asks for one."""

    def __init__(self, kind: BlockKind, index: int, item_id: str, names: _Names) -> None:
        super().__init__(kind, index, item_id)
        self._names = names

    def begin(self) -> Iterator[ServerEvent]:
        head = self._head()
        if self.kind == "text":
            head |= {"status": self.status, "content": []}
        yield self._of_item("added", head)
        yield self._at(f"{self._names.part}.added", part=self._part(""))

    def delta(self, text: str) -> Iterator[ServerEvent]:
        yield self._at(f"{self._names.text}.delta", delta=text, **self.logprobs)

    def end(self, status: _Status) -> Iterator[ServerEvent]:
        yield self._at(f"{self._names.text}.done", text=self.text, **self.logprobs)
        yield self._at(f"{self._names.part}.done", part=self._part(self.text))
        yield from super().end(status)

    def item(self) -> dict[str, Any]:
        return {**self._head(), "status": self.status, self._names.member: [self._part(self.text)]}

    def _head(self) -> dict[str, Any]:
        if self.kind == "text":
            return {"type": "message", "id": self.item_id, "role": "assistant"}
        return {"type": "reasoning", "id": self.item_id, "summary": []}

    def _part(self, text: str) -> dict[str, Any]:
        text_members = {"annotations": [], **self.logprobs} if self.kind == "text" else {}
        return {"type": self._names.type, "text": text, **text_members}

    def _at(self, event: str, **fields: Any) -> ServerEvent:
        return super()._at(event, **{self._names.position: 0}, **fields)


class _OutputCall(_OutputItem):
    """A call of a tool, whose arguments are sent as they come."""

    def __init__(self, index: int, item_id: str, call_id: str, place: ToolPlace) -> None:
        super().__init__("call", index, item_id)
        kind = "custom_tool_call" if place.kind == "custom" else f"{place.kind}_call"
        self._call: dict[str, Any] = {"type": kind, "id": item_id, "call_id": call_id, "name": place.name}
        if place.namespace is not None:
            self._call["namespace"] = place.namespace

    def begin(self) -> Iterator[ServerEvent]:
        yield self._of_item("added", self.item())

    def delta(self, text: str) -> Iterator[ServerEvent]:
        yield self._at("function_call_arguments.delta", delta=text)

    def end(self, status: _Status) -> Iterator[ServerEvent]:
        yield self._at("function_call_arguments.done", arguments=self.text)
        yield from super().end(status)

    def item(self) -> dict[str, Any]:
        return {**self._call, "arguments": self.text, "status": self.status}


class _OutputCustomCall(_OutputCall):
    """A call of a custom tool, whose only argument is sent as its text."""

    def __init__(self, index: int, item_id: str, call_id: str, place: ToolPlace) -> None:
        super().__init__(index, item_id, call_id, place)
        self._reader, self._input = StringMember(rf'\s*\{{\s*"{INPUT}"'), ""

    def delta(self, text: str) -> Iterator[ServerEvent]:
        for piece in self._reader.feed(text):
            assert isinstance(piece, TextDelta)
            self._input += piece.text
            yield self._at("custom_tool_call_input.delta", delta=piece.text)

    def end(self, status: _Status) -> Iterator[ServerEvent]:
        yield self._at("custom_tool_call_input.done", input=self._input)
        yield from _OutputItem.end(self, status)

    def item(self) -> dict[str, Any]:
        return {**self._call, "input": self._input}


class _OutputSearch(_OutputCall):
    """A call of the client's search for tools, whose arguments are sent at its end."""

    def delta(self, text: str) -> Iterator[ServerEvent]:
        yield from ()

    def end(self, status: _Status) -> Iterator[ServerEvent]:
        yield from _OutputItem.end(self, status)

    def item(self) -> dict[str, Any]:
        call = {key: value for key, value in self._call.items() if key != "name"}
        arguments = {} if self.status == "in_progress" else json.loads(self.text)
        return {**call, "execution": "client", "arguments": arguments, "status": self.status}


_CALLS = {"function": _OutputCall, "custom": _OutputCustomCall, "tool_search": _OutputSearch}


def _base(request: ResponsesRequest) -> dict[str, Any]:
    """Return the response before its output."""
    body, chat = request.body, request.chat
    text = body.text.format if body.text is not None and body.text.format is not None else {"type": "text"}
    return {
        "id": f"resp_{secrets.token_hex(16)}",
        "object": "response",
        "created_at": int(time.time()),
        "status": "in_progress",
        "background": False,
        "error": None,
        "incomplete_details": None,
        "metadata": body.metadata or {},
        "model": body.model,
        "output": [],
        "parallel_tool_calls": chat.several,
        "max_tool_calls": chat.max_calls,
        "reasoning": {name: getattr(body.reasoning, name, None) for name in ("effort", "summary")},
        "temperature": chat.sampling.temperature,
        "text": {"format": text},
        "tool_choice": body.tool_choice or "auto",
        "tools": body.tools or [],
        "top_p": chat.sampling.top_p,
        "truncation": "disabled",
        "usage": None,
        **{name: getattr(body, name) for name in _REPEATED},
    }


def _end(
    finished: Finished, enforcement: Enforcement, output: Iterable[_OutputItem], status: _Status
) -> dict[str, Any]:
    """Return what a response has at its end."""
    usage = finished.usage
    end: dict[str, Any] = {
        "status": status,
        "output": [item.item() for item in output],
        "usage": {
            "input_tokens": usage.prompt_tokens,
            "input_tokens_details": {"cached_tokens": usage.cached_tokens, "cache_write_tokens": 0},
            "output_tokens": usage.completion_tokens,
            "output_tokens_details": {"reasoning_tokens": finished.reasoning_tokens},
            "total_tokens": usage.prompt_tokens + usage.completion_tokens,
        },
        "x_gbnf": enforcement.as_json(),
    }
    if status == "completed":
        return end | {"completed_at": int(time.time())}
    return end | {"incomplete_details": {"reason": "max_output_tokens"}}
