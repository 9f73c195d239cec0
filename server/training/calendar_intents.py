"""Intents about the calendar: free slots, the choice among them, events."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from typing import Any

from training import odd_values
from training import vocabulary as v
from training.parts import Part, Step, choice, count_text, recipients, sent, sent_said, spoken
from training.source import Source
from training.wording import DURATIONS, PARTS_OF_DAY, PERIODS, closed, fixed, listed, word, worded, wordings

HOURS = {"morning": (9, 12), "afternoon": (13, 18), "evening": (18, 21)}


class Slots:
    """Free slots asked for: the wording's pieces, the call and the entries it returns."""

    __slots__ = ("arguments", "entries", "length", "limit", "part", "when")

    def __init__(self, random: Source, *, limit: int | None = None, plain: bool = False) -> None:
        self.arguments: dict[str, Any] = {}
        if random.random() < 0.82:
            period = random.choice(
                ("today", "tomorrow", "tomorrow", "this_week", "next_week", "next_week", "next_month")
            )
            self.arguments["period"] = period
            self.when = random.choice(PERIODS[random.language][period])
        else:
            start = v.day(random)
            self.arguments["start_date"] = start
            self.when = random.either(
                random.choice((f"on {start}", f"on {start}", f"for {start}")), f"il {start}"
            )
            if random.random() < 0.4:
                end = (
                    (datetime.fromisoformat(start) + timedelta(days=random.randint(1, 9))).date().isoformat()
                )
                self.arguments["end_date"] = end
                self.when = random.choice((f"between {start} and {end}", f"from {start} to {end}"))
                if random.language == "it":
                    self.when = random.choice((f"tra il {start} e il {end}", f"dal {start} al {end}"))
        self.part = ""
        if random.random() < 0.6:
            self.part = random.choice(tuple(HOURS))
            self.arguments["part_of_day"] = self.part
        self.length = ""
        if not plain and random.random() < 0.3:
            text, minutes = duration(random)
            shapes = random.either(("of {}", "of {}", "lasting {}", "for {}"), ("di {}", "di {}", "da {}"))
            self.length = random.choice(shapes).format(text)
            if random.random() < 0.25:
                minutes = random.choice((15, 20, 30, 45, 60, 90))
                self.length = f"{random.either('of', 'di')} {minutes} min"
            self.arguments["duration_minutes"] = minutes
        self.limit = limit
        if limit:
            self.arguments["limit"] = limit
        count = 0 if random.random() < 0.04 else min(limit or 3, random.choice((9, 9, 9, 9, 1, 2)))
        self.entries = self._entries(random, count)

    def _entries(self, random: Source, count: int) -> list[str]:
        low, high = HOURS.get(self.part, (9, 18))
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
        """Return the call that finds the slots, with its result."""
        return Step(
            "find_events_empty", self.arguments, {"entries": self.entries, "count": len(self.entries)}
        )

    def part_said(self, random: Source) -> str:
        """Return the part of the day as requests write it, "" if there is none."""
        return random.choice(PARTS_OF_DAY[random.language][self.part]) if self.part else ""

    def clause(self, random: Source, templates: Sequence[str]) -> str:
        """Return the request for these slots, in one of `templates`."""
        if self.limit:
            number = count_text(random, self.limit)
        else:
            number = random.choice(random.either(("", "", "some", "the"), ("", "", "dei", "qualche")))
        said = [slot for slot, value in (("{n}", self.limit), ("{l}", self.length)) if value]
        templates = [template for template in templates if all(slot in template for slot in said)]
        text = word(
            templates, random, {"n": number, "part": self.part_said(random), "l": self.length, "d": self.when}
        )
        for part in HOURS if random.language == "en" else ():
            text = text.replace(f"today {part}", f"this {part}") if random.random() < 0.5 else text
            text = text.replace(f"week {part}", f"week in the {part}").replace(
                f"month {part}", f"month in the {part}"
            )
            text = text.replace(f"0 {part}", f"0 in the {part}") if text.endswith(part) else text
        return closed(text)


def find_slots(random: Source, _first: int) -> Part:
    plain = random.random() < 0.35
    slots = Slots(
        random,
        limit=None if plain or random.random() < 0.35 else random.choice((1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 8)),
        plain=plain,
    )
    clause = slots.clause(random, wordings(random, "slots_plain") if plain else wordings(random, "slots"))
    return Part(clause, (slots.step(),), slots_said(random, slots.entries))


