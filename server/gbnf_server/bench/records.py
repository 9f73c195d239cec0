"""What a run leaves behind: its events and the world before and after, kept in a file that only grows.

A log is lines of JSON, one a run. What must stay true: a run that is in the log is never executed again; a
line that an interruption cut is dropped; two benches do not write to one log at a time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeAlias

from gbnf_server.append_log import AppendLog, LogDamagedError, LogInUseError
from gbnf_server.bench.errors import RecordError
from gbnf_server.bench.worlds import Snapshot

Key: TypeAlias = tuple[str, str, str, int]
"""Suite, case, configuration, number of the run."""


@dataclass(frozen=True, slots=True)
class Record:
    """One run. `fingerprint` stands for all that decides it: the case, the tools, the model, the settings.

    `events` are the planner's, as JSON.
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
        return (self.suite, self.case, self.configuration, self.run)

    def to_json(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Raises KeyError or TypeError where the value is no record."""
        given = dict(value)
        return cls(**{**given, "before": Snapshot(**given["before"]), "after": Snapshot(**given["after"])})


class RunLog:
    """A file of records, opened for one bench. Raises RecordError where it is not one, or is in use."""

    def __init__(self, path: Path) -> None:
        self.path = path
        try:
            self._log = AppendLog(path, Record.from_json)
        except LogInUseError:
            raise RecordError(f"{path} is in use by another bench: wait for it, or give a --label") from None
        except LogDamagedError as error:
            raise RecordError(
                f"{path}, line {error.line}: this is no run of the bench ({error}). "
                "Delete the file, or give another --label."
            ) from None
        self.records: dict[Key, Record] = {record.key: record for record in self._log.values}

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._log.close()

    def append(self, record: Record) -> None:
        """Keep a run. When this returns, an interruption loses nothing of it."""
        self._log.append(record.to_json())
        self.records[record.key] = record

    def clear(self) -> None:
        """Forget all runs."""
        self._log.clear()
        self.records.clear()
