"""Models in workers of a Ray cluster, as one backend.

A call of a model has no effect, so one whose worker dies is repeated by another worker. Planning, tools and
logs stay in the process that has the backend. A compiled grammar is sent once, and each worker reads it once.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from time import monotonic
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import ray
from ray import exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gbnf import Grammar
from gbnf.prompts.messages import Message
from gbnf_server.backends.answer import RequestBackend
from gbnf_server.backends.base import Backend, BackendEvent, Completion, Dialect, ModelInfo, Request
from gbnf_server.system.errors import (
    AnswerTimeoutError,
    BackendError,
    BackendUnreachableError,
    SetupError,
)
from gbnf_server.system.event_loop import shared_loop

OpenWorker: TypeAlias = Callable[[int], tuple[Backend, Mapping[str, Any]]]
"""Opens the model of a worker for so many calls at a time; returns it, and the facts that identify it."""

_CONNECTED_S, _PLACED_S, _RESTARTED_S, _PAUSE_S = 10.0, 120.0, 120.0, 0.5
"""How long to wait for the cluster, for room on it, for workers to start again, and between two attempts."""
_WORKED_S, _MOST_DEATHS = 0.2, 2
"""A worker that fails later than this was there, and died; how many may die of one call."""
_MOST_KEPT = 64
"""Grammars that a worker keeps."""
_MOST_CONVERSATIONS = 4096
_NAME = "gbnf-toolkit"
_GONE = (exceptions.RayActorError, exceptions.ActorUnschedulableError)
"""What a call ends with if the worker's node is gone."""


@dataclass(frozen=True, slots=True)
class _Facts:
    """What a worker tells of its model; all workers must tell the same of `model`."""

    version: str
    name: str
    dialect: Dialect
    enforces_grammar: bool
    info: ModelInfo
    context_length: int
    model: Mapping[str, Any]


class _Worker:
    """The actor. It opens its model when it is first asked, also after a restart."""

    def __init__(self, open_worker: OpenWorker, parallel: int) -> None:
        self._open, self._parallel = open_worker, parallel
        self._opening = asyncio.Lock()
        self._opened: tuple[Backend, Mapping[str, Any]] | None = None
        self._grammars: OrderedDict[str, Grammar] = OrderedDict()

    async def ready(self) -> None:
        """Return as soon as the actor has a place."""

    async def facts(self) -> _Facts:
        backend, model = await self._backend()
        info, length = await asyncio.to_thread(backend.info), await asyncio.to_thread(backend.context_length)
        enforces = backend.enforces_grammar
        return _Facts(version(_NAME), backend.name, backend.dialect, enforces, info, length, model)

    async def complete(self, request: Request, grammar: Sequence[ray.ObjectRef[Grammar]]) -> Completion:
        backend, _ = await self._backend()
        if grammar:
            request = replace(request, grammar=await self._grammar(grammar[0]))
        async with aclosing(backend.generate(request)) as events:
            async for event in events:
                if isinstance(event, Completion):
                    return event
        raise AssertionError("an answer ends with its completion")

    async def count_tokens(self, request: Request, _grammar: object) -> int:
        backend, _ = await self._backend()
        return await asyncio.to_thread(backend.count_tokens, request)

    async def _backend(self) -> tuple[Backend, Mapping[str, Any]]:
        async with self._opening:
            if self._opened is None:
                self._opened = await asyncio.to_thread(self._open, self._parallel)
        return self._opened

    async def _grammar(self, shared: ray.ObjectRef[Grammar]) -> Grammar:
        key = shared.hex()
        if key not in self._grammars:
            self._grammars[key] = await shared
            if len(self._grammars) > _MOST_KEPT:
                self._grammars.popitem(last=False)
        self._grammars.move_to_end(key)
        return self._grammars[key]


@dataclass(slots=True, eq=False)
class _Placed:
    """A worker as this process knows it. `absent_until`: when to try it again (`monotonic`)."""

    actor: Any
    node: str
    running: int = 0
    absent_until: float = 0.0


