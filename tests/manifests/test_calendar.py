"""create_events writes a calendar that others can read; find_events_empty finds what is free in any."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, date, datetime, time, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import icalendar
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf_server.system.errors import ExecutorError
from support.effort import scaled
from support.executors import ROME, SATURDAY, run_of, world

MONDAY = datetime(2026, 11, 23, 8, 0, tzinfo=ROME)
HOURS = {"morning": (9, 12), "afternoon": (13, 18), "evening": (18, 21), "any": (9, 18)}


def write(root: Path, *events: str, head: str = "") -> None:
    lines = ["BEGIN:VCALENDAR", "VERSION:2.0", "PRODID:test"]
    for number, event in enumerate(events):
        lines += [
            "BEGIN:VEVENT",
            f"UID:{number}",
            "DTSTAMP:20260101T000000Z",
            *event.split("\n"),
            "END:VEVENT",
        ]
    (root / "calendar.ics").write_text("\r\n".join([*lines, "END:VCALENDAR", ""]), newline="")


def free(root: Path, now: datetime = SATURDAY, **arguments: Any) -> list[str]:
    result = run_of("find_events_empty")(arguments, world(root, now=now))
    assert result["count"] == len(result["entries"])
    entries: list[str] = result["entries"]
    return entries


def create(root: Path, *starts: str, now: datetime = SATURDAY, **arguments: Any) -> list[str]:
    entries: list[str] = run_of("create_events")(
        {"title": "T", "starts": list(starts), **arguments}, world(root, now=now)
    )["entries"]
    return entries


def events(root: Path) -> list[Any]:
    found: list[Any] = icalendar.Calendar.from_ical((root / "calendar.ics").read_bytes()).walk("VEVENT")
    return found


# ── the law: slots are free, whatever the calendar has ──────────────────────────────────────────────────────

zones = st.sampled_from(["Europe/Rome", "UTC", "America/New_York", "floating"])
FIRST = date(2026, 10, 19)


@st.composite
def busy_things(draw: st.DrawFn) -> tuple[str, list[tuple[datetime, datetime]]]:
    """An event as iCalendar text, and by hand the times in UTC that it takes."""
    day = FIRST + timedelta(days=draw(st.integers(0, 20)))
    every, count = draw(st.sampled_from([("DAILY", 1), ("WEEKLY", 7)])), draw(st.integers(1, 4))
    days = [day + timedelta(days=every[1]) * number for number in range(count)]
    rule = f"\nRRULE:FREQ={every[0]};COUNT={count}" if count > 1 else ""
    if draw(st.booleans()):
        length = timedelta(days=draw(st.integers(1, 3)))
        text = f"DTSTART;VALUE=DATE:{day:%Y%m%d}\nDTEND;VALUE=DATE:{day + length:%Y%m%d}{rule}"
        return text, [(midnight(each), midnight(each + length)) for each in days]
    zone = draw(zones)
    at = time(draw(st.integers(4, 22)), draw(st.sampled_from([0, 10, 15, 30, 59])))
    length = timedelta(minutes=draw(st.sampled_from([5, 30, 60, 240])))
    written = f"{datetime.combine(day, at):%Y%m%dT%H%M%S}"
    start = {"floating": f":{written}", "UTC": f":{written}Z"}.get(zone, f";TZID={zone}:{written}")
    text = f"DTSTART{start}\nDURATION:PT{length // timedelta(minutes=1)}M{rule}"
    place = ROME if zone == "floating" else ZoneInfo(zone)
    starts = [datetime.combine(each, at, place).astimezone(UTC) for each in days]
    return text, [(each, each + length) for each in starts]


def midnight(day: date) -> datetime:
    return datetime.combine(day, time(), ROME).astimezone(UTC)


@settings(max_examples=scaled(80))
@given(
    things=st.lists(busy_things(), max_size=6),
    part=st.sampled_from(sorted(HOURS)),
    minutes=st.sampled_from([5, 45, 60, 90, 180]),
    days=st.integers(0, 12),
    hour=st.integers(0, 23),
    minute=st.integers(0, 59),
)
def test_slots_are_the_first_free_ones(
    tmp_path_factory: pytest.TempPathFactory,
    things: list[tuple[str, list[tuple[datetime, datetime]]]],
    part: str,
    minutes: int,
    days: int,
    hour: int,
    minute: int,
) -> None:
    """Across the night of 25 October, when the clocks go back. The oracle tries every quarter of an hour."""
    root = tmp_path_factory.mktemp("space")
    write(root, *(text for text, _ in things))
    busy = [interval for _, intervals in things for interval in intervals]
    now = datetime(2026, 10, 23, hour, minute, tzinfo=ROME)
    first, last = now.date(), now.date() + timedelta(days=days)
    found = free(
        root,
        now,
        start_date=str(first),
        end_date=str(last),
        part_of_day=part,
        duration_minutes=minutes,
        limit=20,
    )

    expected = []
    length, taken = timedelta(minutes=minutes), now.astimezone(UTC)
    for number in range(days + 1):
        opens = datetime.combine(first + timedelta(days=number), time(HOURS[part][0]), ROME).astimezone(UTC)
        closes = datetime.combine(first + timedelta(days=number), time(HOURS[part][1]), ROME).astimezone(UTC)
        for quarter in range((closes - opens) // timedelta(minutes=15)):
            start = opens + quarter * timedelta(minutes=15)
            end = start + length
            if start >= taken and end <= closes and all(b <= start or end <= a for a, b in busy):
                expected.append(
                    f"{start.astimezone(ROME):%Y-%m-%dT%H:%M}/{end.astimezone(ROME):%Y-%m-%dT%H:%M}"
                )
                taken = end
    assert found == expected[:20]


@given(st.data())
@settings(max_examples=scaled(30))
def test_what_is_booked_is_free_no_more(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    root = tmp_path_factory.mktemp("space")
    minutes = data.draw(st.sampled_from([15, 60, 100]))
    for _ in range(3):
        slots = free(root, period="next_week", limit=20, duration_minutes=minutes)
        chosen = data.draw(st.sampled_from(slots))
        assert create(root, chosen) == [chosen.partition("/")[0]]
        assert chosen not in free(root, period="next_week", limit=20, duration_minutes=minutes)


# ── which days, which hours ─────────────────────────────────────────────────────────────────────────────────


def days(slots: list[str]) -> list[str]:
    return list(dict.fromkeys(slot[:10] for slot in slots))


@pytest.mark.parametrize(
    ("now", "arguments", "found"),
    [
        (SATURDAY, {"period": "today"}, ["2026-11-21"]),
        (SATURDAY, {"period": "tomorrow"}, ["2026-11-22"]),
        (SATURDAY, {"period": "this_week"}, ["2026-11-21", "2026-11-22"]),
        (MONDAY, {"period": "this_week"}, [f"2026-11-{day}" for day in range(23, 28)]),
        (MONDAY + timedelta(days=3), {"period": "this_week"}, ["2026-11-26", "2026-11-27"]),
        (SATURDAY, {"period": "next_week"}, [f"2026-11-{day}" for day in range(23, 28)]),
        (MONDAY, {"period": "next_week"}, ["2026-11-30", *(f"2026-12-0{day}" for day in range(1, 5))]),
        (SATURDAY, {"period": "next_week", "end_date": "2026-11-24"}, ["2026-11-23", "2026-11-24"]),
        (SATURDAY, {"start_date": "2026-11-01", "end_date": "2026-11-22"}, ["2026-11-21", "2026-11-22"]),
        (SATURDAY, {"start_date": "2026-11-25", "period": "today"}, ["2026-11-25"]),
        (SATURDAY.replace(hour=20, minute=1), {"period": "today", "part_of_day": "evening"}, []),
    ],
)
def test_days(tmp_path: Path, now: datetime, arguments: dict[str, Any], found: list[str]) -> None:
    arguments = {"part_of_day": "afternoon", "duration_minutes": 300, **arguments}
    if arguments["part_of_day"] == "evening":
        arguments["duration_minutes"] = 60
    assert days(free(tmp_path, now, limit=20, **arguments)) == found


def test_next_month_is_the_calendar_month(tmp_path: Path) -> None:
    for now, first, last in (
        (SATURDAY, "2026-12-01", "2026-12-31"),
        (datetime(2026, 1, 31, 9, tzinfo=ROME), "2026-02-02", "2026-02-27"),
        (datetime(2026, 12, 31, 9, tzinfo=ROME), "2027-01-01", "2027-01-29"),
    ):
        found = days(
            free(tmp_path, now, period="next_month", part_of_day="any", duration_minutes=540, limit=20)
        )
        assert found[0] == first
        assert found[-1] == last or (len(found) == 20 and found[-1] < last)


def test_omitted_arguments_have_defaults(tmp_path: Path) -> None:
    assert free(tmp_path, start_date="2026-11-24") == [
        "2026-11-24T09:00/2026-11-24T10:00",
        "2026-11-24T10:00/2026-11-24T11:00",
        "2026-11-24T11:00/2026-11-24T12:00",
    ]


@pytest.mark.parametrize(
    ("event", "first"),
    [
        ("DTSTART;VALUE=DATE:20261124", None),
        ("DTSTART:20261124T090000\nDTEND:20261124T100500", "10:15"),
        ("DTSTART:20261124T090000\nDTEND:20261124T100500\nSTATUS:CANCELLED", "09:00"),
        ("DTSTART:20261124T090000\nDTEND:20261124T100500\nTRANSP:TRANSPARENT", "09:00"),
        ("DTSTART:20260106T090000\nDTEND:20260106T110000\nRRULE:FREQ=WEEKLY;BYDAY=TU", "11:00"),
        (
            "DTSTART:20260106T090000\nDTEND:20260106T110000\nRRULE:FREQ=WEEKLY\nEXDATE:20261124T090000",
            "09:00",
        ),
        ("DTSTART:20260106T090000\nDTEND:20260106T110000\nRDATE:20261124T090000", "11:00"),
        ("DTSTART:20261124T093000", "09:45"),
        ("DTSTART:20261123T220000\nDTEND:20261124T093000", "09:30"),
        ("DTSTART;VALUE=DATE:20261122\nDTEND;VALUE=DATE:20261124", "09:00"),
    ],
)
def test_events_of_every_kind(tmp_path: Path, event: str, first: str | None) -> None:
    write(tmp_path, event)
    found = free(tmp_path, start_date="2026-11-24", limit=1)
    assert [slot[11:16] for slot in found] == ([first] if first else [])


@pytest.mark.parametrize("zone", ["Pacific/Kiritimati", "Pacific/Pago_Pago"])
@pytest.mark.parametrize("part", ["morning", "evening"])
def test_a_whole_day_is_the_persons_day_wherever_they_are(tmp_path: Path, zone: str, part: str) -> None:
    write(tmp_path, "DTSTART;VALUE=DATE:20261124")
    now = SATURDAY.astimezone(ZoneInfo(zone))
    for day, slots in (("2026-11-23", 3), ("2026-11-24", 0), ("2026-11-25", 3)):
        assert len(free(tmp_path, now, start_date=day, part_of_day=part)) == slots


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"start_date": "2026-11-20"}, "is past: today is 2026-11-21"),
        ({"start_date": "2026-11-25", "end_date": "2026-11-24"}, "before they start"),
        ({"start_date": "2026-11-25", "end_date": "2028-11-24"}, "too long"),
        ({"start_date": "2026-02-30"}, "'start_date' is '2026-02-30'"),
        (
            {"period": "today", "part_of_day": "morning", "duration_minutes": 181},
            r"181 minutes .* \(09:00–12:00\)",
        ),
    ],
)
def test_refused(tmp_path: Path, arguments: dict[str, Any], reason: str) -> None:
    with pytest.raises(ExecutorError, match=reason):
        free(tmp_path, **arguments)


@pytest.mark.parametrize(
    "text", ["nonsense", "BEGIN:VCALENDAR\nBEGIN:VEVENT\nEND:VCALENDAR", "BEGIN:VEVENT\nEND:VEVENT", ""]
)
def test_a_file_that_is_no_calendar(tmp_path: Path, text: str) -> None:
    (tmp_path / "calendar.ics").write_text(text)
    with pytest.raises(ExecutorError, match=r"'calendar.ics' is not a (readable )?calendar"):
        free(tmp_path, period="next_week")
    with pytest.raises(ExecutorError, match=r"'calendar.ics' is not a (readable )?calendar"):
        create(tmp_path, "2026-11-24T09:00")
    assert (tmp_path / "calendar.ics").read_text() == text


# ── create_events ───────────────────────────────────────────────────────────────────────────────────────────


def test_an_event_is_complete(tmp_path: Path) -> None:
    create(tmp_path, "2026-11-24T09:00", title="Caffè; with, commas", location="Torino", duration_minutes=45)
    (event,) = events(tmp_path)
    assert str(event["SUMMARY"]) == "Caffè; with, commas"
    assert str(event["LOCATION"]) == "Torino"
    assert event["DTSTART"].dt == datetime(2026, 11, 24, 9, tzinfo=ROME)
    assert event["DTEND"].dt - event["DTSTART"].dt == timedelta(minutes=45)
    assert event["DTSTAMP"].dt == SATURDAY
    assert "@" in event["UID"]
    text = (tmp_path / "calendar.ics").read_text()
    assert "DTSTART;TZID=Europe/Rome:20261124T090000" in text
    assert text.count("BEGIN:VTIMEZONE") == 1
    assert text.startswith("BEGIN:VCALENDAR\n")
    assert "VERSION:2.0" in text


@pytest.mark.parametrize(
    ("start", "first", "length"),
    [
        ("2026-11-24T09:00", "2026-11-24T09:00:00+01:00", 60),
        ("2026-11-24 09:00:30", "2026-11-24T09:00:30+01:00", 60),
        ("2026-11-24T09:00Z", "2026-11-24T10:00:00+01:00", 60),
        ("2026-11-24T09:00-05:00", "2026-11-24T15:00:00+01:00", 60),
        ("2026-11-24T09:00/2026-11-24T09:20", "2026-11-24T09:00:00+01:00", 20),
        ("2026-11-24T09:00/9:20", "2026-11-24T09:00:00+01:00", 20),
        ("2026-11-24T23:00/2026-11-25T01:00", "2026-11-24T23:00:00+01:00", 120),
        ("2026-10-25T01:30", "2026-10-25T01:30:00+02:00", 60),
        ("2026-11-24", "2026-11-24", 24 * 60),
        ("2026-11-24/2026-11-25", "2026-11-24", 48 * 60),
    ],
)
def test_starts(tmp_path: Path, start: str, first: str, length: int) -> None:
    create(tmp_path, start)
    (event,) = events(tmp_path)
    assert event["DTSTART"].dt.isoformat() == first
    begin, end = event["DTSTART"].dt, event["DTEND"].dt
    if isinstance(begin, datetime):
        begin, end = begin.astimezone(UTC), end.astimezone(UTC)
    assert end - begin == timedelta(minutes=length)


@pytest.mark.parametrize(
    ("start", "reason"),
    [
        ("tomorrow", "no start: write it like"),
        ("2026-02-30T09:00", "no start"),
        ("2026-11-24T09:00/2026-11-24T08:00", "ends before it starts"),
        ("2026-11-24T09:00/2026-11-24T09:00", "ends before it starts"),
        ("2026-11-24/2026-11-20", "ends before it starts"),
        ("2026-11-24T09:00/2026-11-25", "both ends"),
        ("2026-03-29T02:30", "does not exist in Europe/Rome"),
    ],
)
def test_starts_that_are_refused_leave_the_calendar_alone(tmp_path: Path, start: str, reason: str) -> None:
    with pytest.raises(ExecutorError, match=reason):
        create(tmp_path, "2026-11-24T09:00", start)
    assert not (tmp_path / "calendar.ics").exists()


def test_what_was_there_stays(tmp_path: Path) -> None:
    write(tmp_path, "DTSTART:20261124T090000\nSUMMARY:Old\nX-MINE:kept")
    before = (tmp_path / "calendar.ics").read_bytes()
    context = world(tmp_path)
    run_of("create_events")({"title": "New", "starts": ["2026-11-25T09:00"]}, context)
    old, new = events(tmp_path)
    assert (str(old["SUMMARY"]), str(old["X-MINE"]), str(new["SUMMARY"])) == ("Old", "kept", "New")
    run_of("undo_last_turn")({}, replace(context, turn="second"))
    assert (tmp_path / "calendar.ics").read_bytes() == before


def test_a_title_cannot_add_lines(tmp_path: Path) -> None:
    create(tmp_path, "2026-11-24T09:00", title="A\r\nATTENDEE:mailto:x@example.org"[:1] + "\nATTENDEE:x")
    (event,) = events(tmp_path)
    assert "ATTENDEE" not in event
    assert str(event["SUMMARY"]) == "A ATTENDEE:x"
    create(tmp_path, "2026-11-24T09:00", title="A\r\nATTENDEE:\0x", location="B\x1b\rATTENDEE:x")
    event = events(tmp_path)[1]
    assert "ATTENDEE" not in event
    assert (str(event["SUMMARY"]), str(event["LOCATION"])) == ("A ATTENDEE: x", "B ATTENDEE:x")


def test_in_utc_there_is_no_zone_to_define(tmp_path: Path) -> None:
    now = SATURDAY.astimezone(ZoneInfo("UTC"))
    create(tmp_path, "2026-11-24T09:00", now=now)
    text = (tmp_path / "calendar.ics").read_text()
    assert "DTSTART:20261124T090000Z" in text
    assert "VTIMEZONE" not in text
