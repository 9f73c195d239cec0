"""Intents that ask for a fact, such as a sum or the time, and use it."""

from __future__ import annotations

from datetime import datetime, timedelta

from training.parts import Part, Step, recipients, sent, shown, written
from training.source import Source
from training.vocabulary import draw, members
from training.wording import fixed, listed, word, worded, wordings

STRANGE_SHARE = 0.1
"""Of the sums that training draws, those behind words that say nothing: the sum alone tells what it is."""


def _value(random: Source) -> float:
    """Return the value of a sum: any number, since the model copies it, and doesn't reckon."""
    if random.trains(0.5):  # what sums really give: many digits
        digits = random.randint(5, 24)
        whole = random.randint(-(10 ** (digits // 2)), 10**digits)
        return whole if random.random() < 0.5 else random.uniform(-1, 1) * 10 ** random.randint(0, 6)
    broken = round(random.uniform(0, 3000), random.choice((1, 2, 4)))
    return random.randint(-50, 100_000) if random.random() < 0.75 else broken


def _sum(random: Source) -> tuple[str, Step, str]:
    """Return how a sum is asked, the call that computes it, and its value."""
    if random.random() < 0.45:
        numbers = {name: draw(random, "{operand}") for name in "ab"} | {"c": draw(random, "{2-6}")}
        asked, expression = random.choice(list(wordings(random, "sums").items()))
        asked, expression = asked.format_map(numbers), expression.format_map(numbers)
    else:
        asked = expression = draw(random, "{expression}", gap=random.choice((" ", " ", "")))
    value = _value(random)
    result = {"value": value, "entries": [str(value)]}
    said = fixed(random, "sum", e=expression, x=str(value))
    return asked, Step("compute", {"expression": expression}, result, said), str(value)


def compute(random: Source) -> Part:
    asked, step, _ = _sum(random)
    if random.trains(STRANGE_SHARE):
        words = " ".join(draw(random, "{noun}") for _ in range(random.randint(1, 4)))
        return Part(f"{words.lower()} {asked}", (step,))
    return Part(worded(random, "compute", e=asked), (step,))


def compute_then(random: Source) -> Part:
    """Return a request to compute an expression and email or save the result."""
    asked, step, value = _sum(random)
    slots = {"compute": word(wordings(random, "compute")[:1], random, {"e": asked}), "e": asked}
    if random.random() < 0.6:
        to = recipients(random)
        clause = worded(random, "compute_send", **slots, a=listed(to, random))
        return Part(clause, (step, sent(random, to, fixed(random, "result"), step=1)))
    path = draw(random, "{file_path}")
    clause = worded(random, "compute_write", **slots, p=shown(random, path))
    return Part(clause, (step, written(random, {path: value})))


def now(random: Source, zone: str = "UTC", *, named: bool = False) -> Step:
    """Return a call for the time in a zone, which the call names, or not."""
    moment = datetime.fromisoformat(draw(random, "{day}")) + timedelta(minutes=random.randint(0, 1439))
    day, time = f"{moment:%Y-%m-%d}", f"{moment:%H:%M}"
    result = {"date": day, "time": time, "weekday": f"{moment:%A}", "timezone": zone}
    said = fixed(random, "now", t=time, w=members(random, "weekdays")[moment.weekday()], d=day)
    return Step("get_now", {"timezone": zone} if named else {}, result, said)


def get_now(random: Source) -> Part:
    zones = wordings(random, "zones")
    if random.random() < 0.15:
        city, zone = random.choice(list(zones.items()))
        shown_city = city if random.random() < 0.9 else city.lower()
        return Part(worded(random, "now_in", c=shown_city), (now(random, zone, named=True),))
    zone = "UTC" if random.random() < 0.7 else random.choice(list(zones.values()))
    return Part(worded(random, "now"), (now(random, zone),))


def now_then(random: Source) -> Part:
    """Return a request for the current time and to email or save it."""
    step = now(random)
    if random.random() < 0.4:
        to = recipients(random)
        clause = worded(random, "now_send", a=listed(to, random))
        return Part(clause, (step, sent(random, to, fixed(random, "time"), body=step.said)))
    path = draw(random, "{file_path}")
    key, member = random.choice((("now_write", "date"), ("now_write_time", "time")))
    clause = worded(random, key, p=shown(random, path))
    return Part(clause, (step, written(random, {path: (step.result or {})[member]})))