class RayWorkers(RequestBackend):
    """A model in a worker for each GPU of a Ray cluster, or without any for each node.

    `address`: of the cluster, as `ray.init` takes it. `open_worker` is called in each worker, whose machine
    has this package in the same version. `concurrency`: calls at a time, by default as many as the workers'
    models have slots. An answer comes as a whole. Raises SetupError, and what `open_worker` raises.
    """

    def __init__(self, address: str, open_worker: OpenWorker, concurrency: int | None = None) -> None:
        try:
            _check_address(address)
            ray.init(address, log_to_driver=False, logging_level="error", ignore_reinit_error=True)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise SetupError(
                f"no Ray cluster can be used at {address!r}: {error}. Start one with `ray start --head`."
            ) from None
        self._conversations: OrderedDict[int, _Placed] = OrderedDict()
        self._shared: WeakKeyDictionary[Grammar, Any] = WeakKeyDictionary()
        self._workers: list[_Placed] = []
        try:
            self._place(open_worker, concurrency)
        except BaseException:
            self.close()
            raise

    def _place(self, open_worker: OpenWorker, concurrency: int | None) -> None:
        places = _places()
        self._parallel = math.ceil((concurrency or 1) / len(places))
        for node, gpus in places:
            affinity = NodeAffinitySchedulingStrategy(node, soft=False)
            made = ray.remote(_Worker).options(
                num_cpus=0, num_gpus=gpus, scheduling_strategy=affinity, max_restarts=-1
            )
            self._workers.append(_Placed(made.remote(open_worker, self._parallel), node))
        asked = [(each, each.actor.facts.remote()) for each in self._workers]
        ready = [each.actor.ready.remote() for each in self._workers]
        if len(ray.wait(ready, num_returns=len(ready), timeout=_PLACED_S)[0]) < len(ready):
            raise SetupError(
                f"the Ray cluster has no room for {len(places)} workers after {_PLACED_S:g} s: other jobs "
                "hold its GPUs. See `ray status`."
            )
        found: list[_Facts] = []
        for worker, facts in asked:
            try:
                found.append(ray.get(facts))
            except exceptions.RayTaskError as error:
                raise error.cause from None
            except _GONE:
                self._workers.remove(worker)
        if not found:
            raise SetupError("no worker of the Ray cluster starts. See `ray status`.")
        first = found[0]
        for worker, facts in zip(self._workers, found, strict=True):
            if facts.version != version(_NAME) or _same(facts) != _same(first):
                told, here = {**facts.model}, {**first.model}
                raise SetupError(
                    f"the node {worker.node[:8]} has gbnf-toolkit {facts.version} with {told}, another one "
                    f"{first.version} with {here}, this machine {version(_NAME)}. Use the same everywhere."
                )
        self.facts_of_model: Mapping[str, Any] = first.model
        """The facts that `open_worker` has returned."""
        self.slots = concurrency or len(found) * first.info.slots
        """How many calls to make at a time."""
        self._per_worker = math.ceil(self.slots / len(found))
        self._facts = first
        self.name = f"{len(found)} Ray workers with {first.name}"
        self.dialect: Dialect = first.dialect

    @property
    def enforces_grammar(self) -> bool:
        """See `Backend`."""
        return self._facts.enforces_grammar

    def info(self) -> ModelInfo:
        """Return what is known of the model; see `Backend`."""
        return self._facts.info

    def context_length(self) -> int:
        """Return the longest conversation in tokens."""
        return self._facts.context_length

    def count_tokens(self, request: Request) -> int:
        """Return the number of tokens of the request's prompt; see `Backend`."""
        count: int = shared_loop().run(self._call("count_tokens", replace(request, grammar=None)))
        return count

    def clear_prompt_cache(self) -> None:
        """Do nothing: another worker may get the next call."""

    async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        """Yield the completion of one answer; see `Backend`."""
        grammar = request.grammar
        if not isinstance(grammar, Grammar):
            yield await self._call("complete", request)
            return
        if grammar not in self._shared:
            self._shared[grammar] = ray.put(grammar)
        yield await self._call("complete", replace(request, grammar=None), self._shared[grammar])

    def close(self) -> None:
        """End the workers. Idempotent."""
        for worker in self._workers:
            with suppress(exceptions.RayError):
                ray.kill(worker.actor)
        self._workers = []

    async def _call(self, method: str, request: Request, *grammar: Any) -> Any:
        """Return what a worker returns.

        Raises BackendUnreachableError if no worker answers, BackendError for a call in which several died.
        """
        end = None if request.timeout_s is None else monotonic() + request.timeout_s
        failing_since, deaths = None, 0
        while True:
            now = monotonic()
            if not self._workers or (failing_since is not None and now - failing_since > _RESTARTED_S):
                raise BackendUnreachableError(
                    "no worker of the Ray cluster answers. See `ray status`, and start the batch again."
                )
            ready = [each for each in self._workers if each.absent_until <= now]
            if not ready:
                await asyncio.sleep(_PAUSE_S)
                continue
            worker = self._choose(ready, request.messages)
            worker.running += 1
            asked = getattr(worker.actor, method).remote(request, grammar)
            try:
                async with asyncio.timeout(None if end is None else end - now):
                    return await asked
            except exceptions.RayTaskError as error:
                raise error.cause from None
            except (exceptions.ActorUnavailableError, *_GONE) as error:
                failing_since = failing_since or monotonic()
                deaths += monotonic() - now > _WORKED_S
                if deaths > _MOST_DEATHS:
                    raise BackendError(f"{deaths} Ray workers died while they answered this call") from None
                if isinstance(error, exceptions.ActorUnavailableError):  # it starts again
                    worker.absent_until = monotonic() + _PAUSE_S
                elif worker in self._workers:
                    self._workers.remove(worker)
            except TimeoutError:
                ray.cancel(asked)
                raise AnswerTimeoutError(
                    f"a Ray worker did not answer within {request.timeout_s:g} s"
                ) from None
            except asyncio.CancelledError:
                ray.cancel(asked)
                raise
            finally:
                worker.running -= 1

    def _choose(self, workers: Sequence[_Placed], messages: Sequence[Message]) -> _Placed:
        """Return the worker that has the conversation in its cache, if it is free; else the least busy."""
        key = hash(repr(messages[:2]))
        last = self._conversations.pop(key, None)
        busy = self._per_worker
        worker = min(workers, key=lambda each: (each.running >= busy, each is not last, each.running))
        self._conversations[key] = worker
        if len(self._conversations) > _MOST_CONVERSATIONS:
            self._conversations.popitem(last=False)
        return worker


def _check_address(address: str) -> None:
    """Raise OSError if nothing listens there: Ray itself would wait for minutes, and end the process."""
    host, _, port = address.rpartition(":")
    if port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECTED_S).close()


def _places() -> list[tuple[str, int]]:
    """Return the node of each worker, and how many GPUs it gets."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    gpus = [(node["NodeID"], 1) for node in nodes for _ in range(int(node["Resources"].get("GPU", 0)))]
    return gpus or [(node["NodeID"], 0) for node in nodes]


def _same(facts: _Facts) -> object:
    model = {key: value for key, value in facts.model.items() if key != "name"}
    return facts.dialect, facts.context_length, model