def slots_said(random: Source, entries: Sequence[str]) -> str:
    """Return the sentence of an answer that lists free slots."""
    return fixed(random, "free", x=spoken(entries, 3)) if entries else fixed(random, "none_free")


def slots_send(random: Source, first: int) -> Part:
    slots, to = Slots(random, limit=random.choice((None, 2, 3, 4, 5))), recipients(random)
    template = random.choice(wordings(random, "slots_send"))
    asked = slots.clause(random, wordings(random, "slots"))
    if "{s}" not in template:
        slots = Slots(random, plain=True)
    clause = closed(
        word(
            (template,),
            random,
            {"s": asked, "a": listed(to, random), "part": slots.part_said(random), "d": slots.when},
        )
    )
    if not slots.entries:
        return Part(clause, (slots.step(),), fixed(random, "none_free"))
    return Part(
        clause,
        (slots.step(), sent(random, to, fixed(random, "slots"), step=first)),
        f"{slots_said(random, slots.entries)} {sent_said(random, to)}",
    )


def slots_choose(random: Source, first: int) -> Part:
    """Propose slots, let the person pick one, then email and/or book it."""
    slots = Slots(random, limit=random.choice((3, 3, 3, 2, 2, 4, 4, 5, None)))
    shown, title = occasion(random)
    if random.random() < 0.12:
        shown, title = "", fixed(random, "slot")
    asked = slots.clause(random, wordings(random, "slots"))
    asked = worded(random, "for", s=asked, o=shown) if shown else asked
    pick = worded(random, "pick")
    joint = random.choice((", ", ", ", random.either(" and ", " e "), "; ", ". "))
    joined = f"{asked}{joint}{pick}"
    joined += "" if joined.endswith((" and", "then", " e", "poi")) else ","
    wanted = random.choice(("send", "send", "book", "book", "both", "none"))
    to = ["me"] if random.random() < 0.6 else recipients(random)
    send = worded(random, "then_send", a=listed(to, random))
    book = worded(random, "then_book")
    if wanted == "none":
        clause = worded(random, "pick_only", s=asked)
    elif wanted == "both":
        clause = f"{joined} {book} {random.either('and', 'e')} {send}"
    else:
        clause = f"{joined} {send if wanted == 'send' else book}"
    if not slots.entries:
        return Part(clause, (slots.step(),), fixed(random, "none_free"))
    value = random.choice(slots.entries)
    steps = [slots.step(), choice(title, "slot", fixed(random, "which_slot"), value, first)]
    said = fixed(random, "chose", x=value)
    if wanted in ("book", "both"):
        steps.append(booked(title, [value], from_step=first + 1))
        said += f" {fixed(random, 'booked', x=title)}"
    if wanted in ("send", "both"):
        steps.append(sent(random, to, title, step=first + 1))
        said += f" {sent_said(random, to)}"
    return Part(clause, tuple(steps), said)


def slots_book(random: Source, first: int) -> Part:
    slots = Slots(random, limit=1, plain=True)
    shown, title = occasion(random)
    clause = closed(worded(random, "book_free", o=shown, part=slots.part_said(random), d=slots.when))
    if not slots.entries:
        return Part(clause, (slots.step(),), fixed(random, "none_free"))
    steps = (slots.step(), booked(title, slots.entries, from_step=first))
    return Part(
        clause, steps, f"{fixed(random, 'booked', x=title)} {fixed(random, 'booked_on', x=slots.entries[0])}"
    )


def booked(
    title: str,
    starts: Sequence[str],
    *,
    from_step: int | None = None,
    minutes: int | None = None,
    place: str | None = None,
) -> Step:
    """Return the call that creates events, with its result. `minutes` is the duration."""
    arguments: dict[str, Any] = {"title": title}
    arguments |= {"starts": list(starts)} if from_step is None else {"from_step": from_step}
    if minutes is not None:
        arguments["duration_minutes"] = minutes
    if place is not None:
        arguments["location"] = place
    return Step(
        "create_events", arguments, {"entries": [start.split("/")[0] for start in starts], "title": title}
    )


