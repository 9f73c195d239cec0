"""What is kept of schemas, grammars and tools, and who owns it.

The results of `schema_cache` functions are in the `SchemaCaches` that are in use: those of the process, or in
a `with caches.use()` block these. Tasks and threads of asyncio that are started there use them, too.

Imports nothing, so that a program may set a store before it knows whether it compiles anything.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from functools import _lru_cache_wrapper, lru_cache, wraps
from typing import Any, ParamSpec, Protocol, TypeVar

MAX_COMPILE_WORK = 6_500_000
"""The work that one schema, or one tool's arguments, may take, in the units of `gbnf.work_limits`."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class PartCache(Protocol):
    """Keeps entries of bytes by key. Both methods may be called from several threads, and raise nothing.

    A key says everything about an entry but the version of this package, of Python and of the packages that
    it uses: the implementation must return no entry that another version put there. Entries carry a
    checksum, so one that is damaged does no harm: it is compiled again, and put again.
    """

    def get(self, key: str) -> bytes | None:
        """Return the entry, None if there is none."""

    def put(self, key: str, entry: bytes) -> None:
        """Keep an entry, if possible. It replaces the present one."""


@dataclass(eq=False)
class SchemaCaches:
    """What is kept, and the limit of the work of one compilation, which it depends on. Thread-safe.

    `parts`: keeps compiled tools beyond the process. Grammars and reports do not depend on it. `results`: of
    each `schema_cache` function, by its arguments; may be cleared.
    """

    parts: PartCache | None = None
    max_work: int = MAX_COMPILE_WORK
    results: dict[Callable[..., Any], _lru_cache_wrapper[Any]] = field(default_factory=dict, repr=False)

    @contextmanager
    def use(self) -> Iterator[None]:
        """Use these caches in the context."""
        token = _in_use.set(self)
        try:
            yield
        finally:
            _in_use.reset(token)


_in_use: ContextVar[SchemaCaches] = ContextVar("caches", default=SchemaCaches())  # noqa: B039  # the process's


def caches_in_use() -> SchemaCaches:
    """Return the caches of this context, those of the process outside of any `use`."""
    return _in_use.get()


def schema_cache(
    maxsize: int,
) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Cache as `functools.lru_cache` does what schemas, grammars and tools determine, in the caches in use.

    Caches of what does not depend on them are `functools`' own.
    """
    in_use = _in_use.get

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @wraps(function)
        def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            try:  # the fastest way: some are called hundreds of times for one schema
                cached = in_use().results[call]
            except KeyError:
                cached = in_use().results.setdefault(call, lru_cache(maxsize)(function))
            return cached(*args, **kwargs)  # type: ignore[arg-type, no-any-return]  # hashable; what it returned

        return call

    return decorate
