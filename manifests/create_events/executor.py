"""Creation of events in ``calendar.ics``, one for each start.

A start is in local time unless it has an offset: ``2026-03-05T09:30``, ``2026-03-05T09:30+01:00``. An
interval ``start/end`` has its own end (a time alone is on the same day). One date, or two, are whole days.
"""

from __future__ import annotations

import re
from datetime import UTC, date, datetime, time, timedelta
from typing import TYPE_CHECKING, Any

from gbnf_server.executors import Context, ExecutorError, Write, calendar_file

if TYPE_CHECKING:
    from gbnf_server.executors.calendar_file import Moment

DURATION_MINUTES = 60


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    """Add an event for each of `starts` to the calendar."""
    duration = timedelta(minutes=arguments.get("duration_minutes", DURATION_MINUTES))
    title, location = _line(arguments["title"]), _line(arguments.get("location", ""))
    events = [_event(start, duration, context) for start in arguments["starts"]]
    journal = context.journal
    with journal.locked():  # from reading to writing, so that concurrent runs lose no event
        calendar = calendar_file.load(context.workspace)
        for start, end in events:
            calendar_file.add(calendar, title, start, end, location, context.now())
        write = Write(calendar_file.FILE, calendar_file.dump(calendar))
        journal.apply([write], turn=context.turn, tool=context.tool, action=lambda: None)
    return {"entries": [_shown(start) for start, _ in events], "title": title}


def _line(text: str) -> str:
    """Return a text without control characters and line breaks."""
    return " ".join("".join(max(character, " ") for character in text).split())


def _event(text: str, duration: timedelta, context: Context) -> tuple[Moment, Moment]:
    first, interval, last = text.strip().partition("/")
    start = _moment(first, context)
    if not interval:
        return start, _after(start, duration)
    if re.fullmatch(r"\s*\d{1,2}:\d{2}(:\d{2})?\s*", last):
        last = f"{first.strip()[:10]}T{last.strip():0>5}"
    end = _moment(last, context)
    if isinstance(start, datetime) != isinstance(end, datetime):
        raise ExecutorError(f"'{text}': give both ends with a time, or both without")
    if not isinstance(start, datetime):
        end += timedelta(days=1)  # the last day is included, and DTEND is exclusive (RFC 5545, 3.6.1)
    if not _instant(start) < _instant(end):
        raise ExecutorError(f"'{text}' ends before it starts")
    return start, end


def _moment(text: str, context: Context) -> Moment:
    text = text.strip()
    try:
        if re.fullmatch(r"\d{4}-\d{2}-\d{2}", text):
            return date.fromisoformat(text)
        moment = datetime.fromisoformat(text).replace(microsecond=0)
    except ValueError:
        raise ExecutorError(f"'{text}' is no start: write it like 2026-03-05T09:30") from None
    if moment.tzinfo is not None:
        return moment.astimezone(context.timezone)
    return calendar_file.localised(moment, context.timezone)


def _after(start: Moment, duration: timedelta) -> Moment:
    if isinstance(start, datetime):
        return (start.astimezone(UTC) + duration).astimezone(start.tzinfo)
    return start + timedelta(days=1)


def _instant(moment: Moment) -> datetime:
    if isinstance(moment, datetime):
        return moment.astimezone(UTC)
    return datetime.combine(moment, time(), UTC)


def _shown(moment: Moment) -> str:
    return f"{moment:%Y-%m-%dT%H:%M}" if isinstance(moment, datetime) else moment.isoformat()
