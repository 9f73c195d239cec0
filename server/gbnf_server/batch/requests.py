"""The requests of a batch: lines of JSON, each a text, or an object with a `query`."""

from __future__ import annotations

from collections.abc import Container
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from gbnf.strict_json import parse_json
from gbnf_server.errors import InputError

_KEYS = ("query", "id", "workspace")


class BatchFileError(InputError):
    """A file of requests cannot be read; the message names the file, the line and what is wrong there."""


@dataclass(frozen=True, slots=True)
class BatchRequest:
    """What is asked. `id` names it in the results: the line's number where the file gives none.

    `workspace`: a folder of its own, as the file says it; "" for the batch's.
    """

    id: str
    query: str
    workspace: str = ""


def read_requests(path: Path) -> tuple[BatchRequest, ...]:
    """Every line's request, in order; empty lines are passed over. Raises RequestError."""
    try:
        text = path.read_text("utf-8")
    except OSError as error:
        raise BatchFileError(
            f"{path} cannot be read: {error.strerror or error}. Give a file with a request on each line."
        ) from None
    except UnicodeDecodeError as error:
        raise BatchFileError(
            f"{path} is no UTF-8: {error.reason} at byte {error.start}. Save it as UTF-8."
        ) from None
    found: dict[str, BatchRequest] = {}
    # split at line feeds alone: a text may hold other separators
    for number, line in enumerate(text.split("\n"), 1):
        if not line.strip():
            continue
        try:
            request = _request(parse_json(line), number, taken=found)
        except ValueError as error:
            raise BatchFileError(
                f"{path}, line {number}: {error}. A line is a text in quotes, or an object such as "
                '{"id": "a1", "query": "what time is it", "workspace": "folder"}.'
            ) from None
        found[request.id] = request
    if not found:
        raise BatchFileError(f"{path} holds no request: give one a line")
    return tuple(found.values())


def _request(value: Any, number: int, taken: Container[str]) -> BatchRequest:
    if isinstance(value, str):
        value = {"query": value}
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is no request")  # noqa: TRY004  # it is a line's content that is wrong
    if unknown := sorted(value.keys() - set(_KEYS)):
        raise ValueError(f"{unknown[0]!r} is none of {', '.join(_KEYS)}")
    query, name, workspace = value.get("query"), value.get("id", str(number)), value.get("workspace", "")
    if not isinstance(query, str) or not query.strip():
        raise ValueError("'query' is missing, or no text")
    if isinstance(name, int) and not isinstance(name, bool):
        name = str(name)
    if not isinstance(name, str) or not name:
        raise ValueError("'id' is neither a text nor an integer")
    if name in taken:
        raise ValueError(f"the id {name!r} has been given before")
    if not isinstance(workspace, str):
        raise ValueError("'workspace' is no path")  # noqa: TRY004  # as for all that is wrong with a line
    return BatchRequest(name, query, workspace)
