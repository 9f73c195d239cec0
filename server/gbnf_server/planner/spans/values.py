"""Values of a schema that a text has: which spans each field may take, and which one it took.

Dates and times are those of `gbnf_server.planner.spans.dates`, durations and numbers those of
`gbnf_server.planner.spans.numbers`; addresses, telephone numbers and codes are copied. A field for which the
text has no span stays as it is; one that may be null is required, so that it is decided, and not forgotten.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date
from functools import cached_property
from typing import Any, Final

from gbnf.schema.keywords import child_pointer
from gbnf.schema.models import LOCAL_DATE_TIME, LOCAL_TIME
from gbnf.schema.validators import violation
from gbnf.tools import Tool
from gbnf_server.planner.spans.dates import DAY_WORD, Order, date_spans, time_spans
from gbnf_server.planner.spans.numbers import (
    CURRENCIES,
    FUNCTION_WORDS,
    LONGEST,
    Span,
    currency_spans,
    duration_spans,
    is_money,
    iso_duration,
    number_spans,
    overlaps,
)

MOST: Final = 1500
"""Values of a field; a text with more leaves it to the model."""
_NEAR: Final = 30
"""Characters between a date and the time of day that belongs to it."""
_UNITS: Final = {
    "second": 1, "minute": 60, "hour": 3600, "day": 86_400, "week": 604_800,
    "secondi": 1, "minuti": 60, "ore": 3600, "giorni": 86_400, "settimane": 604_800,
}  # fmt: skip
_AMOUNT: Final = re.compile(
    r"\b(?:price|amount|cost|fee|paid|pay|salary|wage|budget|rent|deposit|fare|charge|bill|balance|importo|prezzo"
    r"|costo|affitto|canone|cauzione|betrag|preis|miete|kaution|gehalt|montant|prix|loyer|salaire|precio|preço"
    r"|importe|bedrag|prijs|kwota|cena|belopp|pris)s?\b",
    re.IGNORECASE,
)
_TOTAL: Final = re.compile(r"\b(?:total|totale|sum)\b", re.IGNORECASE)
"""What fields for amounts of money are called."""
_MEASURES: Final = re.compile(r"[kmg]g?|[kcm]m|[mc]?l|[mq]q|qm|lb|oz|mi|ft|h|[mg]b")
"""Units that are shorter than words."""
_AFTER: Final = re.compile(r"[\s\u00a0-]?([^\W\d_]+)")
_COPIED: Final[tuple[tuple[re.Pattern[str], re.Pattern[str]], ...]] = (
    (
        re.compile(r"(?:\w+_)?(?:e_?mail|posta)(?:_?address)?", re.IGNORECASE),
        re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64})+"),
    ),
    (
        re.compile(
            r"(?:\w+_)?(?:tele)?(?:phone|fono|fon|tel|mobile|cell|fax)(?:_?(?:number|no|nr))?", re.IGNORECASE
        ),
        re.compile(r"(?<![\w-])(?:\+\d{1,3}[ ./-]?)?\(?\d[\d ()./-]{5,16}\d(?![\w-])"),
    ),
    (
        re.compile(r"(?:\w+_)?(?:ur[li]|website|link)", re.IGNORECASE),
        re.compile(r"https?://[^\s<>\"']{1,2000}[^\s<>\"'.,;:!?)]"),
    ),
    (
        re.compile(r"(?:\w+_)?(?:id|code|codice|ref|reference|iban|sku|number|numero|no)", re.IGNORECASE),
        re.compile(
            r"(?<![\w/.@-])(?=[\w/.-]{0,40}\d)(?=[\w/.-]{0,40}(?:[^\W\d_]|\d[/-]?\d[/-]?\d[/-]?\d))"
            r"\w[\w/-]{0,60}(?:\.\w[\w/-]{0,60})*|(?<=#)\d+|(?<=\bno\. )\d+|(?<=\bnr\. )\d+|(?<=\bn\. )\d+"
        ),
    ),
)
"""Fields whose strings are copied, by name, and what they look like."""
_NAMED: Final = re.compile(
    r"(?:\w+_)?(?:name|nome|nom|nombre|who|person|guest|customer|client|seller|vendor|supplier|buyer|company"
    r"|organi[sz]ation|author|sender|recipient|place|city|town|origin"
    r"|destination|product)",
    re.IGNORECASE,
)
"""Fields for what a text names, by its words."""
_ANNOTATIONS: Final = {"type", "title", "description", "default", "examples"}
_SCALE: Final = 100
_BESIDE: Final = len(", ")
_YEAR: Final = re.compile(r"\b(?:year|anno|jahr|année|año|jaar)\b")
_HOURS: Final = re.compile(r"\d\s?h", re.IGNORECASE)
_WORD: Final = re.compile(r"[^\W_]\S*")
_MOST_WORDS: Final = 6
_LONGEST_ABBREVIATION: Final = len("Prof.")


@dataclass(frozen=True)
class TextSpans:
    """The spans of one text. `today`, `order`: see `date_spans`; `definitions`: the `$defs` of the schema."""

    text: str
    today: date
    definitions: Mapping[str, Any]
    order: Order | None = None

    @cached_property
    def dates(self) -> list[Span]:
        """The dates of the text."""
        return date_spans(self.text, self.today, self.order)

    @cached_property
    def times(self) -> list[Span]:
        """The times of day of the text."""
        return [span for span in time_spans(self.text) if not overlaps(span, self.dates)]

    @cached_property
    def moments(self) -> list[Span]:
        """The dates with a time of day near them."""
        return [
            Span(min(day.start, time.start), max(day.end, time.end), f"{day.value}T{time.value}")
            for day in self.dates
            for time in self.times
            if max(day.start, time.start) - min(day.end, time.end) <= _NEAR
        ]

    @cached_property
    def numbers(self) -> list[Span]:
        """The numbers of the text that are no part of a date or a time."""
        return number_spans(self.text, [*self.dates, *self.times])

    @cached_property
    def durations(self) -> list[Span]:
        """The durations of the text, in seconds."""
        # 8h is a time, too
        times = [span for span in self.times if not _HOURS.search(self.text[span.start : span.end])]
        return [span for span in duration_spans(self.text) if not overlaps(span, times)]

    def lengths(self, unit: int) -> list[Span]:
        """Return the durations in a unit of so many seconds."""
        counts = ((span, span.value / unit) for span in self.durations)
        return [
            replace(span, value=int(count) if float(count).is_integer() else count) for span, count in counts
        ]

    def counts(self, described: str, *, is_whole: bool, may_be_null: bool) -> list[Span] | None:
        """Return the numbers that a field may take: with its unit or name after, or else amounts.

        None if it may have any: the text has only amounts and durations, and may say it in other words.
        """
        words = [word for word in re.findall(r"[^\W\d_]+", described) if word not in FUNCTION_WORDS]
        units = [word for word in words if _MEASURES.fullmatch(word)]
        if counted := [span for span in self.numbers if self._is_counted(span, words)]:
            return counted
        of_money = [span for span in self.numbers if is_money(span, self.text)]
        if _AMOUNT.search(described) or (_TOTAL.search(described) and of_money and not is_whole):
            return of_money or ([] if may_be_null else self.numbers)
        others = [
            span for span in self.numbers if span not in of_money and not overlaps(span, self.durations)
        ]
        if (units or not others) and may_be_null:
            return []
        return others or None

    def _is_counted(self, span: Span, words: Sequence[str]) -> bool:
        """Return whether the word after a number is one of the words, or begins like it."""
        match = _AFTER.match(self.text, span.end)
        unit = match[1].casefold() if match else ""
        if unit in words and (len(unit) > 2 or _MEASURES.fullmatch(unit)):
            return True
        stems = (word.rstrip("s") for word in words if len(word) > 2)
        stem = unit.rstrip("s")
        return len(unit) > 2 and any(word.startswith(stem) or stem.startswith(word) for word in stems)

    def copied(self, pattern: re.Pattern[str]) -> list[Span]:
        """Return what looks like a pattern, as it is."""
        copies = (Span(*match.span(), match[0]) for match in pattern.finditer(self.text[:LONGEST]))
        return [span for span in copies if not overlaps(span, [*self.dates, *self.times])]

    @cached_property
    def phrases(self) -> list[Span]:
        """Up to six words in a row of one sentence and line; none of a text with too many."""
        words = [match.span() for match in _WORD.finditer(self.text[:LONGEST])]
        phrases = []
        for first, (start, _) in enumerate(words[: MOST // _MOST_WORDS]):
            for _, end in words[first : first + _MOST_WORDS]:
                phrase = self.text[start:end]
                if "\n" in phrase:
                    break
                stripped = phrase.rstrip(".,;:!?)]\"'»”")
                phrases.append(Span(start, start + len(stripped), stripped))
                last = phrase.rpartition(" ")[2]
                if last[-1] in ";:!?" or (last[-1] == "." and len(last) > _LONGEST_ABBREVIATION):
                    break
        return phrases if len(words) * _MOST_WORDS <= MOST else []

    def of_field(self, name: str, schema: Mapping[str, Any]) -> list[Span] | None:
        """Return the spans that a field may take, by its name and schema; None if it may have any value."""
        described = f"{name.replace('_', ' ')} {schema.get('description', '')}".casefold()
        kinds: list[list[Span]] = []
        for alternative in _branches(schema):
            branch = _resolved(alternative, self.definitions)
            spans: list[Span] | None = None
            match branch:
                case {"format": "date"}:
                    spans = self.dates
                case {"pattern": pattern} if pattern == LOCAL_TIME:
                    spans = self.times
                case {"pattern": pattern} if pattern == LOCAL_DATE_TIME:
                    spans = [replace(span, value=_with_seconds(span.value)) for span in self.moments]
                case {"format": "duration"}:
                    spans = [replace(span, value=iso_duration(span.value)) for span in self.durations]
                case {"type": "integer" | "number" as type_} if not _is_judged(branch, described):
                    units = [unit for word, unit in _UNITS.items() if re.search(rf"\b{word}s?\b", described)]
                    spans = self.lengths(units[0]) if units and not _AMOUNT.search(described) else []
                    may_be_null, is_whole = _may_be_null(schema), type_ == "integer"
                    spans = spans or self.counts(described, is_whole=is_whole, may_be_null=may_be_null)
                case {"format": "date-time"}:
                    spans = []  # which has an offset
                case {"enum": [*codes]} if codes and CURRENCIES.issuperset(map(str, codes)):
                    spans = currency_spans(self.text) or None
                case {"type": "string"} if not branch.keys() & {"enum", "const", "pattern"}:
                    shape = next((shape for names, shape in _COPIED if names.fullmatch(name)), None)
                    named = self.phrases if _NAMED.fullmatch(name) and self.phrases else None
                    spans = self.copied(shape) if shape else named
            if spans is None and not _is_decimal(branch, schema):
                return None  # it may be anything
            if spans is not None:
                # of hundreds of phrases, any fits
                is_free = branch.get("type") == "string" and branch.keys() <= _ANNOTATIONS
                kinds.append([span for span in spans if is_free or not violation(branch, span.value)])
        all_spans = [span for kind in kinds for span in kind]
        return all_spans if all_spans or (kinds and self.is_read) else None

    @cached_property
    def is_read(self) -> bool:
        """Whether spans have all digits of the text, and all words for days, or stand beside them."""
        codes = [span for _, shape in _COPIED for span in self.copied(shape)]
        rest = list(self.text)
        for span in (*self.dates, *self.times, *self.numbers, *self.durations, *codes):
            rest[span.start : span.end] = " " * (span.end - span.start)
        words = DAY_WORD.finditer("".join(rest))
        beside = (any(0 <= span.start - word.end() <= _BESIDE for span in self.dates) for word in words)
        return not re.search(r"\d", "".join(rest)) and all(beside)


def _branches(schema: Mapping[str, Any]) -> Iterator[Mapping[str, Any]]:
    """Yield the alternatives of a field but for null."""
    for branch in schema.get("anyOf", schema.get("oneOf", (schema,))):
        if branch is schema and branch.get("type") != "null":
            yield branch
        elif isinstance(branch, Mapping) and branch is not schema:
            yield from _branches(branch)


def _with_seconds(moment: str) -> str:
    return moment if len(moment) == len("2026-01-05T09:00:00") else f"{moment}:00"


def _may_be_null(schema: Mapping[str, Any]) -> bool:
    types = schema.get("type")
    is_listed = None in schema.get("enum", ()) or (isinstance(types, list) and "null" in types)
    branches = (*schema.get("anyOf", ()), *schema.get("oneOf", ()))
    return is_listed or any(isinstance(part, Mapping) and part.get("type") == "null" for part in branches)


def _is_judged(schema: Mapping[str, Any], described: str) -> bool:
    """Return whether a number is judged rather than read: stars from 1 to 5; or a year, which a date has."""
    low, high = (
        next((schema[key] for key in keys if key in schema), None)
        for keys in (("minimum", "exclusiveMinimum"), ("maximum", "exclusiveMaximum"))
    )
    is_narrow = low is not None and high is not None and high - low <= _SCALE
    return bool(schema.keys() & {"enum", "const"}) or is_narrow or bool(_YEAR.search(described))


def _is_decimal(branch: Any, schema: Mapping[str, Any]) -> bool:
    """Return whether a branch is the text of a number, as pydantic has it for `Decimal`."""
    others = [other.get("type") for other in _branches(schema)]
    return branch.get("type") == "string" and "pattern" in branch and bool({"number", "integer"} & {*others})


def with_spans(tool: Tool, text: str, today: date, order: Order | None = None) -> Tool:
    """Return a tool whose arguments are values that a text has, where it has some for them."""
    restriction = _restriction(tool.args, TextSpans(text, today, _definitions(tool.args), order))
    return replace(tool, args={**tool.args, "allOf": [*tool.args.get("allOf", ()), restriction]})


def _restriction(
    schema: Any, spans: TextSpans, name: str = "", followed: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Return the schema that a value has to fit, too; {} if it may be any. `followed`: references so far."""
    reference = schema.get("$ref") if isinstance(schema, Mapping) else None
    schema = _resolved(schema, spans.definitions)
    if not isinstance(schema, Mapping) or reference in followed:
        return {}
    followed |= {reference} if isinstance(reference, str) else frozenset()
    if isinstance(properties := schema.get("properties"), Mapping):
        return _object_restriction(properties, spans, followed)
    if schema.get("type") == "array":
        items = _restriction(schema.get("items"), spans, name, followed)
        return {"items": items} if items else {}
    field_spans = spans.of_field(name, schema)
    values = list(dict.fromkeys(span.value for span in field_spans or ()))
    if field_spans is None or len(values) > MOST or not (values or _may_be_null(schema)):
        return {}
    return {"enum": [*values, None] if _may_be_null(schema) else values}


