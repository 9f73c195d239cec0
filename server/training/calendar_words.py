"""The values of requests about the calendar: durations, occasions and their titles, times."""

from __future__ import annotations

from training import odd_values
from training import vocabulary as v
from training.source import Source
from training.wording import DURATIONS


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
    plain = f"{kind}{(_tail_it if italian else _tail)(random)}"
    if odd_values.reserved().search(plain):
        return occasion(random)
    articles = {
        "": ("an " if kind[0] in "aeiou" else "a ",) * 2 + ("the ", "my "),
        "m": ("un ", "un ", "l'" if kind[0] in "aeiou" else "il ", "il mio "),
        "f": ("una ", "una ", "la ", "la mia "),
    }
    return f"{random.choice(articles[gender])}{plain}", plain[:1].upper() + plain[1:]


def _tail(random: Source) -> str:
    shape = random.random()
    if shape < 0.35:
        return f" with the {random.choice(v.ROLES) if random.random() < 0.7 else v.noun(random)}"
    if shape < 0.6:
        return f" with {_name(random)}"
    if shape < 0.75:
        return f" about the {v.noun(random)}"
    return f" at the {v.noun(random)}" if shape < 0.85 else ""


def _tail_it(random: Source) -> str:
    shape = random.random()
    if shape < 0.35:
        return f" con {random.choice(v.ROLES_IT)}"
    if shape < 0.6:
        return f" con {_name(random)}"
    if shape < 0.7:
        return f" dal {v.noun(random)}"
    return f" per {random.choice(('il', 'la'))} {v.noun(random)}" if shape < 0.85 else ""


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
