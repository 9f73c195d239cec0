"""The fork server, the supervisor and the process of one executor. Only `fork_server` starts the first.

Invariants: it starts fast, so it imports little before the first request; an executor's process is as if it
had been started for it, and its supervisor ends it when the runner has the result or has exited; whatever the
executor does, exactly one result or error is sent, or the runner reports a crash.
"""

from __future__ import annotations

import gc
import importlib
import importlib.util
import inspect
import json
import os
import resource
import signal
import socket
import sys
import threading
import time
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import asdict
from datetime import datetime, timedelta
from operator import attrgetter
from pathlib import Path
from types import ModuleType
from typing import Any, BinaryIO, NoReturn
from zoneinfo import ZoneInfo

from gbnf.errors import InvalidArgumentError
from gbnf_server.executors import protocol
from gbnf_server.executors.context import Context
from gbnf_server.executors.person import Form, Person
from gbnf_server.executors.results import LONGEST_TEXT, describe_failure, format_traceback
from gbnf_server.executors.secrets import Secrets
from gbnf_server.executors.workspace import Workspace
from gbnf_server.system.errors import ExecutorError
from gbnf_server.system.supervisor import continue_supervised

_LARGEST_LIMIT = 1 << 50
_IMPORTED_LATER = (
    *("ast", "fractions", "difflib", "fnmatch", "subprocess", "email.message", "smtplib", "tempfile"),
    *("asyncio", "psutil"),
)
"""What the bundled executors import, and others often; the supervisor needs psutil to end what is left."""


def main(requests: int, once: int) -> NoReturn:
    """Run an executor for each request, supervised by a child of this process; by this one if `once`.

    `requests` is a socket. With each byte come two pipes, the connection of runner and supervisor, the folder
    to run in, and the pipe for what the executor prints.
    """
    incoming, outgoing, connection, folder, output = _next_request(socket.socket(fileno=requests), once)
    os.fchdir(folder)
    for stream in (1, 2):
        os.dup2(output, stream)
    os.close(folder)
    os.close(output)
    continue_supervised(connection, lambda: [*map(os.close, (incoming, outgoing))])
    # A shell ignores these signals in background jobs, and an executor would inherit that.
    for number, usual in ((signal.SIGINT, signal.default_int_handler), (signal.SIGQUIT, signal.SIG_DFL)):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, usual)
    os.close(connection)
    _work(incoming, outgoing)


def _next_request(requests: socket.socket, once: int) -> list[int]:
    """Return the descriptors of a request, in a process of its own unless `once`; exit after the last one."""
    later = [] if once else [*_IMPORTED_LATER]
    if not once:
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps the supervisors
        nothing = os.open(os.devnull, os.O_WRONLY)
        for stream in (1, 2):  # they are the first call's
            os.dup2(nothing, stream)
        os.close(nothing)
    while True:
        requests.setblocking(not later)
        try:
            _, descriptors, *_ = socket.recv_fds(requests, 1, 5)
        except BlockingIOError:
            importlib.import_module(later.pop(0))
            continue
        if not descriptors:  # the runner has ended
            os._exit(0)
        gc.freeze()  # a collection in a forked process would copy the memory that it shares
        if once or not os.fork():
            break
        for descriptor in descriptors:
            os.close(descriptor)
    os.write(descriptors[2], os.getpid().to_bytes(8, "big"))  # before what may look like its end
    requests.close()
    for descriptor in descriptors:
        os.set_inheritable(descriptor, False)
    if not once:
        os.setsid()
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    return descriptors


def _work(incoming: int, outgoing: int) -> NoReturn:
    sys.stdout.reconfigure(line_buffering=True)  # type: ignore[union-attr]  # what it prints is not lost if it is killed
    with os.fdopen(incoming, "rb") as messages, os.fdopen(outgoing, "wb") as pipe:
        relay = _Relay(messages, pipe)
        last = _run(relay.next_message(), relay)
        sys.stdout.flush()
        sys.stderr.flush()
        pipe.write(last)
        pipe.flush()
        while True:  # its child processes can be found as long as it runs
            signal.pause()


class _Relay(Person):
    """The person, at the other end of the pipes."""

    def __init__(self, messages: BinaryIO, pipe: BinaryIO) -> None:
        self._messages, self._pipe = messages, pipe
        self._lock = threading.Lock()  # an executor may ask in several threads

    def answer(self, form: Form) -> dict[str, Any]:
        return self.ask("ask", **asdict(form))

    def ask(self, kind: str, **members: Any) -> dict[str, Any]:
        """Send a question, and return its answer."""
        with self._lock:
            self._pipe.write(protocol.message(kind, **members))
            self._pipe.flush()
            message = self.next_message()
        if "error" in message:
            raise ExecutorError(message["error"])
        values: dict[str, Any] = message["values"]
        return values

    def next_message(self) -> dict[str, Any]:
        message: dict[str, Any] = json.loads(self._messages.readline())
        return message