def _object_restriction(
    properties: Mapping[str, Any], spans: TextSpans, followed: frozenset[str]
) -> dict[str, Any]:
    """Return the restriction of an object. A field that may be null is, if others need all of its spans."""
    schemas = {key: _resolved(value, spans.definitions) for key, value in properties.items()}
    fields = {key: value for key, value in schemas.items() if isinstance(value, Mapping)}
    decided = [key for key, schema in fields.items() if _may_be_null(schema)]
    places = {
        key: {(span.start, span.end) for span in spans.of_field(key, fields[key]) or ()} for key in fields
    }
    inner: dict[str, Any] = {key: {} for key in properties}
    for key in fields:
        restriction = _restriction(properties[key], spans, key, followed)
        # a name may be anywhere
        required = (field for field in fields if field not in decided and not _NAMED.fullmatch(field))
        rivals = [places[field] for field in required if places[field] & places[key]]
        if restriction and key in decided and len(places[key].union(*rivals)) <= len(rivals):
            restriction = {"enum": [None]}
        inner[key] = restriction
    # with all properties, since an object that does not declare one may not have it
    return {"properties": inner, "required": decided}


def _definitions(schema: Any) -> Mapping[str, Any]:
    """Return the `$defs` of a schema, or of that of a property, which has its own."""
    if not isinstance(schema, Mapping):
        return {}
    of_properties = schema.get("properties", {})
    for part in (schema, *(of_properties.values() if isinstance(of_properties, Mapping) else ())):
        if isinstance(part, Mapping) and isinstance(definitions := part.get("$defs"), Mapping):
            return definitions
    return {}


