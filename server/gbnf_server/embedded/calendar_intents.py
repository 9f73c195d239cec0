"""Intents about the calendar: free slots, the choice among them, events."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from gbnf_server.embedded import vocabulary as v
from gbnf_server.embedded.parts import Part, Step, choice, count_text, recipients, sent, sent_said, spoken
from gbnf_server.embedded.wording import DURATIONS, PERIODS, W, closed, listed, word

if TYPE_CHECKING:
    from collections.abc import Sequence
    from random import Random

PARTS_OF_DAY = {"morning": (8, 12), "afternoon": (13, 17), "evening": (18, 21)}


def duration(random: Random) -> tuple[str, int]:
    """A length in words and its minutes."""
    if random.random() < 0.6:
        minutes = random.choice((10, 15, 20, 25, 30, 40, 45, 50, 60, 75, 90, 120))
        return f"{minutes} minutes", minutes
    text = random.choice(tuple(DURATIONS))
    return text, DURATIONS[text]


def occasion(random: Random) -> tuple[str, str]:
    """What a time is for: as requests say it, and the title it gets (no article, a capital)."""
    kind = random.choice(v.OCCASIONS)
    shape = random.random()
    if shape < 0.35:
        tail = f" with the {random.choice(v.ROLES) if random.random() < 0.7 else v.noun(random)}"
    elif shape < 0.6:
        name = (
            random.choice(v.NAMES).capitalize()
            if random.random() < 0.6
            else v.pseudo_word(random).capitalize()
        )
        tail = f" with {name}"
    elif shape < 0.75:
        tail = f" about the {v.noun(random)}"
    elif shape < 0.85:
        tail = f" at the {v.noun(random)}"
    else:
        tail = ""
    plain = f"{kind}{tail}"
    if v.reserved().search(plain):
        return occasion(random)
    article = "an" if kind[0] in "aeiou" else "a"
    shown = random.choice((f"{article} {plain}", f"{article} {plain}", f"the {plain}", f"my {plain}"))
    return shown, plain[:1].upper() + plain[1:]


class Slots:
    """Free slots asked for: the wording's pieces, the call and the entries it returns."""

    __slots__ = ("arguments", "entries", "length", "limit", "part", "when")

    def __init__(self, random: Random, *, limit: int | None = None, plain: bool = False) -> None:
        self.arguments: dict[str, Any] = {}
        if random.random() < 0.82:
            period = random.choice(
                ("today", "tomorrow", "tomorrow", "this_week", "next_week", "next_week", "next_month")
            )
            self.arguments["period"] = period
            self.when = random.choice(PERIODS[period])
        else:
            start = v.day(random)
            self.arguments["start_date"] = start
            self.when = random.choice((f"on {start}", f"on {start}", f"for {start}"))
            if random.random() < 0.4:
                end = (
                    (datetime.fromisoformat(start) + timedelta(days=random.randint(1, 9))).date().isoformat()
                )
                self.arguments["end_date"] = end
                self.when = random.choice((f"between {start} and {end}", f"from {start} to {end}"))
        self.part = ""
        if random.random() < 0.6:
            self.part = random.choice(tuple(PARTS_OF_DAY))
            self.arguments["part_of_day"] = self.part
        self.length = ""
        if not plain and random.random() < 0.3:
            text, minutes = duration(random)
            self.length = random.choice((f"of {text}", f"of {text}", f"lasting {text}", f"for {text}"))
            if random.random() < 0.25:
                minutes = random.choice((15, 20, 30, 45, 60, 90))
                self.length = f"of {minutes} min"
            self.arguments["duration_minutes"] = minutes
        self.limit = limit
        if limit:
            self.arguments["limit"] = limit
        count = 0 if random.random() < 0.04 else min(limit or 3, random.choice((9, 9, 9, 9, 1, 2)))
        self.entries = self._entries(random, count)

    def _entries(self, random: Random, count: int) -> list[str]:
        low, high = PARTS_OF_DAY.get(self.part, (8, 19))
        begin = datetime.fromisoformat(f"{self.arguments.get('start_date') or v.day(random)}T{low:02}:00")
        length = self.arguments.get("duration_minutes", 60)
        entries: list[str] = []
        moment = begin
        for _ in range(count):
            if random.random() < 0.4:
                moment += timedelta(minutes=random.choice((15, 30, 60)))
            if moment.hour >= high:
                moment = (moment + timedelta(days=1)).replace(hour=low, minute=random.choice((0, 0, 30)))
            end = moment + timedelta(minutes=length)
            entries.append(f"{moment:%Y-%m-%dT%H:%M}/{end:%Y-%m-%dT%H:%M}")
            moment = end
        return entries

    def step(self) -> Step:
        return Step(
            "find_events_empty", self.arguments, {"entries": self.entries, "count": len(self.entries)}
        )

    def clause(self, random: Random, templates: Sequence[str]) -> str:
        number = count_text(random, self.limit) if self.limit else random.choice(("", "", "some", "the"))
        said = [slot for slot, value in (("{n}", self.limit), ("{l}", self.length)) if value]
        templates = [template for template in templates if all(slot in template for slot in said)]
        text = word(templates, random, {"n": number, "part": self.part, "l": self.length, "d": self.when})
        for part in PARTS_OF_DAY:
            text = text.replace(f"today {part}", f"this {part}") if random.random() < 0.5 else text
            text = text.replace(f"week {part}", f"week in the {part}").replace(
                f"month {part}", f"month in the {part}"
            )
            text = text.replace(f"0 {part}", f"0 in the {part}") if text.endswith(part) else text
        return closed(text)


