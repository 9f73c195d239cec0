"""Laws of every bundled executor, through the real runner."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from gbnf_server.executors import Context, ScriptedPerson, run_executor
from gbnf_server.system.errors import ExecutorError
from support.executors import bundled_tools, run_of, snapshot, world


def call(context: Context, name: str, **arguments: Any) -> dict[str, Any]:
    return run_executor(bundled_tools()[name], arguments, context)


@pytest.mark.slow
def test_a_working_day(tmp_path: Path) -> None:
    """Each of them once, in one run, as a planner would call them; then all of it undone."""
    person = ScriptedPerson({"which": "1", "location": "Torino"})
    context = world(tmp_path, person=person)
    (tmp_path / "old.txt").write_text("old")
    before = snapshot(tmp_path)
    assert call(context, "get_now")["weekday"] == "Saturday"
    assert call(context, "create_dirs", paths=["trips/2026"])["entries"] == ["trips/2026"]
    files = [{"path": "trips/2026/plan.txt", "content": "Caffè"}, {"path": "old.txt", "content": "new"}]
    assert call(context, "write_files", files=files)["entries"] == ["trips/2026/plan.txt", "old.txt"]
    found = call(context, "find_files", base_path=".", pattern="*.txt")
    assert found == {"entries": ["old.txt", "trips/2026/plan.txt"], "count": 2}
    assert call(context, "read_files", paths=found["entries"])["entries"] == ["new", "Caffè"]
    assert call(context, "compute", expression="6 * 7") == {"value": 42, "entries": ["42"]}
    slots = call(context, "find_events_empty", period="next_week", part_of_day="morning")["entries"]
    dialog = [{"var": "which", "prompt": "Which slot?", "schema": {"kind": "choice"}}]
    chosen = call(context, "get_inputs", title="Meeting", dialog=dialog, entries=slots)
    assert chosen == {"values": {"which": slots[0]}, "entries": [slots[0]]}
    made = call(context, "create_events", title="Meeting", starts=chosen["entries"])
    assert made == {"entries": ["2026-11-23T09:00"], "title": "Meeting"}
    assert slots[0] not in call(context, "find_events_empty", period="next_week", limit=20)["entries"]
    sent = call(context, "send_messages", to=["me"], subject="Plan", body="Done")
    assert (tmp_path / sent["file"]).is_file()
    assert call(context, "request_location_from_user")["location"] == "Torino"
    assert call(context, "request_new_executor", need="book a train")["recorded"] == "book a train"
    assert call(context, "delete_files", paths=["trips"])["entries"] == ["trips"]
    with pytest.raises(ExecutorError, match="Google Drive is not connected"):
        call(context, "find_files_google_workspace", query="plan")
    undone = call(context.for_turn(), "undo_last_turn")
    assert "restored the earlier content of 'old.txt'" in undone["entries"]
    assert "not_undone" not in undone
    assert snapshot(tmp_path) == before


@pytest.mark.parametrize("path", ["..", "/etc", "out", ".gbnf", "in/../.."])
def test_no_executor_changes_files_outside_the_workspace(tmp_path: Path, path: str) -> None:
    context = world(tmp_path / "space")
    (tmp_path / "space" / "out").symlink_to(tmp_path)
    (tmp_path / "space" / "in").mkdir()
    before = snapshot(tmp_path)

    calls: dict[str, dict[str, Any]] = {
        "find_files": {"base_path": path, "pattern": "*"},
        "read_files": {"paths": [path]},
        "write_files": {"files": [{"path": f"{path}/x", "content": "x"}]},
        "create_dirs": {"paths": [f"{path}/x"]},
        "delete_files": {"paths": [path]},
        "describe_frame": {"path": path},
    }
    for name, arguments in calls.items():
        with pytest.raises(ExecutorError, match="refused"):
            run_of(name)(arguments, context)
    assert {path: seen for path, seen in snapshot(tmp_path).items() if ".gbnf" not in path} == {
        path: seen for path, seen in before.items() if ".gbnf" not in path
    }
