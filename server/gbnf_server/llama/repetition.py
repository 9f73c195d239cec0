"""Find text that repeats without an end.

A weak model may write `github.github.github.` or `["today", "tomorrow", "today", …]` until the token limit.
A text repeats if its end is one text of at most `_LONGEST_PERIOD` characters, `_REPEATS` times or more,
unchanged, and has at least

- `_LEAST` characters, if that text has words, or is blank. In files, rows of tables and lines of logs are
  equal up to 10 times, and lists of one word have fewer than 50 entries.
- `_LEAST_CLOSING` characters, if it has closing brackets and quotes alone;
- `_LEAST_WITHOUT_WORDS` characters otherwise: numbers, punctuation, base64, hexadecimal and genetic code.
  Matrices of zeros and encoded images are that regular.

Whether a text repeats depends on the text alone, however it is split into pieces.
"""

from __future__ import annotations

import re

_LONGEST_PERIOD = 256
_REPEATS = 16
_LEAST = 512
_LEAST_CLOSING = 128
_LEAST_WITHOUT_WORDS = 4096
_WINDOW = max(_LEAST_WITHOUT_WORDS, _REPEATS * _LONGEST_PERIOD)
_STRIDE = 16  # characters from one search to the next
_TAIL = 48  # characters that are looked up; as many occur twice within the longest period in few texts


class RepetitionDetector:
    """Finds whether a text repeats at its end. Bounded memory; a search after each 16 characters.

    `repeated`: the text that is repeated, beginning where the next repetition begins; "" if none is.
    """

    def __init__(self) -> None:
        self.repeated = ""
        self._end = ""  # of the text, as much as is needed
        self._length = 0

    def feed(self, piece: str) -> None:
        """Add the next piece of the text."""
        while piece:
            count = _STRIDE - self._length % _STRIDE
            part, piece = piece[:count], piece[count:]
            for char in part if self.repeated else "":
                self.repeated = self.repeated[1:] + char if char == self.repeated[:1] else ""
            self._end = (self._end + part)[-_WINDOW:]
            self._length += len(part)
            if not self.repeated and not self._length % _STRIDE:
                self.repeated = _repeated(self._end)


def _repeated(text: str) -> str:
    """Return the shortest text that is repeated often enough at the end, "" if there is none."""
    length, tail = len(text), text[-_TAIL:]
    if length < _LEAST_CLOSING:
        return ""
    if _CLOSING.fullmatch(text, length - _LEAST_CLOSING):
        period = next((count for count in range(1, 9) if _has_period(text, count, _LEAST_CLOSING)), 0)
        if period:
            return text[-period:]
    if length < _LEAST:
        return ""
    at = length - _TAIL
    while (at := text.rfind(tail, length - _TAIL - _LONGEST_PERIOD, at + _TAIL - 1)) >= 0:
        period = length - _TAIL - at
        if _has_period(text, period, _LEAST):  # all longer ones are multiples of the shortest
            repeated = text[-period:]
            least = _LEAST if _has_words(repeated) or _BLANK.fullmatch(repeated * 3) else _LEAST_WITHOUT_WORDS
            return repeated if _has_period(text, period, max(least, _REPEATS * period)) else ""
    return ""


def _has_period(text: str, period: int, least: int) -> bool:
    """Return whether the last `least` characters have the period."""
    return len(text) >= least and text[-least:-period] == text[period - least :]


# A repetition may begin anywhere: inside of a word, or of an escape in a JSON string.
_BLANK = re.compile(r"[nrt]?(?:\\[nrt]|\s)+\\?")  # white space, or its escapes in JSON
_CLOSING = re.compile(r"[}\])>\"'\\]+")
_PART = re.compile(r"\A\w+|\\?\w*\Z", re.ASCII)
_NO_WORD = re.compile(
    r"\\+(?:[bfnrt\"/]|u[0-9a-f]{4}|x[0-9a-f]{2})?|\b(?:0x[0-9a-f]+|true|false|null|none|nan)\b",
    re.IGNORECASE,
)
_SEPARATOR = re.compile(r"[^A-Za-z0-9_+/=\-\s]| ")  # base64, hexadecimal and genetic code have none
_WORD = re.compile(r"[^\W\d_]{3,}")


def _has_words(repeated: str) -> bool:
    """Return whether a repeated text has words, each of several letters that differ."""
    text = _NO_WORD.sub("\n", _PART.sub("", repeated * 3))
    return bool(_SEPARATOR.search(text)) and any(len(set(word.lower())) > 1 for word in _WORD.findall(text))
