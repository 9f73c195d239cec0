"""Values of arguments: as a person writes them, and as the call has them.

A kind is a table of a domain's file (`domains.py`): `kind`, and what it draws from.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from importlib.resources import files
from typing import Any, Final, TypeVar

from training.source import Source
from training.vocabulary import pseudo_word, words
from training.wording import listed

LISTS: Final[dict[str, list[str]]] = tomllib.loads((files(__package__) / "lists.toml").read_text("utf-8"))
_NUMBERS: Final = (
    "zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve",
)  # fmt: skip
_CURRENCIES: Final = ("${}", "€{}", "£{}", "{} euros", "{} dollars", "{} USD", "{} EUR", "{}")
_CHOICES: Final = ("Choices are {} or {}.", "One of {}, {}.", "Can be {} or {}.", "({} or {})", "{} or {}.")
_DEFAULTS: Final = (
    "Default is {}.",
    "Default is '{}'.",
    "Defaults to {}.",
    "(default: {})",
    "{} by default.",
)
_SPANS: Final = (
    (1, ("{} seconds", "{}s", "{} sec")),
    (60, ("{} minutes", "{} min", "{} mins")),
    (3600, ("{} hours", "{}h", "{} hrs")),
    (86_400, ("{} days",)),
)
_SAID_SPANS: Final = {
    "half an hour": 1800, "a minute": 60, "an hour": 3600, "an hour and a half": 5400, "1h 15min": 4500,
    "a quarter of an hour": 900, "two and a half hours": 9000, "half a minute": 30,
}  # fmt: skip
_INVENTED_SHARE: Final = 0.4  # of names: what is copied has to be read, not known
_FORMATS: Final = {"date": "date", "email": "email", "url": "uri"}  # "date-time" needs a zone


@dataclass(frozen=True, slots=True)
class Value:
    """`said`: by a person. `value`: in the call."""

    said: str
    value: Any


def _name(random: Source, known: str) -> str:
    return (
        pseudo_word(random).capitalize() if random.random() < _INVENTED_SHARE else random.choice(LISTS[known])
    )


def _word(random: Source) -> str:
    return pseudo_word(random) if random.random() < _INVENTED_SHARE / 2 else random.choice(words())


def _code(random: Source) -> str:
    letters = "".join(random.choices("ABCDEFGHJKLMNPRSTUVWXYZ", k=random.choice((1, 2, 3))))
    digits = "".join(random.choices("0123456789", k=random.randint(2, 6)))
    return letters + random.choice(("-", "", "/", "_")) + digits


def _file(random: Source) -> str:
    stem = random.choice(("_", "-", " ", "")).join(_word(random) for _ in range(random.choice((1, 2, 2, 3))))
    folder = f"{_word(random)}/" if random.random() < 0.25 else ""
    year = random.choice(("", "", "", f"_{random.randint(2015, 2030)}", f"-v{random.randint(1, 9)}"))
    return f"{folder}{stem}{year}.{random.choice(LISTS['extensions'])}"


def _folder(random: Source) -> str:
    path = "/".join(_word(random) for _ in range(random.choice((1, 1, 2, 3))))
    return random.choice(("", "", "/", "~/", "/srv/")) + path + random.choice(("", "", "/"))


def _title(random: Source) -> str:
    parts = [random.choice(LISTS["title_starts"]), *(_word(random) for _ in range(random.choice((1, 2, 2))))]
    return " ".join(part[0].upper() + part[1:] for part in parts)


def _person(random: Source) -> str:
    return f"{_name(random, 'first_names')} {_name(random, 'last_names')}"


def _url(random: Source) -> str:
    page = "/".join(_word(random) for _ in range(random.randint(0, 2)))
    return (
        f"https://{random.choice(('www.', ''))}{_word(random)}.{random.choice(('com', 'org', 'io'))}/{page}"
    )


def _email(random: Source) -> str:
    first, last = (_name(random, each).lower().replace(" ", "") for each in ("first_names", "last_names"))
    user = random.choice((f"{first}.{last}", first, f"{first[0]}{last}", f"{_word(random)}"))
    return f"{user}@{random.choice((*LISTS['domains'], f'{_word(random)}.com'))}".replace("'", "")


def _phone(random: Source) -> str:
    blocks = (random.randint(1, 99), random.randint(100, 999), random.randint(1000, 9999))
    return random.choice(("+{} {} {}", "+{}-{}-{}", "0{} {}{}")).format(*blocks)


def _street(random: Source) -> str:
    name = random.choice((random.choice(LISTS["streets"]), f"{pseudo_word(random).capitalize()} Street"))
    return f"{random.randint(1, 240)} {name}"


def _place(random: Source, _kind: Mapping[str, Any]) -> Value:
    whole = random.choice(LISTS["places"])
    city, state = whole.split(", ")
    return Value(random.choice((whole, city, city, f"{city} {state}")), whole)


def _company(random: Source) -> str:
    name = random.choice((_word(random).capitalize(), _name(random, "last_names")))
    return f"{name} {random.choice(LISTS['company_ends'])}"


def _username(random: Source) -> str:
    return _word(random) + random.choice(("", "_", ".", str(random.randint(1, 99)))) + _word(random)


def _topic(random: Source) -> str:
    known = random.choice(LISTS["topics"])
    return known if random.random() < 0.5 else " ".join(random.choices(words(), k=random.choice((1, 2, 3))))


def _sentence(random: Source) -> str:
    known = random.choice(LISTS["sentences"])
    said = " ".join(random.choices(words(), k=random.randint(3, 7)))
    return known if random.random() < 0.5 else said.capitalize()


_SOURCES: Final[Mapping[str, Callable[[Source], str]]] = {
    "person": _person, "city": lambda random: _name(random, "cities"), "street": _street,
    "first_name": lambda random: _name(random, "first_names"), "company": _company, "file": _file,
    "country": lambda random: random.choice(LISTS["countries"]), "folder": _folder, "url": _url,
    "email": _email, "phone": _phone, "code": _code, "username": _username, "title": _title, "topic": _topic,
    "sentence": _sentence,
}  # fmt: skip


def question(random: Source) -> str:
    """Return what a person may ask that no tool does, or small talk."""
    if random.random() < 0.3:
        return random.choice(LISTS["small_talk"])
    known = {name: source(random) for name, source in _SOURCES.items()}
    known |= {"year": str(random.randint(1900, 2030)), "number": str(random.randint(2, 500))}
    return random.choice(LISTS["questions"]).format(**known, date=_said_day(random, _day(random)))


def draw(random: Source, kind: Mapping[str, Any]) -> Value:
    """Return a value of a kind."""
    return _DRAWN[kind["kind"]](random, kind)


def _text(random: Source, kind: Mapping[str, Any]) -> Value:
    values = kind.get("values")
    text = random.choice(values) if values else _SOURCES[kind["source"]](random)
    if values and random.random() < 0.15:  # not those of the file alone
        text = _title(random) if text[:1].isupper() else f"{_word(random)} {_word(random)}"
    quote = random.choices(("", '"', "'"), (83, 12, 5))[0]
    return Value(text if quote in text else f"{quote}{text}{quote}", text)


def _integer(random: Source, kind: Mapping[str, Any]) -> Value:
    least, most = kind.get("from", 1), kind.get("to", 100)
    value = random.randint(least, most if random.random() < 0.6 else min(most, 2 * least + 12))
    value, said = _signed(random, value, kind)
    if 0 <= value < len(_NUMBERS) and random.random() < 0.35:
        said = _NUMBERS[value]
    elif value >= 10_000 and random.random() < 0.5:
        said = f"{value:,}"
    if most >= 10_000 and not kind.get("signed") and random.random() < 0.3:
        value, said = _rounded(random)
        if not least <= value <= most:
            return _integer(random, kind)
    return Value(_with_unit(random, said, kind), value)


def _rounded(random: Source) -> tuple[int, str]:
    """Return a large number, and it in thousands or millions."""
    tenths = random.randint(11, 9999)
    scales = (1000, ("k", " thousand", "K")), (1_000_000, (" million", "M", "m", " mln"))
    unit, names = random.choice(scales)
    shown = f"{tenths / 10:g}"
    return tenths * unit // 10, shown + random.choice(names)


def _number(random: Source, kind: Mapping[str, Any]) -> Value:
    digits = kind.get("digits", 1)
    value = round(
        random.uniform(kind.get("from", 0), kind.get("to", 100)), random.randint(min(digits, 1), digits)
    )
    value, said = _signed(random, int(value) if value == int(value) else value, kind)
    return Value(_with_unit(random, said, kind), value)


_Number = TypeVar("_Number", int, float)


def _signed(random: Source, value: _Number, kind: Mapping[str, Any]) -> tuple[_Number, str]:
    """Return a number and its text; some are negative, if their kind is signed."""
    if not kind.get("signed") or random.random() < 0.6:
        return value, str(value)
    return -value, random.choice(("-{}", "-{}", "minus {}")).format(value)


def _with_unit(random: Source, said: str, kind: Mapping[str, Any]) -> str:
    units = kind.get("unit", ())
    return f"{said} {random.choice(units)}" if units else said


def _coordinate(random: Source, kind: Mapping[str, Any]) -> Value:
    """Return a coordinate with its direction: `ends` are the letters of the two, the positive one first."""
    value, which = round(random.uniform(1, kind["to"]), random.choice((1, 2, 4))), random.randrange(2)
    said = random.choice(("{}{}", "{} {}", "{}° {}")).format(value, kind["ends"][which])
    return Value(said, -value if which else value)


def _tiny(random: Source, kind: Mapping[str, Any]) -> Value:
    """Return a number like 3e-07."""
    digit, exponent = random.choice((1, 2, 5, 1.6, 4.2, 8)), random.randint(kind.get("least", -10), -5)
    said = random.choice(("{}e{}", "{}e{}", "{} x 10^{}", "{}E{}")).format(digit, exponent)
    return Value(_with_unit(random, said, kind), float(f"{digit}e{exponent}"))


def _duration(random: Source, kind: Mapping[str, Any]) -> Value:
    """Return a time span in the unit `as` ("s", "min", "h"), said in it or in another."""
    unit = {"s": 1, "min": 60, "h": 3600}[kind["as"]]
    number = random.choice((1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 45, 90))
    forms = [
        (size * number, form.format(number))
        for size, texts in _SPANS
        for form in texts
        if number > 1 and size * number % unit == 0 and size <= 24 * unit
    ]
    forms += [(seconds, said) for said, seconds in _SAID_SPANS.items() if seconds % unit == 0]
    seconds, said = random.choice(forms)
    return Value(said, seconds // unit)


def _formula(random: Source, kind: Mapping[str, Any]) -> Value:
    """Return a polynomial in Python's notation, said with `^`."""
    name, powers = kind.get("variable", "x"), random.choice(((2, 1, 0), (2,), (3,), (2, 0), (3, 1), (1, 0)))
    parts: list[str] = []
    for power in powers:
        factor, sign = random.randint(1, 9), random.choice("+-") if parts else ""
        text = {0: "", 1: name}.get(power, f"{name}**{power}")
        parts.append(f"{sign} {'' if factor == 1 and power else factor}{text}".strip())
    text = " ".join(parts)
    return Value(random.choice(("", "", "y = ", f"f({name}) = ")) + text.replace("**", "^"), text)


