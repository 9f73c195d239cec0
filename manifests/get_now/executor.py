"""The date, time and weekday, in the user's time zone or in a given one."""

from __future__ import annotations

from difflib import get_close_matches
from typing import TYPE_CHECKING, Any
from zoneinfo import ZoneInfo, available_timezones

from gbnf_server.executors import ExecutorError

if TYPE_CHECKING:
    from gbnf_server.executors import Context

WEEKDAYS = ("Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday")


def run(arguments: dict[str, Any], context: Context) -> dict[str, Any]:
    """Return the current date, time and weekday."""
    zone = _zone(arguments["timezone"]) if "timezone" in arguments else context.timezone
    now = context.now().astimezone(zone)
    return {
        "date": f"{now:%Y-%m-%d}",
        "time": f"{now:%H:%M}",
        "weekday": WEEKDAYS[now.weekday()],
        "timezone": zone.key,
    }


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        names = available_timezones()
        city = name.replace(" ", "_").casefold()
        near = [zone for zone in sorted(names) if zone.rpartition("/")[2].casefold() == city]
        near = near[:1] or get_close_matches(name, names, n=1)
        hint = f"; did you mean '{near[0]}'?" if near else ", such as Europe/Rome"
        raise ExecutorError(f"'{name}' is no IANA time zone{hint}") from None
