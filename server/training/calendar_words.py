"""The values of requests about the calendar: durations, occasions and their titles, times."""

from __future__ import annotations

from typing import TYPE_CHECKING

from training import odd_values
from training import vocabulary as v
from training.wording import DURATIONS

if TYPE_CHECKING:
    from training.source import Source


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
    if random.language == "it":
        return _occasion_it(random)
    kind = random.choice(v.OCCASIONS)
    shape = random.random()
    if shape < 0.35:
        tail = f" with the {random.choice(v.ROLES) if random.random() < 0.7 else v.noun(random)}"
    elif shape < 0.6:
        name = (
            random.word(v.NAMES).capitalize() if random.random() < 0.6 else v.pseudo_word(random).capitalize()
        )
        tail = f" with {name}"
    elif shape < 0.75:
        tail = f" about the {v.noun(random)}"
    elif shape < 0.85:
        tail = f" at the {v.noun(random)}"
    else:
        tail = ""
    plain = f"{kind}{tail}"
    if odd_values.reserved().search(plain):
        return occasion(random)
    article = "an" if kind[0] in "aeiou" else "a"
    shown = random.choice((f"{article} {plain}", f"{article} {plain}", f"the {plain}", f"my {plain}"))
    return shown, plain[:1].upper() + plain[1:]


def _occasion_it(random: Source) -> tuple[str, str]:
    kind, gender = random.choice(v.OCCASIONS_IT)
    shape = random.random()
    if shape < 0.35:
        tail = f" con {random.choice(v.ROLES_IT)}"
    elif shape < 0.6:
        name = random.word(v.NAMES) if random.random() < 0.6 else v.pseudo_word(random)
        tail = f" con {name.capitalize()}"
    elif shape < 0.7:
        tail = f" dal {v.noun(random)}"
    elif shape < 0.85:
        tail = f" per {random.choice(('il', 'la'))} {v.noun(random)}"
    else:
        tail = ""
    plain = f"{kind}{tail}"
    if odd_values.reserved().search(plain):
        return _occasion_it(random)
    if gender == "m":
        article = random.choice(("un ", "un ", "l'" if kind[0] in "aeiou" else "il ", "il mio "))
    else:
        article = random.choice(("una ", "una ", "la ", "la mia "))
    return f"{article}{plain}", plain[:1].upper() + plain[1:]


def moment(random: Source) -> tuple[str, str, str]:
    """Return a start: with its preposition, without it, and as YYYY-MM-DDTHH:MM."""
    day = v.day(random)
    hour, minute = (
        random.randint(0, 23) if random.random() < 0.15 else random.randint(7, 21),
        random.choice((0, 0, 30, 15, 45, random.randint(0, 59))),
    )
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