class _RelayedSecrets(Secrets):
    """The run's credentials, at the other end of the pipe: one at a time, by its handle."""

    def __init__(self, relay: _Relay) -> None:
        super().__init__()
        self._relay = relay

    def value(self, handle: str) -> str | None:
        value: str | None = self._relay.ask("secret", handle=handle)["value"]
        return value


def _run(start: Mapping[str, Any], person: _Relay) -> bytes:
    """Return the last message: a result, or an error in one line."""
    name = start["tool"]
    try:
        os.environ.update(start["environment"])
        sys.path_importer_cache.clear()  # what the fork server found in folders may have changed
        _limit(start["memory_mb"], start["timeout_s"])
        value = _load(start, name)(start["arguments"], _context(start, person))
        return protocol.result(name, value)
    except (ExecutorError, InvalidArgumentError) as error:
        text, trace = str(error)[:LONGEST_TEXT], ""
    except SystemExit as error:
        text, trace = f"'{name}' exited by itself with exit code {error.code!r}"[:LONGEST_TEXT], ""
    except BaseException as error:  # noqa: BLE001  # the boundary: whatever an executor raises is sent to the parent
        if isinstance(error, MemoryError) and start["memory_mb"]:
            text = protocol.out_of_memory(name, start["memory_mb"])
        else:
            text = describe_failure(name, start["code"], error)
        trace = format_traceback(error)
    return protocol.message("error", text=text, trace=trace)


def _limit(memory_mb: int, timeout_s: float) -> None:
    """Limit what this process, and each that it starts, may use: memory, CPU time, and no core dumps.

    The CPU time is that of a process that keeps every core busy until its time limit. More can pass only
    while a person is asked, when the clock is paused.
    """
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    seconds = min(timeout_s * cores + 1, _LARGEST_LIMIT)
    limits = {resource.RLIMIT_CORE: (0, 0)}
    if memory_mb:
        # not RLIMIT_AS: runtimes reserve far more address space than they use
        limits[resource.RLIMIT_DATA] = (min(memory_mb << 20, _LARGEST_LIMIT),) * 2
    if timeout_s:
        limits[resource.RLIMIT_CPU] = (int(seconds), int(seconds) + 1)
    for limit, wanted in limits.items():
        hard = resource.getrlimit(limit)[1]
        soft, most = (amount if hard == resource.RLIM_INFINITY else min(amount, hard) for amount in wanted)
        resource.setrlimit(limit, (soft, most))


def _load(start: Mapping[str, Any], name: str) -> Callable[[dict[str, Any], Context], Any]:
    code = Path(start["code"])
    module = importlib.import_module(start["module"]) if start["module"] else _load_file(code, name)
    if start["function"]:
        return _typed_function(module, start["function"])
    run = getattr(module, "run", None)
    if not callable(run):
        raise ExecutorError(f"'{name}' cannot run: {code} defines no function run(arguments, context)")
    return run  # type: ignore[no-any-return]  # what it returns is checked


def _typed_function(module: ModuleType, name: str) -> Callable[[dict[str, Any], Context], Any]:
    """Return the call of a function that was marked by `gbnf.tool`, with an object as its result."""
    import asyncio  # noqa: PLC0415  # an executor.py need not wait for them

    from gbnf.tools.functions import function_tool  # noqa: PLC0415  # few tools are functions

    function = function_tool(attrgetter(name)(module)).function
    assert function is not None

    async def awaited(value: Awaitable[Any]) -> Any:
        return await value

    def run(arguments: dict[str, Any], context: Context) -> Any:
        value = function(arguments, context)
        value = asyncio.run(awaited(value)) if inspect.isawaitable(value) else value
        return value if isinstance(value, dict) else {"result": value}

    return run


def _load_file(code: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"gbnf_executor_{name}", code)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.append(str(code.parent))  # for modules in the same folder
    sys.dont_write_bytecode = True  # write nothing into a folder of manifests
    spec.loader.exec_module(module)
    return module


def _context(start: Mapping[str, Any], person: _Relay) -> Context:
    began = time.monotonic()
    zone = ZoneInfo(start["zone"])
    then = datetime.fromisoformat(start["now"])
    return Context(
        workspace=Workspace(start["workspace"]),
        person=person,
        turn=start["turn"],
        settings=start["settings"],
        secrets=_RelayedSecrets(person),
        clock=lambda: (then + timedelta(seconds=time.monotonic() - began)).astimezone(zone),
        tool=start["tool"],
    )
