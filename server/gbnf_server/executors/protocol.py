"""The protocol between the runner and its child process: JSON lines over two pipes.

    parent -> child    one `start`, then an `answer` for each `ask` and each `secret`
    child -> parent    any number of `ask` and `secret`, then one `result` or `error`

Every message is an object whose ``is`` is its kind. `start` lists the members of a `start`; an `answer` has
`values`, or the `error` for which there are none; an `ask` has the members of a `Form`, a `secret` has the
`handle` of a credential, a `result` its `value`, and an `error` its `text`, and the `trace` of an unexpected
exception. The executor's own standard streams are other pipes, so that what it prints cannot be taken for a
message.

The child is not trusted: whatever bytes it writes become a `ChildMessage` or an `ExecutorError`, and no
more is buffered than the largest message may have.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from gbnf.strict_json import InvalidJsonError, nests_deeper, parse_json
from gbnf_server.executors.context import Context
from gbnf_server.executors.person import Field, Form
from gbnf_server.executors.results import MAX_DEPTH, too_deep
from gbnf_server.executors.secrets import Secrets
from gbnf_server.system.errors import ExecutorError

if TYPE_CHECKING:
    from gbnf.tools import RunPolicy

_SMALLEST_LIMIT = 64 * 1024  # bytes of a line: a question or an error may be longer than a small result
_SHOWN = 80


def _encode(message: Mapping[str, Any]) -> bytes:
    """Encode a message as one line. Raises ValueError or TypeError if it is not a JSON value, such as NaN."""
    return json.dumps(message, allow_nan=False, ensure_ascii=False).encode("utf-8", "surrogatepass") + b"\n"


def message(kind: str, **members: Any) -> bytes:
    """Encode a message without values of an executor, which are not checked here."""
    return _encode({"is": kind, **members})


@dataclass(frozen=True, slots=True)
class Code:
    """What the child runs: `run` of `file`, or a function marked by `gbnf.tool`.

    `function` is its qualified name in `module`, which is imported; "" for `file` itself.
    """

    file: str
    module: str = ""
    function: str = ""


def start(
    code: Code,
    arguments: Mapping[str, Any],
    context: Context,
    policy: RunPolicy,
    environment: Mapping[str, str],
) -> bytes:
    """Return the first message: `context` without its person; its clock continues from its current time.

    Raises `ExecutorError` if the arguments are not JSON.
    """
    return encode_arguments(
        context.tool,
        {
            "is": "start",
            "code": code.file,
            "module": code.module,
            "function": code.function,
            "arguments": arguments,
            "workspace": str(context.workspace.root),
            "turn": context.turn,
            "tool": context.tool,
            "settings": dict(context.settings),
            "now": context.now().isoformat(),
            "zone": context.timezone.key,
            "memory_mb": policy.memory_mb,
            "timeout_s": policy.timeout_s,
            "environment": environment,
        },
    )


def encode_arguments(name: str, message: Mapping[str, Any]) -> bytes:
    """Encode the arguments of the tool `name`. Raises `ExecutorError` if they are not JSON."""
    try:
        return _encode(message)
    except (TypeError, ValueError, RecursionError) as fault:
        raise ExecutorError(f"the arguments of '{name}' are not JSON: {fault}") from None


def result(name: str, value: Any) -> bytes:
    """Return the message with the result of the tool `name`. Raises `ExecutorError` if it is not JSON."""
    try:
        return message("result", value=value)
    except RecursionError:
        raise too_deep(name) from None
    except (TypeError, ValueError) as fault:
        raise ExecutorError(f"'{name}' returned a value that is not JSON: {fault}") from None


@dataclass(frozen=True, slots=True)
class SecretRequest:
    """The executor requests the credential behind a handle."""

    handle: str


@dataclass(frozen=True, slots=True)
class ErrorMessage:
    """The executor raised; `trace` is "" for an `ExecutorError`."""

    text: str
    trace: str


ChildMessage: TypeAlias = Form | SecretRequest | ErrorMessage | dict[str, Any]
"""A question to the person, another request, an error, or the result."""


class MessageReader:
    """Parses the messages from the child of the tool `name`, with a result of `limit_kb`. Sans I/O."""

    def __init__(self, name: str, limit_kb: int, secrets: Secrets) -> None:
        self._name, self._limit_kb, self._secrets = name, limit_kb, secrets
        self._line_limit = max(limit_kb * 1024, _SMALLEST_LIMIT)
        self._data = bytearray()
        self._searched = 0

    def feed(self, data: bytes) -> None:
        """Add bytes from the child."""
        self._data += data

    def next_message(self) -> ChildMessage | None:
        """Return the next message, None if it is incomplete.

        Raises `ExecutorError` for an invalid message, and for a result that is too large or too deep.
        """
        end = self._data.find(b"\n", self._searched)
        self._searched = len(self._data)
        if (end if end >= 0 else self._searched) > self._line_limit:
            raise self._too_large()
        if end < 0:
            return None
        line = bytes(self._data[:end])
        del self._data[: end + 1]
        self._searched = 0
        received = self._read(line)
        if isinstance(received, dict) and end > self._limit_kb * 1024:
            raise self._too_large()
        return received

    def _read(self, line: bytes) -> ChildMessage:
        try:
            content = parse_json(line.decode("utf-8", "surrogatepass"), surrogates=True)
        except InvalidJsonError as error:
            raise (too_deep(self._name) if error.kind == "depth" else self._no_message(line)) from None
        except UnicodeDecodeError:
            raise self._no_message(line) from None
        match content:
            case {"is": "ask", "title": str(title), "fields": list(fields)}:
                return Form(title, tuple(self._field(field, line) for field in fields))
            case {"is": "secret", "handle": str(handle)}:
                return SecretRequest(handle)
            case {"is": "result", "value": value}:
                return self._result(value)
            case {"is": "error", "text": str(text), "trace": str(trace)}:
                return ErrorMessage(text, trace)
            case _:
                raise self._no_message(line)

    def _field(self, field: Any, line: bytes) -> Field:
        match field:
            case {"var": str(var), "prompt": str(prompt), "kind": str(kind), "options": list(options)} if all(
                isinstance(option, str) for option in options
            ):
                return Field(var, prompt, kind, tuple(options))  # type: ignore[arg-type]  # Field checks the kind
            case _:
                raise self._no_message(line)

    def _result(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, dict):
            raise ExecutorError(f"'{self._name}' returned {type(value).__name__}, not an object")
        entries = value.get("entries", [])
        if not (isinstance(entries, list) and all(isinstance(entry, str) for entry in entries)):
            raise ExecutorError(f"'{self._name}' returned 'entries' that are not a list of strings")
        if nests_deeper(value, MAX_DEPTH):
            raise too_deep(self._name)
        return value

    def _too_large(self) -> ExecutorError:
        return ExecutorError(
            f"'{self._name}' returned more than {self._limit_kb} kB. Request less, "
            "or raise `run.max_result_kb` in its manifest."
        )

    def _no_message(self, line: bytes) -> ExecutorError:
        text = self._secrets.redact(line.decode(errors="backslashreplace"))
        shown = text[:_SHOWN] + ("…" if len(text) > _SHOWN else "")
        return ExecutorError(
            f"'{self._name}' sent an invalid message to its runner: {shown!a}. "
            "An executor returns its result, and writes to no file descriptor that it has not opened."
        )


def out_of_memory(name: str, limit_mb: int) -> str:
    """Return the error message of a tool that exceeds its memory."""
    return (
        f"'{name}' needs more memory than its {limit_mb} MB. Request less at once, "
        "or raise `run.memory_mb` in its manifest."
    )