def _resolved(schema: Any, definitions: Mapping[str, Any]) -> Any:
    """Follow a reference to `$defs`."""
    reference = schema.get("$ref") if isinstance(schema, Mapping) else None
    if isinstance(reference, str) and reference.startswith("#/$defs/"):
        return definitions.get(reference.removeprefix("#/$defs/"))
    return schema


def taken_spans(
    value: Any, schema: Any, text: str, today: date, order: Order | None = None
) -> dict[str, str]:
    """Return the text of the span that each value was read from, by JSON Pointer: the first that fits."""
    spans, taken = TextSpans(text, today, _definitions(schema), order), dict[str, str]()

    def visit(value: Any, schema: Any, name: str, pointer: str) -> None:
        schema = _resolved(schema, spans.definitions)
        if isinstance(value, Mapping) and isinstance(schema, Mapping):
            for key, member in value.items():
                inner = schema.get("properties", {}).get(key)
                visit(member, inner, key, child_pointer(pointer, key))
        elif isinstance(value, list) and isinstance(schema, Mapping):
            for index, item in enumerate(value):
                visit(item, schema.get("items"), name, f"{pointer}/{index}")
        elif isinstance(schema, Mapping) and value is not None:
            fitting = (span for span in spans.of_field(name, schema) or () if span.value == value)
            if span := next(fitting, None):
                taken[pointer] = text[span.start : span.end]

    visit(value, schema, "", "")
    return taken
