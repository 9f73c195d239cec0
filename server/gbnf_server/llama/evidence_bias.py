"""A bonus for what a request supports (`gbnf.tools.evidence`), on the logits of a JSON call.

- Inside of a string value, tokens gain that begin or continue a phrase of the request, and at its end the
  quote, unless a longer phrase begins with it. Tokens lose that continue a string that the call has already,
  the argument's description, or an example in it.
- Where an enum is allowed, tokens of its supported values gain. In a list, the comma loses after the last of
  them, after the last of the request's numbers, and after two texts that the request does not have.
- Before the value of a boolean that the request mentions, `true` gains.
- In a number, digits gain that continue a number of the request, and lose after its end. Before a share, such
  as 0.05 of 5 %, the zero gains.
- In a key, tokens lose that lead to an optional argument without support; after the last supported argument,
  the comma loses, unless a phrase of the request is not in the call yet.
- In the name of a tool, likely ones gain, and unlikely ones lose.

Invariants: the grammar decides what is allowed, and every allowed text stays possible. The likeliest token
keeps its place if the model gives it a probability above `UNMOVED`, so a model that is sure decides alone. At
all other positions the logits are the model's.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Final, Literal

import numpy as np

from gbnf.tools.evidence import ArgumentEvidence, Evidence
from gbnf_server.llama.kv_cache import Logits
from gbnf_server.llama.native import NativeModel

BONUS: Final = 2.0
"""Added to a logit, in a free text or number: it multiplies the token's odds by seven."""
CHOICE_BONUS: Final = 2 * BONUS
"""The same where there are only a few texts: enum values, keys, names of tools, and the comma or the end."""
UNMOVED: Final = 1 / (1 + math.exp(-2 * CHOICE_BONUS))
"""The probability, 0.9997, above which another token does not become the likeliest: one may gain
`CHOICE_BONUS` where another loses it."""
_LONGEST_TOKEN: Final = 24  # characters that are looked up
_CLOSINGS: Final = ('", "', '","', '"}}', '"]')  # what may be one token with the quote that ends a string
_COMMAS: Final = (', "', ',"')  # before a string or a key
_ARGUMENTS_DEPTH: Final = 2  # of their object, in {"name": …, "arguments": {…}}
_MOST_OTHER_ITEMS: Final = 2  # of a list, that the request does not have
_SHORTEST_REPEATED: Final = 3  # characters: shorter strings, such as "en", may well occur twice

_Kind = Literal["key", "string", "other"]


