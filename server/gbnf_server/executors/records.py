"""The journal on disk: one file ``.gbnf/journal/<number>.jsonl`` for each operation, only ever added to.

A head line says who did it (turn, tool), each further line a step that is about to be done, and a last one
how it ended. A line that a kill cut short is no line: the step that it would have announced was not begun.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gbnf_server.executors.workspace import STATE

if TYPE_CHECKING:
    from gbnf_server.executors.workspace import Workspace

FOLDER = f"{STATE}/journal"


@dataclass(slots=True)
class Operation:
    """One call's changes. `end`: None while under way, or killed; then done, rolled back, undone or undo.

    `undone`: the indices of steps that are taken back, where others of the operation could not be yet.
    `undid`: the turn that it took back, where it is an undo.
    """

    number: str
    turn: str
    tool: str
    steps: list[dict[str, Any]] = field(default_factory=list)
    end: str | None = None
    undone: set[int] = field(default_factory=set)
    undid: str | None = None


class Records:
    """The operations of a workspace, by number. Whoever writes holds the journal's lock."""

    def __init__(self, workspace: Workspace) -> None:
        self._workspace = workspace

    def numbers(self) -> list[str]:
        """Of all operations, the oldest first."""
        return sorted(path.stem for path in (self._workspace.root / FOLDER).glob("*.jsonl"))

    def next_number(self) -> str:
        """One that neither a record nor a folder in the trash has."""
        used = [*self.numbers(), *(path.name for path in self._workspace.trash.iterdir())]
        return f"{max((int(number) for number in used if number.isdecimal()), default=0) + 1:08d}"

    def load(self, number: str) -> Operation:
        operation = Operation(number, "", "")
        for line in (self._workspace.root / FOLDER / f"{number}.jsonl").read_bytes().splitlines():
            try:
                record = json.loads(line)
            except ValueError:  # empty, or cut short
                continue
            if not isinstance(record, dict):
                continue
            if "step" in record:
                operation.steps.append(record)
            elif "end" in record:
                operation.end = record["end"]
            elif "undone" in record:
                operation.undone.add(record["undone"])
            else:
                operation.turn, operation.tool = record.get("turn", ""), record.get("tool", "")
                operation.undid = record.get("undid")
        return operation

    def append(self, operation: Operation, record: dict[str, Any]) -> None:
        with self._workspace.opened(FOLDER) as folder:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
            descriptor = os.open(f"{operation.number}.jsonl", flags, 0o666, dir_fd=folder)
            with os.fdopen(descriptor, "wb") as file:
                # a line break first: what was cut short before stays a line by itself
                file.write(b"\n" + json.dumps(record).encode() + b"\n")
