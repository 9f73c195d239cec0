"""Models in workers of a Ray cluster, as one backend.

A call of a model has no effect, so one whose worker dies is repeated by another worker. Planning, tools and
logs stay in the process that has the backend. A compiled grammar is sent once, and each worker reads it once.
"""

from __future__ import annotations

import asyncio
import math
import socket
from collections import OrderedDict
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager, suppress
from dataclasses import dataclass, replace
from importlib.metadata import version
from time import monotonic
from typing import Any, TypeAlias
from weakref import WeakKeyDictionary

import ray
from ray import exceptions
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from gbnf import Grammar
from gbnf_server.backends.answer import RequestBackend
from gbnf_server.backends.base import Backend, BackendEvent, Completion, Dialect, ModelInfo, Request
from gbnf_server.backends.upstreams import Upstream, Upstreams
from gbnf_server.system.errors import BackendError, BackendUnreachableError, SetupError

OpenWorker: TypeAlias = Callable[[int], tuple[Backend, Mapping[str, Any]]]
"""Opens the model of a worker for so many calls at a time; returns it, and the facts that identify it."""

_CONNECTED_S, _PLACED_S, _RESTARTED_S, _PAUSE_S = 10.0, 120.0, 120.0, 0.5
"""How long to wait for the cluster's answer, for room on it, for workers to start again, between looks."""
_MOST_KEPT = 64  # grammars of a worker
_NAME = "gbnf-toolkit"


@dataclass(frozen=True, slots=True)
class _WorkerFacts:
    """What a worker tells of itself and its model."""

    version: str
    name: str
    dialect: Dialect
    enforces_grammar: bool
    info: ModelInfo
    context_length: int | None
    model: Mapping[str, Any]

    @property
    def identity(self) -> object:
        """What must be the same for all workers."""
        model = {key: value for key, value in self.model.items() if key != "name"}
        return self.dialect, self.context_length, model


class _Worker:
    """The actor. It opens its model when it is first asked, also after a restart."""

    def __init__(self, open_worker: OpenWorker, parallel: int) -> None:
        self._open, self._parallel = open_worker, parallel
        self._opening = asyncio.Lock()
        self._opened: tuple[Backend, Mapping[str, Any]] | None = None
        self._grammars: OrderedDict[str, Grammar] = OrderedDict()

    async def ready(self) -> None:
        """Return as soon as the actor has a place."""

    async def facts(self) -> _WorkerFacts:
        backend, model = await self._backend()
        told = backend.name, backend.dialect, backend.enforces_grammar, *await backend.facts(), model
        return _WorkerFacts(version(_NAME), *told)

    async def complete(self, request: Request, grammar: Sequence[ray.ObjectRef[Grammar]]) -> Completion:
        backend, _ = await self._backend()
        if grammar:
            request = replace(request, grammar=await self._grammar(grammar[0]))
        async with aclosing(backend.generate(request)) as events:
            async for event in events:
                if isinstance(event, Completion):
                    return event
        raise AssertionError("an answer ends with its completion")

    async def count_tokens(self, request: Request) -> int:
        backend, _ = await self._backend()
        return await backend.count_tokens(request)

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


class RayWorker(RequestBackend):
    """The model of one worker. An answer comes as a whole."""

    def __init__(self, actor: Any, facts: _WorkerFacts, shared: WeakKeyDictionary[Grammar, Any]) -> None:
        self._actor, self._shared = actor, shared
        self.name, self.dialect, self.enforces_grammar = facts.name, facts.dialect, facts.enforces_grammar
        self._info, self._context_length = facts.info, facts.context_length

    async def count_tokens(self, request: Request) -> int:
        """Return the number of tokens of the request's prompt; see `Backend`."""
        with _translated():
            count: int = await self._actor.count_tokens.remote(replace(request, grammar=None))
        return count

    async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        """Yield the completion of one answer; see `Backend`."""
        grammars: list[Any] = []
        if isinstance(grammar := request.grammar, Grammar):
            if grammar not in self._shared:
                self._shared[grammar] = ray.put(grammar)
            request, grammars = replace(request, grammar=None), [self._shared[grammar]]
        promise = self._actor.complete.remote(request, grammars)
        try:
            with _translated():
                completion = await promise
        except asyncio.CancelledError:
            ray.cancel(promise)
            raise
        yield completion

    async def is_there(self) -> bool:
        """Return whether the worker answers: one that was killed starts again, unless its node is gone."""
        if not ray.is_initialized():  # Ray would start a cluster, and block this event loop
            return False
        try:
            await asyncio.wait_for(self._actor.ready.remote(), _CONNECTED_S)
        except Exception:  # noqa: BLE001  # Ray raises a bare Exception for an actor that is gone for good
            return False
        return True

    def close(self) -> None:
        """End the worker. Idempotent."""
        with suppress(exceptions.RayError):
            ray.kill(self._actor)


