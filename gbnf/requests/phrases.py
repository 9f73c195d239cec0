"""Search for markers (words and phrases) in a request, and what paths, addresses and quotes look like.

Case, accents and the kind of apostrophe are ignored. A marker starts and ends at the boundaries of words
("qua" is not in "qualcosa", "annulla" is in "l'annulla"), and a phrase does not cross the end of a clause.
"…" in a marker, once, stands for up to three words or paths: "put … back". Scripts without spaces between
words are matched by character. The marker "@" stands for any email address. Nothing else is found in these
and in file-system paths; web addresses are searched.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache
from typing import Final, TypeAlias

from gbnf.schema_caches import schema_cache

ADDRESS: Final = r"[\w.+-]++@[\w-]++(?:\.[\w-]++)++"
"""Of electronic mail, as people write it."""
QUOTED: Final = re.compile(
    r"""(?<!\w)(?:"[^"\n]{1,200}"|“[^”\n]{1,200}”|«[^»\n]{1,200}»|'[^'\n]{1,200}'|`[^`\n]{1,200}`)(?!\w)"""
)
PATH: Final = re.compile(
    r"(?<![^\s('\"])[~./]?(?=[\w-]{0,80}[^\W\d])[\w-]{1,80}[/@_.\\][\w/@_.\\-]*\w|(?<!\S)[~.]?/[\w/@_.-]*\w"
)

UNSPACED = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD_OR_STOP = re.compile(rf"[{UNSPACED}]|[^\W_{UNSPACED}]+|(?P<stop>[,;:!?()\[\]{{}}\n]|\.(?=\s|$))|[\0@]")
_STOP = ""
_PATH = "\0"  # replaces a path: a word that no marker contains
_ADDRESS = "@"  # replaces an email address
_GAP = "…"
_WIDEST_GAP = 3  # words

_PIECE = re.compile(
    r"""(?P<quote>["`]|(?<!\w)')(?P<quoted>[^"`'\n]*)(?P=quote)(?!\w)|(?:\\[ ]|[^\s"`<>|;,])+"""
)
"""A request's pieces: quoted ones, which may contain spaces, and those between spaces, quotes and commas."""
_ROOT = re.compile(r"(?:^|[:='’])(?:~|\.{1,2})?[/\\]|^[A-Za-z]:[/\\]")
_URL = re.compile(r"(?:(?!file:)[a-z][a-z0-9+.-]+://|www\.)", re.IGNORECASE)
_DOMAIN = re.compile(
    r"(?:[a-z0-9-]+\.)+(?:ai|app|ch|co|com|de|dev|edu|es|eu|fr|gov|info|io|it|net|nl|org|so|uk|us)",
    re.IGNORECASE,
)
_EMAIL = re.compile(r"[^\s@]+@[^\s@]+\.\w+")
_EXTENSION = re.compile(r"[^.]\.\w{1,8}$")
_FILE = re.compile(
    r"[^.]\.(?:bak|bmp|c|cfg|conf|cpp|csv|db|docx?|eml|epub|gif|gz|h|html?|ics|ini|ipynb|jpe?g|js|json|jsonl|log"
    r"|md|mp[34]|od[pst]|pdf|png|pptx?|py|rs|rtf|sh|sql|svg|tar|tex|tmp|toml|ts|tsv|txt|wav|xlsx?|xml|ya?ml|zip)$",
    re.IGNORECASE,
)

_AROUND = "'’“”«»([{)]}.:!?*_,;"
"""What may stand around an address."""

_Words: TypeAlias = tuple[str, ...]
_Pattern: TypeAlias = tuple[str | None, ...]  # None: any word of the same clause


