"""A limit on the work of one compilation or validation.

Expensive code counts its work with `spend`, in units of about a microsecond. The count belongs to the
innermost `limit_work` block of the context; outside of one nothing is counted. When the limit is reached,
`spend` raises `WorkLimitError`; the caller that catches it substitutes a larger set of values, and reports
it.

Invariants: work is counted, never timed, so the same input takes the same count in every process, whatever
is cached, and gives the same grammar.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from gbnf.errors import GbnfError
from gbnf.schema_caches import caches_in_use, schema_cache

MAX_VALIDATION_WORK = 3_000_000
"""The work that judging or repairing one call may take."""

# The most states of automata. What would need more is enforced less exactly, and reported.

MAX_STATES = 4000
"""Of any, also while it is built: each may become a rule."""
MAX_STRING_STATES = 1200
"""Of a bound on lengths: beside a pattern or format, each of its states is repeated for each of theirs."""
MAX_KEY_STATES = 3000
"""Of all classes into which patterns divide keys, in total: they are intersections, which multiply."""
MAX_COUNTED_STATES = 400
"""Of multiples whose digits are counted, too: each state is repeated for each count."""

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


class TooManyStatesError(GbnfError):
    """The automaton would have more states than its budget allows, or take more steps to build."""

    def __init__(self, limit: int, counted: str = "states") -> None:
        self.limit = limit
        super().__init__(f"the automaton takes more than {limit} {counted}")


class WorkLimitError(TooManyStatesError):
    """The work that a schema may take is used up. Callers that can do without an automaton may catch it."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        GbnfError.__init__(self, "the schema takes too much work")


class _WorkCount:
    """A count of work; `spend` raises above `limit` (None: never)."""

    __slots__ = ("depth", "limit", "may_backtrack", "paid", "used")

    def __init__(self, limit: int | None, *, may_backtrack: bool = False) -> None:
        self.limit = limit
        self.may_backtrack = may_backtrack
        self.used = 0
        self.paid: set[Any] = set()  # the cached calls that were counted
        self.depth = 0  # of nested validations


_current: ContextVar[_WorkCount | None] = ContextVar("count", default=None)


def spend(work: int) -> None:
    """Count `work`. Raises WorkLimitError above the limit."""
    count = _current.get()
    if count is not None:
        count.used += work
        if count.limit is not None and count.used > count.limit:
            raise WorkLimitError(count.limit)


def is_spent() -> bool:
    """Return whether the limit is reached."""
    count = _current.get()
    return count is not None and count.limit is not None and count.used > count.limit


def may_backtrack() -> bool:
    """Return whether patterns may be matched by a library that doesn't count its work."""
    count = _current.get()
    return count is None or count.may_backtrack


@contextmanager
def limit_work(limit: int | None = None, *, may_backtrack: bool = False) -> Iterator[None]:
    """Count the work inside from zero, up to `limit` (default: that of the caches in use)."""
    count = _WorkCount(caches_in_use().max_work if limit is None else limit, may_backtrack=may_backtrack)
    token = _current.set(count)
    try:
        yield
    finally:
        _current.reset(token)


@contextmanager
def limit_work_share(part: int) -> Iterator[None]:
    """Let the work inside take at most 1/`part` of what is left."""
    count = _current.get()
    if count is None or count.limit is None:
        yield
        return
    limit = count.limit
    count.limit = min(limit, count.used + max(limit - count.used, 0) // part)
    try:
        yield
    finally:
        count.limit = limit


@contextmanager
def limit_nesting(most: int) -> Iterator[None]:
    """Limit the depth of recursion to `most`; twice that where patterns may backtrack.

    While compiling, part of Python's stack is in use already. Raises WorkLimitError beyond the limit.
    """
    count = _current.get()
    if count is None:
        yield
        return
    if count.depth >= (2 * most if count.may_backtrack else most):
        raise WorkLimitError(most)
    count.depth += 1
    try:
        yield
    finally:
        count.depth -= 1


def work_cache(maxsize: int) -> Callable[[Callable[_Arguments, _Result]], Callable[_Arguments, _Result]]:
    """Cache as `functools.lru_cache` does, for functions that spend: cached calls cost the same.

    In each count the first call with the same arguments costs, and later ones cost nothing. The errors of
    this project are cached like results. The count does not limit the function itself: it needs its own
    limits.
    """

    def decorate(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
        @schema_cache(maxsize)
        def outcome(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> tuple[Any, GbnfError | None, int]:
            count = _WorkCount(None)
            token = _current.set(count)
            try:
                return function(*args, **kwargs), None, count.used
            except GbnfError as error:
                return None, error.with_traceback(None), count.used
            finally:
                _current.reset(token)

        @wraps(function)
        def call(*args: _Arguments.args, **kwargs: _Arguments.kwargs) -> _Result:
            value, error, work = outcome(*args, **kwargs)
            count = _current.get()
            paid = (outcome, args, tuple(kwargs.items()))
            if count is not None and paid not in count.paid:
                count.paid.add(paid)
                spend(work)
            if error is not None:
                raise error.with_traceback(None)
            return value  # type: ignore[no-any-return]  # it is what the function returned

        return call

    return decorate
