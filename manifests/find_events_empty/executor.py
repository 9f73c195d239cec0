"""Search for free slots in ``calendar.ics``: the first ones, in order, without overlap, none in the past.

- Hours, local: morning 09–12, afternoon 13–18, evening 18–21, any 09–18. Slots start on a quarter of an hour.
- ``this_week`` is from now to Sunday, ``next_week`` Monday to Sunday, ``next_month`` the calendar month. Of
  these only Monday to Friday count; if no such day is left of this week, its weekend counts.
- ``today``, ``tomorrow`` and days given as dates count on any weekday. ``start_date`` has priority over
  ``period``.
- Every event is busy, all-day and repeated ones too, unless it is cancelled or marked as free.
"""

from __future__ import annotations

from datetime import UTC, date, datetime, time, timedelta
from itertools import islice
from typing import TYPE_CHECKING, Any

from gbnf_server.executors import ExecutorError, calendar_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gbnf_server.executors import Context

HOURS = {"morning": (9, 12), "afternoon": (13, 18), "evening": (18, 21), "any": (9, 18)}
DURATION_MINUTES, LIMIT = 60, 3
MAX_DAYS = 366
GRID = timedelta(minutes=15)
DAY = timedelta(days=1)


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    """Return free slots of the calendar."""
    duration = timedelta(minutes=arguments.get("duration_minutes", DURATION_MINUTES))
    part = arguments.get("part_of_day", "any")
    first_hour, last_hour = HOURS[part]
    if duration > timedelta(hours=last_hour - first_hour):
        raise ExecutorError(
            f"{duration // timedelta(minutes=1)} minutes do not fit into "
            f"'{part}' ({first_hour:02}:00–{last_hour:02}:00)"
        )
    now, zone, limit = context.now(), context.timezone, arguments.get("limit", LIMIT)
    days = _days(arguments, now.date())
    windows = [(_instant(day, first_hour, context), _instant(day, last_hour, context)) for day in days]
    busy = calendar_file.busy(calendar_file.load(context.workspace), windows[0][0], windows[-1][1], zone)
    starts = (
        start
        for opens, closes in windows
        for start in _slots(max(opens, now.astimezone(UTC)), closes, duration, busy)
    )
    entries = [
        "/".join(f"{each.astimezone(zone):%Y-%m-%dT%H:%M}" for each in (start, start + duration))
        for start in islice(starts, limit)
    ]
    return {"entries": entries, "count": len(entries)}


def _instant(day: date, hour: int, context: Context) -> datetime:
    return datetime.combine(day, time(hour), context.timezone).astimezone(UTC)


def _slots(
    opens: datetime, closes: datetime, duration: timedelta, busy: list[tuple[datetime, datetime]]
) -> Iterator[datetime]:
    """Yield the starts of free slots in a window, in UTC; no slot overlaps another or an event."""
    start = _on_grid(opens)
    while start + duration <= closes:
        blocking = [last for first, last in busy if first < start + duration and start < last]
        if blocking:
            start = _on_grid(max(blocking))
        else:
            yield start
            start = _on_grid(start + duration)


def _on_grid(moment: datetime) -> datetime:
    past = timedelta(minutes=moment.minute, seconds=moment.second, microseconds=moment.microsecond) % GRID
    return moment + (GRID - past if past else timedelta())


def _days(arguments: dict[str, Any], today: date) -> list[date]:
    """Return the days to search, in order, none in the past."""
    if "start_date" in arguments:
        first = _date("start_date", arguments["start_date"])
        last = _date("end_date", arguments["end_date"]) if "end_date" in arguments else first
        workdays_only = False
    else:
        first, last, workdays_only = _period(arguments["period"], today)
        if "end_date" in arguments:
            last = min(last, _date("end_date", arguments["end_date"]))
    if last < first:
        raise ExecutorError(f"the days end on {last}, before they start on {first}")
    if last < today:
        raise ExecutorError(f"{last} is past: today is {today}")
    first = max(first, today)
    if last - first > MAX_DAYS * DAY:
        raise ExecutorError(f"from {first} to {last} is too long: search at most {MAX_DAYS} days")
    days = [first + count * DAY for count in range((last - first).days + 1)]
    workdays = [day for day in days if day.weekday() < 5]
    return workdays if workdays_only and workdays else days


def _date(name: str, text: str) -> date:
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise ExecutorError(f"'{name}' is '{text}', which is no date such as 2026-11-21") from None


def _period(period: str, today: date) -> tuple[date, date, bool]:
    """Return the first day, the last day, and whether only Monday to Friday count."""
    monday = today - today.weekday() * DAY
    match period:
        case "today":
            return today, today, False
        case "tomorrow":
            return today + DAY, today + DAY, False
        case "this_week":
            return today, monday + 6 * DAY, True
        case "next_week":
            return monday + 7 * DAY, monday + 13 * DAY, True
        case "next_month":
            first = (today.replace(day=1) + 32 * DAY).replace(day=1)
            return first, (first + 32 * DAY).replace(day=1) - DAY, True
        case _:
            raise ExecutorError(
                f"'{period}' is no period; there are today, tomorrow, this_week, next_week, next_month"
            )
