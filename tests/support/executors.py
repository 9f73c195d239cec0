"""The bundled executors and a context for them, for tests that call `run` itself, without a process."""

from __future__ import annotations

import importlib.util
import os
import stat
import time
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

from gbnf.tools import Tool
from gbnf_server.executors import Context, Form, Person, ScriptedPerson, Workspace
from gbnf_server.executors.journal import Change, Journal
from gbnf_server.system.folders import manifests_path
from support.pools import BUNDLED

ROME = ZoneInfo("Europe/Rome")
SATURDAY = datetime(2026, 11, 21, 10, 32, tzinfo=ROME)
"""The present, in tests that need one."""

Run = Callable[[dict[str, Any], Context], dict[str, Any]]


@cache
def module(name: str) -> Any:
    """Load the `executor.py` of a bundled executor by its path."""
    spec = importlib.util.spec_from_file_location(f"shipped_{name}", manifests_path() / name / "executor.py")
    assert spec is not None
    assert spec.loader is not None
    loaded = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def run_of(name: str) -> Run:
    run: Run = module(name).run
    return run


@cache
def bundled_tools() -> dict[str, Tool]:
    return {tool.name: tool for tool in BUNDLED}


class Slow(ScriptedPerson):
    """A person who thinks for `seconds`."""

    def __init__(self, answers: Mapping[str, Any], seconds: float) -> None:
        super().__init__(answers)
        self._seconds = seconds

    def answer(self, form: Form) -> dict[str, Any]:
        time.sleep(self._seconds)
        return super().answer(form)


def world(
    root: Path,
    *,
    now: datetime = SATURDAY,
    person: Person | None = None,
    settings: Mapping[str, str] | None = None,
    turn: str = "first",
) -> Context:
    return Context(
        Workspace(root),
        person or ScriptedPerson(),
        turn=turn,
        settings=settings or {},
        clock=lambda: now,
        tool="test",
    )


def snapshot(root: Path) -> dict[str, tuple[str, int, bytes]]:
    """All that a person sees in a folder: kind, permissions and content by path; not the runtime's own."""
    seen = {}
    for folder, folders, files in os.walk(root):
        if folder == str(root) and ".gbnf" in folders:
            folders.remove(".gbnf")
        for name in [*folders, *files]:
            path = Path(folder, name)
            mode = path.lstat().st_mode
            if stat.S_ISLNK(mode):
                content = os.fsencode(path.readlink())
            else:
                content = path.read_bytes() if stat.S_ISREG(mode) else b""
            seen[path.relative_to(root).as_posix()] = (stat.filemode(mode)[0], stat.S_IMODE(mode), content)
    return seen


def apply(workspace: Workspace, *changes: Change, turn: str = "first", sent: str = "") -> None:
    """Make changes, as one operation."""
    journal = Journal(workspace)
    with journal.locked():
        sends = (lambda _: sent) if sent else None
        journal.apply(changes, turn=turn, tool="test", action=lambda: None, sent=sends)
