"""Call the function of a tool in a thread of this process.

The function gets a copy of the arguments, and the context of an executor. Its result has the limits of any
other (`run.max_result_kb`, depth), and its exceptions become `ExecutorError`s with a traceback as a note.
After `run.timeout_s`, or an interruption, it can't be killed: a coroutine is cancelled at its next `await`,
or does not begin, also one in another event loop, of which the function returns the `Future`; a thread
continues. Neither can begin a change of files through the context or ask, but a change that has begun is
completed. Its memory, environment, output and import path are this process's.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from concurrent.futures import Future, wait
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from gbnf.errors import InvalidArgumentError
from gbnf_server.executors import protocol
from gbnf_server.executors.context import Context
from gbnf_server.executors.person import Form, Person
from gbnf_server.executors.results import describe_failure, format_traceback
from gbnf_server.system.errors import ExecutorError, ExecutorTimeoutError
from gbnf_server.system.event_loop import run_in_thread

if TYPE_CHECKING:
    from gbnf.tools import Tool

_LONGEST_WAIT_S = 0.5  # until it is seen that the caller has ended the call
_SHORTEST_WAIT_S = 0.02


def call_function(
    tool: Tool, function: Callable[..., Any], arguments: Mapping[str, Any], context: Context
) -> dict[str, Any]:
    """Return the function's result. Raises `ExecutorError`; `ExecutorTimeoutError` after `run.timeout_s`."""
    sent = json.loads(protocol.encode_arguments(tool.name, arguments))
    deadline = _Deadline(tool.run.timeout_s)
    inner = replace(context, person=_PatientPerson(context, deadline), ended=threading.Event())
    call = _ThreadedCall(function, sent, inner)
    try:
        while not wait([call.done], deadline.wait_s()).done:
            context.check_not_ended()
            if deadline.is_over():
                raise ExecutorTimeoutError(tool.name, tool.run.timeout_s, killed=False)
    finally:
        inner.ended.set()
        call.cancel()
    error = call.done.exception()
    if error is not None:
        raise _executor_error(tool.name, function, error) from None
    value = call.done.result()
    value = value if isinstance(value, dict) else {"result": value}
    reader = protocol.MessageReader(tool.name, tool.run.max_result_kb, context.secrets)
    reader.feed(protocol.result(tool.name, value))
    message = reader.next_message()
    assert isinstance(message, dict)
    return message


class _ThreadedCall:
    """A call in a thread of its own."""

    def __init__(self, function: Callable[..., Any], arguments: dict[str, Any], context: Context) -> None:
        self._function, self._arguments, self._context = function, arguments, context
        self._cancel: Callable[[], object] = lambda: None
        self.done = run_in_thread(self._run)

    def cancel(self) -> None:
        """Cancel a coroutine that still runs."""
        with suppress(RuntimeError):  # its event loop is closed
            self._cancel()

    def _run(self) -> Any:
        self._context.check_not_ended()  # the function may start what it returns
        value = self._function(self._arguments, self._context)
        if inspect.isawaitable(value):
            return asyncio.run(self._awaited(value))
        if isinstance(value, Future):
            self._cancel = value.cancel
            if self._context.ended.is_set():  # as below
                value.cancel()
            return value.result()
        return value

    async def _awaited(self, value: Awaitable[Any]) -> Any:
        loop, task = asyncio.get_running_loop(), asyncio.current_task()
        assert task is not None
        self._cancel = lambda: loop.call_soon_threadsafe(task.cancel)
        if self._context.ended.is_set() and inspect.iscoroutine(value):
            value.close()  # it has not begun, and the caller's `cancel` may have come before
        self._context.check_not_ended()
        return await value


class _Deadline:
    """The remaining time of a call. It is paused while a person is asked."""

    def __init__(self, timeout_s: float) -> None:
        self._left = timeout_s or float("inf")
        self._since: float | None = time.monotonic()

    def is_over(self) -> bool:
        since = self._since  # read once: the function's thread changes it
        return since is not None and time.monotonic() - since >= self._left

    def wait_s(self) -> float:
        passed = 0.0 if (since := self._since) is None else time.monotonic() - since
        return min(max(self._left - passed, _SHORTEST_WAIT_S), _LONGEST_WAIT_S)

    def __enter__(self) -> None:
        since, self._since = self._since, None
        if since is not None:
            self._left -= time.monotonic() - since

    def __exit__(self, *error: object) -> None:
        self._since = time.monotonic()


class _PatientPerson(Person):
    """The person of a context; the time to answer does not count for the function's limit."""

    def __init__(self, context: Context, deadline: _Deadline) -> None:
        self._context, self._deadline = context, deadline
        self._lock = threading.Lock()  # a function may ask from several threads

    def answer(self, form: Form) -> dict[str, Any]:
        with self._lock, self._deadline:
            return self._context.answers(form)


def _executor_error(name: str, function: Callable[..., Any], error: BaseException) -> ExecutorError:
    if isinstance(error, ExecutorError):
        return error
    if isinstance(error, InvalidArgumentError):
        return ExecutorError(str(error))
    code = getattr(inspect.unwrap(function), "__code__", None)
    failure = ExecutorError(describe_failure(name, getattr(code, "co_filename", ""), error))
    failure.add_note(format_traceback(error))
    return failure
