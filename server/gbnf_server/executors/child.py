"""The process that one executor runs in. `runner` starts it; nobody else does.

What must stay true: it starts fast, so it imports little; it ends when its parent is gone; whatever the
executor does, exactly one result or error is said, or the pipe closes and the parent sees a crash.
"""

from __future__ import annotations

import importlib.util
import json
import os
import queue
import signal
import sys
import threading
import time
from datetime import datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NoReturn
from zoneinfo import ZoneInfo

from gbnf_server.errors import ExecutorError
from gbnf_server.executors import protocol
from gbnf_server.executors.context import Context
from gbnf_server.executors.workspace import Workspace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import ModuleType

    from gbnf_server.executors.person import Form


def main(incoming: int, outgoing: int) -> NoReturn:
    """Run one executor. The arguments are the descriptors of the two pipes."""
    for descriptor in (incoming, outgoing):
        os.set_inheritable(descriptor, False)
    messages: queue.SimpleQueue[dict[str, Any]] = queue.SimpleQueue()
    reader = threading.Thread(target=_receive, args=(os.fdopen(incoming, "rb"), messages), daemon=True)
    reader.start()
    with os.fdopen(outgoing, "wb") as pipe:
        last = _run(messages.get(), _Relay(pipe, messages))
        sys.stdout.flush()
        sys.stderr.flush()
        pipe.write(last)
    os._exit(0)  # threads that the executor left behind are not waited for


class _Relay:
    """The person, as seen from here: at the other end of the pipe."""

    def __init__(self, pipe: BinaryIO, messages: queue.SimpleQueue[dict[str, Any]]) -> None:
        self._pipe, self._messages = pipe, messages

    def answer(self, form: Form) -> dict[str, Any]:
        self._pipe.write(protocol.encode(protocol.ask(form)))
        self._pipe.flush()
        message = self._messages.get()
        if "error" in message:
            raise ExecutorError(message["error"])
        values: dict[str, Any] = message["values"]
        return values

    def approve(self, call: Mapping[str, Any]) -> bool:
        raise ExecutorError(f"'{call.get('name')}': approval is asked before an executor runs, not by it")


def _receive(pipe: BinaryIO, messages: queue.SimpleQueue[dict[str, Any]]) -> None:
    for line in pipe:
        messages.put(json.loads(line))
    os.killpg(0, signal.SIGKILL)  # the parent is gone: nobody would stop us at the time limit


def _run(start: Mapping[str, Any], person: _Relay) -> bytes:
    """The last message: a result, or an error in one line."""
    name = start["tool"]
    try:
        value = _load(Path(start["code"]), name)(start["arguments"], _context(start, person))
        return _checked(name, value)
    except ExecutorError as error:
        return protocol.encode(protocol.error(error.message))
    except SystemExit as error:
        return protocol.encode(
            protocol.error(f"'{name}' ended the process itself with exit code {error.code!r}")
        )
    except BaseException as error:  # noqa: BLE001 - the boundary: whatever an executor raises is told to the parent
        return protocol.encode(protocol.error(*_described(name, start["code"], error)))


def _load(code: Path, name: str) -> Callable[[dict[str, Any], Context], Any]:
    spec = importlib.util.spec_from_file_location(f"gbnf_executor_{name}", code)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    sys.path.append(str(code.parent))  # modules that lie beside it
    sys.dont_write_bytecode = True  # a folder of manifests is not ours to fill
    spec.loader.exec_module(module)
    run = getattr(module, "run", None)
    if not callable(run):
        raise ExecutorError(f"'{name}' cannot run: {code} defines no function run(arguments, context)")
    return run  # type: ignore[no-any-return]  # what it returns is checked


def _context(start: Mapping[str, Any], person: _Relay) -> Context:
    began = time.monotonic()
    zone = ZoneInfo(start["zone"])
    then = datetime.fromisoformat(start["now"])
    return Context(
        workspace=Workspace(start["workspace"]),
        person=person,
        turn=start["turn"],
        settings=start["settings"],
        clock=lambda: (then + timedelta(seconds=time.monotonic() - began)).astimezone(zone),
        tool=start["tool"],
    )


def _checked(name: str, value: Any) -> bytes:
    """The result as a message. Raises `ExecutorError` where it is none: that is the executor's fault."""
    if not isinstance(value, dict):
        raise ExecutorError(f"'{name}' returned {type(value).__name__}, not an object")
    entries = value.get("entries", [])
    if not (isinstance(entries, list) and all(isinstance(entry, str) for entry in entries)):
        raise ExecutorError(f"'{name}' returned 'entries' that are not a list of strings")
    try:
        message = protocol.encode(protocol.result(value))
    except (TypeError, ValueError) as error:
        raise ExecutorError(f"'{name}' returned what is no JSON: {error}") from None
    if len(message) > protocol.RESULT_LIMIT:
        raise ExecutorError(
            f"'{name}' returned {len(message)} bytes, over the limit of {protocol.RESULT_LIMIT}; ask for less"
        )
    return message


def _described(name: str, code: str, error: BaseException) -> tuple[str, str]:
    """One line for the model, and the traceback for the author of the executor."""
    import traceback  # noqa: PLC0415 - only where something went wrong

    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename == code]
    place = f" ({Path(code).name}, line {frames[-1].lineno})" if frames else ""
    text = f"{type(error).__name__}: {error}" if str(error) else type(error).__name__
    return f"'{name}' failed: {text[:500]}{place}", "".join(traceback.format_exception(error))
