"""Names of nonterminals: readable, unique, and in the alphabet that every build of llama.cpp reads."""

from __future__ import annotations

import re
import unicodedata

_WORDS = re.compile(r"[A-Za-z0-9]+")


def camel(*parts: str) -> str:
    """Join parts to lowerCamelCase of `[A-Za-z0-9]`.

    "get_inputs", "dialog" -> getInputsDialog; accents go ("café" -> cafe); what has no Latin letters is
    spelled by its code points ("日本" -> u65e5u672c).
    """
    words: list[str] = []
    for part in parts:
        plain = "".join(
            char for char in unicodedata.normalize("NFKD", part) if not unicodedata.combining(char)
        )
        spelled = "".join(char if ord(char) < 128 else f" u{ord(char):x} " for char in plain)
        words += _WORDS.findall(spelled)
    if not words:
        return "x"
    head, *tail = words
    name = head[0].lower() + head[1:] + "".join(word[0].upper() + word[1:] for word in tail)
    return name if name[0].isalpha() else f"n{name}"


class NameTable:
    """Gives out names, each once. `taken` are those that others have."""

    def __init__(self, taken: frozenset[str] = frozenset()) -> None:
        self._taken = set(taken)

    def fresh(self, *parts: str) -> str:
        """The camelCase of `parts`, with the least number behind it that makes it new."""
        wanted = name = camel(*parts)
        count = 1
        while name in self._taken:
            count += 1
            name = f"{wanted}{count}" if not wanted[-1].isdigit() else f"{wanted}x{count}"
        self._taken.add(name)
        return name
