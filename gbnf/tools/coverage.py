"""What calls have of a request, and what of it is left for others. Pure.

`with_values_left` and `as_requested` change a call's schema and its texts by it; the planner ends a run by it
(`gbnf_server.planner.progress`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

from gbnf.partial_json import locate
from gbnf.tools.request_values import LONGEST_REQUEST, PATH, QUOTED, names_in, numbers_in
from gbnf.tools.tool import Tool


def uncovered_values(request: str, calls: Sequence[Mapping[str, Any]]) -> tuple[str, ...]:
    """Return the names, quotes, codes and numbers of a request that no call contains.

    The length of a list in a call counts as a number of it, and so does how many calls there are: three
    folders, two circles.
    """
    request, written = request[:LONGEST_REQUEST], calls_text(calls)
    lists = (value for call in calls for value in call["arguments"].values() if isinstance(value, list))
    counts = {*(str(len(value)) for value in lists), *([str(len(calls))] if len(calls) > 1 else [])}
    numbers = (each for each in numbers_in(request) if not each.share or each.share not in written)
    values = (*names_in(request), *(each.text for each in numbers if each.text not in counts))
    # a city stands for itself: Chicago, Illinois
    return tuple(value for value in values if value.casefold().partition(", ")[0].lstrip("/") not in written)


def is_covered(request: str, calls: Sequence[Mapping[str, Any]]) -> bool:
    """Return whether calls contain all names, quotes, codes and numbers of a request."""
    return not uncovered_values(request, calls)


def has_values_for_another(request: str, calls: Sequence[Mapping[str, Any]], known: str) -> bool:
    """Return whether values are left for another call like the last: numbers, names, or both.

    The last call took some of them. After the first one, either is enough, since both calls may share the
    others. `known`: a text of the tool, whose words name nothing: the Pythagorean theorem.
    """
    before, left = (set(uncovered_values(request, some)) for some in (calls[:-1], calls))
    words = {*_GROUP.findall(known.casefold())}
    left = {value for value in left if not words.issuperset(_GROUP.findall(value.casefold()))}
    taken_kinds, left_kinds = ({value[-1:].isdigit() for value in values} for values in (before - left, left))
    return bool(taken_kinds and left_kinds) and (len(calls) == 1 or taken_kinds <= left_kinds)


_GROUP: Final = re.compile(r"\d+|[^\W\d_]{2,}")
_DESTINATION: Final = re.compile(
    # from the first space of a run, so that a request of spaces takes linear time
    r"(?<![\s,:;])[\s,:;]++(?:to|in|into|as|at|for|a|nel|nella|su|come|per)\s*$",
    re.IGNORECASE,
)


_UTC: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::00)?(?:Z|\+00:00)")
_ZONE: Final = re.compile(r"\b(?:utc|gmt)\b|\dz\b|[+-]\d\d:?\d\d\b", re.IGNORECASE)


def as_requested(arguments: Mapping[str, Any], request: str, known: str = "") -> dict[str, Any]:
    """Return the arguments of a call with their texts as the request spells them.

    A text that is only the end of a path of the request becomes that path; one that has another text of the
    call after a preposition at its end loses it, as in "buy oats to list.txt", or becomes the text that the
    request quotes in it; a text that the request has in other letter case is written as there; and one
    with most words of what is to be written, "the text oats and honey to list.txt", and no others, becomes
    that, as does one that begins with it and adds one or two words of the request. A list some of whose texts
    are in the request has none that are neither there nor in `known`, the results so far, if the first ones
    have digits or are addresses. Two numbers of a list that are written as one, 510 for "5,10 and 15", become
    the first of them. The two times of "from 14:00 to 16:30" become one interval.
    """
    request = request[:LONGEST_REQUEST]
    paths = [match[0].rstrip(".,;?!)") for match in PATH.finditer(request)]
    quotes = [match[0][1:-1] for match in QUOTED.finditer(request)]
    dictated = [match["text"] for match in _DICTATED.finditer(request)]
    names = names_in(request)
    said = frozenset(_GROUP.findall(request.casefold()))
    groups = said | frozenset(_GROUP.findall(known.casefold()))

    ranges = [[start.zfill(5), end.zfill(5)] for start, end in _TIME_RANGE.findall(request)]
    joined = {int(match[1] + match[2]): int(match[1]) for match in _TWO_NUMBERS.finditer(request)}
    whole = {int(digits) for digits in re.findall(r"\b\d{1,18}\b", request)}
    listed = {number: first for number, first in joined.items() if number not in whole}

    def completed(text: str) -> str:
        if request and _UTC.fullmatch(text) and not _ZONE.search(request):
            return text[: len("2026-01-05T09:00")]
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
            elif text in names and rest.endswith(", "):  # a city and its state, which is another argument
                text = rest[:-2]
        if whole_text := next((quote for quote in dictated if _means(text, quote, said)), ""):
            return whole_text
        start = request.lower().find(text.lower())
        is_same = text and len(request.lower()) == len(request) and len(text.lower()) == len(text)
        return request[start : start + len(text)] if start >= 0 and is_same and text not in request else text

    def supported(items: list[Any]) -> list[Any]:
        if not all(isinstance(item, str) for item in items):
            return items
        if len(items) == 2 and [item[-5:] for item in items] in ranges:
            return ["/".join(items)]
        parts = {item: _GROUP.findall(item.casefold()) for item in items}
        kept = [item for item in items if parts[item] and groups.issuperset(parts[item])]
        return kept if any(re.search(r"[\d@]", item) for item in kept) else items

    arguments = _each_text(arguments, completed, supported, listed)
    texts = sorted(_texts_in(arguments), key=len, reverse=True)
    return dict(_each_text(arguments, spelled))


_TIME_RANGE: Final = re.compile(
    r"\b(?:from|between|dalle|tra le) (\d{1,2}:\d\d) (?:to|and|until|till|alle|e le) (\d{1,2}:\d\d)\b",
    re.IGNORECASE,
)
_TWO_NUMBERS: Final = re.compile(r"(?<![\d.,])(?=(\d{1,9}),(?!\d{3}\b)(\d{1,9})\b\s*(?:,|and|or|e|o)\s*\d)")
_REFERS_BACK: Final = re.compile(
    r"\b(?:it|them|(?:the|its|their) (?:same )?(?:texts?|contents?|results?|answers?|names?|list)|the same"
    r"|what (?:is|it says|they say)|what's|(?:lo|il) (?:stesso|testo|contenuto|risultato)|la lista|i nomi"
    r"|(?:ciò|quello) che|cosa (?:c'è|dice))\b",
    re.IGNORECASE,
)
_REWORDED: Final = re.compile(
    r"\b(?:summar|short|brief|translat|repl(?:y|ies)|answer|respon|count|how many|riassu|sintesi|traduc|rispo"
    r"|quant[ie])",
    re.IGNORECASE,
)
_APPENDS: Final = re.compile(
    r"\b(?:add|append|aggiung\w+|accoda)\b(?:(?!\b(?:and|then|e|poi)\b)[^.;!?\n]){1,80}?"
    r"\b(?:to|at the end of|in|a|al|alla|in fondo a)\s+(?:the file |il file |file )?"
    rf"(?P<path>{PATH.pattern})",
    re.IGNORECASE,
)
_CONTENT_NAME: Final = re.compile(r"(?:.*_)?(?:contents?|body|text|message)", re.IGNORECASE)


def appends(request: str) -> str:
    """Return the file that a request adds something to: add a line with milk to list.txt; "" if none."""
    found = _APPENDS.search(request[:LONGEST_REQUEST])
    return found["path"].rstrip(".,;?!)") if found else ""


def with_content(arguments: Mapping[str, Any], request: str, entries: Sequence[Any]) -> dict[str, Any]:
    """Return the arguments of a call with what was read as its content, if the request says to pass it on.

    `entries`: those of the last result. In place of a text that has not most of their words: a small model
    writes "This is the content of a.txt". Not where the request asks for a summary or a reply, or has the
    text itself, and not in place of a part of them, such as the first line. If it adds to a file, what was
    read comes before the content that lacks it.
    """
    request = request[:LONGEST_REQUEST]
    texts = [entry for entry in entries if isinstance(entry, str)]
    words = set(_GROUP.findall(" ".join(texts).casefold()))
    read = words - set(_GROUP.findall(request.casefold()))
    is_added = appends(request)
    is_passed_on = read and _REFERS_BACK.search(request) and not _REWORDED.search(request)
    if is_added:  # and what was read is no path that was found
        is_passed_on = len(texts) == 1 and not PATH.fullmatch(texts[0])
    if len(texts) < len(entries) or not is_passed_on:
        return dict(arguments)

    def filled(value: Any, name: str) -> Any:
        match value:
            case str() if is_added and _CONTENT_NAME.fullmatch(name):
                has_all = set(texts[0].split()) <= set(value.split())
                return value if has_all else f"{texts[0].rstrip()}\n{value}"
            case str() if _CONTENT_NAME.fullmatch(name) and value not in request:
                written = set(_GROUP.findall(value.casefold()))
                is_part = bool(written) and written <= words
                has_most = len(read & written) >= _MOST_WORDS * len(read)
                return value if is_part or has_most else "\n".join(texts)
            case Mapping():
                return {key: filled(member, key) for key, member in value.items()}
            case list():
                return [filled(member, name) for member in value]
        return value

    return {key: filled(member, key) for key, member in arguments.items()}


_PATH_ARGUMENT: Final = re.compile(
    r"(?:\w+_)?(?:path|paths|file|files|dir|directory|folder|root)|(?:base|root|start|search)(?:path|dir|folder)",
    re.IGNORECASE,
)
_FOLDER_ARGUMENT: Final = re.compile(
    r"(?:\w+_)?(?:dir|directory|folder)|(?:base|root|start|search)_?(?:path|dir|folder)|root", re.IGNORECASE
)
_WINDOWS_PATH: Final = re.compile(r"[\w.*\\-]+")
_PLACEHOLDER_WORDS: Final = frozenset({"path", "to", "your", "folder", "directory", "workspace"})


def with_known_paths(arguments: Mapping[str, Any], tool: Tool, known: str) -> dict[str, Any]:
    """Return the arguments of a call that reads, with paths of what is known.

    `known`: the request, and the results so far. The workspace takes the place of a folder that nobody has
    named, unless the tool's description does: a small model searches "path/to/workspace". Backslashes become
    slashes if nothing that is known has one.
    """
    described = json.dumps([dict(tool.descriptions), tool.args], ensure_ascii=False, default=str)
    has_backslashes, known = "\\" in known, known.casefold()

    def is_invented(folder: str) -> bool:
        parts = _GROUP.findall(folder.casefold())
        return bool(parts) and not any(part in known for part in parts if part not in _PLACEHOLDER_WORDS)

    def path(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [path(name, item) for item in value]
        if not isinstance(value, str) or not _PATH_ARGUMENT.fullmatch(name):
            return value
        if value in described and value.casefold() not in _PLACEHOLDER_WORDS:
            return value
        if not has_backslashes and "\\" in value and _WINDOWS_PATH.fullmatch(value):
            value = value.replace("\\", "/").rstrip("/")
        return "." if _FOLDER_ARGUMENT.fullmatch(name) and is_invented(value) else value

    return {name: path(name, value) for name, value in arguments.items()}


def with_folders(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call that makes folders with the folders of the files in them.

    For a request that has a file to be written, too: a small model makes a folder of the file's name.
    """

    def folder(value: Any) -> Any:
        if isinstance(value, list):
            return list(dict.fromkeys(folder(item) for item in value)) if _all_texts(value) else value
        parent, _, name = value.rpartition("/") if isinstance(value, str) else ("", "", "")
        return parent if parent and _FILE_NAME.fullmatch(name) else value

    return {name: folder(value) for name, value in arguments.items()}


