"""What a request says of the files and messages of a call: which it means, and what is in them. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain
from types import MappingProxyType
from typing import Any, Final

from gbnf.requests import wording
from gbnf.requests.phrases import ADDRESS, PATH
from gbnf.requests.values import (
    FOLDER_ARGUMENT,
    LONGEST_REQUEST,
    PLAIN_NUMBER,
    TERM,
    asks_for_several,
    paths_in,
)
from gbnf.strict_json import scalars_of
from gbnf.tools.tool import Tool

MOST_WORDS: Final = 2 / 3
"""Of a text: one that has so many is about the same."""
_CONTENT_NAME: Final = re.compile(r"(?:.*_)?(?:contents?|body|text|message)", re.IGNORECASE)


def appends(request: str) -> str:
    """Return the file that a request adds something to: add a line with milk to list.txt; "" if none."""
    match = wording.APPENDS.search(request[:LONGEST_REQUEST])
    return match["path"].rstrip(".,;?!)") if match else ""


def writes_quote(request: str) -> bool:
    """Return whether a request puts a text in quotes into a file, by any verb: type 'pen' in a.txt."""
    text = request[:LONGEST_REQUEST]
    for match in wording.WRITES_QUOTE.finditer(text):
        begin = match.start()
        if not is_address(match["path"]) and not wording.SEARCHES.search(text, max(begin - 80, 0), begin):
            return True
    return False


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
    is_number = all(map(PLAIN_NUMBER.fullmatch, texts))  # then it is the answer itself
    reworded = wording.REWORDED.search(request.replace("the answer", "") if is_number else request)
    is_passed_on = read and wording.REFERS_BACK.search(request) and not reworded
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
        has_most = len(read & written) >= MOST_WORDS * len(read)
        return text if is_part or has_most else "\n".join(texts)

    return dict(each_text(arguments, filled))


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


def unnamed_files(arguments: Mapping[str, Any], request: str, entries: Collection[str]) -> frozenset[str]:
    """Return the files in the lists of a call that results have, and that a request does not name.

    `entries`: those of the results. Only for a request that names files which were found, and says no more
    than to delete them: for "delete old/draft.txt", a small model searches the folder, and deletes all that
    is in it.
    """
    request = request[:LONGEST_REQUEST]
    names = set(map(_file_path, paths_in(request).values()))
    path_of = {_file_path(entry): entry for entry in entries}
    file_names = {*path_of, *(path.rpartition("/")[2] for path in path_of)}
    if not names or not all(
        name in file_names and _FILE_NAME.fullmatch(name.rpartition("/")[2]) for name in names
    ):
        return frozenset()
    folders = {part for path in path_of for part in path.split("/")[:-1]}
    words = re.findall(r"\w+", PATH.sub(" ", request).casefold())
    if not all(wording.ONLY_DELETES.fullmatch(word) or word in folders for word in words):
        return frozenset()
    lists = [value for value in arguments.values() if isinstance(value, list)]
    items = {item for item in chain(*lists) if isinstance(item, str)}
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
    paths = {path for path in paths_in(request[:LONGEST_REQUEST]).values() if path[:1] == "/"}
    return dict(each_text(arguments, lambda text, _: text.lstrip("/") if text in paths else text))


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
    """Return the arguments of a call for files with the one that the request names.

    In place of an address, and of a folder of `made`, what earlier calls have made, which a small model
    writes to.
    """
    paths = dict.fromkeys(paths_in(request[:LONGEST_REQUEST]).values())
    files = [path for path in paths if _FILE_NAME.fullmatch(path.rpartition("/")[2]) and not is_address(path)]
    if len(files) != 1 or files[0] in texts_in(arguments):
        return dict(arguments)

    def named(text: str, _name: str) -> str:
        is_folder = text.rstrip("/") in made and not _FILE_NAME.fullmatch(text)
        return files[0] if is_folder or is_address(text) else text

    return dict(each_text(arguments, named))


_FILE_NAME: Final = re.compile(r"[^/]*\w\.[a-z]\w{1,4}", re.IGNORECASE)
_TEXT_FILE: Final = re.compile(
    r"\.(?:txt|md|csv|json|ya?ml|xml|ini|toml|log|html?|eml|vcf|docx?|png|jpe?g|svg)\Z", re.IGNORECASE
)


def is_address(path: str) -> bool:
    """Return whether a path is an address of electronic mail, and no file: "a@2x.png" is one."""
    return re.fullmatch(ADDRESS, path) is not None and not _TEXT_FILE.search(path)


def is_apology(text: str, request: str) -> bool:
    """Return whether a text is a model's apology for what it cannot do, for a request that has none."""
    return wording.APOLOGY.search(text) is not None and not wording.SAYS_CANNOT.search(request)


def says_not_found(text: str, request: str) -> bool:
    """Return whether a text tells that a file cannot be found or read, for a request that says no such."""
    return wording.NOT_FOUND.search(text) is not None and not wording.SAYS_CANNOT.search(request)


