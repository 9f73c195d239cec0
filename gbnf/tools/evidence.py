"""Evidence: what a request says of a call's arguments, found in its words, without a model.

A small model fills in optional arguments that nobody asked for, and invents values instead of copying them.
`gather_evidence` finds what the request supports; the decoder gives it a bonus, and refuses nothing
(`gbnf_server.llama.evidence_bias`).

- A string may copy the names, quotes, codes and paths of the request, and a number may be one of its
  numbers: 5 % is 0.05, unless the argument is described as a percentage.
- A request supports an optional argument if they have a word in common, by its stem: of the argument's name,
  of one of its enum values, or two of its description.
- It supports the enum values with the largest share of their words in it, and in a list those with half of
  their words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import date
from decimal import Decimal
from itertools import chain, islice
from typing import Any, Final, Literal, TypeAlias

from gbnf.partial_json import locate
from gbnf.tools.ranking import QUOTED, word_stems
from gbnf.tools.tool import Tool

_DESCRIPTION_WORDS: Final = 2
"""One word that a description shares with a request, such as "the number", says nothing."""
_WORD: Final = re.compile(r"[^\W_]+")
_PATH_NAME: Final = re.compile(r"path|file|folder|director", re.IGNORECASE)
_DATE_FORM: Final = re.compile(r"\b(?:YYYY([-/.])MM\1DD|MM([-/.])DD\2YYYY|DD([-/.])MM\3YYYY)\b")
_EXAMPLES: Final = re.compile(r"(?:\be\.g\.|\bfor example|\bsuch as)(.+)", re.IGNORECASE | re.DOTALL)
_QUOTED_OPTION: Final = re.compile(r"(?<!\w)(['\"`])([^'\"`]{1,40})\1(?!\w)")
_PLAUSIBLE_YEAR: Final = re.compile(r"(?:1[6-9]|20)\d\d")
_LONGEST_REQUEST: Final = 8000  # characters that are searched
_LISTED_SHARE: Final = 0.5
"""Of the words of a list's enum value: "3 goals" supports "goals scored"."""

EvidenceUse: TypeAlias = Literal["all", "values", "arguments", "none"]
"""What gets a bonus: the values that a request supports, the arguments that it supports, both, or nothing."""


@dataclass(frozen=True, slots=True)
class ArgumentEvidence:
    """What a request says of an argument.

    `is_supported`: it is required, or the request mentions it. `choices`: those of its enum values, or of its
    items', that the request supports; without an enum, the texts quoted in its description that the request
    has; of a date whose form is known, the dates of the request. `numbers`: those of the request, as values
    of its type; a number that occurs twice is there twice. `is_affirmed`: it is a boolean that the request
    mentions. `avoided`: its description, and the examples in it that are not in the request. `is_list`: it is
    an array. `is_closed`: it, or its items, have an enum. `is_stated`: the request has a value for it: a
    choice, a number beside its name, or that it should be true. `is_path`: it is called a path, a file or a
    folder.
    """

    is_supported: bool = True
    choices: tuple[str, ...] = ()
    numbers: tuple[str, ...] = ()
    is_affirmed: bool = False
    avoided: tuple[str, ...] = ()
    is_list: bool = False
    is_closed: bool = False
    is_stated: bool = False
    is_path: bool = False


@dataclass(frozen=True, slots=True)
class Evidence:
    """What a request says of the next call.

    `phrases`: names, quotes and codes that string values may be, as may `entries` of earlier results.
    `arguments`: by tool and argument. `likely`, `unlikely`: names of tools that the next call should have or
    not; `callable`: of all that it may have. `used`: by tool, strings and numbers (as JSON) of its
    earlier calls, if the request has others, and the last call took one of that kind. `request`: its text.
    """

    phrases: tuple[str, ...] = ()
    arguments: Mapping[str, Mapping[str, ArgumentEvidence]] = field(default_factory=dict)
    used: Mapping[str, frozenset[str]] = field(default_factory=dict)
    entries: tuple[str, ...] = ()
    request: str = ""
    likely: tuple[str, ...] = ()
    unlikely: tuple[str, ...] = ()
    callable: tuple[str, ...] = ()

    def summary(self) -> dict[str, Any]:
        """Return what is worth showing: texts that the request names, arguments that it does not, tools."""
        known = [
            (f"{tool}.{name}", each)
            for tool, arguments in self.arguments.items()
            for name, each in arguments.items()
        ]
        choices = chain.from_iterable(each.choices for _, each in known)
        return {
            "named": tuple(dict.fromkeys([*self.phrases, *choices])),
            "unmentioned": tuple(name for name, each in known if not each.is_supported),
            "likely": self.likely,
            "unlikely": self.unlikely,
        }


