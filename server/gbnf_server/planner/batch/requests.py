"""The requests of a batch: JSON lines, each a string, or an object with a `query`."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gbnf.strict_json import parse_json
from gbnf_server.system.errors import InputError

_KEYS = ("query", "id", "workspace")


class BatchFileError(InputError):
    """A request file is invalid; the message names the file, the line and the problem."""


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """A request. `id` identifies it in the results; by default the number of its line.

    `workspace`: a folder in the batch's workspace for this run only; "" for the batch's workspace.
    """

    id: str
    query: str
    workspace: str = ""


def read_requests(path: Path) -> tuple[BatchRequest, ...]:
    """Return the requests of a file, in order; empty lines are skipped. Raises BatchFileError."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise BatchFileError(
            f"{path} cannot be read: {error.strerror or error}. Use a file with a request on each line."
        ) from None
    except UnicodeDecodeError as error:
        raise BatchFileError(
            f"{path} is not UTF-8: {error.reason} at byte {error.start}. Save it as UTF-8."
        ) from None
    return parse_requests(text, str(path))


def parse_requests(text: str, source: str) -> tuple[BatchRequest, ...]:
    """As `read_requests`, for a text; `source` names it in errors."""
    requests: dict[str, BatchRequest] = {}
    # split at line feeds alone: a text may hold other separators
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            request = _request(parse_json(line), number, taken=requests)
        except ValueError as error:
            raise BatchFileError(
                f"{source}, line {number}: {error}. A line is a JSON string, or an object such as "
                '{"id": "a1", "query": "what time is it", "workspace": "folder"}.'
            ) from None
        requests[request.id] = request
    if not requests:
        raise BatchFileError(f"{source} has no requests: put one on each line")
    return tuple(requests.values())


def _request(value: Any, number: int, taken: Container[str]) -> BatchRequest:
    if isinstance(value, str):
        value = {"query": value}
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is neither a string nor an object")  # noqa: TRY004  # it is a line's content that is wrong
    if unknown := sorted(value.keys() - set(_KEYS)):
        raise ValueError(f"{unknown[0]!r} is unknown. Use {', '.join(_KEYS)}")
    query, name, workspace = value.get("query"), value.get("id", str(number)), value.get("workspace", "")
    if not isinstance(query, str) or not query.strip():
        raise ValueError("'query' is missing, or not a non-empty string")
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    if not isinstance(name, str) or not name:
        raise ValueError("'id' is neither a string nor an integer")
    if name in taken:
        raise ValueError(f"the id {name!r} is a duplicate")
    if not isinstance(workspace, str):
        raise ValueError("'workspace' is not a string")  # noqa: TRY004  # as for all that is wrong with a line
    return BatchRequest(name, query, workspace)