class PhraseMatcher:
    """A set of markers to search for. `others`: phrases in which markers do not count."""

    def __init__(self, markers: Iterable[str], others: Iterable[str] = ()) -> None:
        self._others = frozenset(others)
        self._markers: dict[_Words, set[str]] = {}
        self._gapped: dict[str, list[tuple[_Pattern, str]]] = {}  # by their first words
        for marker in (*markers, *self._others):
            head, tail = (_words(part) for part in marker.partition(_GAP)[::2])
            if head and tail:
                gaps = ((None,) * width for width in range(_WIDEST_GAP + 1))
                self._gapped.setdefault(head[0], []).extend((head + gap + tail, marker) for gap in gaps)
            else:
                self._markers.setdefault(head or tail, set()).add(marker)
        self._markers.pop((), None)
        self._lengths = sorted({len(words) for words in self._markers}, reverse=True)

    def find_all(self, text: str) -> frozenset[str]:
        """Return every marker in `text`."""
        spans = self._spans(text).values()
        return frozenset(marker for markers in spans for marker in markers) - self._others

    def find_longest(self, text: str) -> frozenset[str]:
        """Return the markers in `text` that are not inside longer markers or inside others.

        "google" is not found in "google docs" if that is a marker too.
        """
        longest: set[str] = set()
        reached = 0  # the furthest end of the spans that begin before, or here and are longer
        for (_, end), markers in sorted(
            self._spans(text).items(), key=lambda span: (span[0][0], -span[0][1])
        ):
            if end > reached:
                longest |= markers if self._others.isdisjoint(markers) else set()
                reached = end
        return frozenset(longest)

    def _spans(self, text: str) -> dict[tuple[int, int], set[str]]:
        """Return the markers by their spans, as positions of words."""
        words = _words_of(text)
        spans: dict[tuple[int, int], set[str]] = {}
        for start, first in enumerate(words):
            for length in self._lengths:
                here = words[start : start + length]
                if len(here) == length and here in self._markers:
                    spans.setdefault((start, start + length), set()).update(self._markers[here])
            for pattern, marker in self._gapped.get(first, ()):
                here = words[start : start + len(pattern)]
                if len(here) == len(pattern) and all(
                    word != _STOP if expected is None else word == expected
                    for expected, word in zip(pattern, here, strict=True)
                ):
                    spans.setdefault((start, start + len(pattern)), set()).add(marker)
        return spans


def without_paths(text: str) -> str:
    """Return `text` with a placeholder for each file-system path and email address."""

    def replaced(match: re.Match[str]) -> str:
        quoted = match["quoted"]
        if quoted is None:
            is_address = _EMAIL.fullmatch(match[0].strip(_AROUND))
            return f" {_ADDRESS if is_address else _PATH} " if _is_path(match[0]) else match[0]
        if _ROOT.match(quoted) or (_is_path(quoted) and not _URL.match(quoted)):
            return f" {_PATH} "
        return match["quote"] + _PIECE.sub(replaced, quoted) + match["quote"]

    return _PIECE.sub(replaced, text)


def _is_path(piece: str) -> bool:
    """Return whether a piece is a path, a file name or an email address, and not "and/or" or a URL."""
    piece = piece.strip("'’“”«»").lstrip("([{").rstrip(")]}.:!?'’*_")
    if _URL.match(piece):
        return False
    if _ROOT.search(piece) or _EMAIL.fullmatch(piece):
        return True
    first, *others = re.split(r"[/\\]", piece)
    if not others:
        return bool(_FILE.search(piece)) and not _DOMAIN.fullmatch(piece)
    if _DOMAIN.fullmatch(first):
        return False
    return len(others) > 1 or others[-1] == "" or bool(_EXTENSION.search(others[-1]))


@schema_cache(maxsize=8)
def _words_of(text: str) -> _Words:
    """Return the words to search; cached, since a request is searched several times in each step."""
    return _words(without_paths(text))


def _words(text: str) -> _Words:
    """Return the words of `text` without case and accents; the end of a clause is the word ""."""
    return tuple(_STOP if match["stop"] else match[0] for match in _WORD_OR_STOP.finditer(plain_text(text)))


def plain_text(text: str) -> str:
    """Return `text` without case and accents, normalized character by character.

    In NFKD only the order of combining marks depends on neighbours, and these are removed. Normalizing the
    whole text would sort a long run of them in quadratic time.
    """
    return text.casefold() if text.isascii() else "".join(map(_plain_character, text))


@lru_cache(maxsize=4096)  # a table of characters: one for the process
def _plain_character(char: str) -> str:
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", char).casefold())
    return "".join(part for part in decomposed if not unicodedata.combining(part))
