"""The log of a bench: of each run its events, and the state before and after."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeAlias

from gbnf_bench.snapshots import Snapshot
from gbnf_server.planner.runs import run_log

Key: TypeAlias = tuple[str, str, str, int]
"""Suite, case, configuration, number of the run."""


@dataclass(frozen=True, slots=True)
class RunRecord:
    """One run, whose `events` are the planner's, as JSON.

    `fingerprint` covers everything that the run depends on: the case, the tools and their code, the model,
    the settings, the versions.
    """

    suite: str
    case: str
    configuration: str
    run: int
    seed: int
    fingerprint: str
    events: Sequence[Mapping[str, Any]]
    before: Snapshot
    after: Snapshot

    @property
    def key(self) -> Key:
        """The record's key in a log."""
        return (self.suite, self.case, self.configuration, self.run)

    def to_json(self) -> dict[str, Any]:
        """Return the record's line."""
        own = {field.name: getattr(self, field.name) for field in fields(self)}  # not copied
        return {**own, "before": asdict(self.before), "after": asdict(self.after)}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Raise KeyError or TypeError if the value is not a record."""
        return cls(**{**value, "before": Snapshot(**value["before"]), "after": Snapshot(**value["after"])})


class RunLog(run_log.RunLog[tuple[Key, str], RunRecord]):
    """A log, opened for one bench; with `fresh`, its content is discarded, readable or not.

    `records` has the runs by key and fingerprint, so that runs with several seeds or models are kept. Raises
    RunLogError.
    """

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        hint = "Delete it, use another --out or --label, or --fresh to run everything again."
        super().__init__(path, _entry, fresh=fresh, hint=hint)
        self.records = {key: records[-1] for key, records in self.entries.items()}

    def add(self, record: RunRecord) -> None:
        """Write a run to the file, and add it to `records`. Raises RunLogError."""
        value = json.loads(json.dumps(record.to_json()))
        self.append(value)
        key, read = _entry(value)
        self.records[key] = read

    @property
    def latest(self) -> datetime:
        """The time when a run was last logged."""
        return datetime.fromtimestamp(self.path.stat().st_mtime, UTC)


def _entry(value: Any) -> tuple[tuple[Key, str], RunRecord]:
    record = RunRecord.from_json(value)
    return (record.key, record.fingerprint), record
