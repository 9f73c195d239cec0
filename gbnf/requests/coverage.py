"""What calls have of a request, and what of it is left for others. Pure.

`with_values_left` and others restrict the schema of the next call by it; the planner ends a run by it
(`gbnf_server.planner.small_models.progress`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from typing import Any, Final

from gbnf.partial_json import locate
from gbnf.requests import wording
from gbnf.requests.phrases import ADDRESS, QUOTED
from gbnf.requests.values import FOLDER_ARGUMENT, LONGEST_REQUEST, TERM, names_in, numbers_in
from gbnf.strict_json import json_of
from gbnf.tools.tool import Tool


def uncovered_values(request: str, calls: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names, quotes, codes and numbers of a request that no call contains.

    The length of a list in a call counts as a number of it, and so does how many calls there are: three
    folders, two circles.
    """
    request, written = request[:LONGEST_REQUEST], calls_text(calls)
    lists = (value for call in calls for value in call["arguments"].values() if isinstance(value, list))
    counts = {*(str(len(value)) for value in lists), *([str(len(calls))] if len(calls) > 1 else [])}
    unquoted = QUOTED.sub(" ", request)  # a quote is a name as a whole: "two tickets"
    numbers = (number for number in numbers_in(unquoted) if not number.share or number.share not in written)
    values = (*names_in(request), *(number.text for number in numbers if number.text not in counts))
    # a city stands for itself: Chicago, Illinois
    return tuple(value for value in values if value.casefold().partition(", ")[0].lstrip("/") not in written)


