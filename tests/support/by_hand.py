"""Drive the planner loop by hand: texts for the model and results for the tools, without a workspace."""

from __future__ import annotations

import itertools
import json
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime, timedelta
from typing import Any, TypeVar

from gbnf import Grammar
from gbnf.errors import GbnfError
from gbnf.prompts.messages import Image, Message
from gbnf.tools import Tool
from gbnf_server.backends.base import Completion, Timings, Usage
from gbnf_server.backends.model_traits import ModelTraits
from gbnf_server.planner.events import AskApproval, AskPerson, CallModel, Effect, Event, ExecuteTool, Run
from gbnf_server.planner.loop import plan
from gbnf_server.planner.options import ResolvedOptions
from support.pools import BUNDLED

_Kind = TypeVar("_Kind")

Reply = Mapping[str, Any] | GbnfError
Model = Callable[[CallModel], Completion | GbnfError]
"""What a model answers, depending on what it is asked."""

POOL = BUNDLED
BY_NAME = {tool.name: tool for tool in POOL}


def call(name: str, **arguments: Any) -> str:
    """A call as a model writes it."""
    return json.dumps({"name": name, "arguments": arguments}, ensure_ascii=False)


NOW = call("get_now")
ANSWER = call("final_answer", message="done")


def resolved(**given: Any) -> ResolvedOptions:
    """Options of a run that ends without an answer where its steps give none, and the facts of its model."""
    names = given.keys() & {each.name for each in fields(ModelTraits)}
    model = ModelTraits(**{"gives_logprobs": False} | {name: given.pop(name) for name in names})
    return ResolvedOptions(**{"salvage": False, **given}, model=model)


def ticking() -> Callable[[], datetime]:
    """A clock that moves one second each time that it is read."""
    ticks = itertools.count()
    start = datetime(2026, 3, 5, 9, 30, tzinfo=UTC)
    return lambda: start + timedelta(seconds=next(ticks))


def completion(
    text: str, *, finish: str = "stop", violation: str | None = None, tokens: int = 7
) -> Completion:
    return Completion(text, finish, Usage(100, tokens, 90), Timings(0.01, 0.02), violation)  # type: ignore[arg-type]  # finish is one of two words


@dataclass
class Driven:
    """All that went through the loop, in order."""

    run: Run
    requests: list[Effect | Event] = field(default_factory=list)

    @property
    def events(self) -> list[Event]:
        return [request for request in self.requests if isinstance(request, Event)]

    @property
    def effects(self) -> list[Effect]:
        return [request for request in self.requests if not isinstance(request, Event)]

    @property
    def grammars(self) -> list[Grammar]:
        """Of the calls of the model that have one."""
        grammars = [effect.request.grammar for effect in self.of(CallModel)]
        return [grammar for grammar in grammars if isinstance(grammar, Grammar)]

    def of(self, kind: type[_Kind]) -> list[_Kind]:
        return [request for request in self.requests if isinstance(request, kind)]


def drive_by_hand(
    tools: Iterable[Tool],
    completions: Iterable[Completion | GbnfError | Model],
    *,
    query: str = "do something",
    replies: Iterable[Reply] = (),
    approvals: Iterable[bool | GbnfError] = (),
    answers: Iterable[str | Callable[[AskPerson], str]] = (),
    options: ResolvedOptions | None = None,
    images: tuple[Image, ...] = (),
    history: tuple[Message, ...] = (),
    hook: Callable[[Event], tuple[str, ...]] = lambda _event: (),
) -> Driven:
    """Feed the loop until it returns. Tools reply with `replies`, then with `{}`; approvals default to yes.

    The last completion is repeated for as long as the loop asks.
    """
    texts = _then_last(completions)
    results = itertools.chain(replies, itertools.repeat({}))
    said = itertools.chain(approvals, itertools.repeat(True))
    person_answers = itertools.chain(answers, itertools.repeat("whatever"))
    loop = plan(
        query,
        tuple(tools),
        options or resolved(),
        turn="turn-1",
        clock=ticking(),
        images=images,
        history=history,
    )
    requests: list[Effect | Event] = []
    reply: Any = None
    error: GbnfError | None = None
    while True:
        try:
            request = loop.send(reply) if error is None else loop.throw(error)
        except StopIteration as stop:
            return Driven(stop.value, requests)
        requests.append(request)
        reply, error = None, None
        match request:
            case CallModel():
                reply = next(texts)
                reply = reply(request) if callable(reply) else reply
            case ExecuteTool():
                reply = next(results)
            case AskPerson():
                reply = next(person_answers)
                reply = reply(request) if callable(reply) else reply
            case AskApproval():
                reply = next(said)
            case _:
                reply = hook(request)
        if isinstance(reply, GbnfError):
            reply, error = None, reply


def _then_last(
    completions: Iterable[Completion | GbnfError | Model],
) -> Iterator[Completion | GbnfError | Model]:
    last = None
    for item in completions:
        last = item
        yield item
    while True:
        assert last is not None, "the model needs at least one thing to say"
        yield last