def gather_evidence(
    request: str,
    tools: Iterable[Tool],
    use: EvidenceUse = "all",
    *,
    done: Sequence[Mapping[str, Any]] = (),
    entries: tuple[str, ...] = (),
) -> Evidence | None:
    """Return what a request says of the arguments of tools, as far as it is to be used; None for nothing.

    `done`: earlier calls for the request. The phrases and numbers that they contain are left out, if others
    are left. `entries`: of their results.
    """
    if use == "none":
        return None
    request = request[:_LONGEST_REQUEST]
    said = word_stems.__wrapped__(request)  # not kept: it may be somebody's
    numbers, dates = numbers_in(request), dates_in(request)
    phrases = names_in(request) if use != "arguments" else ()
    written, earlier = _written(done), [_values(call["arguments"]) for call in done]
    used, last = frozenset[str]().union(*earlier), (earlier or [frozenset()])[-1]
    left = tuple(phrase for phrase in phrases if phrase.casefold() not in written)
    left_numbers = tuple(
        each
        for each in numbers
        if used.isdisjoint({each.text, each.share}) and not any(each.text in name.split() for name in phrases)
    )
    takes_numbers = bool(left_numbers) and any(last & {each.text, each.share} for each in numbers)
    goes_on = takes_numbers or (bool(left) and any(phrase in last for phrase in phrases))
    by_tool: dict[str, dict[str, ArgumentEvidence]] = {}
    for tool in tools:
        args = tool.model_args()
        required = {*args.get("required", ()), *chain.from_iterable(args.get("requires_one_of", ()))}
        known = by_tool.setdefault(tool.name, {})
        may_be = left_numbers if takes_numbers and tool.name == done[-1]["name"] else numbers
        for name, schema in args.get("properties", {}).items():
            each = _of_argument(name, schema, request, said, may_be, dates)
            is_supported = each.is_supported or name in required or use == "values"
            values = ArgumentEvidence() if use == "arguments" else each
            known[name] = replace(values, is_supported=is_supported)
    if use == "arguments":
        return Evidence(arguments=by_tool, request=request)
    used_by = {done[-1]["name"]: used} if goes_on else {}
    return Evidence(left or phrases, by_tool, used_by, entries, request)


_FURTHER: Final = re.compile(
    r"\b(?:and|then|also|both|plus|e|ed|poi|anche|und|dann|auch|et|puis|aussi|y|luego|también)\b(?!\.)|[、，；;]",
    re.IGNORECASE,
)
_SENTENCE_END: Final = re.compile(r"[.!?]\s+|\n")


def most_calls(request: str) -> int:
    """Return how many calls a request may take: its parts, by conjunctions, lists and sentences."""
    text = request[:_LONGEST_REQUEST]
    sentences = sum(len(part.split()) > 2 for part in _SENTENCE_END.split(text))
    commas = text.count(",")
    return max(sentences, 1) + len(_FURTHER.findall(text)) + (commas if commas > 1 else 0)


def asks_for_several(request: str) -> bool:
    """Return whether a request may take several calls."""
    return most_calls(request) > 1


