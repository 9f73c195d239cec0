"""The parts of a running server, and what it answers: a request, the list of models, its health."""

from __future__ import annotations

import asyncio
import json
import time
from abc import ABC, abstractmethod
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import aclosing, suppress
from contextvars import copy_context
from dataclasses import replace
from functools import partial
from typing import Any, Generic, ParamSpec, TypeVar

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, generate_latest

from gbnf.schema_caches import SchemaCaches, caches_in_use
from gbnf_server.backends.base import Backend, Usage
from gbnf_server.backends.upstreams import Upstream, Upstreams
from gbnf_server.gateway.answers import Finished, ReplyEvent, Started
from gbnf_server.gateway.anthropic_messages import Messages
from gbnf_server.gateway.api import Api
from gbnf_server.gateway.chat import ChatRequest
from gbnf_server.gateway.openai_chat import ChatCompletions
from gbnf_server.gateway.openai_responses import Responses
from gbnf_server.system.errors import BackendError
from gbnf_server.web.limits import (
    Limits,
    MemoryBudget,
    MemoryShare,
    check_sizes,
    count_values,
    memory_of,
    nesting,
    read_object,
)
from gbnf_server.web.logs import content_text, log
from gbnf_server.web.queue import AnswerQueue
from gbnf_server.web.responses import Pause

_SMALL_BODY = 32 * 1024  # bytes: read in about a millisecond
_SCANNED_BODY = 256 * 1024  # bytes: searched for known tools; larger ones are read as quickly
_READERS = 2  # threads that read JSON: what they build is bounded, and so is how many do

_WAITING_THREADS = 16  # that may wait for a store, and so keep nothing else waiting
_OTHER_THREADS = 16
_HEALTH_S = 0.5  # to ask backends whether they answer
_Parsed = TypeVar("_Parsed")
_Value = TypeVar("_Value")
_Given = ParamSpec("_Given")

_SECONDS = (0.005, 0.025, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120, 300, 600)  # of the histograms


class Answers(ABC):
    """Answers requests: the engine, or the planner."""

    @abstractmethod
    def answer(self, request: ChatRequest, backend: Backend) -> AsyncGenerator[ReplyEvent, None]:
        """Yield the events of an answer; closing the generator ends it. Raises HttpError."""

    async def prepare(self, request: ChatRequest, backend: Backend, owner: str) -> None:  # noqa: B027  # may do nothing
        """Do what an answer to a request of `owner` needs before it takes a place. Raises HttpError."""


class Metrics:
    """What Prometheus reads at `/metrics`. Labels have few values: endpoints, not paths of requests."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        counter = partial(Counter, registry=self.registry)
        gauge = partial(Gauge, registry=self.registry)
        seconds = partial(Histogram, registry=self.registry, buckets=_SECONDS)
        by_endpoint = ["endpoint"]
        self.requests = counter(
            "gbnf_requests", "Requests by endpoint and HTTP status.", ["endpoint", "status"]
        )
        self.cancelled = counter("gbnf_requests_cancelled", "Requests whose client left.", by_endpoint)
        self.seconds = seconds(
            "gbnf_request_seconds", "Time from a request to the end of its answer.", by_endpoint
        )
        self.first_seconds = seconds(
            "gbnf_first_delta_seconds", "Time from a request to the first event of its answer.", by_endpoint
        )
        self.queue_seconds = seconds("gbnf_queue_seconds", "Time in the queue.")
        self.running = gauge("gbnf_requests_running", "Answers being made.")
        self.waiting = gauge("gbnf_requests_waiting", "Requests in the queue.")
        self.memory = gauge("gbnf_request_bytes", "Memory that requests reserve.")
        self.tokens = counter("gbnf_tokens", "Tokens by kind.", ["kind"])
        by_upstream = ["upstream", "model"]
        self.prompt_tokens = counter("gbnf_prompt_tokens", "Tokens of prompts.", by_upstream)
        self.cached_prompt_tokens = counter(
            "gbnf_cached_prompt_tokens", "Those of them that were in the cache.", by_upstream
        )
        self.grammar_ignored = counter(
            "gbnf_grammar_ignored", "Answers of a backend that ignored the grammar."
        )
        self.loosened_tools = counter("gbnf_loosened_tools", "Tools whose schema could not be compiled.")
        self.upstreams = gauge("gbnf_upstream_healthy", "1 for an upstream that is used.", ["upstream"])

    def text(self) -> bytes:
        """Return all metrics in Prometheus' text format."""
        return generate_latest(self.registry)


