"""Answers of the gateway, and its apis behind the transport of a real client, without a server."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal

import httpx2
import openai
from hypothesis import strategies as st
from pydantic import BaseModel

from gbnf.tool_formats import ArgumentsDelta, CallEnded, CallStarted, ReasoningDelta, TextDelta
from gbnf_server.backends.base import Usage
from gbnf_server.gateway.answers import Enforcement, Finished, ReplyEvent, Started
from gbnf_server.gateway.api import Api, Reply
from gbnf_server.web.errors import HttpError

ENFORCEMENT = Enforcement("sha256:12", format="native", verified=True, forced_tokens=1, sampled_tokens=6)
USAGE = Usage(prompt_tokens=11, completion_tokens=7, cached_tokens=5)


@dataclass(frozen=True)
class Call:
    """A call, and the pieces in which its arguments come."""

    id: str
    name: str
    pieces: tuple[str, ...]

    @property
    def arguments(self) -> str:
        return "".join(self.pieces)


@dataclass(frozen=True)
class Answer:
    """What a model answers, in the order in which it writes it; the pieces are not empty."""

    reasoning: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    calls: tuple[Call, ...] = ()
    reason: Literal["stop", "length", "tool_calls"] = "stop"
    stop_string: str | None = None

    def events(self) -> Iterator[ReplyEvent]:
        """Yield its events. One that is truncated ends inside of its last part."""
        yield Started(0, ENFORCEMENT)
        yield from (ReasoningDelta(piece) for piece in self.reasoning)
        yield from (TextDelta(piece) for piece in self.text)
        for index, call in enumerate(self.calls):
            yield CallStarted(index, call.id, call.name)
            yield from (ArgumentsDelta(index, piece) for piece in call.pieces)
            if self.reason != "length" or index + 1 < len(self.calls):
                yield CallEnded(index)
        yield Finished(self.reason, USAGE, ENFORCEMENT, self.stop_string)


def pieces(texts: st.SearchStrategy[str]) -> st.SearchStrategy[tuple[str, ...]]:
    """Return texts in pieces that are not empty."""

    @st.composite
    def cut(draw: st.DrawFn) -> tuple[str, ...]:
        text = draw(texts)
        places = sorted(draw(st.sets(st.integers(1, max(len(text) - 1, 1)), max_size=4)))
        return tuple(
            piece
            for start, end in zip([0, *places], [*places, len(text)], strict=True)
            if (piece := text[start:end])
        )

    return cut()


_TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)
_OBJECTS = st.dictionaries(
    _TEXTS, _TEXTS | st.integers() | st.none() | st.lists(_TEXTS, max_size=2), max_size=3
)


def answers(
    names: Sequence[str], *, custom: Sequence[str] = (), truncated: bool = False
) -> st.SearchStrategy[Answer]:
    """Return answers that call tools of these names. `custom`: those that take a text."""

    def written(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    @st.composite
    def build(draw: st.DrawFn) -> Answer:
        arguments, inputs = (
            pieces(_OBJECTS.map(written)),
            pieces(_TEXTS.map(lambda text: written({"input": text}))),
        )
        calls = tuple(
            Call(f"call_{index}", name, draw(inputs if name in custom else arguments))
            for index, name in enumerate(draw(st.lists(st.sampled_from([*names, *custom]), max_size=3)))
        )
        if truncated and calls:
            calls = (*calls[:-1], Call(calls[-1].id, calls[-1].name, calls[-1].pieces[:-1]))
        reason: Literal["stop", "length", "tool_calls"] = "tool_calls" if calls else "stop"
        return Answer(draw(pieces(_TEXTS)), draw(pieces(_TEXTS)), calls, "length" if truncated else reason)

    return build()


def api_transport(api: Api, answer: Callable[[Reply], Iterable[ReplyEvent]]) -> httpx2.MockTransport:
    """Return a transport for a client. `answer` returns the events of a request's answer."""

    def respond(request: httpx2.Request) -> httpx2.Response:
        try:
            reply = api.parse(json.loads(request.read()))
            sent = "".join(reply.feed(event) for event in answer(reply))
        except HttpError as error:
            return httpx2.Response(error.status, json=api.error(error))
        if reply.request.stream:
            headers = {"content-type": "text/event-stream", **reply.headers()}
            return httpx2.Response(200, text=sent, headers=headers)
        assert sent == ""
        return httpx2.Response(200, json=reply.body(), headers=reply.headers())

    return httpx2.MockTransport(respond)


def undeclared(value: Any, path: str = "") -> list[str]:
    """Return the paths of the fields that a client's types do not declare."""
    match value:
        case BaseModel():
            own = [f"{path}.{name}" for name in value.model_extra or {}]
            fields = [(name, getattr(value, name)) for name in type(value).model_fields]
            return own + [each for name, member in fields for each in undeclared(member, f"{path}.{name}")]
        case list():
            return [
                each for index, member in enumerate(value) for each in undeclared(member, f"{path}[{index}]")
            ]
        case _:
            return []


def client_of(api: Api, *given_answers: Answer) -> openai.OpenAI:
    """Return a client whose requests get these answers, one after another."""
    remaining = iter(given_answers)
    transport = api_transport(api, lambda _reply: next(remaining).events())
    return openai.OpenAI(
        api_key="none",
        base_url="http://gateway/v1",
        http_client=httpx2.Client(transport=transport),
        max_retries=0,
    )
