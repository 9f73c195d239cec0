"""Runs one executor in a process of its own.

What must stay true:

- The executor's process group is dead when `run_executor` returns or raises, and a change that it was in the
  middle of is rolled back.
- Its clock stands still while a person thinks.
- No code is loaded from the workspace, which a model writes to: not by a module of that name, and not by a
  variable of the environment that names it, or names a place relative to it.
- Whatever goes wrong is an `ExecutorError` of one line; tracebacks and what the executor printed are attached
  as notes (BaseException.add_note), for its author.
"""

from __future__ import annotations

import json
import os
import selectors
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from gbnf_server.errors import ExecutorError, ExecutorTimeout
from gbnf_server.executors import protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gbnf.manifests import Executor
    from gbnf_server.executors.context import Context
    from gbnf_server.executors.person import Form

SECRET = "secret:"  # noqa: S105 - it marks a secret's name, and is none
"""A credential stays out of the conversation: the model sees this and the field's name."""

_OUTPUT_KEPT = 4000
_CODE_VARIABLES = {"PYTHONPATH", "PYTHONHOME", "PYTHONUSERBASE", "PYTHONSTARTUP", "PYTHONPYCACHEPREFIX"}
"""Where Python loads code from, by paths or lists of them."""

_BOOT = (
    "import sys; sys.path[:] = sys.argv[3:]; "
    "from gbnf_server.executors.child import main; main(int(sys.argv[1]), int(sys.argv[2]))"
)