def _money(random: Source, kind: Mapping[str, Any]) -> Value:
    value = random.uniform(kind.get("from", 1), kind.get("to", 1000))
    value = round(value, kind.get("digits", 2)) if random.random() < 0.4 else float(round(value))
    value = int(value) if value == int(value) else value
    shown = f"{value:,}" if random.random() < 0.5 else str(value)
    if isinstance(value, int) and value >= 2000 and random.random() < 0.15:
        value = value // 1000 * 1000
        shown = f"{value // 1000}k"
    return Value(random.choice(_CURRENCIES).format(shown), value)


def _percent(random: Source, kind: Mapping[str, Any]) -> Value:
    value: float = random.randint(int(kind.get("from", 1)), int(kind.get("to", 100)))
    is_share = kind.get("as") == "share"
    if is_share and random.random() < 0.2:
        value += 0.5
    said = f"{value}{random.choice(('%', ' %', ' percent'))}"
    return Value(said, round(value / 100, 4) if is_share else value)


def _day(random: Source) -> date:
    return date(2021, 1, 1) + timedelta(days=random.randrange(3650))


def _said_day(random: Source, day: date) -> str:
    month = day.strftime(random.choice(("%B", "%B", "%b")))
    forms = (
        f"{day.day} {month} {day.year}",
        f"{month} {day.day}, {day.year}",
        day.isoformat(),
        f"{month} {_ordinal(day.day)} {day.year}",
        f"the {_ordinal(day.day)} of {month} {day.year}",
    )
    return random.choice(forms)