def create_events(random: Source, _first: int) -> Part:
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
        extra = random.choice(
            random.either((f"for {text}", f"lasting {text}"), (f"per {text}", f"di {text}"))
        )
    if random.random() < 0.22:
        place = random.choice(
            (
                random.word(v.PLACES).capitalize(),
                v.noun(random),
                f"{random.either('room', 'sala')} {random.randint(1, 40)}",
            )
        )
        extra = f"{extra} {'in' if random.language == 'en' else random.choice(('a', 'in'))} {place}".strip()
    clause = closed(worded(random, "event", o=shown, w=when, wb=bare, x=extra))
    return Part(
        clause, (booked(title, [start], minutes=minutes, place=place),), fixed(random, "booked", x=title)
    )


def duration(random: Source) -> tuple[str, int]:
    """Return a length in words and its minutes."""
    if random.random() < 0.6:
        minutes = random.choice((10, 15, 20, 25, 30, 40, 45, 50, 60, 75, 90, 120))
        return f"{minutes} {random.either('minutes', 'minuti')}", minutes
    durations = DURATIONS[random.language]
    text = random.choice(tuple(durations))
    return text, durations[text]


def occasion(random: Source) -> tuple[str, str]:
    """Return what a time is for: as requests say it, and the title it gets (no article, a capital)."""
    italian = random.language == "it"
    kind, gender = random.choice(v.OCCASIONS_IT) if italian else (random.choice(v.OCCASIONS), "")
    plain = kind + _tail(random)
    if odd_values.reserved().search(plain):
        return occasion(random)
    articles = {
        "": ("an " if kind[0] in "aeiou" else "a ",) * 2 + ("the ", "my "),
        "m": ("un ", "un ", "l'" if kind[0] in "aeiou" else "il ", "il mio "),
        "f": ("una ", "una ", "la ", "la mia "),
    }
    return f"{random.choice(articles[gender])}{plain}", plain[:1].upper() + plain[1:]


def _tail(random: Source) -> str:
    """Return with whom, about what or where an occasion is, "" for nothing."""
    shape = random.random()
    return next((tail(random) for most, tail in _TAILS[random.language] if shape < most), "")


_TAILS: dict[str, tuple[tuple[float, Callable[[Source], str]], ...]] = {
    "en": (
        (
            0.35,
            lambda r: f" with the {v.noun(r) if r.random() >= 0.7 else r.choice(v.ROLES)}",
        ),
        (0.6, lambda r: f" with {_name(r)}"),
        (0.75, lambda r: f" about the {v.noun(r)}"),
        (0.85, lambda r: f" at the {v.noun(r)}"),
    ),
    "it": (
        (0.35, lambda r: f" con {r.choice(v.ROLES_IT)}"),
        (0.6, lambda r: f" con {_name(r)}"),
        (0.7, lambda r: f" dal {v.noun(r)}"),
        (0.85, lambda r: f" per {r.choice(('il', 'la'))} {v.noun(r)}"),
    ),
}


def _name(random: Source) -> str:
    return (random.word(v.NAMES) if random.random() < 0.6 else v.pseudo_word(random)).capitalize()


def moment(random: Source) -> tuple[str, str, str]:
    """Return a start: with its preposition, without it, and as YYYY-MM-DDTHH:MM."""
    day = v.day(random)
    hour = random.randint(0, 23) if random.random() < 0.15 else random.randint(7, 21)
    minute = random.choice((0, 0, 30, 15, 45, random.randint(0, 59)))
    start = f"{day}T{hour:02}:{minute:02}"
    if random.language == "it":
        return _moment_it(random, day, hour, minute)
    shape = random.random()
    if shape < 0.25:
        return random.choice((f"on {start}", f"at {start}")), start, start
    if shape < 0.33:
        year, month, number = day.split("-")
        named = random.choice(
            (
                f"{int(number)} {v.MONTHS[random.language][int(month) - 1]} {year}",
                f"{v.MONTHS[random.language][int(month) - 1]} {int(number)}, {year}",
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


def _moment_it(random: Source, day: str, hour: int, minute: int) -> tuple[str, str, str]:
    start = f"{day}T{hour:02}:{minute:02}"
    shape = random.random()
    if shape < 0.2:
        return f"il {start}", start, start
    named = day
    if shape < 0.35:
        year, month, number = day.split("-")
        named = f"{int(number)} {v.MONTHS['it'][int(month) - 1]} {year}"
    time = f"{hour:02}:{minute:02}"
    if random.random() < 0.2:
        time, start = f"{hour}", f"{day}T{hour:02}:00"
    if random.random() < 0.15:
        return f"alle {time} del {named}", f"{named} alle {time}", start
    return f"il {named} alle {time}", f"{named} alle {time}", start
