"""Find text that repeats without an end.

A weak model may write `github.github.github.`, `["today", "tomorrow", "today", …]` or
`abs(-1) == 1, abs(-2) == 2, …` until the token limit. A text repeats if its end is one text of at most
`_LONGEST_PERIOD` characters, `_REPEATS` times or more, unchanged, and has at least

- `_LEAST` characters, if that text has words, or is blank. In files, rows of tables and lines of logs are
  equal up to 10 times, and lists of one word have fewer than 50 entries.
- `_LEAST_CLOSING` characters, if it has closing brackets and quotes alone;
- `_LEAST_WITHOUT_WORDS` characters otherwise: numbers, punctuation, base64, hexadecimal and genetic code.
  Matrices of zeros and encoded images are that regular.

If it has words, its numbers may differ: each number in the place of another one requires `_PER_NUMBER` more
repetitions, up to `_MOST_REPEATS`, with `_LEAST_COUNTED` characters each; a number is one. People ask for 100
items, and a multiplication table has 144 rows. Without words, numbers that differ are data.

Whether a text repeats depends on the text alone, however it is split into pieces.
"""

from __future__ import annotations

import re

_LONGEST_PERIOD = 1024
_REPEATS = 16
_PER_NUMBER = 6
_MOST_REPEATS = 160
_LEAST_COUNTED = 16
_LEAST = 512
_LEAST_CLOSING = 128
_LEAST_WITHOUT_WORDS = 4096
_WINDOW = 40960  # characters that are kept
_STRIDE = 16  # characters from one search to the next; `_LEAST` for numbers that differ
_TAIL = 48  # characters that are looked up; as many occur twice within the longest period in few texts


class RepetitionDetector:
    """Finds whether a text repeats at its end. Bounded memory; a search after each 16 characters.

    `repeated`: the text that is repeated, beginning where the next repetition begins; "" if none is.
    `counts`: whether other numbers may follow than those in it.
    """

    def __init__(self) -> None:
        self.repeated = ""
        self.counts = False
        self._end = ""  # of the text, as much as is needed
        self._length = 0

    def feed(self, piece: str) -> None:
        """Add the next piece of the text."""
        start = 0
        while part := piece[start : start + _STRIDE - self._length % _STRIDE]:
            start += len(part)
            for char in part if self.repeated else "":
                self.repeated = rotated(self.repeated, char, counts=self.counts)
            self._end = (self._end + part)[-_WINDOW:]
            self._length += len(part)
            if not self.repeated and not self._length % _STRIDE:
                self.repeated, self.counts = _repeated(self._end), False
            if not self.repeated and not self._length % _LEAST:
                self.repeated, self.counts = _counted(self._end), True


def rotated(repeated: str, char: str, *, counts: bool) -> str:
    """Return what is repeated after one more character of the text, "" if that is not what comes next."""
    if counts and char.isdecimal() and repeated:
        if repeated[-1].isdecimal():
            return repeated + char if len(repeated) < _WINDOW else ""
        if repeated[0].isdecimal():
            repeated = _NUMBER.sub(char, repeated, count=1)
    return repeated[1:] + char if char == repeated[:1] else ""


def _repeated(text: str) -> str:
    """Return the shortest text that is repeated often enough at the end, "" if there is none."""
    if _CLOSING.fullmatch(text, len(text) - _LEAST_CLOSING):
        period = next((count for count in range(1, 9) if _has_period(text, count, _LEAST_CLOSING)), 0)
        if period:
            return text[-period:]
    if not (period := _period(text)):
        return ""
    repeated = text[-period:]
    least = _LEAST if _has_words(repeated) or _BLANK.fullmatch(repeated * 3) else _LEAST_WITHOUT_WORDS
    return repeated if _has_period(text, period, max(least, _REPEATS * period)) else ""


def _counted(text: str) -> str:
    """Return the same for a text whose numbers differ."""
    shape = _NUMBER.sub("0", text[-_LEAST_WITHOUT_WORDS:])
    if not (period := _period(shape)) or not _has_words(shape[-period:]):
        return ""
    units, places = _UNIT.findall(text), set[tuple[int, str]]()
    for count, start in enumerate(range(len(units) - period, -1, -period), 1):
        repetition = units[start : start + period]
        if _NUMBER.sub("0", "".join(repetition)) != shape[-period:]:
            break
        places.update(enumerate(repetition))
        required = min(_REPEATS + _PER_NUMBER * (len(places) - period), _MOST_REPEATS)
        if count >= required and count * period >= max(_LEAST, _LEAST_COUNTED * required):
            return "".join(units[-period:])
    return ""


def _period(text: str) -> int:
    """Return the shortest period of the last `_LEAST` characters; all longer ones are multiples. 0: none."""
    start = length = len(text) - _TAIL
    while (start := text.rfind(text[-_TAIL:], max(length - _LONGEST_PERIOD, 0), start + _TAIL - 1)) >= 0:
        if _has_period(text, length - start, max(_LEAST, 2 * (length - start))):
            return length - start
    return 0


def _has_period(text: str, period: int, least: int) -> bool:
    """Return whether the last `least` characters have the period."""
    return len(text) >= least and text[-least:-period] == text[period - least :]


_NUMBER = re.compile(r"\d+")
_UNIT = re.compile(r"\d+|\D")
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