def find_slots(random: Random, first: int) -> Part:
    del first
    plain = random.random() < 0.35
    slots = Slots(
        random, limit=None if plain or random.random() < 0.35 else random.randint(1, 8), plain=plain
    )
    clause = slots.clause(random, W["slots_plain"] if plain else W["slots"])
    return Part(clause, (slots.step(),), slots_said(slots.entries))


def slots_said(entries: Sequence[str]) -> str:
    return f"Free: {spoken(entries, 3)}." if entries else "No free slot found."


def slots_send(random: Random, first: int) -> Part:
    slots, to = Slots(random, limit=random.choice((None, 2, 3, 4, 5))), recipients(random)
    template = random.choice(W["slots_send"])
    asked = slots.clause(random, W["slots"])
    if "{s}" not in template:
        slots = Slots(random, plain=True)
    clause = closed(
        word((template,), random, {"s": asked, "a": listed(to, random), "part": slots.part, "d": slots.when})
    )
    if not slots.entries:
        return Part(clause, (slots.step(),), "No free slot found.")
    return Part(
        clause,
        (slots.step(), sent(to, "Free slots", step=first)),
        f"{slots_said(slots.entries)} {sent_said(to)}",
    )


def slots_choose(random: Random, first: int) -> Part:
    """Propose slots, let the person pick one, then email and/or book it."""
    slots = Slots(random, limit=random.choice((3, 3, 3, 2, 4, 5, 6, None)))
    shown, title = occasion(random)
    if random.random() < 0.12:
        shown, title = "", "Slot"
    asked = slots.clause(random, W["slots"])
    asked = word(W["for"], random, {"s": asked, "o": shown}) if shown else asked
    pick = word(W["pick"], random, {})
    joined = random.choice(
        (
            f"{asked}, {pick}",
            f"{asked}, {pick}",
            f"{asked} and {pick}",
            f"{asked}; {pick}",
            f"{asked}. {pick}",
        )
    )
    joined += "" if joined.endswith((" and", "then")) else ","
    wanted = random.choice(("send", "send", "book", "book", "both", "none"))
    to = ["me"] if random.random() < 0.6 else recipients(random)
    send, book = word(W["then_send"], random, {"a": listed(to, random)}), word(W["then_book"], random, {})
    if wanted == "none":
        ask = random.choice((" and let me ", ", then let me ", " and ask me to "))
        clause = f"{asked}{ask}{random.choice(('pick one', 'choose one', 'choose'))}"
    elif wanted == "both":
        clause = f"{joined} {book} and {send}"
    else:
        clause = f"{joined} {send if wanted == 'send' else book}"
    if not slots.entries:
        return Part(clause, (slots.step(),), "No free slot found.")
    value = random.choice(slots.entries)
    steps = [slots.step(), choice(title, "slot", "Which slot do you prefer?", value, first)]
    said = f"You chose {value}."
    if wanted in ("book", "both"):
        steps.append(booked(title, [value], from_step=first + 1))
        said += f" {event_said(title)}"
    if wanted in ("send", "both"):
        steps.append(sent(to, title, step=first + 1))
        said += f" {sent_said(to)}"
    return Part(clause, tuple(steps), said)