def uncovered_values(request: str, calls: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names, quotes, codes and numbers of a request that no call contains."""
    request, written = request[:_LONGEST_REQUEST], _written(calls)
    values = (*names_in(request), *(number.text for number in numbers_in(request)))
    return tuple(value for value in values if value.casefold() not in written)


def is_covered(request: str, calls: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether calls contain all names, quotes, codes and numbers of a request."""
    return not uncovered_values(request, calls)


_GROUP: Final = re.compile(r"\d+|[^\W\d_]{2,}")
_DESTINATION: Final = re.compile(
    r"(?:\s|[,:;])+(?:to|in|into|as|at|for|a|nel|nella|su|come|per)\s*$", re.IGNORECASE
)


def as_requested(arguments: Mapping[str, Any], request: str, known: str = "") -> dict[str, Any]:
    """Return the arguments of a call with their texts as the request spells them.

    A text that is only the end of a path of the request becomes that path; one that has another text of the
    call after a preposition at its end loses it, as in "buy oats to list.txt", or becomes the text that the
    request quotes in it; and a text that the request has in other letter case is written as there. A list
    some of whose texts are in the request has none that are neither there nor in `known`, the results so
    far, if the first ones have digits or are addresses.
    """
    request = request[:_LONGEST_REQUEST]
    paths = [match[0].rstrip(".,;?!)") for match in _PATH.finditer(request)]
    quotes = [match[0][1:-1] for match in QUOTED.finditer(request)]
    groups = frozenset(_GROUP.findall(f"{request}\n{known}".casefold()))

    def completed(text: str) -> str:
        owners = [path for path in paths if path.endswith(f"/{text}")] if text else []
        return owners[0] if owners and request.count(text) == request.count(owners[0]) else text

    def spelled(text: str) -> str:
        inside = [other for other in texts if other != text and len(other) > 1 and other in text]
        if inside and (quoted := [quote for quote in quotes if quote in text and quote not in texts]):
            return quoted[0]
        for other in inside:
            rest = text.removesuffix(other)
            if len(rest) < len(text) and (destination := _DESTINATION.search(rest)) and destination.start():
                text = rest[: destination.start()]
        start = request.lower().find(text.lower())
        is_same = text and len(request.lower()) == len(request) and len(text.lower()) == len(text)
        return request[start : start + len(text)] if start >= 0 and is_same and text not in request else text

    def supported(items: list[Any]) -> list[Any]:
        if not all(isinstance(item, str) for item in items):
            return items
        parts = {item: _GROUP.findall(item.casefold()) for item in items}
        kept = [item for item in items if parts[item] and groups.issuperset(parts[item])]
        return kept if any(re.search(r"[\d@]", item) for item in kept) else items

    arguments = _each_text(arguments, completed, supported)
    texts = sorted(_texts_in(arguments), key=len, reverse=True)
    return dict(_each_text(arguments, spelled))


def _each_text(
    value: Any, change: Callable[[str], str], select: Callable[[list[Any]], list[Any]] = list
) -> Any:
    match value:
        case str():
            return change(value)
        case Mapping():
            return {key: _each_text(member, change, select) for key, member in value.items()}
        case list():
            return [_each_text(member, change, select) for member in select(value)]
    return value


def _texts_in(value: Any) -> frozenset[str]:
    match value:
        case str():
            return frozenset((value,))
        case Mapping():
            return frozenset[str]().union(*map(_texts_in, value.values()))
        case list():
            return frozenset[str]().union(*map(_texts_in, value))
    return frozenset()


def times_in(request: str) -> int:
    """Return how many times of day, dates or days of the week a request names, the most of these."""
    text = request[:_LONGEST_REQUEST]
    return max(len({*pattern.findall(text.casefold())}) for pattern in _TIMES)


_TIMES: Final = (
    re.compile(r"\b\d{1,2}[:.]\d\d\b|\b\d{1,2}\s?(?:am|pm)\b"),
    re.compile(r"\b\d{4}-\d\d-\d\d\b|\b\d{1,2}/\d{1,2}(?:/\d{2,4})?\b"),
    re.compile(r"\b(?:monday|tuesday|wednesday|thursday|friday|saturday|sunday|today|tomorrow)\b"),
    re.compile(r"\b(?:lunedi|martedi|mercoledi|giovedi|venerdi|sabato|domenica|oggi|domani)\b"),
)


_LISTED: Final = re.compile(r"(?:\s|[,;/&$€£%]|\b(?:and|or|then|e|o|und|et|y)\b)*", re.IGNORECASE)
_ITEM: Final = r"[^\s,;?!\"'()]*[^\s,;?!\"'().]"
_WORD_LIST: Final = re.compile(
    rf"{_ITEM}(?:, {_ITEM})*,? (?:and|or) {_ITEM}"
    r"(?=\.?$|[?.!,;]\s|[?!]$| (?:for|in|at|of|from|with|on|to|respectively)\b)"
)
_BESIDE: Final = re.compile(r"\s?([^\W\d_]+|%)?")


def with_values_left(tool: Tool, request: str, done: Sequence[Mapping[str, Any]]) -> Tool:
    """Return a tool whose next call has values of a request that the calls `done` do not have.

    Those arguments take one whose last value is listed with values that are left, or has the same unit, as in
    "10, 20 and 30 years" or "a radius of 5 m, then 6 m". The tool as it is, if it was not called last or
    there are none.
    """
    if not done or done[-1]["name"] != tool.name:
        return tool
    request, last = request[:_LONGEST_REQUEST], done[-1]["arguments"]
    used = frozenset[str]().union(*(_values(call["arguments"]) for call in done))
    candidates: dict[str, list[Any]] = {}
    for name, schema in tool.args.get("properties", {}).items():
        is_text = schema.get("type") == "string"
        value = next(iter(_values({name: last.get(name)})), "")
        numbers = [number.text for number in numbers_in(request)]
        listed = _listed_with(request, value) if is_text else []
        names = (name.removesuffix("'s").removesuffix("’s") for name in names_in(request))
        texts = (*names, *listed) if is_text else numbers
        left = [text for text in dict.fromkeys(texts) if text not in used] if value in texts else []
        related = [text for text in left if text in listed or _is_related(request, value, text)]
        related = [text for text in related if text in schema.get("enum", related)]
        if related and schema.get("type") in {"string", "integer", "number"}:
            candidates[name] = related if is_text else [json.loads(text) for text in related]
    if not candidates:
        return tool
    for each in list(candidates.values()):
        alike = [name for name in candidates if candidates[name] == each]
        if len(alike) == len(each) > 1:  # in the order of the last values: 3 and 4, then 5 and 12
            alike.sort(key=lambda name: request.find(str(last[name])))
            candidates |= {name: [value] for name, value in zip(alike, each, strict=True)}
    values = {
        "properties": {name: {"enum": each} for name, each in candidates.items()},
        "required": list(candidates),
    }
    return replace(tool, args={**tool.args, "allOf": [*tool.args.get("allOf", ()), values]})


def _listed_with(request: str, word: str) -> list[str]:
    """Return the words of the list that has a word: gold, silver and iron."""
    lists = (_WORD_LIST.finditer(request)) if word else ()
    found = (re.findall(_ITEM, each[0].replace(" and ", ", ").replace(" or ", ", ")) for each in lists)
    return next(([text for text in words if len(text) > 1] for words in found if word in words), [])


def _is_related(request: str, used: str, left: str) -> bool:
    """Return whether two values of a request are in one list, or have the same unit."""
    found = [re.search(rf"(?<![\w.]){re.escape(text)}(?![\d_]|\.\d)", request) for text in (used, left)]
    first, second = found
    if not first or not second or (not left[0].isdigit() and (used in left or left in used)):
        return False
    units = [_BESIDE.match(request, each.end()) for each in found if each]
    signs = [request[each.start() - 1 : each.start()] for each in found if each]
    if (units[0] and units[1] and units[0][1] and units[0][1] == units[1][1]) or (
        signs[0] == signs[1] and signs[0] in {"$", "€", "£"}
    ):
        return True
    between = request[min(first.end(), second.end()) : max(first.start(), second.start())]
    return _LISTED.fullmatch(re.sub(r"[\d.]+", "", between)) is not None


def takes_more(request: str, call: Mapping[str, Any], earlier: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether a call has a value of a request, by its words, that earlier calls do not have."""

    def words_of(calls: Iterable[Mapping[str, Any]]) -> Iterator[set[str]]:
        for each in calls:
            yield from (set(_GROUP.findall(value.casefold())) for value in _values(each["arguments"]))

    said, used = set(_GROUP.findall(request.casefold())), set[str]().union(*words_of(earlier))
    return any(words <= said and words - used for words in words_of([call]))


def _written(calls: Sequence[Mapping[str, Any]]) -> str:
    """Return calls in lower case, with their names: a request for Spotify calls spotify.play."""
    return json.dumps(calls, ensure_ascii=False).casefold()


def _values(arguments: Mapping[str, Any]) -> frozenset[str]:
    """Return the strings in arguments, and the numbers as JSON."""
    scalars = [each for _, each, _ in locate(json.dumps(arguments, ensure_ascii=False)).scalars]
    return frozenset(each[1:-1] if each[0] == '"' else each for each in scalars if not each.isalpha())


def _of_argument(
    name: str,
    schema: Any,
    request: str,
    said: frozenset[str],
    numbers: tuple[RequestNumber, ...],
    dates: tuple[date, ...],
) -> ArgumentEvidence:
    known = schema if isinstance(schema, Mapping) else {}
    is_list = known.get("type") == "array"
    items = known.get("items") if is_list else known
    item = items if isinstance(items, Mapping) else {}
    is_named = bool(said & word_stems(name))
    choices = _named_choices(said, item.get("enum"), is_list=is_list)
    if item.get("type") == "string" and "enum" not in item:
        quoted = [text for _, text in _QUOTED_OPTION.findall(str(known.get("description")))]
        choices = _named_choices(said, quoted, least=1)
    if form := _date_form(item):
        choices = tuple(dict.fromkeys(day.strftime(form) for day in dates))
    values = tuple(_as_values(numbers, item.get("type"), f"{name} {known.get('description')}"))
    is_named |= "year" in name.lower() and any(_PLAUSIBLE_YEAR.fullmatch(value) for value in values)
    is_affirmed = is_named and known.get("type") == "boolean"
    return ArgumentEvidence(
        is_named or bool(choices) or _is_described(said, known),
        choices,
        values,
        is_affirmed,
        _examples(known, request),
        is_list,
        "enum" in item,
        bool(choices) or is_affirmed or (is_named and bool(values)),
        bool(_PATH_NAME.search(name)),
    )


def _as_values(numbers: Iterable[RequestNumber], kind: Any, about: str) -> Iterator[str]:
    """Yield numbers as values of a type."""
    for number in numbers:
        if kind == "number" and number.share and "percent" not in about and "%" not in about:
            yield number.share
        elif kind == "number" or (kind == "integer" and "." not in number.text):
            yield number.text


def _named_choices(
    said: frozenset[str], choices: Any, *, is_list: bool = False, least: float = 0
) -> tuple[str, ...]:
    """Return the choices that a request supports, with `least` of their words or more."""
    shares: dict[str, float] = {}
    for value in choices if isinstance(choices, list) else ():
        words = [stems for word in _WORD.findall(str(value)) if (stems := word_stems(word))]
        if isinstance(value, str) and words:
            shares[value] = sum(not said.isdisjoint(stems) for stems in words) / len(words)
    most = max(shares.values(), default=0)
    least = max(least, min(most, _LISTED_SHARE) if is_list else most)
    return tuple(value for value, share in shares.items() if share >= least > 0)


def _date_form(schema: Mapping[str, Any]) -> str:
    """Return the form of a date as `strftime` takes it, if its format or description says it; else ""."""
    described = str(schema.get("description", ""))
    if schema.get("type") != "string":
        return ""
    if form := _DATE_FORM.search(described):
        return form[0].replace("YYYY", "%Y").replace("MM", "%m").replace("DD", "%d")
    return "%Y-%m-%d" if schema.get("format") == "date" else ""


def _examples(schema: Mapping[str, Any], request: str) -> tuple[str, ...]:
    """Return the description of an argument, and the names in its examples that a request does not have."""
    described = schema.get("description")
    if not isinstance(described, str):
        return ()
    examples = _EXAMPLES.search(described)
    # a first word with a capital letter does not begin a sentence here
    names = names_in(f"such as {examples[1].strip()}") if examples else ()
    return (described, *(name for name in names if name.casefold() not in request.casefold()))


def _is_described(said: frozenset[str], schema: Mapping[str, Any]) -> bool:
    """Return whether the description of an argument has enough words of the request, in any language."""
    described = schema.get("description", "")
    texts = described.values() if isinstance(described, Mapping) else (described,)
    return any(len(said & word_stems(text)) >= _DESCRIPTION_WORDS for text in texts if isinstance(text, str))


_CAPITALIZED: Final = r"[^\W\d_a-zß-öø-ÿ][\w.'’&-]*"
_NAME: Final = re.compile(
    rf"(?<!\w)(?P<number>\d+ )?{_CAPITALIZED}(?:(?:,? | of (?:the )?){_CAPITALIZED})*"
    r"(?: \d{1,3}(?=[,.;:?!)]|$))?"
)
_CODE: Final = re.compile(r"(?<!\S)(?=\S{0,40}\d)(?=\S{0,40}[^\W\d_])\w\S*|(?<!\S)\d+[-/:]\d\S*")
_PATH: Final = re.compile(
    r"(?<![^\s('\"])[~./]?(?=[\w-]{0,80}[^\W\d])[\w-]{1,80}[/@_.\\][\w/@_.\\-]*\w|(?<!\S)[~.]?/[\w/@_.-]*\w"
)
_NUMBER: Final = re.compile(
    r"""(?<![\w.])(?P<sign>[-−]?)[$€£¥]?(?P<whole>\d{1,3}(?:,\d{3})+|\d+)(?P<fraction>\.\d+)?(?!\.?\d)
    (?P<power>e[+-]?\d{1,2}\b)?(?:\s*(?P<unit>%|(?:percent|k|thousand|million|M|billion|bn)\b))?""",
    re.VERBOSE | re.IGNORECASE,
)
_POWERS_OF_TEN: Final = {"k": 3, "thousand": 3, "million": 6, "m": 6, "billion": 9, "bn": 9}
_NUMBER_WORDS: Final = {
    word: str(number)
    for number, word in enumerate(
        ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve"], 1
    )
}
_MONTHS: Final = {
    name: number
    for names in (
        "january february march april may june july august september october november december",
        "jan feb mar apr may jun jul aug sep oct nov dec",
        "gennaio febbraio marzo aprile maggio giugno luglio agosto settembre ottobre novembre dicembre",
    )
    for number, name in enumerate(names.split(), 1)
}
_MONTH, _DAY, _YEAR = (
    rf"(?P<month>{'|'.join(_MONTHS)})\b\.?",
    r"(?P<day>\d{1,2})(?:st|nd|rd|th)?\b",
    r"(?P<year>\d{4})\b",
)
_DATES: Final = tuple(
    re.compile(rf"\b{text}", re.IGNORECASE)
    for text in (
        rf"{_MONTH}\s*{_DAY},?\s*{_YEAR}",
        rf"{_DAY}\s+(?:of\s+)?{_MONTH},?\s*{_YEAR}",
        rf"{_YEAR},?\s+{_MONTH}\s*{_DAY}",
        r"(?P<year>\d{4})[-/](?P<month>\d{1,2})[-/](?P<day>\d{1,2})\b",
    )
)
_WEEKDAYS: Final = ("monday", "tuesday", "wednesday", "thursday", "friday", "saturday", "sunday")
_NO_NAMES: Final = frozenset(("i", "may", *_WEEKDAYS, *(name for name in _MONTHS if len(name) > 3)))
"""Dates are written as a tool wants them."""

_MOST: Final = 200
"""Names, and numbers, of a request. Each is compared with a value at each of its tokens."""
_MOST_DIGITS: Final = 20


@dataclass(frozen=True, slots=True)
class RequestNumber:
    """A number of a request, as JSON. `share`: of a percentage, as a part of one, such as 0.05; else ""."""

    text: str
    share: str = ""


def names_in(request: str) -> tuple[str, ...]:
    """Return what a person would not word otherwise, each once: at most 200.

    Quoted text; words with a capital letter, except at the start of a sentence, with a number; codes,
    paths and addresses. Of a name with a comma, and of a path with one slash, also the parts.
    """
    return tuple(islice(dict.fromkeys(_names(request)), _MOST))


def _names(request: str) -> Iterator[str]:
    yield from (quoted[0][1:-1] for quoted in QUOTED.finditer(request))
    unquoted = QUOTED.sub(" ", request)
    for name in _NAME.finditer(unquoted):
        text = name[0].rstrip(".,'’")
        first, _, others = text.partition(" ")
        before = unquoted[max(name.start() - 8, 0) : name.start()].rstrip(" ")
        begins = before[-1:] in {"", ".", "?", "!", ":", "\n"} and not name["number"]
        if begins and first[1:] == first[1:].lower():
            text = others.removeprefix("of ").removeprefix("the ")  # its capital letter begins a sentence
        words = text.removeprefix(name["number"] or "").split()
        if words and words[0].casefold().rstrip(",") not in _NO_NAMES:
            if len(words) > 1 or not name["number"]:
                yield text
            yield " ".join(words)
            yield from (text[: comma.start()] for comma in re.finditer(",", text))
    for path in chain(_CODE.finditer(unquoted), _PATH.finditer(unquoted)):
        text = path[0].rstrip(".,;?!)")
        if text not in {"e.g", "i.e"}:
            yield text
            owner, slash, name_there = text.partition("/")
            if slash and owner.isidentifier() and name_there and "/" not in name_there:
                yield from (owner, name_there)


def numbers_in(request: str) -> tuple[RequestNumber, ...]:
    """Return the numbers of a request in its order: $10,000, 8.5 million, -3, 5 %, two; at most 200."""
    return tuple(islice(_numbers(request), _MOST))


def _numbers(request: str) -> Iterator[RequestNumber]:
    for found in _NUMBER.finditer(request):
        if len(found["whole"]) > _MOST_DIGITS or len(found["fraction"] or "") > _MOST_DIGITS:
            continue
        unit = (found["unit"] or "").casefold()
        digits = found["whole"].replace(",", "") + (found["fraction"] or "")
        if found["power"]:
            yield RequestNumber(str(float(f"{found['sign']}{digits}{found['power']}".replace("−", "-"))))
            continue
        value = Decimal(digits)
        value = (-value if found["sign"] else value).scaleb(_POWERS_OF_TEN.get(unit, 0))
        yield RequestNumber(
            _decimal_text(value), _decimal_text(value / 100) if unit in {"%", "percent"} else ""
        )
    for word in re.findall(r"\w+", request):
        if word.casefold() in _NUMBER_WORDS:
            yield RequestNumber(_NUMBER_WORDS[word.casefold()])


def dates_in(request: str) -> tuple[date, ...]:
    """Return the dates of a request that have a year, in its order: March 5th, 2026; 2026/3/5."""
    found = {}
    for pattern in _DATES:
        for match in islice(pattern.finditer(request), _MOST):
            month = match["month"].casefold()
            with suppress(ValueError):  # no such day
                found[match.start()] = date(
                    int(match["year"]), _MONTHS.get(month) or int(month), int(match["day"])
                )
    return tuple(found[start] for start in sorted(found))


def _decimal_text(value: Decimal) -> str:
    """Write a number as JSON does, without zeros at its end."""
    text = format(value, "f")
    return text.rstrip("0").rstrip(".") if "." in text else text