def _all_texts(values: list[Any]) -> bool:
    return all(isinstance(value, str) for value in values)


_FILE_NAME: Final = re.compile(r"[^/]*\w\.[a-z]\w{1,4}", re.IGNORECASE)
_TEXT: Final = r"(?:the (?:text|words?|line|sentence)|il testo|le parole|la frase|la riga)"
_DICTATED: Final = re.compile(
    # a run of spaces is matched in one way, so that no request takes more than linear time
    rf"\b(?:(?:write|save|put|scrivi|salva|metti)(?:\s++{_TEXT})?|{_TEXT})"
    r"\s++(?P<text>[^\n\"'`“«]{1,400}?)"
    rf"(?<=\S)\s++(?:to|in|into|on|as|nel|su|sul)\s+(?:the file |file )?(?:{PATH.pattern})",
    re.IGNORECASE,
)


def dictates(request: str) -> bool:
    """Return whether a request says what to write to a file: put 'call mom' into mom.txt."""
    return _DICTATED.search(QUOTED.sub("it", request[:LONGEST_REQUEST])) is not None


_MOST_WORDS: Final = 2 / 3
_MOST_ADDED: Final = 2
_LINKS: Final = frozenset({"for", "of", "to", "in", "per", "di"})


def _means(text: str, whole: str, said: frozenset[str]) -> bool:
    """Return whether a text has most words of another and no others, or begins with it and adds few."""
    some, every = set(_GROUP.findall(text.casefold())), set(_GROUP.findall(whole.casefold()))
    others = some - every - _LINKS
    is_longer = text.casefold().startswith(whole.casefold()) and len(others) <= _MOST_ADDED and others <= said
    return (some <= every or is_longer) and len(some) >= _MOST_WORDS * len(every) > 1


