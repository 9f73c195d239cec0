"""Intents that ask for a fact: a sum, the time; and what is done with it."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from gbnf_server.embedded import vocabulary as v
from gbnf_server.embedded.parts import Part, Step, recipients, sent, sent_said, written
from gbnf_server.embedded.wording import SUMS, ZONES, W, listed, word

if TYPE_CHECKING:
    from random import Random


def _number(random: Random) -> str:
    kind = random.random()
    if kind < 0.85:
        return str(random.randint(1, random.choice((12, 99, 999, 9999))))
    return f"{random.randint(0, 99)}.{random.randint(1, 99)}"


def _sum(random: Random) -> tuple[str, str]:
    """How a sum is asked, and its expression (only those are evaluated here that this function made)."""
    a, b, c = _number(random), _number(random), str(random.randint(2, 6))
    if random.random() < 0.45:
        spoken_sum, expression = random.choice(SUMS)
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


def computed(random: Random, expression: str) -> tuple[Step, str]:
    """The step of a sum. Its value is any number: the model copies it, it doesn't reckon."""
    del expression
    value: float = (
        random.randint(-50, 100_000)
        if random.random() < 0.75
        else round(random.uniform(0, 3000), random.choice((1, 2, 4)))
    )
    return Step("compute", {}, {"value": value, "entries": [str(value)]}), str(value)


def compute(random: Random, first: int) -> Part:
    del first
    asked, expression = _sum(random)
    blank, value = computed(random, expression)
    step = Step(blank.name, {"expression": expression}, blank.result)
    return Part(word(W["compute"], random, {"e": asked}), (step,), f"{expression} = {value}.")


def compute_then(random: Random, first: int) -> Part:
    asked, expression = _sum(random)
    blank, value = computed(random, expression)
    step = Step(blank.name, {"expression": expression}, blank.result)
    slots = {"compute": word(W["compute"][:1], random, {"e": asked}), "e": asked}
    if random.random() < 0.6:
        to = recipients(random)
        clause = word(W["compute_send"], random, slots | {"a": listed(to, random)})
        return Part(
            clause, (step, sent(to, "Result", step=first)), f"{expression} = {value}. {sent_said(to)}"
        )
    path = v.file_path(random)
    clause = word(W["compute_write"], random, slots | {"p": path})
    return Part(clause, (step, written([path], [value])), f"{expression} = {value}. Wrote {path}.")


def now_result(random: Random, zone: str = "UTC") -> dict[str, Any]:
    moment = datetime.fromisoformat(f"{v.day(random)}T00:00") + timedelta(minutes=random.randint(0, 1439))
    return {
        "date": moment.date().isoformat(),
        "time": moment.strftime("%H:%M"),
        "weekday": moment.strftime("%A"),
        "timezone": zone,
    }


def get_now(random: Random, first: int) -> Part:
    del first
    if random.random() < 0.15:
        city = random.choice(tuple(ZONES))
        result = now_result(random, ZONES[city])
        shown = city if random.random() < 0.9 else city.lower()
        clause, arguments = word(W["now_in"], random, {"c": shown}), {"timezone": ZONES[city]}
    else:
        zone = "UTC" if random.random() < 0.7 else random.choice(tuple(ZONES.values()))
        clause, arguments, result = word(W["now"], random, {}), {}, now_result(random, zone)
    said = f"It is {result['time']} on {result['weekday']} {result['date']}."
    return Part(clause, (Step("get_now", arguments, result),), said)


def now_then(random: Random, first: int) -> Part:
    del first
    result = now_result(random)
    step = Step("get_now", {}, result)
    said = f"It is {result['time']} on {result['weekday']} {result['date']}."
    kind = random.random()
    if kind < 0.4:
        to = recipients(random)
        clause = word(W["now_send"], random, {"a": listed(to, random)})
        return Part(clause, (step, sent(to, "Time", body=said)), f"{said} {sent_said(to)}")
    path = v.file_path(random)
    value = result["date"] if kind < 0.75 else result["time"]
    clause = word(W["now_write"] if kind < 0.75 else W["now_write_time"], random, {"p": path})
    return Part(clause, (step, written([path], [value])), f"{said} Wrote {path}.")
