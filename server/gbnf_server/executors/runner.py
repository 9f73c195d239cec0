"""Run one executor: in a process of its own, or the function of a tool that has one (`in_process`).

Invariants of a process:

- The executor's process, and all that it has started, have ended when `run_executor` returns or raises, and
  an incomplete change is rolled back.
- Its clock is paused while a person is asked.
- It gets the common environment variables and settings, and those that its manifest names.
- No code is loaded from the workspace, which a model writes to: neither as a module, nor by an environment
  variable with a path in it or relative to it. Exceptions are the tool's own code, this Python's virtual
  environment and this package, if they are in the workspace: models write there with approval only.
- Whatever it does, and whatever it writes to its connection, ends in a result within the limits of its
  manifest, or in an `ExecutorError` of one line, a few seconds after its time limit at the latest, in which
  it is ended and rolled back. Its author gets more: tracebacks as notes (BaseException.add_note), and what it
  printed from `Context.on_output`.
- Nothing that `run_executor` returns or raises contains a credential of the run in plain text.
"""

from __future__ import annotations

import inspect
import os
import selectors
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from contextlib import ExitStack, suppress
from dataclasses import replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self

from gbnf.errors import GbnfError
from gbnf.surrogates import replace_lone_surrogates
from gbnf_server.executors import protocol
from gbnf_server.executors.context import COMMON_SETTINGS, SETTINGS_PREFIX, Context
from gbnf_server.executors.fork_server import (
    INHERITED_VARIABLES,
    PATH_VARIABLES,
    fork_server,
    is_reused,
)
from gbnf_server.executors.person import Form
from gbnf_server.executors.results import redact_result
from gbnf_server.executors.secrets import Secrets
from gbnf_server.system.errors import ExecutorError, ExecutorTimeoutError
from gbnf_server.system.processes import kill_descendants, memory_of_descendants, signal_name

if TYPE_CHECKING:
    from gbnf.tools import Tool

if find_spec("psutil") is None:  # it ends what a call leaves running, so without it nothing is executed
    raise ModuleNotFoundError("No module named 'psutil'", name="psutil")

_OUTPUT_KEPT = 4000  # characters
# bytes, so that a credential at the beginning is found before it is truncated
_OUTPUT_READ = 4 * _OUTPUT_KEPT
_LONGEST_ERROR = 2000
_LAST_WORDS = 300
_CHUNK = 1 << 16
_FOLDER = os.O_RDONLY | os.O_DIRECTORY
_WATCH_S = 0.5  # between two checks of its memory, and of whether the caller has ended the call
_STATUS_S = 1.0  # for the supervisor to report how the executor ended
_PATIENCE_S = 5.0  # for the supervisor to end everything
_ATTEMPTS = 3  # others may kill a fork server

_IN_COMPILED_CODE = "the fault is in compiled code: update the package that it imports"
_HINTS = {
    **dict.fromkeys(("SIGSEGV", "SIGBUS", "SIGILL", "SIGFPE"), _IN_COMPILED_CODE),
    **dict.fromkeys(("SIGABRT", "SIGTRAP", "SIGSYS"), _IN_COMPILED_CODE),
    "SIGXCPU": "it used up its CPU time: request less at once, or raise `run.timeout_s` in its manifest",
    "SIGKILL": "often because memory ran out: request less at once, or close other programs",
}
_OTHER_HINT = "its own code or another program sent that signal: check what it starts"


