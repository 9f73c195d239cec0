"""The calendar: one iCalendar file (RFC 5545) in the workspace, read and written with `icalendar`.

Invariants: times without a zone ("floating", and all-day dates) are the person's local ones; a recurring
event is busy at each of its times; a cancelled or free ("transparent") event is not busy.
"""

from __future__ import annotations

import uuid
from datetime import UTC, date, datetime, time, timedelta, tzinfo
from typing import Any

import icalendar

from gbnf_server.executors.workspace import Workspace
from gbnf_server.system.errors import ExecutorError

FILE = "calendar.ics"
_LIMIT = 32 * 1024 * 1024
_INSTANT = timedelta(minutes=15)
"""Duration of an event without a length."""

Moment = datetime | date
"""Aware time, or a whole day."""


def load(workspace: Workspace) -> icalendar.Calendar:
    """Read the calendar, empty if there is no file. Raises `ExecutorError` if it is not a calendar."""
    if not workspace.resolve(FILE).exists():
        calendar = icalendar.Calendar()
        calendar.add("prodid", "-//gbnf-toolkit//executors//EN")
        calendar.add("version", "2.0")
        return calendar
    data = workspace.read(FILE, limit=_LIMIT)
    try:
        calendar = icalendar.Calendar.from_ical(data)
    except (ValueError, IndexError, KeyError) as error:
        raise ExecutorError(f"'{FILE}' is not a readable calendar: {error}") from None
    if calendar.name != "VCALENDAR":
        raise ExecutorError(f"'{FILE}' is not a calendar: it starts with {calendar.name}")
    return calendar


def add(
    calendar: icalendar.Calendar, title: str, start: Moment, end: Moment, location: str, now: datetime
) -> None:
    """Build an event from parsed values."""
    event = icalendar.Event()
    event.add("uid", f"{uuid.uuid4()}@gbnf-toolkit")
    event.add("dtstamp", now.astimezone(UTC).replace(microsecond=0))
    event.add("summary", title)
    event.add("dtstart", _written(start))
    event.add("dtend", _written(end))
    if location:
        event.add("location", location)
    calendar.add_component(event)


def dump(calendar: icalendar.Calendar) -> bytes:
    """Return the file's bytes, with the definition of every time zone that it names (RFC 5545, 3.2.19)."""
    calendar.add_missing_timezones()
    data: bytes = calendar.to_ical()
    return data


def busy(
    calendar: icalendar.Calendar, start: datetime, end: datetime, zone: tzinfo
) -> list[tuple[datetime, datetime]]:
    """Return the busy intervals between two aware times, in UTC, sorted."""
    import recurring_ical_events  # noqa: PLC0415  # who only writes need not wait for it

    day = timedelta(days=1)
    intervals = []
    # a day more on both sides: all-day events are searched by date, whatever the zone
    for event in recurring_ical_events.of(calendar).between(start - day, end + day):
        if _is_free(event):
            continue
        first, last = _interval(event, zone)
        if first < end and start < last:
            intervals.append((first, last))
    return sorted(intervals)


def localised(naive: datetime, zone: tzinfo) -> datetime:
    """Return a wall-clock time in a zone. Raises `ExecutorError` for one that the clock skips there."""
    local = naive.replace(tzinfo=zone)
    if local.astimezone(UTC).astimezone(zone).replace(tzinfo=None) != naive:
        raise ExecutorError(f"{naive:%Y-%m-%dT%H:%M} does not exist in {zone}: clocks are set forward then")
    return local


def _is_free(event: Any) -> bool:
    return (
        str(event.get("STATUS", "")).upper() == "CANCELLED"
        or str(event.get("TRANSP", "")).upper() == "TRANSPARENT"
    )


def _interval(event: Any, zone: tzinfo) -> tuple[datetime, datetime]:
    start = event["DTSTART"].dt
    if "DTEND" in event:
        end = event["DTEND"].dt
    elif "DURATION" in event:
        end = start + event["DURATION"].dt
    else:
        end = start if isinstance(start, datetime) else start + timedelta(days=1)
    first, last = _instant(start, zone), _instant(end, zone)
    return first, last if first < last else first + _INSTANT


def _instant(moment: Moment, zone: tzinfo) -> datetime:
    if not isinstance(moment, datetime):
        moment = datetime.combine(moment, time())
    return (moment if moment.tzinfo is not None else moment.replace(tzinfo=zone)).astimezone(UTC)


def _written(moment: Moment) -> Moment:
    """Convert a time with an offset but no zone name to UTC: a file cannot name the zone."""
    if isinstance(moment, datetime) and not hasattr(moment.tzinfo, "key"):
        return moment.astimezone(UTC)
    return moment