def run_executor(executor: Executor, arguments: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """The executor's result. Raises `ExecutorError`; `ExecutorTimeout` after the manifest's `run.timeout_s`.

    `arguments` are valid already; arguments that the runtime fills, and are known here (`actor`), are added,
    and handles of credentials are replaced by what the person typed.
    """
    context = replace(context, tool=executor.name)
    if "actor" in executor.runtime_resolved:
        arguments = {"actor": context.user_email, **arguments}
    message = protocol.start(str(_code(executor)), _with_secrets(arguments, context.secrets), context)
    try:
        start = protocol.encode(message)
    except (TypeError, ValueError) as error:
        raise ExecutorError(f"the arguments of '{executor.name}' are no JSON: {error}") from None
    with _Child(executor.name, context) as child:
        return child.converse(start, executor.run.timeout_s)


def _code(executor: Executor) -> Path:
    if executor.path is None:
        raise ExecutorError(f"'{executor.name}' has no manifest file, so no executor.py to run")
    code = executor.path.parent.absolute() / "executor.py"
    if not code.is_file():
        raise ExecutorError(
            f"'{executor.name}' cannot run: there is no {code}. Put one there with a function "
            f"run(arguments, context) that returns an object, or leave the tool out of the pool"
        )
    return code


class _Child:
    """A running executor. Leaving the context kills its process group."""

    def __init__(self, name: str, context: Context) -> None:
        self._name, self._context = name, context
        self._output = b""

    def __enter__(self) -> Self:
        child_in, self._to_child = os.pipe()
        self._from_child, child_out = os.pipe()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and code
                # -P: no module is imported from the folder that the model writes to
                [sys.executable, "-P", "-c", _BOOT, str(child_in), str(child_out), *self._import_path()],
                pass_fds=(child_in, child_out),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                cwd=self._context.workspace.root,
                env=_environment(self._context.workspace.root),
                start_new_session=True,
            )
        except OSError as error:
            os.close(self._to_child)
            os.close(self._from_child)
            raise ExecutorError(f"'{self._name}' could not be started: {error}") from None
        finally:
            os.close(child_in)
            os.close(child_out)
        return self

    def __exit__(self, *_: object) -> None:
        # the group first: its number is ours as long as its leader is not waited for
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        assert self._process.stdout is not None
        self._process.stdout.close()
        os.close(self._to_child)
        os.close(self._from_child)

    def converse(self, start: bytes, timeout_s: float) -> dict[str, Any]:
        """Everything between the start message and the result. `timeout_s` 0: no limit."""
        deadline = time.monotonic() + timeout_s if timeout_s else None
        assert self._process.stdout is not None
        output = self._process.stdout.fileno()
        received, pending = bytearray(), start
        with selectors.DefaultSelector() as selector:
            os.set_blocking(self._to_child, False)
            selector.register(self._from_child, selectors.EVENT_READ)
            selector.register(output, selectors.EVENT_READ)
            selector.register(self._to_child, selectors.EVENT_WRITE)
            while True:
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise self._abandoned(ExecutorTimeout(self._name, timeout_s))
                for key, _ in selector.select(left):
                    if key.fd == self._to_child:
                        pending = self._send(pending)
                        if not pending:
                            selector.unregister(self._to_child)
                    elif key.fd == output:
                        if not self._capture(output):
                            selector.unregister(output)
                    else:
                        received += self._receive(output)
                        if not received.endswith(b"\n"):
                            continue
                        began = time.monotonic()
                        reply = self._take(json.loads(received))
                        if isinstance(reply, dict):
                            return reply
                        received.clear()
                        pending = reply
                        selector.register(self._to_child, selectors.EVENT_WRITE)
                        if deadline is not None:
                            deadline += time.monotonic() - began

    def _take(self, message: dict[str, Any]) -> dict[str, Any] | bytes:
        """The result, or what to send back."""
        match message["is"]:
            case "ask":
                return protocol.encode(self._answer(protocol.asked(message)))
            case "result":
                value: dict[str, Any] = message["value"]
                return value
            case _:
                error = ExecutorError(message["text"])
                raise self._with_output(error, message["trace"])

    def _answer(self, form: Form) -> dict[str, Any]:
        try:
            values = self._context.person.answer(form)
        except ExecutorError as error:
            return protocol.refusal(error.message)
        for field in form.fields:
            if field.kind == "credentials":
                self._context.secrets[SECRET + field.var] = values[field.var]
        return protocol.answer(values)

    def _send(self, pending: bytes) -> bytes:
        """What is left to send."""
        try:
            return pending[os.write(self._to_child, pending) :]
        except BrokenPipeError:
            return b""  # it is gone; reading tells how

    def _receive(self, output: int) -> bytes:
        data = os.read(self._from_child, 1 << 16)
        if data:
            return data
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(timeout=1)
        os.set_blocking(output, False)
        with suppress(BlockingIOError):
            while self._capture(output):
                pass
        status = self._process.poll()
        if status is None:
            how = "closed its connection without a result"
        elif status < 0:
            how = f"was killed by {signal.Signals(-status).name}"
        else:
            how = f"ended with exit code {status} and without a result"
        lines = self._output.decode(errors="replace").strip().splitlines()
        said = f"; its last words: {lines[-1][:300]}" if lines else ""
        raise self._abandoned(ExecutorError(f"'{self._name}' crashed: it {how}{said}"))

    def _capture(self, output: int) -> bool:
        data = os.read(output, 1 << 16)
        self._output = (self._output + data)[-_OUTPUT_KEPT:]
        return bool(data)

    def _abandoned(self, error: ExecutorError) -> ExecutorError:
        """Stop the process, and roll back what it was in the middle of."""
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        with suppress(OSError):  # a workspace that is gone has nothing half done in it
            self._context.workspace.journal.recover()
        return self._with_output(error, "")

    def _with_output(self, error: ExecutorError, trace: str) -> ExecutorError:
        for note in (trace, self._output.decode(errors="replace")):
            if note.strip():
                error.add_note(note.strip())
        return error

    def _import_path(self) -> list[str]:
        """Where this process imports from, but for the workspace, which a model writes to.

        An environment that lies in the workspace, and this package, are needed all the same.
        """
        workspace, needed = self._context.workspace.root, (Path(sys.prefix), Path(__file__).parents[2])
        paths = dict.fromkeys(Path(path).absolute() for path in sys.path)
        return [
            str(path)
            for path in paths
            if not path.resolve().is_relative_to(workspace)
            or (path != workspace and any(path.is_relative_to(place) for place in needed))
        ]


def _environment(workspace: Path) -> dict[str, str]:
    """This process's environment, where paths of Python's code mean here what they meant there."""
    environment = dict(os.environ)
    for name in _CODE_VARIABLES & environment.keys():
        # an empty entry, or a relative one, would be looked for in the folder that the child starts in
        paths = [Path(path).absolute() for path in environment.pop(name).split(os.pathsep) if path]
        if kept := [str(path) for path in paths if not path.resolve().is_relative_to(workspace)]:
            environment[name] = os.pathsep.join(kept)
    return environment


def _with_secrets(value: Any, secrets: Mapping[str, str]) -> Any:
    match value:
        case str():
            return secrets.get(value, value)
        case dict():
            return {key: _with_secrets(inner, secrets) for key, inner in value.items()}
        case list():
            return [_with_secrets(inner, secrets) for inner in value]
        case _:
            return value