_SOURCE: Final = re.compile(
    r"\b(?:read|open|copy|from|leggi|apri|copia|da|dal)\s+(?:\w+\s+){0,3}$", re.IGNORECASE
)


def sources(request: str) -> frozenset[str]:
    """Return the files that a request names only to be read for another: a.txt in "read a.txt to b.txt"."""
    request = request[:LONGEST_REQUEST]
    paths = [(request[: match.start()], match[0].rstrip(".,;?!)")) for match in PATH.finditer(request)]
    others = {path for before, path in paths if not _SOURCE.search(before)}
    has_target = any(_DESTINATION.search(before) for before, path in paths if path in others)
    return frozenset(path for _, path in paths) - others if has_target else frozenset()


def is_only_source(arguments: Mapping[str, Any], request: str) -> bool:
    """Return whether a call would change a file that a request only names to be read."""
    return not sources(request).isdisjoint(_texts_in(arguments))


def _each_text(
    value: Any,
    change: Callable[[str], str],
    select: Callable[[list[Any]], list[Any]] = list,
    numbers: Mapping[int, int] = MappingProxyType({}),
) -> Any:
    match value:
        case str():
            return change(value)
        case int() if not isinstance(value, bool):
            return numbers.get(value, value)
        case Mapping():
            return {key: _each_text(member, change, select, numbers) for key, member in value.items()}
        case list():
            return [_each_text(member, change, select, numbers) for member in select(value)]
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


