"""A bonus for what a request supports (`gbnf.tools.evidence`), on the logits of a JSON call.

- Inside of a string value, tokens gain that begin or continue a phrase of the request or a supported enum
  value, and at its end the quote.
- Before the value of a boolean that the request mentions, `true` gains.
- In a key, tokens lose that lead to an optional argument without support; after the last supported argument,
  the comma loses.

Invariants: the grammar decides what is allowed, and every allowed text stays possible. The likeliest token
keeps its place if the model gives it a probability above `UNMOVED`, so a model that is sure decides alone. At
all other positions the logits are the model's.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Final, Literal

import numpy as np

from gbnf.tools.evidence import Evidence
from gbnf_server.llama.kv_cache import Logits
from gbnf_server.llama.native import NativeModel

BONUS: Final = 2.0
"""Added to a logit: it multiplies the token's odds by seven."""
UNMOVED: Final = 1 / (1 + math.exp(-BONUS))
"""The probability, 0.88, above which no bonus makes another token the likeliest."""
_LONGEST_TOKEN: Final = 24  # characters that are looked up
_CLOSINGS: Final = ('", "', '","', '"}}', '"]')  # what may be one token with the quote that ends a string
_ARGUMENTS_DEPTH: Final = 2  # of their object, in {"name": …, "arguments": {…}}

_Kind = Literal["key", "string", "other"]


class CallPosition:
    """Where the text of a JSON call is: in a key, in a string value, or elsewhere.

    `kind`, and `content`: what the key or string has so far, escapes as they are written. `tool`: the string
    under "name"; `values`: all strings that have ended; `depth`: of open objects and arrays. In an object,
    `keys` are those it has.
    """

    def __init__(self) -> None:
        self.kind: _Kind = "other"
        self.content = ""
        self.tool = ""
        self.keys: list[str] = []
        self.values: set[str] = set()
        self._open: list[tuple[bool, list[str]]] = []  # whether it is an object, and its keys
        self._expects_key = self._is_escaped = self._has_value = False
        self.awaits_value = False  # of a member, after its colon

    @property
    def depth(self) -> int:
        """How many objects and arrays are open."""
        return len(self._open)

    @property
    def ends_member(self) -> bool:
        """Whether a value has ended, or a string value can."""
        return self._has_value if self.kind == "other" else self.kind == "string"

    def feed(self, text: str) -> None:
        """Advance by a piece of the text."""
        for char in text:
            if self.kind != "other":
                self._feed_string(char)
            else:
                self._feed_structure(char)

    def _feed_string(self, char: str) -> None:
        if char == '"' and not self._is_escaped:
            if self.kind == "key":
                self.keys.append(self.content)
            elif self.depth == 1 and self.keys[-1:] == ["name"]:
                self.tool = self.content
            if self.kind == "string":
                self.values.add(self.content)
            self._has_value = self.kind == "string"
            self.kind = "other"
            return
        self._is_escaped = char == "\\" and not self._is_escaped
        self.content += char

    def _feed_structure(self, char: str) -> None:
        if char == '"':
            self.kind, self.content = ("key" if self._expects_key else "string"), ""
            self._is_escaped = self.awaits_value = False
        elif char in "{[":
            self._open.append((char == "{", self.keys))
            self.keys, self.awaits_value = [], False
            self._expects_key, self._has_value = char == "{", False
        elif char in "}]":
            if self._open:
                _, self.keys = self._open.pop()
            self._expects_key, self._has_value = False, True
        elif char in ":,":
            self.awaits_value = char == ":"
            self._expects_key = char == "," and bool(self._open) and self._open[-1][0]
            self._has_value = False
        elif not char.isspace():
            self._has_value, self.awaits_value = True, False


class EvidenceBias:
    """The bonus in one answer."""

    def __init__(self, model: NativeModel, evidence: Evidence) -> None:
        self._tokens, self._evidence = model.tokens_by_text, evidence
        self._position = CallPosition()

    def accept(self, text: str) -> None:
        """Advance by a piece of the answer."""
        self._position.feed(text)

    def biased(self, logits: Logits) -> Logits:
        """Return the logits with the bonus; the same array if there is none."""
        changes = self.changes()
        if changes:
            logits = logits.copy()
            logits[list(changes)] += np.fromiter(changes.values(), np.float32, len(changes))
        return logits

    def changes(self) -> dict[int, float]:
        """Return what the next tokens gain and lose."""
        position = self._position
        if position.depth < _ARGUMENTS_DEPTH:
            return {}
        in_arguments = position.depth == _ARGUMENTS_DEPTH
        if position.kind == "key":
            return dict.fromkeys(self._unsupported_keys(position.content), -BONUS) if in_arguments else {}
        found: dict[int, float] = {}
        if position.kind == "string":
            for text in self._continuations(position.content):
                found |= dict.fromkeys(self._tokens_of(text), BONUS)
        if in_arguments and position.awaits_value and self._is_affirmed():
            found |= dict.fromkeys((*self._tokens_of("true"), *self._tokens_of(" true", 2)), BONUS)
        if in_arguments and position.ends_member:
            # beside a gain, a loss would make twice the difference
            found |= dict.fromkeys(self._unwanted_commas(), 0.0 if found else -BONUS)
        return found

    def _unwanted_commas(self) -> Iterator[int]:
        """Yield the tokens that go on to unsupported arguments only."""
        if self._left() or not self._evidence.unsupported.get(self._position.tool):
            return
        quote = '"' if self._position.kind == "string" else ""
        for comma in (', "', ',"'):
            yield from self._tokens_of(quote + comma, len(quote) + 1)

    def _is_affirmed(self) -> bool:
        position = self._position
        return position.keys[-1] in self._evidence.affirmed.get(position.tool, ())

    def _left(self) -> frozenset[str]:
        """Return the supported arguments that the call does not have yet."""
        return self._evidence.supported.get(self._position.tool, frozenset()).difference(self._position.keys)

    def _continuations(self, value: str) -> Iterator[str]:
        """Yield the texts that may follow a string's value so far; at the end of a phrase, its quote.

        A phrase that the call has already is not suggested again.
        """
        for phrase in self._evidence.phrases:
            if phrase.startswith(value) and phrase not in self._position.values:
                yield from [phrase[len(value) :]] if len(phrase) > len(value) else _CLOSINGS

    def _unsupported_keys(self, key: str) -> Iterator[int]:
        """Yield the tokens that continue a key to unsupported arguments only."""
        if not self._left():
            return
        left = [f'{name}"' for name in self._left() if name.startswith(key)]
        likely = {token for name in left for token in self._tokens_of(name[len(key) :])}
        for name in self._evidence.unsupported.get(self._position.tool, ()):
            if name.startswith(key):
                yield from (token for token in self._tokens_of(f'{name[len(key) :]}"') if token not in likely)

    def _tokens_of(self, text: str, shortest: int = 1) -> Iterator[int]:
        """Yield the tokens that begin a text, of at least so many characters."""
        for length in range(shortest, min(len(text), _LONGEST_TOKEN) + 1):
            token = self._tokens.get(text[:length])
            if token is not None:
                yield token