class _Shared(Generic[_Value]):
    """A question to the backends, whose answer all share who wait for it, for at most `limit_s`."""

    def __init__(self, ask: Callable[[], Coroutine[Any, Any, _Value]], limit_s: float) -> None:
        self._ask, self._limit_s = ask, limit_s
        self._asking: asyncio.Task[_Value] | None = None

    async def answer(self) -> _Value | None:
        """Return the answer, None if there is none in time."""
        if self._asking is None or self._asking.done():
            self._asking = asyncio.create_task(self._ask())
            self._asking.add_done_callback(lambda done: done.cancelled() or done.exception())
        with suppress(BackendError, TimeoutError):
            async with asyncio.timeout(self._limit_s):
                return await asyncio.shield(self._asking)
        return None

    async def cancel(self) -> None:
        """Ask no longer."""
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)


async def _in_thread(
    threads: ThreadPoolExecutor, work: Callable[_Given, _Value], *args: _Given.args, **options: _Given.kwargs
) -> _Value:
    """Return what `work` returns in one of the threads, in the context of the caller."""
    called = partial(copy_context().run, work, *args, **options)
    return await asyncio.get_running_loop().run_in_executor(threads, called)


class Gateway:
    """Answers requests with `engine` on `upstreams`; those to a model of `agents` with that.

    `model`: the name of the model. `apis`: the APIs; the first has the shape of errors at other paths.
    `verbatim`: see `Messages`. `store`: see `ResponseStore`. `log_contents`: log requests and answers.
    `shares_cache`: prompts of several API keys share the prompt cache. `pause`: waits so many seconds before
    a silent stream is kept alive.
    """

    def __init__(
        self,
        engine: Answers,
        upstreams: Upstreams,
        *,
        model: str,
        apis: Sequence[Api] | None = None,
        agents: Mapping[str, Answers] | None = None,
        verbatim: bool = False,
        store: str = "",
        limits: Limits | None = None,
        log_contents: bool = False,
        shares_cache: bool = False,
        pause: Pause = asyncio.sleep,
    ) -> None:
        self.engine, self.upstreams = engine, upstreams
        self.apis = apis or (ChatCompletions(), Responses(store), Messages(verbatim=verbatim))
        self.model, self.agents = model, dict(agents or {})
        self.limits = limits or Limits()
        self.log_contents, self.pause = log_contents, pause
        self._shares_cache = shares_cache
        self.caches = SchemaCaches(caches_in_use().parts)  # of all that its requests compile and read
        self.metrics = Metrics()
        self.queue = AnswerQueue(upstreams.places, self.limits.waiting)
        self.budget = MemoryBudget(self.limits.memory_bytes)
        self.is_draining = False
        self.open_requests = 0
        self._facts = _Shared(upstreams.facts, self.limits.facts_s)
        self._check = _Shared(upstreams.check, min(self.limits.facts_s, _HEALTH_S))
        self._tool_texts = ToolTexts()
        self._readers = ThreadPoolExecutor(_READERS, "gbnf-gateway-read")
        self._waiting = ThreadPoolExecutor(_WAITING_THREADS, "gbnf-gateway-wait")
        upstreams.on_usage = self._count_prompt
        # gauges read the present state when they are asked
        self.metrics.running.set_function(lambda: self.queue.running)
        self.metrics.waiting.set_function(lambda: self.queue.waiting)
        self.metrics.memory.set_function(lambda: self.budget.reserved)
        for upstream in upstreams.upstreams:
            gauge = self.metrics.upstreams.labels(upstream.name)
            gauge.set_function(partial(getattr, upstream, "healthy"))

    @property
    def models(self) -> list[str]:
        """The names of the models that clients may ask for."""
        return [self.model, *self.agents]

    async def context_length(self) -> int | None:
        """Return the context length of the model in tokens, None if it is not known, or not soon."""
        facts = await self._facts.answer()
        return None if facts is None else facts[1]

    async def health(self) -> dict[str, str]:
        """Return the status "ok", or why requests are not answered: "draining", "unavailable", "stuck"."""
        if self.is_draining:
            return {"status": "draining"}
        for upstream in self.upstreams.upstreams:
            if problem := upstream.backend.stuck:
                return {"status": "stuck", "problem": f"{problem}. Restart the server."}
        await self._check.answer()
        healthy = any(upstream.healthy for upstream in self.upstreams.upstreams)
        return {"status": "ok" if healthy else "unavailable"}

    async def read(
        self,
        parse: Callable[[Mapping[str, Any]], _Parsed],
        body: bytes,
        share: MemoryShare,
        *,
        blocks: bool = False,
    ) -> _Parsed:
        """Return what `parse` makes of the JSON object of a body. `blocks`: it may wait. Raises HttpError."""
        if blocks:
            return await self.wait_for(parse, await self.read(lambda value: value, body, share))
        tools = None
        if len(body) <= _SCANNED_BODY:
            body, tools = self._tool_texts.shorten(body)
        if len(body) <= _SMALL_BODY:  # sooner read than handed to a thread and back
            return self._parse(parse, body, tools, share)
        return await _in_thread(self._readers, self._parse, parse, body, tools, share)

    async def wait_for(
        self, work: Callable[_Given, _Value], *args: _Given.args, **options: _Given.kwargs
    ) -> _Value:
        """Return what `work` returns, which may wait for a store."""
        return await _in_thread(self._waiting, work, *args, **options)

    def _parse(
        self, parse: Callable[[Mapping[str, Any]], _Parsed], body: bytes, tools: Any, share: MemoryShare
    ) -> _Parsed:
        share.add(memory_of(body, count_values(body, self.limits)))
        value = read_object(body)
        check_sizes(value, self.limits, len(body))
        if tools is not None:
            return parse({**value, "tools": tools})
        if len(body) <= _SCANNED_BODY:
            self._tool_texts.add(body, value.get("tools"))
        return parse(value)

    async def answer(
        self, request: ChatRequest, endpoint: str, owner: str = ""
    ) -> AsyncGenerator[ReplyEvent, None]:
        """Wait for a place, and yield the events of the answer. Raises HttpError.

        `owner`: whose request it is, see `Access.check`. Prompts of several share no cache.
        """
        metrics = self.metrics
        begun = time.monotonic()
        backend = self.upstreams if self._shares_cache else self.upstreams.with_salt(owner)
        source = self.agents.get(request.model, self.engine) if request.count else self.engine
        await source.prepare(request, backend, owner)
        prepared = time.monotonic()
        async with self.queue.place(owner):
            metrics.queue_seconds.observe(time.monotonic() - prepared)
            has_begun = False
            async with aclosing(source.answer(request, backend)) as events:
                async for event in events:
                    if not has_begun:
                        has_begun = True
                        metrics.first_seconds.labels(endpoint).observe(time.monotonic() - begun)
                    self._count(event)
                    yield event

    async def count_tokens(self, request: ChatRequest, endpoint: str, owner: str = "") -> int:
        """Return the tokens of a request's prompt, as its backend counts them. Raises HttpError."""
        answer = self.answer(replace(request, count=0, stream=False), endpoint, owner)
        return sum([event.usage.prompt_tokens async for event in answer if isinstance(event, Finished)])

    def _count(self, event: ReplyEvent) -> None:
        match event:
            case Started():
                tools = {finding.tool for finding in event.enforcement.findings if finding.kind == "loosened"}
                self.metrics.loosened_tools.inc(len(tools))
            case Finished():
                usage, tokens = event.usage, self.metrics.tokens
                tokens.labels("prompt").inc(usage.prompt_tokens)
                tokens.labels("cached").inc(usage.cached_tokens)
                tokens.labels("completion").inc(usage.completion_tokens)
                tokens.labels("forced").inc(event.enforcement.forced_tokens)

    def _count_prompt(self, upstream: Upstream, usage: Usage) -> None:
        labels = upstream.name, self.model
        self.metrics.prompt_tokens.labels(*labels).inc(usage.prompt_tokens)
        self.metrics.cached_prompt_tokens.labels(*labels).inc(usage.cached_tokens)

    def log_content(self, request_id: str, kind: str, content: Any) -> None:
        """Log a request or an answer, if that is wanted."""
        if self.log_contents:
            log(kind, request_id=request_id, content=content_text(content))

    def start(self) -> None:
        """Prepare the event loop that serves."""
        # for what compiles and reads beside the answers, which decode in threads of their own
        executor = ThreadPoolExecutor(_OTHER_THREADS, "gbnf-gateway")
        asyncio.get_running_loop().set_default_executor(executor)
        self.upstreams.start_probing()

    async def close(self) -> None:
        """End what runs in the background. The backends are their owner's."""
        await self._facts.cancel()
        await self._check.cancel()
        await self.upstreams.stop_probing()
        for threads in (self._readers, self._waiting):
            threads.shutdown(wait=False, cancel_futures=True)


