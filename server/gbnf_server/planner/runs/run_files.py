"""Runs from files: of `gbnf run --json` and `--record`, and the logs and results of batches and benches."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, cast, get_args

from pydantic import BaseModel, NonNegativeInt, TypeAdapter, ValidationError

from gbnf.errors import clip
from gbnf.schema.keywords import path_pointer
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf_server.planner.events import Event, Run, RunFinished, RunStarted, StepOffer, TextWritten, event_name
from gbnf_server.planner.runs.grammar_lines import join_lines
from gbnf_server.planner.runs.recording import INTERRUPTED, RecordedCall
from gbnf_server.system.errors import InputError

MOST_BYTES = 256 * 1024 * 1024
_HINT = (
    "Use a file of `gbnf run --record` or `--json`, or the log or the results of `gbnf batch` or of "
    "`gbnf bench`."
)
_SHOWN = 60

_Value = TypeVar("_Value")


class RunFileError(InputError):
    """A file has no runs that can be shown; the message names the file, the path in it, and the value."""

    def __init__(self, problem: str) -> None:
        super().__init__(f"{problem}. {_HINT}")


@dataclass(frozen=True, slots=True)
class RecordedRun:
    """A run from a file. `run` is None if it has not finished; `error` then says why, as far as it is known.

    `events` are not in files of a batch, `decodings` have traces and grammars if they were recorded.
    `grammars`: of a step without decodings, by its tools and the steps that it may refer to; if they
    `are_compiled`, not by the run but from tools given since.
    """

    name: str
    query: str
    run: Run | None
    error: str = ""
    events: tuple[Event, ...] = ()
    decodings: tuple[RecordedCall, ...] = ()
    grammars: Mapping[StepOffer, str] = field(default_factory=dict)
    are_compiled: bool = False


def read_runs(path: Path) -> tuple[RecordedRun, ...]:
    """Return the runs of a file, in their order; at least one. Raises RunFileError."""
    try:
        data = path.read_bytes()
    except OSError as error:
        raise RunFileError(f"{path} cannot be read: {error.strerror or error}") from None
    if len(data) > MOST_BYTES:
        raise RunFileError(f"{path} has {len(data)} bytes; {MOST_BYTES} are allowed")
    try:
        return parse_runs(data.decode(), str(path))
    except UnicodeDecodeError as error:
        raise RunFileError(f"{path} is not UTF-8: {error.reason} at byte {error.start}") from None


def parse_runs(text: str, source: str) -> tuple[RecordedRun, ...]:
    """As `read_runs`, for a text; `source` names it in errors."""
    lines = [(number, line) for number, line in enumerate(text.split("\n"), 1) if line.strip()]
    if not lines:
        raise RunFileError(f"{source} is empty")
    try:
        head = parse_json(lines[0][1], surrogates=True)
    except InvalidJsonError:
        head = None  # an object on several lines
    is_run = isinstance(head, dict) and not head.keys() & {"batch", "event", "id", "configuration"}
    if head is None or (len(lines) == 1 and is_run):
        value = _object(text, source)
        if "suites" in value and "runs" in value:
            return _benched(value, source)
        return (_one_run(value, source, Path(source).name),)
    rows = [(f"{source}, line {number}", _object(line, f"{source}, line {number}")) for number, line in lines]
    if "event" in rows[0][1]:
        events = [event for where, row in rows for event in read_events([row], where, in_list=False)]
        return (run_of_events(Path(source).name, events),)
    if "batch" in rows[0][1]:
        return _logged(rows[1:], source)
    if "configuration" in rows[0][1]:
        return tuple(_bench_run(row, where) for where, row in rows)
    return tuple(_one_run(row, where, str(row.get("id", ""))) for where, row in rows)


def _object(text: str, where: str) -> dict[str, Any]:
    try:
        value = parse_json(text, surrogates=True)
    except InvalidJsonError as error:
        raise RunFileError(f"{where} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise RunFileError(f"{where}: must be an object, got {_shown(value)}")
    return value


def _one_run(value: Mapping[str, Any], where: str, name: str) -> RecordedRun:
    """Return the run of an object: the members of a `Run`, and perhaps `events` and `decodings`."""
    events = read_events(_list(value, "events", where), where)
    decodings = tuple(
        _read(RecordedCall, row, where, ("decodings", index))
        for index, row in enumerate(_list(value, "decodings", where))
    )
    query, error = value.get("query", ""), value.get("error") or ""
    if not isinstance(query, str) or not isinstance(error, str):
        raise RunFileError(f"{where}, /query and /error: must be strings")
    if "outcome" not in value:
        raise RunFileError(f"{where}, /outcome: is missing")
    if value["outcome"] == INTERRUPTED or ("steps" not in value and error):
        return RecordedRun(name, query, None, error or "the run was interrupted", events, decodings)
    run = _read(Run, value, where, ())
    return RecordedRun(name, run.query, run, run.error or "", events, decodings)


def run_of_events(
    name: str, events: Sequence[Event], grammars: Mapping[StepOffer, str] | None = None
) -> RecordedRun:
    """Return the run of its events, with the grammars of its steps as far as they are known."""
    finished = [event.run for event in events if isinstance(event, RunFinished)]
    query = next((event.query for event in events if isinstance(event, RunStarted)), "")
    run = finished[-1] if finished else None
    error = "the run has not finished" if run is None else run.error or ""
    shown = tuple(event for event in events if not isinstance(event, TextWritten | RunFinished))
    return RecordedRun(name, query, run, error, shown, grammars=grammars or {})


def _benched(value: Mapping[str, Any], source: str) -> tuple[RecordedRun, ...]:
    """Return the runs of the results of a bench."""
    grammars = read_step_grammars(value.get("grammars", {}), source)
    rows = _list(value, "runs", source)
    if not rows:
        raise RunFileError(f"{source}, /runs: is empty")
    runs = []
    for index, row in enumerate(rows):
        where = f"{source}, /runs/{index}"
        if not isinstance(row, dict):
            raise RunFileError(f"{where}: must be an object, got {_shown(row)}")
        runs.append(_bench_run(row, where, grammars))
    return tuple(runs)


def _bench_run(
    row: Mapping[str, Any],
    where: str,
    grammars: Mapping[tuple[str, str], Mapping[StepOffer, str]] | None = None,
) -> RecordedRun:
    """Return a run of a bench, from its log or its results."""
    key = [row.get(name) for name in ("suite", "case", "configuration")]
    number = row.get("run")
    if not all(isinstance(part, str) for part in key) or not isinstance(number, int):
        raise RunFileError(f"{where}, /suite, /case, /configuration and /run: must be strings and a number")
    suite, case, configuration = map(str, key)
    if "events" not in row:
        raise RunFileError(
            f"{where}, /events: is missing; the runs of the function-calling leaderboard have none"
        )
    events = read_events(_list(row, "events", where), where)
    name = f"{suite}/{case}, {configuration}" + (f", run {number + 1}" if number else "")
    return run_of_events(name, events, (grammars or {}).get((suite, configuration)))


class _StepGrammarRow(BaseModel):
    """A grammar of a bench's results; `lines` are numbers of those that all of them share."""

    suite: str
    configuration: str
    tools: tuple[str, ...]
    refers_to: tuple[int, ...]
    lines: tuple[NonNegativeInt, ...]
    excluded: tuple[str, ...] = ()


