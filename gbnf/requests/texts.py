"""The texts of a call as its request has them: in its spelling, dictated, read from files. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Final

from gbnf.requests.values import (
    ADDRESS,
    FOLDER_ARGUMENT,
    LONGEST_REQUEST,
    OPERATIONS,
    PATH,
    QUOTED,
    TERM,
    asks_for_several,
    names_in,
)
from gbnf.strict_json import scalars_of
from gbnf.tools.tool import Tool

_DESTINATION: Final = re.compile(
    # from the first space of a run, so that a request of spaces takes linear time
    r"(?<![\s,:;])[\s,:;]++(?:to|in|into|as|at|for|a|nel|nella|su|come|per)\s*$",
    re.IGNORECASE,
)


_UTC: Final = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d(?::00)?(?:Z|\+00:00)")
_ZONE: Final = re.compile(r"\b(?:utc|gmt)\b|\dz\b|[+-]\d\d:?\d\d\b", re.IGNORECASE)


def as_requested(arguments: Mapping[str, Any], request: str, results: str = "") -> dict[str, Any]:
    """Return the arguments of a call with their texts as the request spells them.

    A text that is only the end of a path of the request becomes that path; one that has another text of the
    call after a preposition at its end loses it, as in "buy oats to list.txt", or becomes the text that the
    request quotes in it; a text that the request has in other letter case is written as there; and one
    with most words of what is to be written, "the text oats and honey to list.txt", and no others, becomes
    that, as does one that begins with it, unless it describes a text: "write a poem to a.txt". A list some of
    whose texts are in the request has none that are neither there nor in `results`, those so far, if the
    first ones have digits or are addresses. Two numbers of a list that are written as one, 510 for "5,10 and
    15", become the first of them. The two times of "from 14:00 to 16:30" become one interval. A calculation
    with numbers of "18 % of 250", or of "10 plus 5 times 4", becomes that of the request.
    """
    request = request[:LONGEST_REQUEST]
    paths = [match[0].rstrip(".,;?!)") for match in PATH.finditer(request)]
    quotes = [match[0][1:-1] for match in QUOTED.finditer(request)]
    dictated = [(match["text"], match["marker"] is not None) for match in _DICTATED.finditer(request)]
    names = names_in(request)
    calculation, numbers, is_all = _calculation(request)
    words_said = frozenset(TERM.findall(request.casefold()))
    groups = words_said | frozenset(TERM.findall(results.casefold()))

    ranges = [[start.zfill(5), end.zfill(5)] for start, end in _TIME_RANGE.findall(request)]
    joined = {int(match[1] + match[2]): int(match[1]) for match in _TWO_NUMBERS.finditer(request)}
    integers = {int(digits) for digits in re.findall(r"\b\d{1,18}\b", request)}
    listed = {number: first for number, first in joined.items() if number not in integers}

    def completed(text: str, _name: str) -> str:
        if request and _UTC.fullmatch(text) and not _ZONE.search(request):
            return text[: len("2026-01-05T09:00")]
        owners = [path for path in paths if path.endswith(f"/{text}")] if text else []
        return owners[0] if owners and request.count(text) == request.count(owners[0]) else text

    def spelled(text: str, _name: str) -> str:
        if calculation and _ARITHMETIC.fullmatch(text):
            written = sorted(_NUMBERS.findall(text))
            if written == numbers or (is_all and len(written) > 1 and set(written) < set(numbers)):
                return calculation  # a small model divides 18 by 250
        inside = [other for other in texts if other != text and len(other) > 1 and other in text]
        if inside and (quoted := [quote for quote in quotes if quote in text and quote not in texts]):
            return quoted[0]
        for other in inside:
            rest = text.removesuffix(other)
            if len(rest) < len(text) and (destination := _DESTINATION.search(rest)) and destination.start():
                text = rest[: destination.start()]
            elif text in names and rest.endswith(", "):  # a city and its state, which is another argument
                text = rest[:-2]
        if len(dictated) == 1 and TERM.findall(text.casefold()) == TERM.findall(request.casefold()):
            return dictated[0][0]  # a small model writes the request itself
        for phrase, is_marked in dictated:
            if _means(text, phrase, words_said) or _has_dictated(text, phrase, is_marked=is_marked):
                return phrase
        start = request.lower().find(text.lower())
        is_same = text and len(request.lower()) == len(request) and len(text.lower()) == len(text)
        return request[start : start + len(text)] if start >= 0 and is_same and text not in request else text

    def supported(items: list[Any]) -> list[Any]:
        if not all(isinstance(item, str) for item in items):
            return items
        if len(items) == 2 and [item[-5:] for item in items] in ranges:
            return ["/".join(items)]
        parts = {item: TERM.findall(item.casefold()) for item in items}
        supported_items = [item for item in items if parts[item] and groups.issuperset(parts[item])]
        return supported_items if any(re.search(r"[\d@]", item) for item in supported_items) else items

    arguments = _each_text(arguments, completed, supported, listed)
    texts = sorted(_texts_in(arguments), key=len, reverse=True)
    return dict(_each_text(arguments, spelled))


_NUMBERS: Final = re.compile(r"\b\d{1,15}(?:\.\d{1,9})?\b")
_ARITHMETIC: Final = re.compile(r"(?=.*\d\W+\d)[\d\s.+*/%()=×÷−-]{1,60}")
_OPERATORS: Final = re.compile(
    r"%|\b(?:per ?(?:cent|cento)|times|multiplied|moltiplicato|divided?|diviso|plus|più|minus|meno|half|twice"
    r"|double|squared?|root|cubed?|power|negative|metà|doppio|quadrato|radice)\b",
    re.IGNORECASE,
)


_SIGNS: Final = {r"\*\*|\^": "**", "[*×]": "*", "÷": "/", r"\+": "+"} | {
    words: expression.split()[1] for words, expression in OPERATIONS.items() if expression.count(" ") == 2
}
_SIGN: Final = re.compile(rf"\s*(?:{'|'.join(f'({sign})' for sign in _SIGNS)})\s*", re.IGNORECASE)
_CHAIN: Final = re.compile(
    rf"(?<![\w.,/-]){_NUMBERS.pattern}(?:{_SIGN.pattern}{_NUMBERS.pattern})+(?![\w/-]|[.,]\d|\s?%)",
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
    chains, in_request = [*_CHAIN.finditer(request)], _NUMBERS.findall(request)
    if len(chains) == 1 and not _OPERATORS.search(_CHAIN.sub("", request)):
        numbers = sorted(_NUMBERS.findall(chains[0][0]))
        if all(in_request.count(number) == 1 for number in numbers):
            is_all = 2 < len(numbers) == len(in_request) and "(" not in request
            return _expression(request, chains[0]), numbers, is_all
    if len(in_request) == 2 and len(_OPERATORS.findall(request)) < 2:
        for words, expression in OPERATIONS.items():
            pattern = rf"(?<![-−+*/^])({_NUMBERS.pattern}) ?{words} [$€£]?({_NUMBERS.pattern})"
            if match := re.search(pattern, request, re.IGNORECASE):
                return expression.format(match[1], match[2]), sorted([match[1], match[2]]), False
    return "", [], False


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
    match = _APPENDS.search(request[:LONGEST_REQUEST])
    return match["path"].rstrip(".,;?!)") if match else ""


def with_content(arguments: Mapping[str, Any], request: str, entries: Sequence[Any]) -> dict[str, Any]:
    """Return the arguments of a call with what was read as its content, if the request says to pass it on.

    `entries`: those of the last result. In place of a text that has not most of their words: a small model
    writes "This is the content of a.txt". Not where the request asks for a summary or a reply, or has the
    text itself, and not in place of a part of them, such as the first line. If it adds to a file, what was
    read comes before the content that lacks it.
    """
    request = request[:LONGEST_REQUEST]
    texts = [entry for entry in entries if isinstance(entry, str)]
    words = set(TERM.findall(" ".join(texts).casefold()))
    read = words - set(TERM.findall(request.casefold()))
    is_added = appends(request)
    is_number = all(map(_NUMBERS.fullmatch, texts))  # then it is the answer itself
    reworded = _REWORDED.search(request.replace("the answer", "") if is_number else request)
    is_passed_on = read and _REFERS_BACK.search(request) and not reworded
    if is_added:  # and what was read is no path that was found
        is_passed_on = len(texts) == 1 and not PATH.fullmatch(texts[0])
    if len(texts) < len(entries) or not is_passed_on:
        return dict(arguments)

    def filled(text: str, name: str) -> str:
        if not _CONTENT_NAME.fullmatch(name) or (text in request and not is_added):
            return text
        if is_added:
            has_all = set(texts[0].split()) <= set(text.split())
            return text if has_all else f"{texts[0].rstrip()}\n{text}"
        written = set(TERM.findall(text.casefold()))
        is_part = bool(written) and written <= words
        has_most = len(read & written) >= _MOST_WORDS * len(read)
        return text if is_part or has_most else "\n".join(texts)

    return dict(_each_text(arguments, filled))


_PATH_ARGUMENT: Final = re.compile(
    r"(?:\w+_)?(?:path|paths|file|files|dir|directory|folder|root)|(?:base|root|start|search)(?:path|dir|folder)",
    re.IGNORECASE,
)
_WINDOWS_PATH: Final = re.compile(r"[\w.*\\-]+")
_PLACEHOLDER_WORDS: Final = frozenset({"path", "to", "your", "folder", "directory", "workspace"})


def with_known_paths(arguments: Mapping[str, Any], tool: Tool, context: str) -> dict[str, Any]:
    """Return the arguments of a call that reads, with paths of what is known.

    `context`: the request, and the results so far. The workspace takes the place of a folder that nobody has
    named, unless the tool's description does: a small model searches "path/to/workspace". Backslashes become
    slashes if nothing that is known has one.
    """
    described = json.dumps([dict(tool.descriptions), tool.args], ensure_ascii=False, default=str)
    has_backslashes, context = "\\" in context, context.casefold()

    def is_invented(folder: str) -> bool:
        parts = TERM.findall(folder.casefold())
        return bool(parts) and not any(part in context for part in parts if part not in _PLACEHOLDER_WORDS)

    def path(name: str, value: Any) -> Any:
        if isinstance(value, list):
            return [path(name, item) for item in value]
        if not isinstance(value, str) or not _PATH_ARGUMENT.fullmatch(name):
            return value
        if value in described and value.casefold() not in _PLACEHOLDER_WORDS:
            return value
        if not has_backslashes and "\\" in value and _WINDOWS_PATH.fullmatch(value):
            value = value.replace("\\", "/").rstrip("/")
        return "." if FOLDER_ARGUMENT.fullmatch(name) and is_invented(value) else value

    return {name: path(name, value) for name, value in arguments.items()}


_ONLY: Final = re.compile(
    r"please|can|could|you|delete|remove|erase|trash|discard|throw|away|out|get|rid|of|from|in|the|my|files?"
    r"|folder|directory|and|for|me|puoi|per|favore|elimina|cancella|rimuovi|butta|via|il|lo|la|l|i|e|da|dal"
    r"|dalla|nella|nel|cartella|mio|mia",
    re.IGNORECASE,
)
"""Words of a request to delete that says no more than which files are meant."""


def unnamed_files(arguments: Mapping[str, Any], request: str, entries: Collection[str]) -> frozenset[str]:
    """Return the files in the lists of a call that results have, and that a request does not name.

    `entries`: those of the results. Only for a request that names files which were found, and says no more
    than to delete them: for "delete old/draft.txt", a small model searches the folder, and deletes all that
    is in it.
    """
    request = request[:LONGEST_REQUEST]
    names = {_file_path(match[0].rstrip(".,;?!)")) for match in PATH.finditer(request)}
    path_of = {_file_path(entry): entry for entry in entries}
    file_names = {*path_of, *(path.rpartition("/")[2] for path in path_of)}
    if not names or not all(
        name in file_names and _FILE_NAME.fullmatch(name.rpartition("/")[2]) for name in names
    ):
        return frozenset()
    folders = {part for path in path_of for part in path.split("/")[:-1]}
    words = re.findall(r"\w+", PATH.sub(" ", request).casefold())
    if not all(_ONLY.fullmatch(word) or word in folders for word in words):
        return frozenset()
    items = {
        item
        for value in arguments.values()
        if isinstance(value, list)
        for item in value
        if isinstance(item, str)
    }
    return frozenset(
        item
        for item in items
        if (path := _file_path(item)) in path_of
        and _FILE_NAME.fullmatch(path.rpartition("/")[2])
        and names.isdisjoint({path, path.rpartition("/")[2]})
    )


def _file_path(text: str) -> str:
    """Return a path in one spelling, to be compared; "" of an address."""
    return "" if "@" in text else text.replace("\\", "/").removeprefix("./").casefold()


def without_roots(arguments: Mapping[str, Any], request: str) -> dict[str, Any]:
    """Return the arguments of a call with the absolute paths of a request as relative ones."""
    paths = {path.rstrip(".,;?!)") for path in PATH.findall(request[:LONGEST_REQUEST]) if path[:1] == "/"}
    return dict(_each_text(arguments, lambda text, _: text.lstrip("/") if text in paths else text))


def with_folders(arguments: Mapping[str, Any], request: str = "") -> dict[str, Any]:
    """Return the arguments of a call that makes folders with the folders of the files in them.

    For a request that has a file to be written, too: a small model makes a folder of the file's name.
    `request`: only of what it calls a file.
    """

    def folder(value: Any) -> Any:
        if isinstance(value, list):
            is_texts = all(isinstance(item, str) for item in value)
            return list(dict.fromkeys(folder(item) for item in value)) if is_texts else value
        parent, _, name = value.rpartition("/") if isinstance(value, str) else ("", "", "")
        if not parent or not _FILE_NAME.fullmatch(name):
            return value
        called = rf"\bfile (?:named |called |chiamato )?{re.escape(value)}"
        return parent if not request or re.search(called, request, re.IGNORECASE) else value

    return {name: folder(value) for name, value in arguments.items()}


def with_named_file(arguments: Mapping[str, Any], request: str, made: Collection[str]) -> dict[str, Any]:
    """Return the arguments of a call that writes a file with the one that the request names.

    In place of a folder of `made`, what earlier calls have made, which a small model writes to.
    """
    paths = {match[0].rstrip(".,;?!)") for match in PATH.finditer(request[:LONGEST_REQUEST])}
    files = [path for path in paths if _FILE_NAME.fullmatch(path.rpartition("/")[2])]
    if len(files) != 1 or files[0] in _texts_in(arguments):
        return dict(arguments)

    def named(text: str, _name: str) -> str:
        return files[0] if text.rstrip("/") in made and not _FILE_NAME.fullmatch(text) else text

    return dict(_each_text(arguments, named))


_FILE_NAME: Final = re.compile(r"[^/]*\w\.[a-z]\w{1,4}", re.IGNORECASE)
_TEXT: Final = r"(?:the (?:text|words?|line|sentence)|il testo|le parole|la frase|la riga)"
_WRITE: Final = r"(?:write|save|put|scrivi|salva|metti)"
_DICTATED: Final = re.compile(
    # a run of spaces is matched in one way, so that no request takes more than linear time
    rf"\b(?={_WRITE}|{_TEXT})(?:{_WRITE}\s++)?+(?P<marker>{_TEXT}\s++)?+"
    r"(?P<text>[^\n\"'`“«]{1,400}?)"
    rf"(?<=\S)\s++(?:to|in|into|on|as|nel|su|sul)\s+(?:the file |file )?(?:{PATH.pattern})",
    re.IGNORECASE,
)


_ADDRESSES: Final = rf"(?:both\s+)?{ADDRESS}(?:(?:\s*,\s*|\s+(?:and|e)\s+){ADDRESS})*"
_MESSAGE: Final = re.compile(
    r"\b(?:let|tell|inform|notify|(?:(?:e-?)?mail|message|note|write)(?:\s+to)?|avvisa|informa"
    rf"|(?:scrivi|comunica)\s+a|di(?:['’]|re)?\s+a)\s+(?P<recipients>{_ADDRESSES})(?:\s+know)?"
    r"(?:\s*:\s*+(?!(?:say|ask|thank|invite|remind|greet|chiedi|saluta)\b)"
    r"|\s++(?:that|che|saying(?:\s++that)?)\s++|\s++(?=(?:I|we|he|she|they|you|there|my|our)\b))"
    r"(?P<text>[^\s!?;\"“«][^\n!?;\"“«]{2,299}?)\s*+[.!;]?\s*+\Z",
    re.IGNORECASE,
)
_ENUMERATION: Final = re.compile(r"\w++(?: \w++){0,2}(?:, \w++(?: \w++){0,2})*,? (?:and|e) \w++")
_GREETING: Final = re.compile(
    r"\W*+(?:(?:hi|hello|hey|dear|sorry|ciao|salve|buongiorno|car[oa])\b[ ,]*+\w*+\W*+)*+", re.IGNORECASE
)
_APOLOGY: Final = re.compile(
    r"\b(?:I|we)(?:['’](?:m|re)| am| are)? (?:can['’]?t|cannot|unable to|not able to) (?:\w+ )?"
    r"(?:assist|fulfill?|do that|help (?:you )?with (?:that|this|it)|(?:send|access|provide|process)"
    r" (?:\w+ ){0,2}(?:(?:e-?)?mails?|messages?|files?|calendar|requests?|that|this))\b"
    r"|\bnon posso (?:\w+ )?(?:aiutart\w*|(?:inviar|mandar)\w* (?:e-?mail|messagg\w*)"
    r"|accedere a\w* (?:file|posta|calendario))",
    re.IGNORECASE,
)
_SAYS_CANNOT: Final = re.compile(
    r"\b(?:sorry|apolog\w*|can['’]?t|cannot|could(?:n['’]?t| not)|won['’]?t|unable|able|declin\w*|refus\w*"
    r"|scus\w*|dispiac\w*|non (?:poss\w+|riesc\w+))\b",
    re.IGNORECASE,
)


def is_apology(text: str, request: str) -> bool:
    """Return whether a text is a model's apology for what it cannot do, for a request that has none."""
    return _APOLOGY.search(text) is not None and not _SAYS_CANNOT.search(request)


