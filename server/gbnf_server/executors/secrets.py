"""The credentials that a person typed in one run, and their handles in the conversation.

A credential goes to the tool call that asked the person for it, and to a call whose executor asks for it by
its handle (`Context.secret`). Arguments are never replaced, so that no model can put a credential into a file
or a message by writing its handle there. In everything that a call returns, raises or prints, the run's
credentials are replaced by their handles.

Handles are random: a model can neither guess one, nor use one of another run.
"""

from __future__ import annotations

import json
import os
import re
from contextlib import suppress
from urllib.parse import quote, quote_plus

HANDLE_PREFIX = "secret:"
"""The prefix of every handle."""


_SHORTEST_PART = 4


class Secrets:
    """The credentials of one run. `prompts`: the questions to the person, by handle."""

    def __init__(self) -> None:
        self._values: dict[str, str] = {}
        self._handles: dict[str, str] = {}  # of each spelling
        self._found: re.Pattern[str] | None = None
        self.prompts: dict[str, str] = {}

    def __repr__(self) -> str:
        return f"<{len(self._values)} secrets>"

    def keep(self, value: str, prompt: str) -> str:
        """Return the handle of a credential: that of the same value, or a new one."""
        handle = self._handles.get(value) or HANDLE_PREFIX + os.urandom(8).hex()
        self.restore(handle, value, prompt)
        return handle

    def restore(self, handle: str, value: str, prompt: str) -> None:
        """Store a credential under the handle that an interrupted run used."""
        self._values[handle] = value
        self.prompts[handle] = prompt
        for spelling in _spellings(value):
            self._handles.setdefault(spelling, handle)
        longest_first = sorted(self._handles, key=lambda text: (-len(text), text))
        self._found = re.compile("|".join(map(_pattern, longest_first)))

    def value(self, handle: str) -> str | None:
        """Return the credential behind a handle; None if there is none."""
        return self._values.get(handle)

    def redact(self, text: str) -> str:
        """Return a text with every credential in it replaced by its handle."""
        if self._found is None:
            return text
        return self._found.sub(lambda match: self._handles[match[0]], text)

    def redact_number(self, number: float) -> float | str:
        """Return a number, or the handle of the credential that is spelled like it."""
        return self._handles.get(json.dumps(number), number)


def _pattern(spelling: str) -> str:
    """Return the pattern of a credential; a short one, part of too many words, matches whole words only."""
    escaped = re.escape(spelling)
    return escaped if len(spelling) >= _SHORTEST_PART else rf"(?<!\w){escaped}(?!\w)"


def _spellings(value: str) -> set[str]:
    """Return the spellings of a credential: literal, on one line, in JSON, in a traceback, in a URL."""
    texts = {value, value.strip(), " ".join(value.split())}
    with suppress(UnicodeEncodeError):  # a lone surrogate cannot be encoded
        texts |= {quote(value), quote(value, safe=""), quote_plus(value)}
    texts |= {json.dumps(value)[1:-1], json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1]}
    return {text for text in texts if text}