class _StepGrammarFile(BaseModel):
    lines: tuple[str, ...] = ()
    steps: tuple[_StepGrammarRow, ...] = ()


def read_step_grammars(value: Any, source: str) -> dict[tuple[str, str], dict[StepOffer, str]]:
    """Return the grammars in the results of a bench, by suite and configuration. Raises RunFileError."""
    stored = _read(_StepGrammarFile, value, source, ("grammars",))
    grammars: dict[tuple[str, str], dict[StepOffer, str]] = {}
    for index, row in enumerate(stored.steps):
        try:
            text = join_lines(stored.lines, row.lines)
        except IndexError:
            raise RunFileError(
                f"{source}, /grammars/steps/{index}/lines: a number is beyond /grammars/lines"
            ) from None
        grammars.setdefault((row.suite, row.configuration), {})[row.tools, row.refers_to, row.excluded] = text
    return grammars


def _logged(rows: Sequence[tuple[str, Mapping[str, Any]]], source: str) -> tuple[RecordedRun, ...]:
    """Return the runs of a batch's log."""
    runs: dict[str, Run | None] = {}
    errors: dict[str, str] = {}
    decodings: dict[str, list[RecordedCall]] = {}
    for where, row in rows:
        name = row.get("id")
        if not isinstance(name, str):
            raise RunFileError(f"{where}, /id: must be a string, got {_shown(name)}")
        runs.setdefault(name, None)
        match row.get("kind"):
            case str() as kind if kind.partition(" ")[0] == "model":
                for key in {"reply", "completion"} & row.keys():  # the latter in logs of earlier versions
                    decodings.setdefault(name, []).append(_read(RecordedCall, row[key], where, (key,)))
            case "run":
                runs[name] = _read(Run, row.get("run"), where, ("run",))
            case "interrupted":
                errors[name] = f"it was interrupted during the call {_shown(row.get('call'))}"
    if not runs:
        raise RunFileError(f"{source}: the log has no runs yet")
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
    members = value.get(name, [])
    if not isinstance(members, list):
        raise RunFileError(f"{where}, /{name}: must be a list, got {_shown(members)}")
    return members


def read_events(rows: Sequence[Any], where: str, *, in_list: bool = True) -> tuple[Event, ...]:
    """Return events from their JSON. Raises RunFileError; `where` names the source."""
    kinds = {event_name(kind): kind for kind in get_args(Event)}
    events: list[Event] = []
    for index, row in enumerate(rows):
        path = ("events", index) if in_list else ()
        name = row.get("event") if isinstance(row, dict) else row
        if not isinstance(name, str) or name not in kinds:
            raise RunFileError(f"{where}, {path_pointer(path) or '/'}: {_shown(name)} is no event")
        events.append(_read(kinds[name], row, where, path))
    return tuple(events)


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
        raise RunFileError(f"{where}, {path_pointer((*path, *inside)) or '/'}: {message}{got}") from None


def _shown(value: Any) -> str:
    return clip(json.dumps(value, ensure_ascii=False, default=repr), _SHOWN)