class RayWorkers(Upstreams):
    """A model in a worker for each GPU of a Ray cluster, or without any for each node.

    `address`: of the cluster, as `ray.init` takes it. `open_worker` is called in each worker, whose machine
    has this package in the same version. `concurrency`: calls at a time, by default as many as the workers'
    models have slots, which `slots` says. `facts_of_model`: those of `open_worker`. Raises SetupError, and
    what `open_worker` raises.
    """

    def __init__(self, address: str, open_worker: OpenWorker, concurrency: int | None = None) -> None:
        try:
            _check_address(address)
            ray.init(address, log_to_driver=False, logging_level="error", ignore_reinit_error=True)
        except (ConnectionError, RuntimeError, ValueError, OSError) as error:
            raise SetupError(
                f"no Ray cluster can be used at {address!r}: {error}. Start one with `ray start --head`."
            ) from None
        actors = _placed(open_worker, concurrency)
        try:
            by_actor = _facts_of(actors)
        except BaseException:
            for actor in actors:
                ray.kill(actor)
            raise
        self.facts_of_model = next(iter(by_actor.values())).model
        shared: WeakKeyDictionary[Grammar, Any] = WeakKeyDictionary()
        workers = [RayWorker(actor, facts, shared) for actor, facts in by_actor.items()]
        places = [math.ceil((concurrency or 0) / len(by_actor)) or worker.info().slots for worker in workers]
        super().__init__([*map(Upstream, workers, places)])
        self.slots = concurrency or self.places

    async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        """As several backends, but wait for workers that start again.

        Raises BackendError for a call in which all workers die twice, BackendUnreachableError if none comes
        back.
        """
        for _ in range(2):
            try:
                async with aclosing(super().generate(request)) as events:
                    async for event in events:
                        yield event
            except BackendUnreachableError:
                ends = monotonic() + _RESTARTED_S
                while not any(upstream.healthy for upstream in self.upstreams):
                    if monotonic() > ends:
                        raise
                    await asyncio.sleep(_PAUSE_S)
            else:
                return
        raise BackendError("all workers of the Ray cluster died twice while they answered this call")


@contextmanager
def _translated() -> Iterator[None]:
    """Raise what a worker has raised, BackendUnreachableError for one that is not there."""
    try:
        yield
    except exceptions.RayTaskError as error:
        raise error.cause from None
    except (exceptions.RayActorError, exceptions.ActorUnschedulableError) as error:
        raise BackendUnreachableError(f"a worker of the Ray cluster is gone: {error}") from None


def _placed(open_worker: OpenWorker, concurrency: int | None) -> list[Any]:
    """Start an actor for each GPU, or without any on each node."""
    nodes = [node for node in ray.nodes() if node["Alive"]]
    places = [(node["NodeID"], 1) for node in nodes for _ in range(int(node["Resources"].get("GPU", 0)))]
    places = places or [(node["NodeID"], 0) for node in nodes]
    parallel = math.ceil((concurrency or 1) / len(places))
    actors = []
    for node, gpus in places:
        there = NodeAffinitySchedulingStrategy(node, soft=False)
        actor = ray.remote(_Worker).options(
            num_cpus=0, num_gpus=gpus, scheduling_strategy=there, max_restarts=-1
        )
        actors.append(actor.remote(open_worker, parallel))
    return actors


def _facts_of(actors: Sequence[Any]) -> dict[Any, _WorkerFacts]:
    """Return what each worker tells; those whose node has just gone are left out. Raises SetupError."""
    promises = {actor: actor.facts.remote() for actor in actors}
    ready = [actor.ready.remote() for actor in actors]
    if len(ray.wait(ready, num_returns=len(ready), timeout=_PLACED_S)[0]) < len(ready):
        raise SetupError(
            f"the Ray cluster has no room for {len(ready)} workers after {_PLACED_S:g} s: other jobs hold "
            "its GPUs. See `ray status`."
        )
    facts_by_actor: dict[Any, _WorkerFacts] = {}
    for actor, facts in promises.items():
        with suppress(BackendUnreachableError), _translated():
            facts_by_actor[actor] = ray.get(facts)
    if not facts_by_actor:
        raise SetupError("no worker of the Ray cluster starts. See `ray status`.")
    first, *others = facts_by_actor.values()
    for facts in (first, *others):
        if facts.version != version(_NAME) or facts.identity != first.identity:
            raise SetupError(
                f"a node has gbnf-toolkit {facts.version} with {facts.model}, another one {first.version} "
                f"with {first.model}, this machine {version(_NAME)}. Use the same everywhere."
            )
    return facts_by_actor


def _check_address(address: str) -> None:
    """Raise OSError if nothing listens there: Ray itself would wait for minutes, and end the process."""
    host, _, port = address.rpartition(":")
    if port.isdecimal() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), _CONNECTED_S).close()