def _ordinal(number: int) -> str:
    ending = "th" if 10 < number % 100 < 14 else {1: "st", 2: "nd", 3: "rd"}.get(number % 10, "th")
    return f"{number}{ending}"


def _date(random: Source, _kind: Mapping[str, Any]) -> Value:
    day = _day(random)
    return Value(_said_day(random, day), day.isoformat())


def _moment(random: Source) -> tuple[str, time]:
    moment = time(random.randrange(24), random.choice((0, 0, 0, 15, 30, 45, 5, 50, 20)))
    hour, half = (moment.hour + 11) % 12 + 1, "am" if moment.hour < 12 else "pm"
    forms = [moment.strftime("%H:%M"), moment.strftime("%H:%M"), f"{hour}:{moment.minute:02} {half}"]
    if not moment.minute:
        forms += [f"{hour} {half}", f"{hour}{half}"]
    if moment.minute == 30 and hour < len(_NUMBERS):
        part = ("morning", "afternoon", "evening")[(moment.hour > 11) + (moment.hour > 16)]
        forms.append(f"half past {_NUMBERS[hour]} in the {part}")
    return random.choice(forms), moment


def _time(random: Source, _kind: Mapping[str, Any]) -> Value:
    said, moment = _moment(random)
    return Value(said, moment.strftime("%H:%M"))


