"""Runs from files: those of `gbnf run --json` and `--record`, and the logs and results of batches."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from pydantic import TypeAdapter, ValidationError

from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf_server.errors import InputError
from gbnf_server.planner.events import Event, Run, RunFinished, RunStarted, TextWritten, event_name
from gbnf_server.planner.recorded_calls import RecordedCall
from gbnf_server.planner.recording import INTERRUPTED

MOST_BYTES = 256 * 1024 * 1024
_HINT = "Use a file of `gbnf run --record` or `--json`, or the log or the results of `gbnf batch`."
_SHOWN = 60

_Value = TypeVar("_Value")


class RunFileError(InputError):
    """A file has no runs that can be shown; the message names the file, the path in it, and the value."""


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run from a file. `run` is None if it has not finished; `error` then says why, as far as it is known.

    `events` are in files of one run only, `decodings` have traces and grammars if they were recorded.
    """

    name: str
    query: str
    run: Run | None
    error: str = ""
    events: tuple[Event, ...] = ()
    decodings: tuple[RecordedCall, ...] = ()


def read_runs(path: Path) -> tuple[RecordedRun, ...]:
    """Return the runs of a file, in their order; at least one. Raises RunFileError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunFileError(f"{path} cannot be read: {error.strerror or error}. {_HINT}") from None
    if len(data) > MOST_BYTES:
        raise RunFileError(f"{path} has {len(data)} bytes; {MOST_BYTES} are allowed. {_HINT}")
    try:
        return parse_runs(data.decode(), str(path))
    except UnicodeDecodeError as error:
        raise RunFileError(f"{path} is not UTF-8: {error.reason} at byte {error.start}. {_HINT}") from None


def parse_runs(text: str, source: str) -> tuple[RecordedRun, ...]:
    """As `read_runs`, for a text; `source` names it in errors."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise RunFileError(f"{source} is empty. {_HINT}")
    first = lines[0][1]
    head = _json_or_none(first)
    is_run = isinstance(head, dict) and not head.keys() & {"batch", "event", "id"}
    if head is None or (len(lines) == 1 and is_run):
        return (_one_run(_object(text, source), source, Path(source).name),)
    rows = [(f"{source}, line {number}", _object(line, f"{source}, line {number}")) for number, line in lines]
    if "event" in rows[0][1]:
        return (_streamed(rows, source),)
    if "batch" in rows[0][1]:
        return _logged(rows[1:], source)
    return tuple(_one_run(row, where, str(row.get("id", ""))) for where, row in rows)


def _json_or_none(line: str) -> Any:
    try:
        return parse_json(line, surrogates=True)
    except InvalidJsonError:
        return None


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        value = parse_json(text, surrogates=True)
    except InvalidJsonError as error:
        raise RunFileError(f"{where} is not JSON: {error}. {_HINT}") from None
    if not isinstance(value, dict):
        raise RunFileError(f"{where}: must be an object, got {_shown(value)}. {_HINT}")
    return value


def _one_run(value: Mapping[str, Any], where: str, name: str) -> RecordedRun:
    """Return the run of an object: the members of a `Run`, and perhaps `events` and `decodings`."""
    events = tuple(_events(_list(value, "events", where), where))
    decodings = tuple(
        _read(RecordedCall, row, where, ("decodings", index))
        for index, row in enumerate(_list(value, "decodings", where))
    )
    query, error = value.get("query", ""), value.get("error") or ""
    if not isinstance(query, str) or not isinstance(error, str):
        raise RunFileError(f"{where}, /query and /error: must be strings. {_HINT}")
    if "outcome" not in value:
        raise RunFileError(f"{where}, /outcome: is missing. {_HINT}")
    if value["outcome"] == INTERRUPTED or ("steps" not in value and error):
        return RecordedRun(name, query, None, error or "the run was interrupted", events, decodings)
    run = _read(Run, value, where, ())
    return RecordedRun(name, run.query, run, run.error or "", events, decodings)


def _streamed(rows: Sequence[tuple[str, Mapping[str, Any]]], source: str) -> RecordedRun:
    """Return the run of `gbnf run --json --stream`, an event on each line."""
    events = [event for where, row in rows for event in _events([row], where, in_list=False)]
    finished = [event.run for event in events if isinstance(event, RunFinished)]
    query = next((event.query for event in events if isinstance(event, RunStarted)), "")
    run = finished[-1] if finished else None
    error = "the run has not finished" if run is None else run.error or ""
    kept = tuple(event for event in events if not isinstance(event, TextWritten | RunFinished))
    return RecordedRun(Path(source).name, query, run, error, kept)


def _logged(rows: Sequence[tuple[str, Mapping[str, Any]]], source: str) -> tuple[RecordedRun, ...]:
    """Return the runs of a batch's log."""
    runs: dict[str, Run | None] = {}
    errors: dict[str, str] = {}
    decodings: dict[str, list[RecordedCall]] = {}
    for where, row in rows:
        name = row.get("id")
        if not isinstance(name, str):
            raise RunFileError(f"{where}, /id: must be a string, got {_shown(name)}. {_HINT}")
        runs.setdefault(name, None)
        match row.get("kind"):
            case "model" if "completion" in row:
                decoding = _read(RecordedCall, row["completion"], where, ("completion",))
                decodings.setdefault(name, []).append(decoding)
            case "run":
                runs[name] = _read(Run, row.get("run"), where, ("run",))
            case "interrupted":
                errors[name] = f"it was interrupted during the call {_shown(row.get('call'))}"
    if not runs:
        raise RunFileError(f"{source}: the log has no runs yet. {_HINT}")
    return tuple(
        RecordedRun(
            name,
            "" if run is None else run.query,
            run,
            (run.error or "") if run is not None else errors.get(name, "the run has not finished"),
            decodings=tuple(decodings.get(name, ())),
        )
        for name, run in runs.items()
    )


def _list(value: Mapping[str, Any], name: str, where: str) -> list[Any]:
    found = value.get(name, [])
    if not isinstance(found, list):
        raise RunFileError(f"{where}, /{name}: must be a list, got {_shown(found)}. {_HINT}")
    return found


def _events(rows: Sequence[Any], where: str, *, in_list: bool = True) -> Iterator[Event]:
    kinds = {event_name(kind): kind for kind in get_args(Event)}
    for index, row in enumerate(rows):
        path = ("events", index) if in_list else ()
        name = row.get("event") if isinstance(row, dict) else row
        if not isinstance(name, str) or name not in kinds:
            raise RunFileError(f"{where}, {_pointer(path)}: {_shown(name)} is no event. {_HINT}")
        yield _read(kinds[name], row, where, path)


@cache
def _adapter(kind: type[_Value]) -> TypeAdapter[_Value]:
    return TypeAdapter(kind)


def _read(kind: type[_Value], value: Any, where: str, path: tuple[int | str, ...]) -> _Value:
    try:
        return cast("_Value", _adapter(kind).validate_python(value))  # type: ignore[arg-type]  # it is cached
    except ValidationError as error:
        first = error.errors()[0]
        inside = [step for step in first["loc"] if step != "function-before"]
        message = first["msg"].removeprefix("Value error, ")
        got = "" if first["type"] == "missing" else f", got {_shown(first['input'])}"
        raise RunFileError(f"{where}, {_pointer((*path, *inside))}: {message}{got}. {_HINT}") from None


def _pointer(path: Sequence[int | str]) -> str:
    return "".join(f"/{step}" for step in path) or "/"


def _shown(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False, default=repr)
    return text if len(text) <= _SHOWN else text[: _SHOWN - 1] + "…"