def is_copied(text: str, prompt: str, request: str) -> bool:
    """Return whether a text is three words or more of a prompt, and not of the request."""
    if text.casefold() in request.casefold():
        return False
    words, others = (" ".join(re.findall(r"[^\W\d_]+", source.casefold())) for source in (text, prompt))
    return words.count(" ") > 1 and f" {words} " in f" {others} "


def with_message(arguments: Mapping[str, Any], request: str, prompt: str = "") -> dict[str, Any]:
    """Return the arguments of a call with the message that a request dictates: tell a@b.org I'm late.

    In place of a text without anything of its own: of a small model's apology, or greeting, or a sentence of
    its `prompt`; or of a text that has nothing of the message, if another one, such as the subject, is it. Of
    a message in quotes in place of any text that has it not.
    """
    quoted = wording.QUOTED_MESSAGE.fullmatch(request[:LONGEST_REQUEST])
    match = quoted or wording.MESSAGE.search(request[:LONGEST_REQUEST])
    is_list = match is not None and wording.ENUMERATION.fullmatch(match["text"]) is not None
    if match is None or (not quoted and asks_for_several(match["text"]) and not is_list):
        return dict(arguments)
    recipients = re.findall(ADDRESS, match["recipients"])
    if not texts_in(arguments).issuperset(recipients):
        return dict(arguments)

    message = match["text"].casefold()
    if any(message in text.casefold() for text in contents(arguments)):
        return dict(arguments)
    is_subject = any(text.casefold().strip(" .!") == message for text in texts_in(arguments))

    def dictated(text: str, name: str) -> str:
        is_polite = wording.GREETING.fullmatch(text) or wording.APOLOGY.search(text)
        terms = set(TERM.findall(message))
        common = terms.intersection(TERM.findall(text.casefold()))
        is_other = is_subject and len(common) <= (len(terms) / 2 if is_list else 0)
        is_empty = quoted or is_polite or is_other or is_copied(text, prompt, request)
        return match["text"] if is_empty and _CONTENT_NAME.fullmatch(name) else text

    return dict(each_text(arguments, dictated))


def contents(arguments: Mapping[str, Any]) -> list[str]:
    """Return what a call writes into files and messages."""
    texts: list[str] = []

    def add(text: str, name: str) -> str:
        texts.extend([text] if _CONTENT_NAME.fullmatch(name) else [])
        return text

    each_text(arguments, add)
    return texts


def without_contents(arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the arguments of a call without what it writes into files and messages."""
    return dict(each_text(arguments, lambda text, name: "" if _CONTENT_NAME.fullmatch(name) else text))


def sources(request: str) -> frozenset[str]:
    """Return the files that a request names only to be read for another: a.txt in "read a.txt to b.txt"."""
    request = request[:LONGEST_REQUEST]
    paths = paths_in(request)
    others = {path for start, path in paths.items() if not wording.BEFORE_SOURCE.search(request[:start])}
    has_target = any(
        path in others and wording.BEFORE_DESTINATION.search(request[:start]) for start, path in paths.items()
    )
    return frozenset(paths.values()) - others if has_target else frozenset()


def with_sources(arguments: Mapping[str, Any], request: str, done: Collection[str]) -> dict[str, Any]:
    """Return the arguments of a call that reads, with the files that the request says to read.

    In place of those that it says to write: for "save 'x' to a.txt, and read b.txt", a small model reads
    a.txt. `done`: texts of the calls before.
    """
    request = request[:LONGEST_REQUEST]
    read, written = list[str](), set[str]()
    for start, path in paths_in(request).items():
        before = request[max(start - 100, 0) : start]
        if wording.BEFORE_TARGET.search(before):
            written.add(path)
        elif wording.BEFORE_SOURCE.search(before) and not wording.NOT_READ.search(before):
            read += [path] if path not in done else []
    written -= {appends(request)}
    return {
        name: read
        if read and isinstance(value, list) and value and written.issuperset(map(str, value))
        else value
        for name, value in arguments.items()
    }


def is_only_source(arguments: Mapping[str, Any], request: str) -> bool:
    """Return whether a call would change a file that a request only names to be read."""
    return not sources(request).isdisjoint(texts_in(arguments))


def each_text(
    value: Any,
    change: Callable[[str, str], str],
    select: Callable[[list[Any]], list[Any]] = list,
    numbers: Mapping[int, int] = MappingProxyType({}),
    name: str = "",
) -> Any:
    """Return a value with its texts changed; `change` takes a text and the name of the property it is in.

    `select` takes each list, and returns the items that stay; `numbers` has other numbers for some.
    """
    match value:
        case str():
            return change(value, name)
        case int() if not isinstance(value, bool):
            return numbers.get(value, value)
        case Mapping():
            return {key: each_text(member, change, select, numbers, key) for key, member in value.items()}
        case list():
            return [each_text(member, change, select, numbers, name) for member in select(value)]
    return value


def texts_in(value: Any) -> frozenset[str]:
    """Return the texts in a value."""
    return frozenset(scalar for scalar in scalars_of(value) if isinstance(scalar, str))
