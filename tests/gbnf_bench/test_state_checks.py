"""State checks: what is correct, what is not, and how it is reported."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_bench.cases import Case, ExpectedState, InitialState, read_case
from gbnf_bench.snapshots import Snapshot, make_case_context, snapshot
from gbnf_bench.state_checks import destroyed, faults
from gbnf_server.executors import run_executor
from gbnf_server.system.errors import SetupError
from support.executors import bundled_tools

PATHS = st.sampled_from(["a.txt", "b/c.txt", "b/d.txt"])
SNAPSHOTS = st.builds(
    Snapshot,
    files=st.dictionaries(PATHS, st.sampled_from(["one", "two"])),
    folders=st.lists(st.sampled_from(["b", "e"]), unique=True),
    events=st.lists(st.fixed_dictionaries({"title": st.sampled_from(["x", "y"])}), max_size=2),
    messages=st.lists(st.fixed_dictionaries({"subject": st.sampled_from(["x", "y"])}), max_size=2),
)


@given(SNAPSHOTS)
def test_an_unchanged_state_is_correct_if_no_change_is_expected(world: Snapshot) -> None:
    assert faults((ExpectedState(),), world, world) == ()


@given(SNAPSHOTS, SNAPSHOTS)
def test_an_unexpected_change_is_wrong_unless_other_changes_are_allowed(
    before: Snapshot, end: Snapshot
) -> None:
    def seen(world: Snapshot) -> tuple[Any, ...]:
        # folders that hold a file come and go with it
        lonely = {
            each for each in world.folders if not any(path.startswith(f"{each}/") for path in end.files)
        }
        rows = [sorted(map(repr, rows)) for rows in (world.events, world.messages)]
        return world.files, lonely, *rows

    found = faults((ExpectedState(),), before, end)
    if seen(before) != seen(end):
        assert found
    assert faults((ExpectedState(others=True),), before, end) == ()


@given(SNAPSHOTS, SNAPSHOTS)
def test_what_is_lost_or_sent_without_being_asked_for_is_destroyed(before: Snapshot, end: Snapshot) -> None:
    kept = all(end.files.get(path) == text for path, text in before.files.items())
    kept &= all(event in end.events for event in before.events)
    sent = any(message not in before.messages for message in end.messages)
    assert bool(destroyed((ExpectedState(),), before, end)) == (not kept or sent)
    assert not destroyed((ExpectedState(),), before, replace(before, files={"new": "x", **before.files}))


@given(SNAPSHOTS, SNAPSHOTS)
def test_of_several_expected_states_the_nearest_counts(before: Snapshot, end: Snapshot) -> None:
    wanted = ExpectedState(files={"a.txt": {"const": "one"}}, others=True)
    other = ExpectedState(gone=("a.txt",), others=True)
    either = faults((wanted, other), before, end)
    assert either == min(faults((wanted,), before, end), faults((other,), before, end), key=len)


@given(SNAPSHOTS, SNAPSHOTS)
def test_a_state_is_correct_if_its_changes_are_those_expected(before: Snapshot, end: Snapshot) -> None:
    def whole(world: Snapshot) -> Snapshot:
        holding = {path.rsplit("/", 1)[0] for path in world.files if "/" in path}
        return replace(world, folders=sorted({*world.folders, *holding}))

    before, end = whole(before), whole(end)

    def came(old: Sequence[Any], new: Sequence[Any]) -> list[Any]:
        rows = list(new)
        for row in old:
            if row in rows:
                rows.remove(row)
        return rows

    expected: dict[str, Any] = {
        "files": end.files,
        "folders": end.folders,
        "gone": [path for path in [*before.files, *before.folders] if path not in {*end.files, *end.folders}],
        "events": came(before.events, end.events),
        "gone_events": came(end.events, before.events),
        "messages": came(before.messages, end.messages),
        "gone_messages": came(end.messages, before.messages),
    }
    assert faults(_case(after=expected).after, before, end) == ()
    assert destroyed(_case(after=expected).after, before, end) == ()
    for key in ("events", "gone_events", "messages", "gone_messages"):
        if expected[key]:
            assert faults(_case(after={**expected, key: expected[key][1:]}).after, before, end)
            more = [*expected[key], expected[key][0]]
            assert faults(_case(after={**expected, key: more}).after, before, end)


BEFORE = Snapshot(files={"a.txt": "one", "b/c.txt": "two"}, folders=["b"])
EVENT = {"title": "Call with Luca", "start": "2026-11-24T18:00", "end": "2026-11-24T19:00", "location": ""}
MAIL = {"to": ["anna@example.com"], "subject": "Train", "body": "the train is late"}
TABLE: list[tuple[dict[str, Any], Snapshot, str]] = [
    ({"files": {"n.txt": "x"}}, replace(BEFORE, files={**BEFORE.files, "n.txt": "x"}), ""),
    ({"files": {"n.txt": "x"}}, replace(BEFORE, files={**BEFORE.files, "n.txt": "y"}), "not as expected"),
    ({"files": {"n.txt": "x"}}, BEFORE, "no file n.txt"),
    ({"files": {"*.txt": "x"}}, replace(BEFORE, files={**BEFORE.files, "n.txt": "x"}), ""),
    ({"files": {"*": "one"}}, BEFORE, "no file *"),
    ({"folders": ["d/e"]}, replace(BEFORE, folders=["b", "d", "d/e"]), ""),
    ({"folders": ["d"]}, replace(BEFORE, folders=["b", "d", "d/e"]), "folder d/e was made"),
    ({"folders": ["d"]}, BEFORE, "no folder d"),
    ({"gone": ["a.txt"]}, replace(BEFORE, files={"b/c.txt": "two"}), ""),
    ({"gone": ["b"]}, replace(BEFORE, files={"a.txt": "one"}, folders=[]), ""),
    ({"gone": ["a.txt"]}, BEFORE, "still there"),
    ({"gone": ["a.txt"]}, Snapshot(folders=["b"]), "b/c.txt was deleted"),
    ({}, replace(BEFORE, files={"a.txt": "two", "b/c.txt": "two"}), "a.txt was changed"),
    ({"events": [{"title": {"pattern": "(?i)luca"}}]}, replace(BEFORE, events=[EVENT]), ""),
    ({"events": [{"start": "2026-11-25"}]}, replace(BEFORE, events=[EVENT]), "event is missing"),
    ({"events": [{"title": "Call with Luca"}]}, replace(BEFORE, events=[EVENT, EVENT]), "one event too many"),
    ({"messages": [{"to": ["anna@example.com"]}]}, replace(BEFORE, messages=[MAIL]), ""),
    ({"messages": [{"to": ["luca@example.com"]}]}, replace(BEFORE, messages=[MAIL]), "message is missing"),
    ({}, replace(BEFORE, messages=[MAIL]), "one message too many"),
]  # fmt: skip


def _case(**keys: Any) -> Case:
    return read_case({"id": "x", "query": "q", "first": ["get_now"], "steps": 2, "answer": {}, **keys})


REVIEW, BUDGET = {"title": {"pattern": "(?i)review"}}, {"title": {"pattern": "(?i)budget"}}
TO_ANNA, ABOUT_BOB = {"to": ["a@x.y"]}, {"body": {"pattern": "(?i)bob"}}
HELLO, HI = ({"to": ["a@x.y"], "subject": "s", "body": body} for body in ("hello bob", "hi"))
MILK = {"pattern": "(?i)milk"}
BOTH = Snapshot(events=[{"title": "review budget"}, {"title": "review"}])
NOTE = Snapshot(files={"n/a.txt": "milk"})
TWO_LINES = Snapshot(files={"a": "one\ntwo"})
LATER = {**EVENT, "start": "2026-11-25T18:00", "end": "2026-11-25T19:00"}
FOUND_LATER: list[tuple[dict[str, Any], Snapshot, Snapshot, str]] = [
    # what is there before may be expected to go
    ({"gone_events": [{"title": "Call with Luca"}]}, Snapshot(events=[EVENT]), Snapshot(), ""),
    ({}, Snapshot(events=[EVENT]), Snapshot(), "the event 'Call with Luca' was deleted"),
    ({"gone_events": [REVIEW]}, Snapshot(events=[EVENT]), Snapshot(events=[EVENT]), "event that should go"),
    ({"events": [{"start": LATER["start"]}]}, Snapshot(events=[EVENT]), Snapshot(events=[LATER]), "deleted"),
    (
        {"events": [{"start": LATER["start"]}], "gone_events": [{"start": EVENT["start"]}]},
        Snapshot(events=[EVENT]), Snapshot(events=[LATER]), "",
    ),
    ({"gone_events": [{"location": ""}]}, Snapshot(events=[EVENT, EVENT]), Snapshot(), "was deleted"),
    ({"gone_messages": [ABOUT_BOB]}, Snapshot(messages=[HELLO]), Snapshot(), ""),
    ({}, Snapshot(messages=[HELLO]), Snapshot(), "the message 's' was deleted"),
    ({"others": True}, Snapshot(events=[EVENT]), Snapshot(), ""),
    # whichever fits is given away so that the others are met too
    ({"events": [REVIEW, BUDGET]}, Snapshot(), BOTH, ""),
    ({"messages": [TO_ANNA, ABOUT_BOB]}, Snapshot(), Snapshot(messages=[HELLO, HI]), ""),
    ({"gone_events": [REVIEW, BUDGET]}, BOTH, Snapshot(), ""),
    (
        {"files": {"n/*.txt": {}, "n/*": MILK}},
        Snapshot(), Snapshot(files={"n/a.txt": "milk", "n/b.txt": "eggs"}), "",
    ),
    ({"files": {"n/*.txt": MILK, "n/a.txt": MILK}}, Snapshot(), NOTE, "no file n/*"),
    ({"files": {"n/*": MILK, "n/*.txt": MILK}}, Snapshot(), NOTE, "no file n/*"),
    # how lines end does not count
    ({"files": {"a": "one\ntwo\n"}}, Snapshot(), TWO_LINES, ""),
    ({"files": {"a": {"enum": ["x", "one\r\n"]}}}, Snapshot(), Snapshot(files={"a": "one"}), ""),
    ({"files": {"a": {"pattern": "(?i)two\n"}}}, Snapshot(), TWO_LINES, ""),
    ({"files": {"a": {"pattern": "(?i)tw\n"}}}, Snapshot(), TWO_LINES, "not as expected"),
    ({"files": {"a": "one\ntwo"}}, Snapshot(), Snapshot(files={"a": "onetwo"}), "not as expected"),
    *(
        ({"messages": [{"body": wanted}]}, Snapshot(), Snapshot(messages=[{"body": body}]), said)
        for body in ("one\ntwo", "one\r\ntwo")  # as it is kept now, and as older files keep it
        for wanted, said in [
            ("one\ntwo", ""),
            ("one\r\ntwo\r\n", ""),
            ({"pattern": "(?i)e\ntwo"}, ""),
            ({"pattern": "(?i)e\r\ntwo"}, ""),
            ({"pattern": "^one\ntwo$"}, ""),
            ({"pattern": "^one\r\ntwo$"}, ""),
            ("one two", "missing"),
        ]
    ),
]  # fmt: skip


@pytest.mark.parametrize(
    ("after", "before", "end", "said"),
    [*((after, BEFORE, end, said) for after, end, said in TABLE), *FOUND_LATER],
)
def test_what_is_wrong(after: dict[str, Any], before: Snapshot, end: Snapshot, said: str) -> None:
    found = faults(_case(after=after).after, before, end)
    assert (said in "; ".join(found)) if said else found == ()


@pytest.mark.slow
def test_an_initial_state_is_created_and_described(tmp_path: Path) -> None:
    case = _case(
        before={
            "files": {"notes/a.txt": "one\n"},
            "folders": ["empty/inside"],
            "events": [
                {"title": "Workshop", "start": "2026-11-23T08:00", "end": "2026-11-23T18:00"},
                {"title": "Holiday", "start": "2026-11-24", "end": "2026-11-25", "location": "Rome"},
            ],
            "calls": [{"name": "create_dirs", "arguments": {"paths": ["earlier"]}}],
        }
    )
    context = make_case_context(case, tmp_path, bundled_tools())
    found = snapshot(context)
    assert found.files == {"notes/a.txt": "one"}
    assert set(found.folders) == {"notes", "empty", "empty/inside", "earlier"}
    assert [event["title"] for event in found.events] == ["Workshop", "Holiday"]
    assert found.events[0]["start"] == "2026-11-23T08:00"
    assert found.events[1] == {
        "title": "Holiday", "start": "2026-11-24", "end": "2026-11-25", "location": "Rome",
    }  # fmt: skip
    free = run_executor(bundled_tools()["find_events_empty"], {"start_date": "2026-11-23"}, context)
    assert free["entries"] == []
    run_executor(
        bundled_tools()["send_messages"],
        {"to": ["me", "anna@example.com"], "subject": "Hi", "body": "è vero\nciao"},
        context,
    )
    [message] = snapshot(context).messages
    assert message == {"to": ["me@example.com", "anna@example.com"], "subject": "Hi", "body": "è vero\nciao"}
    assert run_executor(bundled_tools()["get_now"], {}, context)["time"] == "10:32"
    run_executor(bundled_tools()["undo_last_turn"], {}, context.for_turn("later"))
    assert snapshot(context).messages == []


@pytest.mark.slow
@pytest.mark.parametrize(
    ("path", "text"),
    [
        ("calendar.ics", "garbage"),
        ("calendar.ics", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nSUMMARY:x\nEND:VEVENT\nEND:VCALENDAR\n"),
        ("calendar.ics/x", "the calendar is a folder"),
        ("outbox/a.eml", "Content-Type: text/plain; charset=nope\nTo: a@example.com\n\nhello"),
    ],
)
def test_what_a_run_writes_over_calendar_and_outbox_is_a_file(tmp_path: Path, path: str, text: str) -> None:
    context = make_case_context(_case(), tmp_path, bundled_tools())
    files = [{"path": path, "content": text}]
    run_executor(bundled_tools()["write_files"], {"files": files}, context.for_turn("now"))
    end = snapshot(context)
    assert path in end.files
    assert f"the file {path} was changed" in faults([ExpectedState()], Snapshot(), end)


@pytest.mark.parametrize("path", ["../out.txt", "/tmp/out.txt"])
def test_an_initial_state_stays_in_its_folder(tmp_path: Path, path: str) -> None:
    with pytest.raises(SetupError, match="stays in the workspace"):
        make_case_context(
            replace(_case(), before=InitialState(files={path: "x"})), tmp_path / "w", bundled_tools()
        )


@pytest.mark.slow
def test_an_earlier_call_that_fails_is_named(tmp_path: Path) -> None:
    failing = {"name": "delete_files", "arguments": {"paths": ["gone.txt"]}}
    with pytest.raises(SetupError, match=r"case x: before\.calls\[1\], delete_files: "):
        make_case_context(_case(before={"calls": [failing]}), tmp_path, bundled_tools())