def is_copied(text: str, prompt: str, request: str) -> bool:
    """Return whether a text is three words or more of a prompt, and not of the request."""
    if text.casefold() in request.casefold():
        return False
    words, others = (" ".join(re.findall(r"[^\W\d_]+", source.casefold())) for source in (text, prompt))
    return words.count(" ") > 1 and f" {words} " in f" {others} "


def with_message(arguments: Mapping[str, Any], request: str, prompt: str = "") -> dict[str, Any]:
    """Return the arguments of a call with the message that a request dictates: tell a@b.org I'm late.

    In place of a text without anything of its own: of a small model's apology, or greeting, or a sentence of
    its `prompt`; or of a text that has nothing of the message, if another one, such as the subject, is it.
    """
    match = _MESSAGE.search(request[:LONGEST_REQUEST])
    is_list = match is not None and _ENUMERATION.fullmatch(match["text"]) is not None
    if match is None or (asks_for_several(match["text"]) and not is_list):
        return dict(arguments)
    recipients = re.findall(ADDRESS, match["recipients"])
    if not _texts_in(arguments).issuperset(recipients):
        return dict(arguments)

    message = match["text"].casefold()
    if any(message in text.casefold() for text in contents(arguments)):
        return dict(arguments)
    is_subject = any(text.casefold().strip(" .!") == message for text in _texts_in(arguments))

    def dictated(text: str, name: str) -> str:
        is_empty = _GREETING.fullmatch(text) or _APOLOGY.search(text) or is_copied(text, prompt, request)
        terms = set(TERM.findall(message))
        common = terms.intersection(TERM.findall(text.casefold()))
        is_other = is_subject and len(common) <= (len(terms) / 2 if is_list else 0)
        return match["text"] if (is_empty or is_other) and _CONTENT_NAME.fullmatch(name) else text

    return dict(_each_text(arguments, dictated))