def run_executor(tool: Tool, arguments: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Return the executor's result. Raises `ExecutorError`; `ExecutorTimeoutError` after `run.timeout_s`.

    A tool with a function is executed in this process, otherwise its `executor.py` in a process of its own.
    `arguments` have been validated; the runtime-resolved argument `actor` is added.
    """
    context = replace(context, tool=tool.name, settings=_settings(tool, context))
    if "actor" in tool.runtime_resolved:
        arguments = {"actor": context.user_email, **arguments}
    try:
        if tool.function is not None and not _has_process(tool):
            from gbnf_server.executors.in_process import call_function  # noqa: PLC0415  # it imports asyncio

            value = call_function(tool, tool.function, arguments, context)
        else:
            environment = _environment(context, tool.run.env)
            start = protocol.start(_code(tool), arguments, context, tool.run, environment)
            with _Child(tool, context, environment) as child:
                value = child.converse(start)
        result: dict[str, Any] = redact_result(value, context.secrets)
        return result
    except ExecutorError as error:
        _clean(error, context)
        raise


def prepare_executors(tools: Iterable[Tool], context: Context) -> None:
    """Start in the background what the first call of an executor needs, if any of these tools has one."""
    if any(map(_has_process, tools)):
        with suppress(OSError, RuntimeError):  # the call reports it
            fork_server(_import_path(context.workspace.root), _environment(context, ()))


def _has_process(tool: Tool) -> bool:
    return tool.function is None or getattr(tool.function, "own_process", False)


def _clean(error: ExecutorError, context: Context) -> None:
    """Remove credentials, lone surrogates and excess text from an error and its notes."""
    error.message = context.secrets.redact(replace_lone_surrogates(error.message))[:_LONGEST_ERROR]
    error.args = (error.message,)
    if notes := getattr(error, "__notes__", None):
        notes[:] = [note for note in (_end_of(note, context.secrets) for note in notes) if note]


def _end_of(output: str, secrets: Secrets) -> str:
    """Return the last characters of an executor's output, without credentials."""
    # redacted before it is truncated: a part of a credential would not be found
    return secrets.redact(replace_lone_surrogates(output))[-_OUTPUT_KEPT:].strip()


def _code(tool: Tool) -> protocol.Code:
    """Return where a child process finds the code of a tool. Raises ExecutorError if there is none."""
    if tool.function is not None:
        function = inspect.unwrap(tool.function)
        module, file = function.__module__, inspect.getsourcefile(function) or ""
        if module == "__main__":  # which the child imports by its file
            spec = sys.modules["__main__"].__spec__  # None for a script
            module = "" if spec is None else spec.name
        return protocol.Code(file, module, function.__qualname__)
    if tool.path is None:
        raise ExecutorError(
            f"'{tool.name}' cannot run: it was loaded without code. Give it a function, or a folder "
            "with its manifest and executor.py"
        )
    code = tool.path.parent.absolute() / "executor.py"
    if not code.is_file():
        raise ExecutorError(
            f"'{tool.name}' cannot run: there is no {code}. Create it with a function "
            f"run(arguments, context) that returns an object, or remove the tool from the pool"
        )
    return protocol.Code(str(code))


class _DeclaredError(ExecutorError):  # what the executor itself said, in order
    """The executor raised an error, and has rolled back its change."""


class _Child:
    """A running executor. Exiting the context ends it, with all processes that it started."""

    def __init__(self, tool: Tool, context: Context, environment: Mapping[str, str]) -> None:
        self._name, self._policy, self._context = tool.name, tool.run, context
        self._environment = environment
        self._inbox = protocol.MessageReader(tool.name, tool.run.max_result_kb, context.secrets)
        self._output = b""
        self._pending = b""  # not yet sent
        self._descriptors = ExitStack()
        self._deadline = time.monotonic() + (tool.run.timeout_s or float("inf"))

    def __enter__(self) -> Self:
        try:
            attempts = _ATTEMPTS
            while not self._start():
                attempts -= 1
                if not attempts or time.monotonic() >= self._deadline:
                    raise self._crash()  # noqa: TRY301  # all failures are closed here
                self._descriptors.close()
        except BaseException as error:
            self._descriptors.close()
            if not isinstance(error, OSError):
                raise
            raise ExecutorError(f"'{self._name}' could not be started: {error}") from None
        return self

    def _start(self) -> bool:
        """Have a fork server start the supervisor and the executor's process; return whether it has."""
        ours, pipes = self._descriptors, []
        with ExitStack() as theirs:
            theirs.callback(os.close, folder := os.open(self._context.workspace.root, _FOLDER))
            for end in (1, 0, 0):  # which one is ours: each is closed even if no further pipe can be made
                pipes.append(pipe := os.pipe())
                ours.callback(os.close, pipe[end])
                theirs.callback(os.close, pipe[1 - end])
                os.set_blocking(pipe[end], False)
            (child_in, self._to_child), (self._from_child, child_out), (self._printed, output) = pipes
            self._connection, connection = map(ours.enter_context, socket.socketpair())
            theirs.enter_context(connection)
            self._selector = ours.enter_context(selectors.DefaultSelector())
            path = _import_path(self._context.workspace.root)
            self._server = fork_server(path, self._environment, output)
            descriptors = (child_in, child_out, connection.fileno(), folder, output)
            self._supervisor = self._server.fork(
                descriptors, self._connection, self._policy.timeout_s or None
            )
            if self._supervisor and is_reused():
                ours.callback(os.close, handle := os.pidfd_open(self._supervisor))
                self._handle = handle
        return self._supervisor > 0

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop()
        if self._context.on_output is not None:
            self._capture_rest()
            if printed := self._said():
                self._context.on_output(printed)
        self._descriptors.close()
        del self._server  # it ends, unless others use it
        if error is not None and not isinstance(error, _DeclaredError):
            with suppress(GbnfError, OSError):  # a missing workspace has nothing to roll back
                self._context.journal.recover()

    def converse(self, start: bytes) -> dict[str, Any]:
        """Exchange messages with the executor until it has a result."""
        memory = self._policy.memory_mb << 20
        self._pending = start
        watched = time.monotonic() + _WATCH_S
        with self._selector as selector:
            selector.register(self._printed, selectors.EVENT_READ)
            selector.register(self._connection, selectors.EVENT_READ)
            selector.register(self._to_child, selectors.EVENT_WRITE)
            while True:
                now = time.monotonic()
                if now >= self._deadline:
                    raise ExecutorTimeoutError(self._name, self._policy.timeout_s)
                if now >= watched:
                    self._context.check_not_ended()
                    if memory and memory_of_descendants(self._supervisor, memory) > memory:
                        raise ExecutorError(protocol.out_of_memory(self._name, self._policy.memory_mb))
                    watched = time.monotonic() + _WATCH_S
                left_s = min(self._deadline - now, watched - now)
                ready = {key.fd for key, _ in selector.select(left_s)}
                if self._printed in ready and not self._capture():
                    selector.unregister(self._printed)
                if self._to_child in ready and self._sent():
                    # read again only after the reply, so that at most one message is buffered
                    selector.unregister(self._to_child)
                    selector.register(self._from_child, selectors.EVENT_READ)
                if self._from_child in ready:
                    self._inbox.feed(received := os.read(self._from_child, _CHUNK))
                    if not received:
                        raise self._crash()
                if not self._pending and (message := self._inbox.next_message()) is not None:
                    began = time.monotonic()
                    reply = self._reply(message)
                    if isinstance(reply, dict):
                        return reply
                    self._pending = reply
                    selector.unregister(self._from_child)
                    selector.register(self._to_child, selectors.EVENT_WRITE)
                    self._deadline += time.monotonic() - began
                elif self._connection.fileno() in ready:
                    raise self._crash()

    def _reply(self, message: protocol.ChildMessage) -> dict[str, Any] | bytes:
        """Return the result, or the reply to send."""
        match message:
            case Form() as form:
                try:
                    return protocol.message("answer", values=self._context.answers(form))
                except ExecutorError as error:
                    return protocol.message("answer", error=error.message)
            case protocol.SecretRequest(handle):
                return protocol.message("answer", values={"value": self._context.secrets.value(handle)})
            case dict() as result:
                return result
            case protocol.ErrorMessage(text, trace):
                declared = _DeclaredError(text)
                declared.add_note(trace)
                raise declared

    def _sent(self) -> bool:
        """Send what the pipe takes; return whether nothing is left."""
        with suppress(BlockingIOError):
            try:
                self._pending = self._pending[os.write(self._to_child, self._pending) :]
            except BrokenPipeError:
                self._pending = b""  # it has ended; `_crash` says how
        return not self._pending

    def _crash(self) -> ExecutorError:
        """Return an error that says how the executor ended, or that it closed its connection."""
        self._connection.settimeout(_STATUS_S)
        try:
            if self._supervisor:  # if it sent nothing, it was killed, and its end kills the executor
                status: int | None = int(self._connection.recv(64) or -signal.SIGKILL)
            else:
                status = self._server.process.wait(_STATUS_S)
        except subprocess.TimeoutExpired:
            return ExecutorTimeoutError(self._name, self._policy.timeout_s)
        except OSError:
            status = None
        if status is None:
            how = "closed its connection without a result"
        elif status < 0:
            name = signal_name(-status)
            how = f"was killed by {name} ({_HINTS.get(name, _OTHER_HINT)})"
        else:
            how = f"ended with exit code {status} and without a result"
        self._capture_rest()
        lines = self._said().splitlines()
        output = f"; its last output: {lines[-1][:_LAST_WORDS]}" if lines else ""
        return ExecutorError(f"'{self._name}' crashed: it {how}{output}")

    def _said(self) -> str:
        return _end_of(self._output.decode(errors="replace"), self._context.secrets)

    def _capture(self) -> bool:
        data = os.read(self._printed, _CHUNK)
        self._output = (self._output + data)[-_OUTPUT_READ:]
        return bool(data)

    def _capture_rest(self) -> None:
        """Read the last output, at most one full pipe: processes left behind may still print."""
        with suppress(BlockingIOError):
            for _ in range(16):
                if not self._capture():
                    return

    def _stop(self) -> None:
        """End the executor and all that it has started: the supervisor does so when the connection closes."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_WR)
        if not self._has_ended():  # it hangs, or is stopped
            send = partial(os.kill, self._supervisor)
            if is_reused():  # it is not a child of this process, so its number may be reused
                send = partial(signal.pidfd_send_signal, self._handle)
            with suppress(ProcessLookupError):
                send(signal.SIGSTOP)  # from now on, it cannot end before it is killed
                kill_descendants(self._supervisor)
                send(signal.SIGKILL)
                self._has_ended()

    def _has_ended(self) -> bool:
        """Return whether the supervisor ends within a few seconds."""
        self._connection.settimeout(_PATIENCE_S)
        try:
            while self._connection.recv(64):
                pass
        except OSError:
            return False
        return True


def _import_path(workspace: Path) -> list[str]:
    """Return this process's import path without the workspace, which a model writes to.

    A virtual environment in the workspace, and this package, are kept: a model writes nothing there without a
    person's approval (`executed_files`).
    """
    needed = (Path(sys.prefix), Path(__file__).parents[2])
    paths = dict.fromkeys(Path(path).absolute() for path in sys.path)
    return [
        str(path)
        for path in paths
        if not (real := path.resolve()).is_relative_to(workspace)
        or (real != workspace and any(path.is_relative_to(place) for place in needed))
    ]


def _settings(tool: Tool, context: Context) -> dict[str, str]:
    """Return the settings that the manifest names, and those of every executor."""
    wanted = COMMON_SETTINGS.union(tool.run.env)
    return {name: value for name, value in context.settings.items() if name in wanted}


def _environment(context: Context, named: tuple[str, ...]) -> dict[str, str]:
    """Return the environment: the inherited variables, those that the manifest names, and the settings.

    Paths of code are made absolute, so that they mean the same in the child.
    """
    workspace = context.workspace.root
    environment = {
        name: value
        for name, value in os.environ.items()
        if name in INHERITED_VARIABLES or name in PATH_VARIABLES or name.startswith("LC_") or name in named
        if not name.startswith(SETTINGS_PREFIX)  # a program may have given others
    }
    for name in PATH_VARIABLES & environment.keys():
        # an empty entry, or a relative one, would refer to the folder that the child starts in
        paths = [Path(path).absolute() for path in environment.pop(name).split(os.pathsep) if path]
        if outside := [str(path) for path in paths if not path.resolve().is_relative_to(workspace)]:
            environment[name] = os.pathsep.join(outside)
    return {**environment, **context.settings}