_MOST_KEPT = 16
_STYLES: tuple[tuple[str, dict[str, Any]], ...] = (
    ('"tools":', {"separators": (",", ":"), "ensure_ascii": False}),  # how JavaScript and httpx write JSON
    ('"tools": ', {}),  # how Python does
)


class ToolTexts:
    """The tools of the last requests by their JSON text, which clients send again with each request.

    For any number of threads. What belongs to a text is not changed.
    """

    def __init__(self) -> None:
        self._known: OrderedDict[bytes, Any] = OrderedDict()

    def shorten(self, body: bytes) -> tuple[bytes, Any]:
        """Return a body with null for known tools, and the tools; the body and None if it has none."""
        for text, tools in reversed(list(self._known.items())):
            before, match, after = body.partition(text)
            if match and nesting(before) == 1 and before.rstrip().endswith((b"{", b",")):
                return b'%b"tools":null%b' % (before, after), tools
        return body, None

    def add(self, body: bytes, tools: Any) -> None:
        """Remember the tools of a body."""
        for key, style in _STYLES if isinstance(tools, list) else ():
            text = f"{key}{json.dumps(tools, **style)}".encode()
            if text in body:
                self._known[text] = tools
                if len(self._known) > _MOST_KEPT:
                    self._known.popitem(last=False)
