"""Bounds on what clients may send and hold: bytes, nesting, messages, tools, schemas, time.

Invariant: the memory of all requests together is at most `Limits.memory_bytes`, as far as it is estimated:
each reserves the bytes of its body while they arrive, and those of its JSON values before they are built.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any

from gbnf.strict_json import InvalidJsonError, json_type, parse_json
from gbnf_server.web.errors import HttpError, invalid_request

_MIB = 1024 * 1024
_VALUE_BYTES = 128
"""The memory of a small JSON value as a Python object, with its place in a list or a dict."""


@dataclass(frozen=True, slots=True)
class Limits:
    """What one client may ask for. Times are in seconds.

    `memory_bytes`: of all requests together. `schema_bytes`: of one tool, or of the format of an answer.
    `waiting`: requests in the queue. `facts_s`: to ask a backend for its model. `body_s`: to receive a body.
    `send_s`: for a client to take a piece of an answer. `drain_s`: for running answers, when the server ends.
    """

    body_bytes: int = 16 * _MIB
    memory_bytes: int = 256 * _MIB
    json_values: int = 500_000
    json_depth: int = 200
    messages: int = 10_000
    tools: int = 2_000
    schema_bytes: int = 512 * 1024
    waiting: int = 128
    facts_s: float = 5.0
    body_s: float = 60.0
    send_s: float = 60.0
    drain_s: float = 30.0


class MemoryBudget:
    """The bytes that requests have reserved, of a total. For any number of threads."""

    def __init__(self, total: int) -> None:
        self.total, self.reserved = total, 0
        self.lock = Lock()

    @contextmanager
    def share(self) -> Iterator[MemoryShare]:
        """Give the share of one request, empty at first, which the end of the block gives back."""
        share = MemoryShare(self)
        try:
            yield share
        finally:
            with self.lock:
                self.reserved -= share.size
                share.is_returned = True


class MemoryShare:
    """What one request has reserved: `size` bytes. `is_returned`: its request has ended."""

    def __init__(self, budget: MemoryBudget) -> None:
        self._budget, self.size, self.is_returned = budget, 0, False

    def add(self, size: int) -> None:
        """Reserve more. Raises HttpError (503) if all requests together would take too much."""
        budget = self._budget
        with budget.lock:
            if self.is_returned:  # a thread has not noticed yet
                return
            if budget.reserved + size <= budget.total:
                budget.reserved += size
                self.size += size
                return
        problem = "the server holds too many large requests at present. Send this one again later."
        raise HttpError(503, problem, "server_busy", retry_after=5)


_STRING = re.compile(rb'"(?:[^"\\]++|\\.)*+"?', re.DOTALL)
_NOT_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))


def count_values(body: bytes, limits: Limits) -> int:
    """Return at least how many values a JSON text has, without building them. Raises HttpError (400)."""
    structure = _STRING.sub(b"", body)
    values = structure.count(b",") + structure.count(b"[") + structure.count(b"{") + structure.count(b":") + 1
    if values > limits.json_values:
        raise invalid_request(f"the body has more than {limits.json_values} JSON values.")
    depth = 0
    for character in structure.translate(None, _NOT_BRACKETS):
        depth += 1 if character in b"[{" else -1
        if depth > limits.json_depth:
            raise invalid_request(f"the body is nested more than {limits.json_depth} levels deep.")
    return values


def nesting(before: bytes) -> int:
    """Return how deeply what follows the beginning of a JSON text is nested."""
    structure = _STRING.sub(b"", before)
    return sum(map(structure.count, (b"[", b"{"))) - sum(map(structure.count, (b"]", b"}")))


def memory_of(body: bytes | str, values: int) -> int:
    """Return the estimated memory of a parsed body, beside its own: the decoded text, and its values."""
    return 2 * len(body) + values * _VALUE_BYTES


def read_object(body: bytes, *, surrogates: bool = False) -> Mapping[str, Any]:
    """Return the JSON object of a body. `surrogates`: as of `parse_json`. Raises HttpError (400)."""
    try:
        value = parse_json(body.decode(), surrogates=surrogates)
    except UnicodeDecodeError as error:
        raise invalid_request(
            f"the body is not UTF-8: byte {error.start} is {body[error.start]:#04x}."
        ) from None
    except InvalidJsonError as error:
        raise invalid_request(f"the body is not valid JSON: {error}.") from None
    if not isinstance(value, dict):
        raise invalid_request(f"the body must be a JSON object, got {json_type(value)}.")
    return value


_SCHEMAS = ("response_format", "text", "output_config", "output_format", "grammar")
"""The fields of the APIs beside `tools` that contain a schema or a grammar."""


def check_sizes(body: Mapping[str, Any], limits: Limits, size: int | None = None) -> None:
    """Check the counts of messages and tools, and the size of each schema. Raises HttpError (400).

    `size`: of the body in bytes, if known. Written as JSON again, no value is eight times as large.
    """
    for field, most in (("messages", limits.messages), ("input", limits.messages)):
        items = body.get(field)
        if isinstance(items, list) and len(items) > most:
            raise invalid_request(f"'{field}' has {len(items)} items; at most {most} are allowed.", field)
    tools = list(_tools(body))
    if len(tools) > limits.tools:
        raise invalid_request(f"there are {len(tools)} tools; at most {limits.tools} are allowed.", "tools")
    if size is not None and 8 * size <= limits.schema_bytes:
        return
    for path, tool in tools:
        _check_size(path, tool, limits.schema_bytes)
    for field in _SCHEMAS:
        _check_size(field, body.get(field), limits.schema_bytes)


def _tools(body: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """Yield the tools of a request and their paths, those that its items add, too."""
    items = body.get("input")
    numbered = enumerate(items if isinstance(items, list) else ())
    parts = [("", body), *((f"input[{index}].", item) for index, item in numbered)]
    for path, part in parts:
        tools = part.get("tools") if isinstance(part, dict) else None
        listed = tools if isinstance(tools, list) else []
        yield from ((f"{path}tools[{index}]", tool) for index, tool in enumerate(listed))


def _check_size(path: str, value: Any, most: int) -> None:
    size = len(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))
    if size > most:
        raise invalid_request(f"'{path}' has {size} characters; at most {most} are allowed.", path)
