"""The log of a bench: for each run its events and the state before and after, appended to a JSON Lines file.

Invariants: a logged run is never executed again; a truncated last line is dropped; two benches do not write
to the same log at the same time.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self, TypeAlias

from gbnf_bench.errors import ResultsFileError
from gbnf_bench.result_files import unwritable
from gbnf_bench.snapshots import Snapshot
from gbnf_server.system.append_log import AppendLog, LogDamagedError, LogInUseError

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
        fields = {each.name: getattr(self, each.name) for each in dataclasses.fields(self)}  # not copied
        return {**fields, "before": self.before.to_json(), "after": self.after.to_json()}

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Raise KeyError or TypeError if the value is not a record."""
        return cls(**{**value, "before": Snapshot(**value["before"]), "after": Snapshot(**value["after"])})


class RunLog:
    """A log, opened for one bench; with `fresh`, its content is discarded, readable or not.

    `records` has the runs by key and fingerprint, so that runs with several seeds or models are kept. Raises
    ResultsFileError if the file is not a log or is in use, SetupError if it cannot be written.
    """

    def __init__(self, path: Path, *, fresh: bool = False) -> None:
        self.path = path
        try:
            self._log = self._opened(fresh=fresh)
        except LogInUseError:
            raise ResultsFileError(
                f"{path} is in use by another bench: wait for it, or give a --label"
            ) from None
        except LogDamagedError as error:
            raise ResultsFileError(
                f"{path}, line {error.line}: this is no run of the bench ({error}). "
                "Delete the file, give another --label, or --fresh to run everything again."
            ) from None
        except OSError as error:
            raise unwritable(path, error) from None
        self.records: dict[tuple[Key, str], RunRecord] = {
            (record.key, record.fingerprint): record for record in self._log.values
        }

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(OSError):  # `append` has reported what could not be written
            self._log.close()

    def append(self, record: RunRecord) -> None:
        """Write a run to the file, and add it to `records`. Raises SetupError."""
        value = json.loads(json.dumps(record.to_json()))
        try:
            self._log.append(value)
        except OSError as error:
            raise unwritable(self.path, error, "free some space: the earlier runs are kept") from None
        self.records[record.key, record.fingerprint] = RunRecord.from_json(value)

    @property
    def latest(self) -> datetime:
        """The time when a run was last logged."""
        return datetime.fromtimestamp(self.path.stat().st_mtime, UTC)

    def _opened(self, *, fresh: bool) -> AppendLog:
        try:
            log = AppendLog(self.path, RunRecord.from_json)
        except LogDamagedError:
            if not fresh:
                raise
            self.path.unlink()  # no other bench has it: a log that is in use is not read
            return AppendLog(self.path, RunRecord.from_json)
        if fresh:
            log.clear()
        return log