class CallPosition:
    """Where the text of a JSON call is: in a key, in a string value, or elsewhere.

    `kind`, and `content`: what the key or string has so far, escapes as they are written. `tool`: the string
    under "name"; `values`: all strings that have ended; `items`: those since an array began; `depth`: of open
    objects and arrays. In an object, `keys` are those it has. `argument`: the argument whose value is being
    written. `number`: the text so far of a number, or of another value without quotes, where one may be; None
    elsewhere; `numbers`: those that have ended.
    """

    def __init__(self) -> None:
        self.kind: _Kind = "other"
        self.content = ""
        self.tool = ""
        self.keys: list[str] = []
        self.values: set[str] = set()
        self.items: list[str] = []
        self._open: list[tuple[bool, list[str]]] = []  # whether it is an object, and its keys
        self._expects_key = self._is_escaped = self._has_value = False
        self.awaits_value = False  # of a member, after its colon
        self.argument = ""
        self.number: str | None = None
        self.numbers: list[str] = []

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
                self.argument = self.content if self.depth == _ARGUMENTS_DEPTH else self.argument
            elif self.depth == 1 and self.keys[-1:] == ["name"]:
                self.tool = self.content
            if self.kind == "string":
                self.values.add(self.content)
                self.items.append(self.content)
            self._has_value = self.kind == "string"
            self.kind = "other"
            return
        self._is_escaped = char == "\\" and not self._is_escaped
        self.content += char

    def _feed_structure(self, char: str) -> None:
        if char in '{}[]:,"':
            self.numbers += [self.number] if self.number else []
            begins = char in ":[" or (char == "," and bool(self._open) and not self._open[-1][0])
            self.number = "" if begins else None
        elif self.number is not None:
            self.number += char.strip()
        if char == '"':
            self.kind, self.content = ("key" if self._expects_key else "string"), ""
            self._is_escaped = self.awaits_value = False
        elif char in "{[":
            self.items = [] if char == "[" else self.items
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
        position, argument = self._position, self._argument()
        in_arguments = position.depth == _ARGUMENTS_DEPTH
        if position.depth < _ARGUMENTS_DEPTH:
            return self._of_tool_name()
        if position.kind == "key":
            return dict.fromkeys(self._unsupported_keys(), -CHOICE_BONUS) if in_arguments else {}
        if not in_arguments and not (argument.is_list and position.depth == _ARGUMENTS_DEPTH + 1):
            return self._of_text(()) if position.kind == "string" else {}
        found = (
            self._of_text(argument.avoided) if position.kind == "string" and not argument.is_closed else {}
        )
        if position.kind == "string" and argument.choices:
            found = dict.fromkeys(self._continuing(argument.choices), CHOICE_BONUS)
        found |= self._of_number(argument.numbers)
        if in_arguments and position.awaits_value and argument.is_affirmed:
            found |= dict.fromkeys((*self._tokens_of("true"), *self._tokens_of(" true", shortest=2)), BONUS)
        if position.ends_member and (self._has_all() if in_arguments else self._lists_all(argument)):
            quote = '"' if position.kind == "string" else ""
            commas = self._tokens_of(*(quote + comma for comma in _COMMAS), shortest=len(quote) + 1)
            found |= dict.fromkeys(commas, -CHOICE_BONUS)
        return found

    def _argument(self) -> ArgumentEvidence:
        """Return the evidence for the argument whose value is being written."""
        arguments = self._evidence.arguments.get(self._position.tool, {})
        return arguments.get(self._position.argument, _UNKNOWN)

    def _of_tool_name(self) -> dict[int, float]:
        position = self._position
        if (position.depth, position.kind, position.keys[-1:]) != (1, "string", ["name"]):
            return {}
        evidence = self._evidence
        losing = self._tokens_only_of(evidence.unlikely, evidence.callable)
        gaining = self._continuing(evidence.likely)
        return dict.fromkeys(losing, -CHOICE_BONUS) | dict.fromkeys(gaining, CHOICE_BONUS)

    def _of_text(self, avoided: tuple[str, ...]) -> dict[int, float]:
        """Return the changes in a string that is not an enum's."""
        position = self._position
        repeated = [value for value in position.values if len(value) >= _SHORTEST_REPEATED]
        losing = dict.fromkeys(self._tokens_of(*self._rests((*repeated, *avoided))), -BONUS)
        losing |= dict.fromkeys(self._tokens_of(*self._rests(self._used())), -CHOICE_BONUS)
        copied = (*self._evidence.phrases, *self._evidence.entries)
        return losing | dict.fromkeys(self._continuing(copied), BONUS)

    def _continuing(self, texts: Iterable[str]) -> Iterator[int]:
        """Yield the tokens that continue the string to one of some texts that the call does not have.

        At the end of the only text that begins so, the quote.
        """
        rests = self._rests(text for text in texts if text not in self._position.values)
        longer = [rest for rest in rests if rest]
        yield from self._tokens_of(*longer)
        if "" in rests and not longer:
            yield from self._tokens_of(*_CLOSINGS)

    def _rests(self, texts: Iterable[str]) -> list[str]:
        """Return what the string lacks to each of some texts that begin with it."""
        written = self._position.content
        return [text[len(written) :] for text in texts if text.startswith(written)]

    def _of_number(self, numbers: tuple[str, ...]) -> dict[int, float]:
        """Return the changes in a number; `numbers`: those of the request."""
        written = self._position.number
        left = [each for each in numbers if numbers.count(each) > self._position.numbers.count(each)]
        if written is None or not left:
            return {}
        if not written and self._used():
            return self._of_another_number(left)
        if not written:
            has_share = any(each.startswith("0.") for each in left)
            return dict.fromkeys(self._tokens_of("0"), BONUS) if has_share else {}
        longer = [each[len(written) :] for each in left if each.startswith(written) and each != written]
        if written not in left:
            return dict.fromkeys(self._tokens_of(*longer), BONUS)
        return {} if longer else dict.fromkeys(self._tokens_of(*"0123456789."), -BONUS)

    def _of_another_number(self, left: list[str]) -> dict[int, float]:
        """Return the changes before a number, if earlier calls lack some of the request's."""
        losing = self._tokens_of(*(each for each in self._used() if each[:1].isdigit()))
        return dict.fromkeys(losing, -CHOICE_BONUS) | dict.fromkeys(self._tokens_of(*left), BONUS)

    def _used(self) -> frozenset[str]:
        """Return the values of earlier calls of the tool, if the call should have others."""
        return self._evidence.used.get(self._position.tool, frozenset())

    def _lists_all(self, argument: ArgumentEvidence) -> bool:
        """Return whether a list has all supported choices or numbers, or texts that the request has not."""
        if argument.choices:
            return {*self._position.values, self._position.content}.issuperset(argument.choices)
        if self._position.kind == "other" and self._position.number:
            numbers = [*self._position.numbers, self._position.number]
            return bool(argument.numbers) and not Counter(argument.numbers) - Counter(numbers)
        items = [
            *self._position.items,
            *([self._position.content] if self._position.kind == "string" else []),
        ]
        request = self._evidence.request.casefold()
        return sum(item.casefold() not in request for item in items) >= _MOST_OTHER_ITEMS

    def _has_all(self) -> bool:
        """Return whether the call has all supported arguments and all phrases, and others could follow."""
        arguments = self._evidence.arguments.get(self._position.tool, {})
        if self._left() or all(each.is_supported for each in arguments.values()):
            return False
        written = [each for each in (*self._position.values, self._position.content) if each]
        return all(
            any(phrase in each or each in phrase for each in written) for phrase in self._evidence.phrases
        )

    def _left(self) -> frozenset[str]:
        """Return the supported arguments that the call does not have yet."""
        arguments = self._evidence.arguments.get(self._position.tool, {})
        supported = (name for name, each in arguments.items() if each.is_supported)
        return frozenset(supported).difference(self._position.keys)

    def _unsupported_keys(self) -> Iterator[int]:
        """Yield the tokens that continue a key to unsupported arguments only."""
        left = self._left()
        if left:
            arguments = self._evidence.arguments[self._position.tool]
            unlikely = (name for name, each in arguments.items() if not each.is_supported)
            yield from self._tokens_only_of(unlikely, left)

    def _tokens_only_of(self, names: Iterable[str], others: Iterable[str]) -> Iterator[int]:
        """Yield the tokens that continue the string to names, with their quotes, and to no others."""
        chosen = set(names)
        shared = set(self._tokens_of(*self._rests(f'{name}"' for name in others if name not in chosen)))
        tokens = self._tokens_of(*self._rests(f'{name}"' for name in chosen))
        return (token for token in tokens if token not in shared)

    def _tokens_of(self, *texts: str, shortest: int = 1) -> Iterator[int]:
        """Yield the tokens that begin one of some texts, of at least so many characters."""
        for text in texts:
            for length in range(shortest, min(len(text), _LONGEST_TOKEN) + 1):
                token = self._tokens.get(text[:length])
                if token is not None:
                    yield token


_UNKNOWN: Final = ArgumentEvidence()
