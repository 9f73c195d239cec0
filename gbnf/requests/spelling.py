"""The texts, numbers and lists of a call as its request has them: rules, each with an example. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any, Final, Self, TypeAlias, TypeVar

from gbnf.requests import wording
from gbnf.requests.phrases import PATH, QUOTED
from gbnf.requests.texts import MOST_WORDS, each_text, texts_in
from gbnf.requests.values import LONGEST_REQUEST, PLAIN_NUMBER, TERM, names_in, paths_in

_UTC: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::00)?(?:Z|\+00:00)")
_ZONE: Final = re.compile(r"\b(?:utc|gmt)\b|\dz\b|[+-]\d\d:?\d\d\b", re.IGNORECASE)
_MARKUP: Final = re.compile(r"\s*<[^<>]*>(?:[^<>]*<[^<>]*>)?\s*")
_TWO_NUMBERS: Final = re.compile(r"(?<![\d.,])(?=(\d{1,9}),(?!\d{3}\b)(\d{1,9})\b\s*(?:,|and|or|e|o)\s*\d)")


@dataclass(frozen=True, slots=True)
class _Said:
    """What a request, results so far, and a call say of each text of the call.

    `known`: words of the request and of the results. `calculation`: see `_calculation`. `dictated`: the texts
    that are to be written, and whether the request calls them so, "the text milk". `texts`: those of the
    call, the longest first.
    """

    request: str
    known: frozenset[str]
    paths: tuple[str, ...]
    names: tuple[str, ...]
    calculation: tuple[str, list[str], bool]
    dictated: list[tuple[str, bool]]
    texts: tuple[str, ...] = ()

    @classmethod
    def by(cls, request: str, results: str) -> Self:
        """Return what a request and results say."""
        known = frozenset(TERM.findall(f"{request}\n{results}".casefold()))
        paths = tuple(paths_in(request).values())
        matches = wording.DICTATED.finditer(request)
        dictated = [(match["text"], match["marker"] is not None) for match in matches]
        return cls(request, known, paths, names_in(request), _calculation(request), dictated)

    def texts_inside(self, text: str) -> list[str]:
        """Return the other texts of the call that a text has in it."""
        return [other for other in self.texts if other != text and len(other) > 1 and other in text]


_Value = TypeVar("_Value")
_Rule: TypeAlias = Callable[[_Value, _Said], _Value | None]
"""Returns a value as it should be; None if the rule does not apply."""


def as_requested(arguments: Mapping[str, Any], request: str, results: str = "") -> dict[str, Any]:
    """Return the arguments of a call with their texts, numbers and lists as the request has them.

    `results`: those so far. The rules are applied in groups, in the order of the lists below; of each group,
    the first that applies decides.
    """
    said = _Said.by(request[:LONGEST_REQUEST], results)

    def selected(items: list[Any]) -> list[Any]:
        is_texts = all(isinstance(item, str) for item in items)
        return (_first(_OF_LISTS, items, said) if is_texts else None) or items

    def completed(text: str, _name: str) -> str:
        return _first(_COMPLETING, text, said) or text

    arguments = each_text(arguments, completed, selected, _first_numbers(said.request))
    said = replace(said, texts=tuple(sorted(texts_in(arguments), key=len, reverse=True)))

    def spelled(text: str, _name: str) -> str:
        if (replaced := _first(_REPLACING, text, said)) is not None:
            return replaced
        text = _without_others(text, said)
        return _first(_SPELLING, text, said) or text

    return dict(each_text(arguments, spelled))


def _first(rules: Iterable[_Rule[_Value]], value: _Value, said: _Said) -> _Value | None:
    """Return what the first rule that applies makes of a value; None if there is none."""
    return next((new for rule in rules if (new := rule(value, said)) is not None), None)


def _without_zone(text: str, said: _Said) -> str | None:
    """Drop the zone of 2026-01-05T09:00:00Z, for a request without one."""
    is_universal = said.request and _UTC.fullmatch(text) and not _ZONE.search(said.request)
    return text[: len("2026-01-05T09:00")] if is_universal else None


def _whole_path(text: str, said: _Said) -> str | None:
    """Complete `draft.txt` to `old/draft.txt`, where the request names it only so."""
    owners = [path for path in said.paths if path.endswith(f"/{text}")] if text else []
    return owners[0] if owners and said.request.count(text) == said.request.count(owners[0]) else None


def _first_numbers(request: str) -> dict[int, int]:
    """Return the first of two numbers of a list by what they are together: 5 by 510, of "5,10 and 15"."""
    joined = {int(match[1] + match[2]): int(match[1]) for match in _TWO_NUMBERS.finditer(request)}
    integers = {int(digits) for digits in re.findall(r"\b\d{1,18}\b", request)}
    return {number: first for number, first in joined.items() if number not in integers}


def _as_interval(items: list[Any], said: _Said) -> list[Any] | None:
    """Join 14:00 and 16:30 to 14:00/16:30, for "from 14:00 to 16:30"."""
    ranges = [[time.zfill(5) for time in times] for times in wording.TIME_RANGE.findall(said.request)]
    is_range = len(items) == 2 and [item[-5:] for item in items] in ranges
    return ["/".join(items)] if is_range else None


def _without_invented(items: list[Any], said: _Said) -> list[Any] | None:
    """Drop `may.csv` of a list with `jan1.csv`, if neither the request nor a result has it.

    If what stays has digits or addresses: other words may be worded in other ways.
    """
    parts = {item: TERM.findall(item.casefold()) for item in items}
    supported = [item for item in items if parts[item] and said.known.issuperset(parts[item])]
    return supported if any(re.search(r"[\d@]", item) for item in supported) else None


def _as_calculated(text: str, said: _Said) -> str | None:
    """Replace 18 / 250 by 18 / 100 * 250, for "18 % of 250", or 10 + 5 by all of "10 plus 5 times 4"."""
    if not _ARITHMETIC.fullmatch(text):
        return None
    calculation, numbers, is_all = said.calculation
    written = sorted(PLAIN_NUMBER.findall(text))
    is_part = is_all and len(written) > 1 and set(written) < set(numbers)
    return calculation if calculation and (written == numbers or is_part) else None


def _as_quoted(text: str, said: _Said) -> str | None:
    """Replace `write "buy oats" to list.txt` by `buy oats`, beside the text list.txt."""
    if not said.texts_inside(text):
        return None
    quotes = (match[0][1:-1] for match in QUOTED.finditer(said.request))
    return next((quote for quote in quotes if quote in text and quote not in said.texts), None)


def _without_markup(text: str, said: _Said) -> str | None:
    """Replace `<pen/>` by `pen`, for "type 'pen' in list.xml", unless the request speaks of markup."""
    if not _MARKUP.fullmatch(text) or wording.MARKUP.search(PATH.sub(" ", said.request)):
        return None
    quotes = (match[0][1:-1] for match in QUOTED.finditer(said.request))
    return next((quote for quote in quotes if TERM.findall(quote) == TERM.findall(text)), None)


def _without_others(text: str, said: _Said) -> str:
    """Shorten `buy oats to list.txt` to `buy oats` beside list.txt; `Chicago, IL` to Chicago beside IL."""
    for other in said.texts_inside(text):
        rest = text.removesuffix(other)
        destination = wording.BEFORE_DESTINATION.search(rest) if len(rest) < len(text) else None
        if destination and destination.start():
            text = rest[: destination.start()]
        elif rest.endswith(", ") and text in said.names:
            text = rest[:-2]
    return text


def _instead_of_request(text: str, said: _Said) -> str | None:
    """Replace the request itself by the only text that it dictates."""
    written, asked = (TERM.findall(part.casefold()) for part in (text, said.request))
    return said.dictated[0][0] if len(said.dictated) == 1 and written == asked else None


def _as_dictated(text: str, said: _Said) -> str | None:
    """Replace `honey and oats` by `oats and honey`, for "save the text oats and honey to list.txt".

    Also a text that begins with it, or has it, unless it describes a text: "write a poem to a.txt".
    """
    words = frozenset(TERM.findall(said.request.casefold()))
    return next(
        (
            phrase
            for phrase, is_marked in said.dictated
            if _means(text, phrase, words) or _has_dictated(text, phrase, said.known, is_marked=is_marked)
        ),
        None,
    )


def _in_its_case(text: str, said: _Said) -> str | None:
    """Write `NOTES.TXT` as `notes.txt`, for "read notes.txt"."""
    request, lower = said.request, said.request.lower()
    start = lower.find(text.lower())
    is_same = text and len(lower) == len(request) and len(text.lower()) == len(text)
    return request[start : start + len(text)] if start >= 0 and is_same and text not in request else None


_COMPLETING: Final[tuple[_Rule[str], ...]] = (_without_zone, _whole_path)
_OF_LISTS: Final[tuple[_Rule[list[Any]], ...]] = (_as_interval, _without_invented)
_REPLACING: Final[tuple[_Rule[str], ...]] = (_as_calculated, _as_quoted, _without_markup)
"""Where none of them applies, a text loses other texts of the call at its end."""
_SPELLING: Final[tuple[_Rule[str], ...]] = (_instead_of_request, _as_dictated, _in_its_case)


def dictates(request: str) -> bool:
    """Return whether a request says what to write to a file: put 'call mom' into mom.txt."""
    return wording.DICTATED.search(QUOTED.sub("it", request[:LONGEST_REQUEST])) is not None


_ARITHMETIC: Final = re.compile(r"(?=.*\d\W+\d)[\d\s.+*/%()=×÷−-]{1,60}")


_SIGNS: Final = {r"\*\*|\^": "**", "[*×]": "*", "÷": "/", r"\+": "+"} | {
    words: expression.split()[1]
    for words, expression in wording.OPERATIONS.items()
    if expression.count(" ") == 2
}
_SIGN: Final = re.compile(rf"\s*(?:{'|'.join(f'({sign})' for sign in _SIGNS)})\s*", re.IGNORECASE)
_CHAIN: Final = re.compile(
    rf"(?<![\w.,/-]){PLAIN_NUMBER.pattern}(?:{_SIGN.pattern}{PLAIN_NUMBER.pattern})+(?![\w/-]|[.,]\d|\s?%)",
    re.IGNORECASE,
)


def _expression(request: str, chain: re.Match[str]) -> str:
    """Return the expression of numbers and operations that follow one another in a request."""
    parts, start, operators = [], chain.start(), tuple(_SIGNS.values())
    for sign in _SIGN.finditer(request, chain.start()):
        if sign.end() > chain.end():
            break
        parts += [request[start : sign.start()], operators[(sign.lastindex or 1) - 1]]
        start = sign.end()
    return " ".join([*parts, request[start : chain.end()]])


def _calculation(request: str) -> tuple[str, list[str], bool]:
    """Return the only calculation of a request, 10 plus 5 times 4, or 18 % of 250; "" if there is none.

    Also its numbers, sorted, and whether a call with fewer of them is a part of it: it has three or more, all
    of the request. Of numbers that the request has twice, nobody knows which are meant.
    """
    chains, in_request = [*_CHAIN.finditer(request)], PLAIN_NUMBER.findall(request)
    if len(chains) == 1 and not wording.OPERATORS.search(_CHAIN.sub("", request)):
        numbers = sorted(PLAIN_NUMBER.findall(chains[0][0]))
        if all(in_request.count(number) == 1 for number in numbers):
            is_all = 2 < len(numbers) == len(in_request) and "(" not in request
            return _expression(request, chains[0]), numbers, is_all
    if len(in_request) == 2 and len(wording.OPERATORS.findall(request)) < 2:
        for words, expression in wording.OPERATIONS.items():
            pattern = rf"(?<![-−+*/^])({PLAIN_NUMBER.pattern}) ?{words} [$€£]?({PLAIN_NUMBER.pattern})"
            if match := re.search(pattern, request, re.IGNORECASE):
                return expression.format(match[1], match[2]), sorted([match[1], match[2]]), False
    return "", [], False


def _means(text: str, dictated: str, words: frozenset[str]) -> bool:
    """Return whether a text has most words of another and no others, or begins with it and adds few."""
    some, every = set(TERM.findall(text.casefold())), set(TERM.findall(dictated.casefold()))
    others = some - every - wording.PREPOSITIONS
    is_beginning = text.casefold().startswith(dictated.casefold())
    is_longer = is_beginning and len(others) <= _MOST_ADDED and others <= words
    return (some <= every or is_longer) and len(some) >= MOST_WORDS * len(every) > 1


_MOST_ADDED: Final = 2
_OF_ANY_TEXT: Final = frozenset({"this", "is", "a", "the", "file", "text", "test", "questo", "un", "di"})


def _has_dictated(text: str, dictated: str, known: frozenset[str], *, is_marked: bool) -> bool:
    """Return whether a text is a sentence about a dictated one: "Milk and bread are great choices".

    `is_marked`: the request calls it a text, "the text milk and bread", which may be anywhere in it.
    Lines of the model's own may follow it, with no word of the request and the results, which are `known`.
    Otherwise one with an article, or that is about something, may describe a text: "a poem about bread".
    """
    every = TERM.findall(dictated.casefold())
    text, _, more = text.partition("\n")
    if more:  # "This is a test file."
        is_own = known.isdisjoint(set(TERM.findall(more.casefold())) - _OF_ANY_TEXT)
        return is_marked and is_own and len(every) > 1 and TERM.findall(text.casefold()) == every
    if PATH.fullmatch(text) or wording.ABOUT.search(dictated):
        return False
    some = TERM.findall(text.casefold())
    if len(every) < 2 or {word for word in some if word.isdigit()} - {*every}:
        return False  # it has a number that the model has computed
    if is_marked:
        return any(some[start : start + len(every)] == every for start in range(len(some) - len(every) + 1))
    is_beginning = text.casefold().startswith(dictated.casefold()) and not wording.DETERMINED.match(dictated)
    return is_beginning and wording.SAYS_OF_IT.match(text[len(dictated) :]) is not None
