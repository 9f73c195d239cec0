"""Intents about the calendar: free slots, the choice among them, events."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any

from training.parts import Part, Step, choice, count_text, last_said, recipients, sent, spoken
from training.source import Source
from training.vocabulary import draw, members
from training.wording import closed, fixed, listed, word, worded, wordings

HOURS = {"morning": (9, 12), "afternoon": (13, 18), "evening": (18, 21)}


@dataclass(frozen=True, slots=True)
class Slots:
    """Free slots asked for: `said`, by the slots of wordings, and the call that finds them."""

    said: dict[str, str]
    step: Step
    entries: list[str]

    def clause(self, random: Source, key: str) -> str:
        """Return the request for these slots."""
        given = (("{n}", "limit"), ("{l}", "duration_minutes"))
        needed = [slot for slot, name in given if name in self.step.arguments]
        templates = [each for each in wordings(random, key) if all(slot in each for slot in needed)]
        text = word(templates, random, self.said)
        part = self.step.arguments.get("part_of_day")
        if part and random.language == "en":
            text = text.replace(f"today {part}", f"this {part}") if random.random() < 0.5 else text
            text = re.sub(rf"(week|month|0(?= {part}$)) {part}", rf"\1 in the {part}", text)
        return closed(text)


def _slots(random: Source, *, limit: int | None = None, plain: bool = False) -> Slots:
    arguments: dict[str, Any] = {}
    if random.random() < 0.82:
        arguments["period"] = period = draw(random, "{period}")
        when = random.choice(wordings(random, "periods")[period])
    else:
        arguments["start_date"] = start = draw(random, "{day}")
        when = draw(random, "{on_day}", start=start)
        if random.random() < 0.4:
            end = datetime.fromisoformat(start) + timedelta(days=random.randint(1, 9))
            arguments["end_date"] = f"{end:%Y-%m-%d}"
            when = draw(random, "{between_days}", start=start, end=arguments["end_date"])
    part = length = ""
    if random.random() < 0.6:
        arguments["part_of_day"] = named = random.choice(tuple(HOURS))
        part = random.choice(wordings(random, "parts")[named])
    if not plain and random.random() < 0.3:
        said, arguments["duration_minutes"] = duration(random)
        length = draw(random, "{length}", duration=said)
    if limit:
        arguments["limit"] = limit
    number = count_text(random, limit) if limit else draw(random, "{some_slots}")
    count = 0 if random.random() < 0.04 else min(limit or 3, random.choice((9, 9, 9, 9, 1, 2)))
    entries = _entries(random, arguments, count)
    answer = fixed(random, "free", x=spoken(entries, 3)) if entries else fixed(random, "none_free")
    step = Step("find_events_empty", arguments, {"entries": entries, "count": len(entries)}, answer)
    return Slots({"n": number, "part": part, "l": length, "d": when}, step, entries)


def _entries(random: Source, arguments: dict[str, Any], count: int) -> list[str]:
    low, high = HOURS.get(arguments.get("part_of_day", ""), (9, 18))
    moment = datetime.fromisoformat(f"{arguments.get('start_date') or draw(random, '{day}')}T{low:02}:00")
    entries: list[str] = []
    for _ in range(count):
        if random.random() < 0.4:
            moment += timedelta(minutes=random.choice((15, 30, 60)))
        if moment.hour >= high:
            moment = (moment + timedelta(days=1)).replace(hour=low, minute=random.choice((0, 0, 30)))
        end = moment + timedelta(minutes=arguments.get("duration_minutes", 60))
        entries.append(f"{moment:%Y-%m-%dT%H:%M}/{end:%Y-%m-%dT%H:%M}")
        moment = end
    return entries


def find_slots(random: Source) -> Part:
    plain = random.random() < 0.35
    limit = None if plain or random.random() < 0.35 else random.choice((1, 2, 2, 3, 3, 3, 4, 4, 5, 6, 8))
    slots = _slots(random, limit=limit, plain=plain)
    return Part(slots.clause(random, "slots_plain" if plain else "slots"), (slots.step,))


def slots_send(random: Source) -> Part:
    slots, to = _slots(random, limit=random.choice((None, 2, 3, 4, 5))), recipients(random)
    template = random.choice(wordings(random, "slots_send"))
    asked = slots.clause(random, "slots")
    if "{s}" not in template:
        slots = _slots(random, plain=True)
    clause = closed(word((template,), random, {**slots.said, "s": asked, "a": listed(to, random)}))
    steps = (slots.step, sent(random, to, fixed(random, "slots"), step=1))
    return Part(clause, steps[: 2 if slots.entries else 1])


def slots_choose(random: Source) -> Part:
    """Propose slots, let the person pick one, then email and/or book it."""
    slots = _slots(random, limit=random.choice((3, 3, 3, 2, 2, 4, 4, 5, None)))
    shown, title = occasion(random)
    asked = slots.clause(random, "slots")
    if random.random() < 0.12:
        title = fixed(random, "slot")
    else:
        asked = worded(random, "for", s=asked, o=shown)
    wanted = random.choice((("send",), ("send",), ("book",), ("book",), ("book", "send"), ()))
    to = ["me"] if random.random() < 0.6 else recipients(random)
    wishes = [worded(random, f"then_{each}", a=listed(to, random)) for each in wanted]
    if wishes:
        joined = asked + draw(random, "[, |, | {and} |; |. ]") + worded(random, "pick")
        joined += "" if joined.endswith((" and", "then", " e", "poi")) else ","
        clause = f"{joined} {draw(random, ' {and} ').join(wishes)}"
    else:
        clause = worded(random, "pick_only", s=asked)
    if not slots.entries:
        return Part(clause, (slots.step,))
    value = random.choice(slots.entries)
    steps = [replace(slots.step, said=""), choice(random, title, "slot", "which_slot", value)]
    if "book" in wanted:
        steps.append(booked(random, title, [value], from_step=2))
    if "send" in wanted:
        steps.append(sent(random, to, title, step=2))
    return Part(clause, tuple(steps))


def slots_book(random: Source) -> Part:
    slots = _slots(random, limit=1, plain=True)
    shown, title = occasion(random)
    clause = closed(worded(random, "book_free", o=shown, part=slots.said["part"], d=slots.said["d"]))
    if not slots.entries:
        return Part(clause, (slots.step,))
    said = fixed(random, "booked_on", x=slots.entries[0])
    step = booked(random, title, slots.entries, from_step=1)
    return last_said(clause, slots.step, replace(step, said=f"{step.said} {said}"))


def booked(random: Source, title: str, starts: Sequence[str], **more: Any) -> Step:
    """Return the call that creates events, with its result. `more`: arguments after the starts."""
    arguments = {"title": title} | ({} if "from_step" in more else {"starts": list(starts)}) | more
    result = {"entries": [start.split("/")[0] for start in starts], "title": title}
    return Step("create_events", arguments, result, fixed(random, "booked", x=title))


def create_events(random: Source) -> Part:
    shown, title = occasion(random)
    if random.random() < 0.3:
        title = draw(random, "{event_title}")
        shown = f'"{title}"' if random.random() < 0.6 and '"' not in title else title
    when, bare, start = moment(random)
    more: dict[str, Any] = {}
    extra = []
    if random.random() < 0.3:
        said, more["duration_minutes"] = duration(random)
        extra.append(draw(random, "{for_length}", duration=said))
    if random.random() < 0.22:
        more["location"] = draw(random, "{event_place}")
        extra.append(draw(random, "{in_place}", location=more["location"]))
    clause = closed(worded(random, "event", o=shown, w=when, wb=bare, x=" ".join(extra)))
    return Part(clause, (booked(random, title, [start], **more),))


def duration(random: Source) -> tuple[str, int]:
    """Return a length in words and its minutes."""
    if random.random() < 0.6:
        minutes = random.choice((10, 15, 20, 25, 30, 40, 45, 50, 60, 75, 90, 120))
        return draw(random, "{count} [{minutes}|{minutes}|{minutes}|{minutes}|min]", count=minutes), minutes
    text, minutes = random.choice(list(wordings(random, "durations").items()))
    return text, minutes


def occasion(random: Source) -> tuple[str, str]:
    """Return what a time is for: as requests say it, and the title it gets (no article, a capital)."""
    gender = random.either("", random.choice(("_m", "_f")))
    kind, article = draw(random, f"{{occasion{gender}}}"), draw(random, f"{{article{gender}}}")
    if kind[0] in "aeiou":
        article = {"a ": "an ", "il ": "l'", "la ": "l'"}.get(article, article)
    plain = kind + draw(random, "{tail}")
    return f"{article}{plain}", plain[:1].upper() + plain[1:]


def moment(random: Source) -> tuple[str, str, str]:
    """Return a start: with its preposition, without it, and as YYYY-MM-DDTHH:MM."""
    is_full = random.random() < 0.17
    hour = random.randint(0, 23) if random.random() < 0.15 else random.randint(7, 21)
    minute = 0 if is_full else random.choice((0, 0, 30, 15, 45, random.randint(0, 59)))
    at = datetime.fromisoformat(draw(random, "{day}")).replace(hour=hour, minute=minute)
    slots = {
        "iso_date": f"{at:%Y-%m-%d}", "year": at.year, "month": members(random, "months")[at.month - 1],
        "date_day": at.day, "hour": hour, "hour2": f"{hour:02}", "hour12": (hour - 1) % 12 + 1,
        "noon": "am" if hour < 12 else "pm", "minute": f"{minute:02}",
    }  # fmt: skip
    time = draw(random, "{full_hour}" if is_full else "{clock}", **slots)
    when = draw(random, "{moment}", time=time, **slots)
    return when, when.split(" ", 1)[1], f"{at:%Y-%m-%dT%H:%M}"