def _datetime(random: Source, _kind: Mapping[str, Any]) -> Value:
    said, moment = _moment(random)
    day = _day(random)
    joined = random.choice(("{0} at {1}", "{1} on {0}", "{0}, {1}")).format(_said_day(random, day), said)
    return Value(joined, datetime.combine(day, moment).isoformat())


def _year(random: Source, kind: Mapping[str, Any]) -> Value:
    year = random.randint(kind.get("from", 1900), kind.get("to", 2030))
    return Value(str(year), year)


def _flag(random: Source, kind: Mapping[str, Any]) -> Value:
    value = not kind.get("denies") or random.random() < 0.65
    return Value(random.choice(kind["says" if value else "denies"]), value)


def _enum(random: Source, kind: Mapping[str, Any]) -> Value:
    value, said = random.choice(list(kind["values"].items()))
    return Value(random.choice(said or [value]), int(value) if _is_numeric(kind) else value)


def _is_numeric(kind: Mapping[str, Any]) -> bool:
    return all(value.isdigit() for value in kind["values"])


def _list(random: Source, kind: Mapping[str, Any]) -> Value:
    least, most = kind.get("from", 1), kind.get("to", 3)
    number = max(random.randint(least, most) for _ in range(random.choice((1, 2))))
    each: dict[Any, Value] = {}
    for _ in range(number * 3):
        value = draw(random, kind["of"])
        if len(each) < number:
            each.setdefault(str(value.value), value)
    said = [value.said for value in each.values()]
    return Value(listed(said, random), [value.value for value in each.values()])


def _object(random: Source, kind: Mapping[str, Any]) -> Value:
    fields = {name: draw(random, each) for name, each in kind["fields"].items()}
    return Value("", {name: each.value for name, each in fields.items()})


_DRAWN: Final[Mapping[str, Callable[[Source, Mapping[str, Any]], Value]]] = {
    "text": _text, "integer": _integer, "number": _number, "money": _money, "percent": _percent,
    "date": _date, "time": _time, "datetime": _datetime, "duration": _duration, "formula": _formula,
    "coordinate": _coordinate, "tiny": _tiny,
    "place": _place, "year": _year, "flag": _flag, "enum": _enum, "list": _list, "object": _object,
}  # fmt: skip


def schema(random: Source, kind: Mapping[str, Any]) -> dict[str, Any]:
    """Return the JSON Schema of a kind; what it need not say is there or not."""
    match kind["kind"]:
        case "integer" | "year" | "duration":
            found: dict[str, Any] = {"type": "integer"}
            if "from" in kind and not kind.get("signed") and random.random() < 0.3:
                found |= {"minimum": kind["from"], "maximum": kind["to"]}
        case "percent" if kind.get("as") != "share" and random.random() < 0.4:
            found = {"type": "integer"}
        case "number" | "money" | "percent" | "coordinate" | "tiny":
            found = {"type": "number"}
        case "flag":
            found = {"type": "boolean"}
        case "enum":
            found = {"type": "integer" if _is_numeric(kind) else "string"}
            if not kind.get("free"):
                found["enum"] = [int(value) if _is_numeric(kind) else value for value in kind["values"]]
        case "list":
            found = {"type": "array", "items": schema(random, kind["of"])}
        case "object":
            fields = {name: schema(random, each) for name, each in kind["fields"].items()}
            found = {"type": "object", "properties": fields, "required": list(fields)}
        case other:
            found = {"type": "string"}
            name = _FORMATS.get(other) or _FORMATS.get(kind.get("source", ""))
            if name and random.random() < 0.5:
                found["format"] = name
    said = [kind["about"]] if kind.get("about") and random.random() < 0.92 else []
    if "enum" in found and found["type"] == "string" and random.random() < 0.3:
        choices = [f"'{choice}'" for choice in found.pop("enum")]
        said.append(random.choice(_CHOICES).format(", ".join(choices[:-1]), choices[-1]))
    if "default" in kind:
        place = random.random()
        if place < 0.5:
            found["default"] = kind["default"]
        elif place < 0.85:
            said.append(random.choice(_DEFAULTS).format(kind["default"]))
    if said:
        found["description"] = " ".join(said)
    return found
