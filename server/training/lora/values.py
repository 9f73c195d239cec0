"""Values of arguments: as a person writes them, and as the call has them; `forms.toml` has their forms.

A kind is a table of a domain's file (`domains.py`): `kind`, and what it draws from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from typing import Any, Final, TypeVar

from training.forms import Forms, read_toml
from training.parts import quoted
from training.source import Source
from training.vocabulary import WORDS, pseudo_word
from training.wording import LISTS as SHARED
from training.wording import listed

LISTS: Final = read_toml(__package__, "lists.toml")
_FORMS: Final = Forms(read_toml(__package__, "forms.toml"), LISTS, {"common_word": WORDS["en"]})
filled: Final = _FORMS.draw
_NUMBERS: Final = SHARED["counts"]["en"]
_FORMATS: Final = {"date": "date", "email": "email", "url": "uri"}  # "date-time" needs a zone


@dataclass(frozen=True, slots=True)
class Value:
    """`said`: by a person. `value`: in the call."""

    said: str
    value: Any


def _email(random: Source) -> str:
    return filled(random, "{written_email}").lower().replace(" ", "").replace("'", "")


_FORMS.functions |= {
    "pseudo_word": pseudo_word,
    "email": _email,
    "date": lambda random: _said_day(random, _day(random)),
}


def draw(random: Source, kind: Mapping[str, Any]) -> Value:
    """Return a value of a kind."""
    return _DRAWN[kind["kind"]](random, kind)


def _text(random: Source, kind: Mapping[str, Any]) -> Value:
    text = random.choice(kind["values"]) if "values" in kind else filled(random, f"{{{kind['source']}}}")
    if "values" in kind and random.random() < 0.15:  # not those of the file alone
        text = filled(random, "{title}" if text[:1].isupper() else "{word} {word}")
    return Value(quoted(random, text, (83, 12, 5)), text)


def _place(random: Source, _kind: Mapping[str, Any]) -> Value:
    whole = random.choice(LISTS["places"])
    city, state = whole.split(", ")
    return Value(random.choice((whole, city, city, f"{city} {state}")), whole)


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
    said = filled(random, "{coordinates}", number=value, end=kind["ends"][which])
    return Value(said, -value if which else value)


def _tiny(random: Source, kind: Mapping[str, Any]) -> Value:
    """Return a number like 3e-07."""
    digit, exponent = random.choice((1, 2, 5, 1.6, 4.2, 8)), random.randint(kind.get("least", -10), -5)
    said = filled(random, "{tiny}", digit=digit, exponent=exponent)
    return Value(_with_unit(random, said, kind), float(f"{digit}e{exponent}"))


def _duration(random: Source, kind: Mapping[str, Any]) -> Value:
    """Return a time span in the unit `as` ("s", "min", "h"), said in it or in another."""
    unit = {"s": 1, "min": 60, "h": 3600}[kind["as"]]
    number = random.choice((1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 30, 45, 90))
    forms = {
        form.format(number=number): size * number
        for form, size in LISTS["spans"].items()
        if number > 1 and size <= 24 * unit
    }
    forms |= LISTS["said_spans"]
    said = random.choice([said for said, seconds in forms.items() if seconds % unit == 0])
    return Value(said, forms[said] // unit)


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
    return Value(filled(random, "{currencies}", sum=shown), value)


def _percent(random: Source, kind: Mapping[str, Any]) -> Value:
    value: float = random.randint(int(kind.get("from", 1)), int(kind.get("to", 100)))
    is_share = kind.get("as") == "share"
    if is_share and random.random() < 0.2:
        value += 0.5
    return Value(
        f"{value}{random.choice(('%', ' %', ' percent'))}", round(value / 100, 4) if is_share else value
    )


def _day(random: Source) -> date:
    return date(2021, 1, 1) + timedelta(days=random.randrange(3650))


def _said_day(random: Source, day: date) -> str:
    ending = "th" if 10 < day.day < 14 else {1: "st", 2: "nd", 3: "rd"}.get(day.day % 10, "th")
    month = day.strftime(random.choice(("%B", "%B", "%b")))
    slots = {"day_number": day.day, "ordinal": f"{day.day}{ending}", "month": month, "year_number": day.year}
    return filled(random, "{day}", iso=day.isoformat(), **slots)


def _instant(random: Source, kind: Mapping[str, Any]) -> Value:
    """Return a date, a time of a day, or both."""
    day, hour = _day(random), random.randrange(24)
    minute = random.choice((0, 0, 0, 15, 30, 45, 5, 50, 20))
    clock = f"{hour:02}:{minute:02}"
    form = {0: "{full_hour}", 30: "{half_hour}"}.get(minute, "{clock_time}")
    part = ("morning", "afternoon", "evening")[(hour > 11) + (hour > 16)]
    hour12 = (hour + 11) % 12 + 1
    slots = {"h": hour12, "name": _NUMBERS[hour12], "mm": f"{minute:02}", "half": "am" if hour < 12 else "pm"}
    said = filled(random, form, clock=clock, part=part, **slots)
    match kind["kind"]:
        case "date":
            return Value(_said_day(random, day), day.isoformat())
        case "time":
            return Value(said, clock)
    said = filled(random, "{moment}", date=_said_day(random, day), time=said)
    return Value(said, f"{day.isoformat()}T{clock}:00")


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
    "date": _instant, "time": _instant, "datetime": _instant, "duration": _duration, "formula": _formula,
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
        said.append(filled(random, "{choices}", first=", ".join(choices[:-1]), last=choices[-1]))
    if "default" in kind:
        place = random.random()
        if place < 0.5:
            found["default"] = kind["default"]
        elif place < 0.85:
            said.append(filled(random, "{defaults}", value=kind["default"]))
    if said:
        found["description"] = " ".join(said)
    return found