def is_covered(request: str, calls: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether calls contain all names, quotes, codes and numbers of a request."""
    return not uncovered_values(request, calls)


def has_values_for_another(request: str, calls: Sequence[Mapping[str, Any]], about: str) -> bool:
    """Return whether values are left for another call like the last: numbers, names, or both.

    The last call took some of them. After the first one, either is enough, since both calls may share the
    others. `about`: a text of the tool, whose words name nothing: the Pythagorean theorem.
    """
    before, rest = (set(uncovered_values(request, some)) for some in (calls[:-1], calls))
    words = {*TERM.findall(about.casefold())}
    rest = {value for value in rest if not words.issuperset(TERM.findall(value.casefold()))}
    taken_kinds, left_kinds = ({value[-1:].isdigit() for value in values} for values in (before - rest, rest))
    return bool(taken_kinds and left_kinds) and (len(calls) == 1 or taken_kinds <= left_kinds)


_ITEM: Final = r"[^\s,;?!\"'()]*[^\s,;?!\"'().]"
_WORD_LIST: Final = re.compile(
    rf"(?<![^\s,;?!\"'()]){_ITEM}(?:, {_ITEM}){{0,20}},? (?:and|or) {_ITEM}"  # at most so many: linear time
    r"(?=\.?$|[?.!,;]\s|[?!]$| (?:for|in|at|of|from|with|on|to|respectively)\b)"
)
_WORDS: Final = r"(?:[^\s,;:.?!\"]+ ){0,2}[^\s,;:.?!\"]+"
_PHRASE_LIST: Final = re.compile(
    # the first match of the lookahead is kept, for linear time: Python 3.11.4 matches {1,20}+ wrongly
    rf"(?<!\S)(?=(?P<first>{_WORDS}(?:, (?!and |or ){_WORDS}){{1,20}}))(?P=first), (?:and|or) "
    rf"(?P<last>(?:[^\s,;:.?!\"]+ ){{0,2}}?[^\s,;:.?!\"]+)"
    r"(?=\.?$|[?.!,;]\s|[?!]$| (?:for|in|at|of|from|with|on|to|and|respectively)\b)"
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
    request, last = request[:LONGEST_REQUEST], done[-1]["arguments"]
    used = frozenset[str]().union(*(argument_values(call["arguments"]) for call in done))
    candidates: dict[str, list[Any]] = {}
    for name, schema in tool.args.get("properties", {}).items():
        is_text = schema.get("type") == "string"
        value = next(iter(argument_values({name: last.get(name)})), "")
        value = value if is_text else _WHOLE.sub("", value)
        numbers = [number.text for number in numbers_in(request)]
        listed = _listed_with(request, value) if is_text else []
        names = (name.removesuffix("'s").removesuffix("’s") for name in names_in(request))
        texts = (*names, *listed) if is_text else numbers
        unused = (text for text in dict.fromkeys(texts) if not _is_used(text, used))
        choices = list(unused) if value in texts else []
        related = [text for text in choices if text in listed or _is_related(request, value, text)]
        related = [text for text in related if text in schema.get("enum", related)]
        if related and schema.get("type") in {"string", "integer", "number"}:
            candidates[name] = related if is_text else [json.loads(text) for text in related]
    for enum in list(candidates.values()):
        alike = [name for name in candidates if candidates[name] == enum]
        if len(alike) == len(enum) > 1:  # in the order of the last values: 3 and 4, then 5 and 12
            alike.sort(key=lambda name: request.find(str(last[name])))
            candidates |= {name: [value] for name, value in zip(alike, enum, strict=True)}
    values = {name: {"enum": enum} for name, enum in candidates.items()}
    return _restricted(tool, values, required=list(candidates))


_WHOLE: Final = re.compile(r"(?<=\d)\.0+$")
_DECIMAL: Final = re.compile(r"-?\d+\.?\d*")


def _is_used(text: str, used: Iterable[str]) -> bool:
    """Return whether a value has a text of the request: "Sacramento" is in "Sacramento, California"."""
    words = re.compile(rf"(?<![\w.]){re.escape(text)}(?!\w|\.(?!0+(?!\d))\d)")  # 6 is in 6.0
    return any(words.search(value) for value in used)


def with_entries(tool: Tool, argument: str, entries: Sequence[str]) -> Tool:
    """Return a tool whose list `argument` takes only entries of results, if there are some."""
    if not entries or tool.args.get("properties", {}).get(argument, {}).get("type") != "array":
        return tool
    return _restricted(tool, {argument: {"items": {"enum": list(dict.fromkeys(entries))}}})


def with_named_folders(tool: Tool, request: str) -> Tool:
    """Return a tool that searches a folder which the request names, by any of its words, or all folders."""
    request = request[:LONGEST_REQUEST]
    names = list(dict.fromkeys([".", *names_in(request), *_FOLDER_NAME.findall(request)]))[:_MOST_FOLDERS]
    properties = tool.args.get("properties", {})
    folders = {name: {"enum": names} for name in properties if FOLDER_ARGUMENT.fullmatch(name)}
    return _restricted(tool, {name: values for name, values in folders.items() if _is_text(properties[name])})


def with_known_addresses(tool: Tool, context: str, request: str = "") -> Tool:
    """Return a tool whose email addresses are those of `context`, such as the request and the results.

    A text that may also be something else, such as "me", still may, unless the `request` has an address and
    does not speak of the person who asks. A tool that takes nothing but addresses, of which none is known,
    takes none: the message would go to an invented one.
    """
    matches = (match[0] for match in _ADDRESS.finditer(_JSON_ESCAPE.sub(" ", context)))
    # also without the marks around them
    texts = (text for match in matches for text in (match, match.strip("'`*_{}|~/=-")))
    named = sorted({text for text in texts if "@" in text[1:]})
    is_to_others = _RECIPIENT.search(request) is not None and not wording.ONESELF.search(request)

    def restriction(schema: Any) -> dict[str, Any]:
        from gbnf.schema.validators import violation  # noqa: PLC0415  # few tools have patterns

        if is_to_others and violation(schema, "sales"):  # what it takes beside addresses is no other name
            return {"enum": named}
        return {"anyOf": [*([{"enum": named}] if named else []), {"pattern": "^[^@]*$"}]}

    restrictions: dict[str, Any] = {}
    for name, schema in tool.args.get("properties", {}).items():
        if _takes_addresses(schema):
            restrictions[name] = restriction(schema)
        elif isinstance(schema, Mapping) and _takes_addresses(schema.get("items")):
            restrictions[name] = {"items": restriction(schema["items"])}
    return _restricted(tool, restrictions)


_RECIPIENT: Final = re.compile(
    rf"(?<!\bof )(?<!\bfrom )(?<!\bby )(?<!\bdi )(?<!\bda )(?<![\w.+-]){ADDRESS}", re.IGNORECASE
)


_ADDRESS: Final = re.compile(r"[\w!#$%&'*+/=?^`{|}~.-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){0,8}")
_JSON_ESCAPE: Final = re.compile(r"\\(?:[nrtbf]|u[0-9a-fA-F]{4})")


def _takes_addresses(schema: Any) -> bool:
    """Return whether a text may be an email address, by its format or pattern, but not any text."""
    if not _is_text(schema) or not {"format", "pattern"} & schema.keys():
        return False
    from gbnf.schema.validators import violation  # noqa: PLC0415  # few tools have patterns

    return not violation(schema, "anna@example.com") and bool(violation(schema, "at-home"))


def _is_text(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "string"


def _restricted(tool: Tool, properties: Mapping[str, Any], **keywords: Any) -> Tool:
    """Return a tool with these schemas for its arguments, too, and `keywords`."""
    if not properties:
        return tool
    schema = {"properties": properties, **keywords}
    return replace(tool, args={**tool.args, "allOf": [*tool.args.get("allOf", ()), schema]})


_FOLDER_NAME: Final = re.compile(r"\w[\w/-]*\w")
_MOST_FOLDERS: Final = 50


def _listed_with(request: str, word: str) -> list[str]:
    """Return the words of the list that has a word: gold, silver and iron; no amounts.

    Of a list of three or more, the terms of several words: "red wine, dark bread, and butter".
    """
    lists = (_WORD_LIST.finditer(request)) if word else ()
    items = (re.findall(_ITEM, match[0].replace(" and ", ", ").replace(" or ", ", ")) for match in lists)
    named = ([text for text in words if len(text) > 1 and text[0].isalpha()] for words in items)
    listed = next((words for words in named if word in words), [])
    return listed if listed or not word else next(_phrases_listed_with(request, word), [])


def _phrases_listed_with(request: str, phrase: str) -> Iterator[list[str]]:
    """Yield each list that has a term, which the request may give with a word before: "of human HbA1c, …"."""
    for match in _PHRASE_LIST.finditer(request):
        phrases = [*match["first"].split(", "), match["last"]]
        if phrase in phrases or re.search(rf"(?:^|\s){re.escape(phrase)}$", phrases[0]):
            yield [phrase, *(other for other in phrases[1:] if other != phrase)]


def _is_related(request: str, used: str, unused: str) -> bool:
    """Return whether two values of a request are in one list, or have the same unit."""
    matches = [re.search(rf"(?<![\w.]){re.escape(text)}(?![\d_]|\.\d)", request) for text in (used, unused)]
    first, second = matches
    if not first or not second or (not unused[0].isdigit() and (used in unused or unused in used)):
        return False
    units = [_BESIDE.match(request, match.end()) for match in matches if match]
    signs = [request[match.start() - 1 : match.start()] for match in matches if match]
    if (units[0] and units[1] and units[0][1] and units[0][1] == units[1][1]) or (
        signs[0] == signs[1] and signs[0] in {"$", "€", "£"}
    ):
        return True
    between = request[min(first.end(), second.end()) : max(first.start(), second.start())]
    return wording.LISTED.fullmatch(re.sub(r"[\d.]+", "", between)) is not None


def takes_more(
    request: str,
    call: Mapping[str, Any],
    earlier: Sequence[Mapping[str, Any]],
    *,
    by_argument: bool = False,
) -> bool:
    """Return whether an argument of a call has words of a request that earlier calls do not have.

    They are at least half of its words: Chicago, IL. With `by_argument`, another argument may have had them,
    or a call of another tool.
    """
    words_said = {*TERM.findall(request.casefold())}
    words_said |= {text for number in numbers_in(request) for text in (number.text, number.share) if text}
    before = [other["arguments"] for other in earlier if not by_argument or other["name"] == call["name"]]
    for name, value in call["arguments"].items():
        same = [{name: other.get(name)} for other in before] if by_argument else before
        used = set[str]().union(*chain.from_iterable(map(_words_of_texts, same)))
        for words in _words_of_texts({name: value}):
            if 2 * len(words & words_said) >= len(words) and (words & words_said) - used:
                return True
    return False


def _words_of_texts(arguments: Mapping[str, Any]) -> list[set[str]]:
    """Return the words of each value in arguments; of a number, itself."""
    values = (_WHOLE.sub("", value.casefold()) for value in argument_values(arguments))
    return [{value} if _DECIMAL.fullmatch(value) else {*TERM.findall(value)} for value in values]


def calls_text(calls: Sequence[Mapping[str, Any]]) -> str:
    """Return calls in lower case, with their names: a request for Spotify calls spotify.play."""
    return json_of(calls).casefold()


def argument_values(arguments: Mapping[str, Any]) -> frozenset[str]:
    """Return the strings in arguments, and the numbers as JSON."""
    scalars = [text for _, text, _ in locate(json_of(arguments)).scalars]
    return frozenset(text[1:-1] if text[0] == '"' else text for text in scalars if not text.isalpha())