def contents(arguments: Mapping[str, Any]) -> list[str]:
    """Return what a call writes into files and messages."""
    texts: list[str] = []

    def add(text: str, name: str) -> str:
        texts.extend([text] if _CONTENT_NAME.fullmatch(name) else [])
        return text

    _each_text(arguments, add)
    return texts


def without_contents(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call without what it writes into files and messages."""
    return dict(_each_text(arguments, lambda text, name: "" if _CONTENT_NAME.fullmatch(name) else text))


def dictates(request: str) -> bool:
    """Return whether a request says what to write to a file: put 'call mom' into mom.txt."""
    return _DICTATED.search(QUOTED.sub("it", request[:LONGEST_REQUEST])) is not None


_MOST_WORDS: Final = 2 / 3
_MOST_ADDED: Final = 2
_LINKS: Final = frozenset({"for", "of", "to", "in", "per", "di"})


def _means(text: str, dictated: str, words: frozenset[str]) -> bool:
    """Return whether a text has most words of another and no others, or begins with it and adds few."""
    some, every = set(TERM.findall(text.casefold())), set(TERM.findall(dictated.casefold()))
    others = some - every - _LINKS
    is_beginning = text.casefold().startswith(dictated.casefold())
    is_longer = is_beginning and len(others) <= _MOST_ADDED and others <= words
    return (some <= every or is_longer) and len(some) >= _MOST_WORDS * len(every) > 1


_DETERMINED: Final = re.compile(
    r"(?:an?|the|some|my|our|your|his|her|its|their|this|that|these|those|both|all|each|every|any|several|\d+"
    r"|one|two|three|four|five|six|seven|eight|nine|ten|un[ao]?|due|tre|alcun[ei]|qualche|ogni|tutt[oiae]"
    r"|mi[oae]i?|il|lo|la|i|gli|le)\b",
    re.IGNORECASE,
)
_ABOUT: Final = re.compile(
    rf"\b(?:about|of|on|for|su[li]?|sull[ae]|di|de[il]|per)\b|{PATH.pattern}", re.IGNORECASE
)
_SAYS_OF_IT: Final = re.compile(r"\W+(?:is|are|was|were|è|sono|era|erano)\b[^\n:]*\Z", re.IGNORECASE)


def _has_dictated(text: str, dictated: str, *, is_marked: bool) -> bool:
    """Return whether a text is a sentence about a dictated one: "Milk and bread are great choices".

    `is_marked`: the request calls it a text, "the text milk and bread", which may be anywhere in it.
    Otherwise one with an article, or that is about something, may describe a text: "a poem about bread".
    """
    every = TERM.findall(dictated.casefold())
    text, _, more = text.partition("\n")
    if more:  # a line that a small model adds: "This is a test file."
        return is_marked and len(every) > 1 and TERM.findall(text.casefold()) == every
    if PATH.fullmatch(text) or _ABOUT.search(dictated):
        return False
    some = TERM.findall(text.casefold())
    if len(every) < 2 or {word for word in some if word.isdigit()} - {*every}:
        return False  # it has a number that the model has computed
    if is_marked:
        return any(some[start : start + len(every)] == every for start in range(len(some) - len(every) + 1))
    is_beginning = text.casefold().startswith(dictated.casefold()) and not _DETERMINED.match(dictated)
    return is_beginning and _SAYS_OF_IT.match(text[len(dictated) :]) is not None


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


def with_sources(arguments: Mapping[str, Any], request: str, done: Collection[str]) -> dict[str, Any]:
    """Return the arguments of a call that reads, with the files that the request says to read.

    In place of those that it says to write: for "save 'x' to a.txt, and read b.txt", a small model reads
    a.txt. `done`: texts of the calls before.
    """
    request = request[:LONGEST_REQUEST]
    read, written = list[str](), set[str]()
    for match in PATH.finditer(request):
        before, path = request[max(match.start() - 100, 0) : match.start()], match[0].rstrip(".,;?!)")
        if _TARGET.search(before):
            written.add(path)
        elif _SOURCE.search(before) and not _NOT_READ.search(before) and path not in done:
            read.append(path)
    written -= {appends(request)}
    return {
        name: read
        if read and isinstance(value, list) and value and written.issuperset(map(str, value))
        else value
        for name, value in arguments.items()
    }


_TARGET: Final = re.compile(
    r"\b(?:write|save|put|type|store|note|scrivi|salva|metti|annota)\b[^.;!?\n]{1,80}"
    r"\b(?:to|in|into|as|nel|nella|su|come)\s+(?:the |il |la )?(?:file\s+)?$",
    re.IGNORECASE,
)
_NOT_READ: Final = re.compile(r"\b(?:not|never|without|already|non|senza|già)\b|n['’]t\b", re.IGNORECASE)


def is_only_source(arguments: Mapping[str, Any], request: str) -> bool:
    """Return whether a call would change a file that a request only names to be read."""
    return not sources(request).isdisjoint(_texts_in(arguments))


def _each_text(
    value: Any,
    change: Callable[[str, str], str],
    select: Callable[[list[Any]], list[Any]] = list,
    numbers: Mapping[int, int] = MappingProxyType({}),
    name: str = "",
) -> Any:
    """Return a value with its texts changed; `change` takes a text and the name of the property it is in."""
    match value:
        case str():
            return change(value, name)
        case int() if not isinstance(value, bool):
            return numbers.get(value, value)
        case Mapping():
            return {key: _each_text(member, change, select, numbers, key) for key, member in value.items()}
        case list():
            return [_each_text(member, change, select, numbers, name) for member in select(value)]
    return value


def _texts_in(value: Any) -> frozenset[str]:
    return frozenset(scalar for scalar in scalars_of(value) if isinstance(scalar, str))
