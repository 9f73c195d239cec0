"""Markers in a request: words and phrases, found as a reader would find them.

Upper and lower case, accents and the kind of apostrophe don't count. A marker begins and ends at the
boundaries of words ("qua" is not in "qualcosa", "annulla" is in "l'annulla"), and a phrase doesn't reach over
the end of a clause. Scripts that put no spaces between words are matched by character. File-system paths
and e-mail addresses are no text; addresses on the web are.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from typing import TypeAlias

_UNSPACED = r"\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
_WORD_OR_STOP = re.compile(rf"[{_UNSPACED}]|[^\W_{_UNSPACED}]+|(?P<stop>[,;:!?()\[\]{{}}\n]|\.(?=\s|$))")
_STOP = ""

#: A request's pieces: quoted ones, which may hold spaces, and those between spaces, quotes and commas.
_PIECE = re.compile(
    r"""(?P<quote>["`]|(?<!\w)')(?P<quoted>[^"`'\n]*)(?P=quote)(?!\w)|(?:\\[ ]|[^\s"`<>|;,])+"""
)
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

_Words: TypeAlias = tuple[str, ...]


class Markers:
    """A set of markers to look for."""

    def __init__(self, markers: Iterable[str]) -> None:
        self._markers: dict[_Words, set[str]] = {}
        for marker in markers:
            self._markers.setdefault(_words(marker), set()).add(marker)
        self._markers.pop((), None)
        self._lengths = sorted({len(words) for words in self._markers}, reverse=True)

    def all_in(self, text: str) -> frozenset[str]:
        """Every marker that `text` holds."""
        return frozenset(marker for words in self._spans(text).values() for marker in self._markers[words])

    def longest_in(self, text: str) -> frozenset[str]:
        """The markers that `text` holds outside of longer ones, as "google" in "google photos"."""
        spans = self._spans(text)
        return frozenset(
            marker
            for (start, end), words in spans.items()
            if self._widest(spans, start, end) == end - start
            for marker in self._markers[words]
        )

    def _spans(self, text: str) -> dict[tuple[int, int], _Words]:
        """Where the markers stand, as word positions."""
        words = _words(without_paths(text))
        return {
            (start, start + length): found
            for start in range(len(words))
            for length in self._lengths
            if (found := words[start : start + length]) in self._markers and len(found) == length
        }

    def _widest(self, spans: dict[tuple[int, int], _Words], start: int, end: int) -> int:
        """The length of the longest found span around the one from `start` to `end`."""
        return next(
            length
            for length in self._lengths
            if any((begin, begin + length) in spans for begin in range(end - length, start + 1))
        )


def without_paths(text: str) -> str:
    """`text` with its file-system paths and e-mail addresses taken out."""

    def replaced(match: re.Match[str]) -> str:
        quoted = match["quoted"]
        if quoted is None:
            return " ; " if _is_path(match[0]) else match[0]
        if _ROOT.match(quoted) or (_is_path(quoted) and not _URL.match(quoted)):
            return " ; "
        return match["quote"] + _PIECE.sub(replaced, quoted) + match["quote"]

    return _PIECE.sub(replaced, text)


def _is_path(piece: str) -> bool:
    """Whether a piece is a path, a file's name or an e-mail address; "and/or" and web addresses are not."""
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


def _words(text: str) -> _Words:
    """The words of `text` without case and accents; the end of a clause is a word of its own, ""."""
    decomposed = unicodedata.normalize("NFKD", unicodedata.normalize("NFKD", text).casefold())
    bare = "".join(char for char in decomposed if not unicodedata.combining(char))
    return tuple(_STOP if match["stop"] else match[0] for match in _WORD_OR_STOP.finditer(bare))
