"""Names of nonterminals: readable, unique, and in the alphabet that every build of llama.cpp reads."""

from __future__ import annotations

import re
import unicodedata
from functools import lru_cache

_WORDS = re.compile(r"[A-Za-z0-9]+")


#: Longer paths keep their first part and their last ones.
MAX_PARTS = 7


def camel(*parts: str) -> str:
    """Join parts to lowerCamelCase of `[A-Za-z0-9]`.

    "get_inputs", "dialog" -> getInputsDialog; accents are dropped ("café" -> cafe); characters beyond ASCII
    become their code points ("日本" -> u65e5u672c).
    """
    shown = parts if len(parts) <= MAX_PARTS else (parts[0], *parts[1 - MAX_PARTS :])
    joined = "".join(map(_capitalised, shown))
    if not joined:
        return "x"
    return joined[0].lower() + joined[1:] if joined[0].isalpha() else f"n{joined}"


@lru_cache(maxsize=4096)
def _capitalised(part: str) -> str:
    """Return the words of one part, each with a capital letter."""
    if not part.isascii():
        plain = [char for char in unicodedata.normalize("NFKD", part) if not unicodedata.combining(char)]
        part = "".join([char if ord(char) < 128 else f" u{ord(char):x} " for char in plain])
    return "".join([word[0].upper() + word[1:] for word in _WORDS.findall(part)])


class NameTable:
    """Generates unique names; `taken` are in use elsewhere."""

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self._taken = set(taken)
        self._counts: dict[str, int] = {}

    def fresh(self, *parts: str) -> str:
        """Return the camelCase of `parts`, with a number that makes it unique if needed."""
        wanted = name = camel(*parts)
        count = self._counts.get(wanted, 1)
        while name in self._taken:
            count += 1
            name = f"{wanted}{count}" if not wanted[-1].isdigit() else f"{wanted}x{count}"
        self._counts[wanted] = count
        self._taken.add(name)
        return name
