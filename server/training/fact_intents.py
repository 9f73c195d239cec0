"""Intents that ask for a fact, such as a sum or the time, and use it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

from training import vocabulary as v
from training.parts import Part, Step, recipients, sent, sent_said, written
from training.source import Source
from training.wording import LATER_SUMS, SUMS, ZONES, fixed, listed, word, worded, wordings

STRANGE_SHARE = 0.1
"""Of the sums that training draws, those behind words that say nothing: the sum alone tells what it is."""


def _number(random: Source) -> str:
    kind = random.random()
    if kind < 0.85:
        return str(random.randint(1, random.choice((12, 99, 999, 9999))))
    return f"{random.randint(0, 99)}.{random.randint(1, 99)}"


def _sum(random: Source) -> tuple[str, str]:
    """How a sum is asked, and its expression (only those are evaluated here that this function made)."""
    a, b, c = _number(random), _number(random), str(random.randint(2, 6))
    if random.random() < 0.45:
        spoken_sum, expression = random.choice((SUMS if random.held_out else LATER_SUMS)[random.language])
        return spoken_sum.format(a=a, b=b, c=c), expression.format(a=a, b=b, c=c)
    operators = [random.choice(("+", "-", "*", "*", "/")) for _ in range(3)]
    gap = random.choice((" ", " ", ""))
    d = _number(random)
    shapes = (
        f"{a}{gap}{operators[0]}{gap}{b}",
        f"{a}{gap}{operators[0]}{gap}{b}",
        f"{a}{gap}{operators[0]}{gap}{b}{gap}{operators[1]}{gap}{d}",
        f"({a}{gap}{operators[0]}{gap}{b}){gap}{operators[1]}{gap}{d}",
        f"{a}{gap}{operators[0]}{gap}({b}{gap}{operators[1]}{gap}{d})",
        f"{a}{gap}**{gap}{c}",
        f"sqrt({a}){gap}{operators[0]}{gap}{b}",
    )
    expression = random.choice(shapes)
    return expression, expression


def computed(random: Source, expression: str) -> tuple[Step, str]:
    """Return the step of a sum. Its value is any number: the model copies it, it doesn't reckon."""
    value: float = (
        random.randint(-50, 100_000)
        if random.random() < 0.75
        else round(random.uniform(0, 3000), random.choice((1, 2, 4)))
    )
    if not random.held_out and random.random() < 0.5:  # what sums really give: many digits
        digits = random.randint(5, 24)
        value = (
            random.randint(-(10 ** (digits // 2)), 10**digits)
            if random.random() < 0.5
            else random.uniform(-1, 1) * 10 ** random.randint(0, 6)
        )
    result = {"value": value, "entries": [str(value)]}
    return Step("compute", {"expression": expression}, result), str(value)


def compute(random: Source, _first: int) -> Part:
    asked, expression = _sum(random)
    step, value = computed(random, expression)
    if not random.held_out and random.random() < STRANGE_SHARE:
        clause = " ".join([*(v.noun(random).lower() for _ in range(random.choice((1, 2, 3, 4)))), asked])
    else:
        clause = worded(random, "compute", e=asked)
    return Part(clause, (step,), fixed(random, "sum", e=expression, x=value))


def compute_then(random: Source, first: int) -> Part:
    """Return a request to compute an expression and email or save the result."""
    asked, expression = _sum(random)
    step, value = computed(random, expression)
    slots = {"compute": word(wordings(random, "compute")[:1], random, {"e": asked}), "e": asked}
    if random.random() < 0.6:
        to = recipients(random)
        clause = worded(random, "compute_send", **slots, a=listed(to, random))
        return Part(
            clause,
            (step, sent(random, to, fixed(random, "result"), step=first)),
            f"{fixed(random, 'sum', e=expression, x=value)} {sent_said(random, to)}",
        )
    path = v.file_path(random)
    clause = worded(random, "compute_write", **slots, p=v.shown(random, path))
    return Part(
        clause,
        (step, written([path], [value])),
        f"{fixed(random, 'sum', e=expression, x=value)} {fixed(random, 'wrote', x=path)}",
    )


def now_result(random: Source, zone: str = "UTC") -> dict[str, Any]:
    """Return a result of `get_now` in the time zone `zone`."""
    moment = datetime.fromisoformat(f"{v.day(random)}T00:00") + timedelta(minutes=random.randint(0, 1439))
    return {
        "date": moment.date().isoformat(),
        "time": moment.strftime("%H:%M"),
        "weekday": moment.strftime("%A"),
        "timezone": zone,
    }


def now_said(random: Source, result: dict[str, Any]) -> str:
    """Return the sentence of an answer that gives the time of a result of `get_now`."""
    day = result["weekday"]
    if random.language == "it":
        day = v.WEEKDAYS_IT[datetime.fromisoformat(result["date"]).weekday()]
    return fixed(random, "now", t=result["time"], w=day, d=result["date"])


def get_now(random: Source, _first: int) -> Part:
    if random.random() < 0.15:
        zones = ZONES[random.language]
        city = random.choice(tuple(zones))
        result = now_result(random, zones[city])
        shown = city if random.random() < 0.9 else city.lower()
        clause, arguments = worded(random, "now_in", c=shown), {"timezone": zones[city]}
    else:
        zone = "UTC" if random.random() < 0.7 else random.choice(tuple(ZONES[random.language].values()))
        clause, arguments, result = worded(random, "now"), {}, now_result(random, zone)
    said = now_said(random, result)
    return Part(clause, (Step("get_now", arguments, result),), said)


def now_then(random: Source, _first: int) -> Part:
    """Return a request for the current time and to email or save it."""
    result = now_result(random)
    step = Step("get_now", {}, result)
    said = now_said(random, result)
    kind = random.random()
    if kind < 0.4:
        to = recipients(random)
        clause = worded(random, "now_send", a=listed(to, random))
        return Part(
            clause,
            (step, sent(random, to, fixed(random, "time"), body=said)),
            f"{said} {sent_said(random, to)}",
        )
    path = v.file_path(random)
    value = result["date"] if kind < 0.75 else result["time"]
    clause = worded(random, "now_write" if kind < 0.75 else "now_write_time", p=v.shown(random, path))
    return Part(clause, (step, written([path], [value])), f"{said} {fixed(random, 'wrote', x=path)}")