_LISTED: Final = re.compile(r"(?:\s|[,;/&$€£%]|\b(?:and|or|then|e|o|und|et|y)\b)*", re.IGNORECASE)
_ITEM: Final = r"[^\s,;?!\"'()]*[^\s,;?!\"'().]"
_WORD_LIST: Final = re.compile(
    rf"(?<![^\s,;?!\"'()]){_ITEM}(?:, {_ITEM}){{0,20}},? (?:and|or) {_ITEM}"  # at most so many: linear time
    r"(?=\.?$|[?.!,;]\s|[?!]$| (?:for|in|at|of|from|with|on|to|respectively)\b)"
)
_WORDS: Final = r"(?:[^\s,;:.?!\"]+ ){0,2}[^\s,;:.?!\"]+"
_PHRASE_LIST: Final = re.compile(
    rf"(?<!\S)(?P<first>{_WORDS}(?:, (?!and |or ){_WORDS}){{1,20}}+), (?:and|or) "
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
        left = list(unused) if value in texts else []
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
    folders = {name: {"enum": names} for name in properties if _FOLDER_ARGUMENT.fullmatch(name)}
    return _restricted(tool, {name: values for name, values in folders.items() if _is_text(properties[name])})


def with_known_addresses(tool: Tool, known: str) -> Tool:
    """Return a tool whose email addresses are those of `known`, such as the request and the results.

    A text that may also be something else, such as "me", still may. A tool that takes nothing but addresses,
    of which none is known, takes none: the message would go to an invented one.
    """
    named = _addresses(known)
    addresses = [*([{"enum": named}] if named else []), {"pattern": "^[^@]*$"}]
    restrictions: dict[str, Any] = {}
    for name, schema in tool.args.get("properties", {}).items():
        if _takes_addresses(schema):
            restrictions[name] = {"anyOf": addresses}
        elif isinstance(schema, Mapping) and _takes_addresses(schema.get("items")):
            restrictions[name] = {"items": {"anyOf": addresses}}
    return _restricted(tool, restrictions)


_ADDRESS: Final = re.compile(r"[\w!#$%&'*+/=?^`{|}~.-]{1,64}@[\w-]{1,64}(?:\.[\w-]{1,64}){0,8}")
_JSON_ESCAPE: Final = re.compile(r"\\(?:[nrtbf]|u[0-9a-fA-F]{4})")


def _addresses(text: str) -> list[str]:
    """Return the email addresses of a text, or of JSON, also without the marks around them."""
    matches = (match[0] for match in _ADDRESS.finditer(_JSON_ESCAPE.sub(" ", text)))
    return sorted(
        {each for match in matches for each in (match, match.strip("'`*_{}|~/=-")) if "@" in each[1:]}
    )


def _takes_addresses(schema: Any) -> bool:
    """Return whether a text may be an email address, by its format or pattern, but not any text."""
    if not _is_text(schema) or not {"format", "pattern"} & schema.keys():
        return False
    from gbnf.schema.validators import violation  # noqa: PLC0415 - few tools have patterns

    return not violation(schema, "anna@example.com") and bool(violation(schema, "at-home"))


def _is_text(schema: Any) -> bool:
    return isinstance(schema, Mapping) and schema.get("type") == "string"


def _restricted(tool: Tool, properties: Mapping[str, Any]) -> Tool:
    """Return a tool with these schemas for its arguments, too."""
    if not properties:
        return tool
    return replace(
        tool, args={**tool.args, "allOf": [*tool.args.get("allOf", ()), {"properties": properties}]}
    )


_FOLDER_NAME: Final = re.compile(r"\w[\w/-]*\w")
_MOST_FOLDERS: Final = 50


def _listed_with(request: str, word: str) -> list[str]:
    """Return the words of the list that has a word: gold, silver and iron; no amounts.

    Of a list of three or more, the terms of several words: "red wine, dark bread, and butter".
    """
    lists = (_WORD_LIST.finditer(request)) if word else ()
    found = (re.findall(_ITEM, each[0].replace(" and ", ", ").replace(" or ", ", ")) for each in lists)
    named = ([text for text in words if len(text) > 1 and text[0].isalpha()] for words in found)
    listed = next((words for words in named if word in words), [])
    return listed if listed or not word else next(_phrases_listed_with(request, word), [])


def _phrases_listed_with(request: str, phrase: str) -> Iterator[list[str]]:
    """Yield each list that has a term, which the request may give with a word before: "of human HbA1c, …"."""
    for match in _PHRASE_LIST.finditer(request):
        phrases = [*match["first"].split(", "), match["last"]]
        if phrase in phrases or re.search(rf"(?:^|\s){re.escape(phrase)}$", phrases[0]):
            yield [phrase, *(other for other in phrases[1:] if other != phrase)]


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
    """Return whether an argument of a call has words of a request that it has in no earlier call of the tool.

    They are at least half of its words: Chicago, IL.
    """
    said = {*_GROUP.findall(request.casefold())}
    said |= {text for number in numbers_in(request) for text in (number.text, number.share) if text}
    for name, value in call["arguments"].items():
        before = [{name: each["arguments"].get(name)} for each in earlier if each["name"] == call["name"]]
        used = set[str]().union(*chain.from_iterable(map(_words_of_texts, before)))
        for words in _words_of_texts({name: value}):
            if 2 * len(words & said) >= len(words) and (words & said) - used:
                return True
    return False


def _words_of_texts(arguments: Mapping[str, Any]) -> list[set[str]]:
    """Return the words of each value in arguments; of a number, itself."""
    values = (_WHOLE.sub("", value.casefold()) for value in argument_values(arguments))
    return [{value} if _DECIMAL.fullmatch(value) else {*_GROUP.findall(value)} for value in values]


def calls_text(calls: Sequence[Mapping[str, Any]]) -> str:
    """Return calls in lower case, with their names: a request for Spotify calls spotify.play."""
    return json.dumps(calls, ensure_ascii=False).casefold()


def argument_values(arguments: Mapping[str, Any]) -> frozenset[str]:
    """Return the strings in arguments, and the numbers as JSON."""
    scalars = [each for _, each, _ in locate(json.dumps(arguments, ensure_ascii=False)).scalars]
    return frozenset(each[1:-1] if each[0] == '"' else each for each in scalars if not each.isalpha())