def slots_book(random: Random, first: int) -> Part:
    slots = Slots(random, limit=1, plain=True)
    shown, title = occasion(random)
    clause = closed(word(W["book_free"], random, {"o": shown, "part": slots.part, "d": slots.when}))
    if not slots.entries:
        return Part(clause, (slots.step(),), "No free slot found.")
    steps = (slots.step(), booked(title, slots.entries, from_step=first))
    return Part(clause, steps, f"{event_said(title)} It is on {slots.entries[0]}.")


def moment(random: Random) -> tuple[str, str, str]:
    """A start: with its preposition, without it, and as YYYY-MM-DDTHH:MM."""
    day = v.day(random)
    hour, minute = (
        random.randint(0, 23) if random.random() < 0.15 else random.randint(7, 21),
        random.choice((0, 0, 30, 15, 45, random.randint(0, 59))),
    )
    start = f"{day}T{hour:02}:{minute:02}"
    shape = random.random()
    if shape < 0.25:
        return random.choice((f"on {start}", f"at {start}")), start, start
    if shape < 0.33:
        year, month, number = day.split("-")
        named = random.choice(
            (
                f"{int(number)} {v.MONTHS[int(month) - 1]} {year}",
                f"{v.MONTHS[int(month) - 1]} {int(number)}, {year}",
            )
        )
    else:
        named = day
    clock = random.random()
    if clock < 0.75:
        time = f"{hour:02}:{minute:02}"
    elif clock < 0.85:
        time = f"{hour}:{minute:02}"
    elif clock < 0.93:
        time, start = f"{hour}", f"{day}T{hour:02}:00"
    else:
        noon = "am" if hour < 12 else "pm"
        time, start = f"{(hour - 1) % 12 + 1}{random.choice(('', ' '))}{noon}", f"{day}T{hour:02}:00"
    if random.random() < 0.12:
        return f"at {time} on {named}", f"{named} at {time}", start
    return f"on {named} at {time}", f"{named} at {time}", start


def booked(
    title: str,
    starts: Sequence[str],
    *,
    from_step: int | None = None,
    minutes: int | None = None,
    place: str | None = None,
) -> Step:
    arguments: dict[str, Any] = {"title": title}
    arguments |= {"starts": list(starts)} if from_step is None else {"from_step": from_step}
    if minutes is not None:
        arguments["duration_minutes"] = minutes
    if place is not None:
        arguments["location"] = place
    return Step(
        "create_events", arguments, {"entries": [start.split("/")[0] for start in starts], "title": title}
    )


def event_said(title: str) -> str:
    return f"Added {title} to the calendar."


def create_events(random: Random, first: int) -> Part:
    del first
    shown, title = occasion(random)
    if random.random() < 0.3:
        title = random.choice((v.text(random), v.noun(random), f"{v.noun(random)} {v.noun(random)}"))
        shown = title
        if random.random() < 0.6 and '"' not in title:
            shown = f'"{title}"'
    when, bare, start = moment(random)
    minutes = place = None
    extra = ""
    if random.random() < 0.3:
        text, minutes = duration(random)
        extra = random.choice((f"for {text}", f"lasting {text}"))
    if random.random() < 0.22:
        place = random.choice(
            (random.choice(v.PLACES).capitalize(), v.noun(random), f"room {random.randint(1, 40)}")
        )
        extra = f"{extra} in {place}".strip()
    clause = closed(word(W["event"], random, {"o": shown, "w": when, "wb": bare, "x": extra}))
    return Part(clause, (booked(title, [start], minutes=minutes, place=place),), event_said(title))
