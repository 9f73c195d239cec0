"""A bonus for what a request supports (`gbnf.requests.evidence`), on the logits of a JSON call.

What gains and what loses at each place is in the table of `docs/explanation/decoding.md`.

Invariants: the grammar decides what is allowed, and every allowed text stays possible. The likeliest token
keeps its place if the model gives it a probability above `UNMOVED`, so a model that is sure decides alone. At
all other positions the logits are the model's.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final, Literal

import numpy as np

from gbnf.partial_json import JsonReader
from gbnf.requests.evidence import ArgumentEvidence, Evidence
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
_BEFORE_CALL: Final = re.compile(r"\s*(?:```[a-z_]*[ \t]*\s|<[^<>{}]{1,40}>|\[)\s*\[?\s*\{")
_IN_STRING: Final = re.compile(r'(?:[^"\\]|\\.)*+\\?', re.DOTALL)
_DECODER: Final = json.JSONDecoder()
_COMMAS: Final = (', "', ',"')  # before a string or a key
_ARGUMENTS_DEPTH: Final = 2  # of their object, in {"name": …, "arguments": {…}}
_MOST_OTHER_ITEMS: Final = 2  # of a list, that the request does not have
_SHORTEST_REPEATED: Final = 3
"""Characters: shorter strings, such as "en", may well occur twice, and begin a name that they do not copy."""

_NAME_PATHS: Final = (("name",), ("function",), ("tool",))

_ValueKind = Literal["key", "string", "other"]


class CallPosition:
    """Where the text of a JSON call ends: in a key, in a string value, or elsewhere.

    `kind`, and `content`: what the key or string has so far, escapes as they are written. `tool`: the string
    under "name". `argument`: whose value is being written, or ends. `depth`: of open objects and arrays.
    `keys`: those of the innermost object. `values`: all strings that have ended; `items`: those of the
    innermost array. `number`: the text so far of a value without quotes, where one may be; None elsewhere;
    `numbers`: those that have ended. `awaits_value`: whether the value of a member begins; `ends_member`:
    whether a value has ended, or can.
    """

    def __init__(self, text: str = "") -> None:
        self._names: list[str] = []
        self.values: set[str] = set()
        self.numbers: list[str] = []
        self._items: dict[tuple[str | int, ...], list[str]] = {}
        self._reader, self._unread = JsonReader(), ""
        self._read(text)

    @property
    def has_ended(self) -> bool:
        """Whether the outermost value has, of a text that may go on."""
        return self._reader.has_ended

    def extend(self, text: str) -> None:
        """Advance by the next piece of the text; inside a string, all but the content stays the same."""
        escape = "\\" * ((len(self.content) - len(self.content.rstrip("\\"))) % 2)
        if self.kind == "string" and _IN_STRING.fullmatch(escape + text):
            self.content += text
            self._unread += text
        else:
            text, self._unread = self._unread + text, ""
            self._read(text)

    def _read(self, text: str) -> None:
        reader = self._reader
        read = len(reader.scalars)
        reader.extend(text)
        for path, written, _ in islice(reader.scalars, read, None):
            if not written.startswith('"'):
                self.numbers.append(written)
                continue
            value = written[1:-1]
            self._names += [value] if path in _NAME_PATHS else []
            self.values.add(value)
            self._items.setdefault(path[:-1], []).append(value)
        self.tool = next(iter(self._names), "")
        position, unfinished = reader.position(), reader.unfinished
        is_before = position.where in {"value", "inside"}
        is_quoted = unfinished.startswith('"')
        self.kind: _ValueKind = ("key" if position.where == "key" else "string") if is_quoted else "other"
        self.content = unfinished[1:] if is_quoted else ""
        self.argument = str(position.path[1] if len(position.path) > 1 else (position.keys or ("",))[-1])
        self.depth = 0 if position.where == "end" else len(position.path) + (not is_before)
        self.keys = position.keys
        self.items = self._items.get(position.path[:-1] if is_before else position.path, [])
        self.number = unfinished if is_before and not is_quoted else None
        self.awaits_value = position.where == "value" and position.index is None
        self.ends_member = self.kind == "string" or position.where == "after" or bool(self.number)


class EvidenceBias:
    """The bonus in one answer."""

    def __init__(self, model: NativeModel, evidence: Evidence) -> None:
        self._tokens, self._evidence, self._text = model.tokens_by_text, evidence, ""
        self._position = CallPosition()
        self._is_call = False  # whether the text begins as a call
        self._begin = 0  # of the text after the calls that have ended
        self._start = -1  # of the call of the position
        self._read = 0  # the end of the text that the position has

    def accept(self, text: str) -> None:
        """Advance by a piece of the answer."""
        self._text += text

    def biased(self, logits: Logits) -> Logits:
        """Return the logits with the bonus; the same array if there is none."""
        changes = self.changes()
        if not changes:
            return logits
        biased = logits.copy()
        biased[list(changes)] += np.fromiter(changes.values(), np.float32, len(changes))
        ends = self._early_ends()
        commas = self._commas() if ends else []
        if commas:  # they gain up to where the end was: more would shorten the value
            most = np.minimum(logits[commas] + CHOICE_BONUS, logits[ends].max())
            biased[commas] = np.maximum(biased[commas], most)
        return biased

    def changes(self) -> dict[int, float]:
        """Return what the next tokens gain and lose."""
        if not self._advance():
            return {}
        position, argument = self._position, self._argument()
        in_arguments = position.depth == _ARGUMENTS_DEPTH
        if position.depth < _ARGUMENTS_DEPTH:
            return self._of_tool_name()
        if position.tool not in self._evidence.arguments and position.tool not in self._evidence.callable:
            return {}
        if position.kind == "key":
            missing = self._missing() if in_arguments else ()
            arguments = self._evidence.arguments.get(position.tool, {}) if missing else {}
            unlikely = (name for name, evidence in arguments.items() if not evidence.is_supported)
            return dict.fromkeys(self._tokens_only_of(unlikely, missing), -CHOICE_BONUS)
        if not in_arguments and not (argument.is_list and position.depth == _ARGUMENTS_DEPTH + 1):
            return self._of_text(()) if position.kind == "string" else {}
        changes = (
            self._of_text(argument.avoided) if position.kind == "string" and not argument.is_closed else {}
        )
        if position.kind == "string" and argument.choices:
            changes = dict.fromkeys(self._continuing(argument.choices), CHOICE_BONUS)
        changes |= self._of_number(argument.numbers)
        if in_arguments and position.awaits_value and argument.is_affirmed:
            changes |= dict.fromkeys((*self._tokens_of("true"), *self._tokens_of(" true", shortest=2)), BONUS)
        if position.ends_member and (self._has_all() if in_arguments else self._lists_all(argument)):
            changes |= dict.fromkeys(self._commas(), -CHOICE_BONUS)
        return changes | dict.fromkeys(self._early_ends(), -CHOICE_BONUS)

    def _advance(self) -> bool:
        """Read on, and return whether the end of the text is in a call; not in prose, whatever it quotes."""
        text = self._text
        self._is_call = self._is_call or text.startswith("{") or bool(_BEFORE_CALL.match(text))
        if not self._is_call:
            return False
        while (start := text.find("{", self._begin)) >= 0:
            if start != self._start:
                self._start = self._read = start
                self._position = CallPosition()
            had_ended = self._position.has_ended  # without being JSON: nothing that follows makes it so
            self._position.extend(text[self._read :])
            self._read = len(text)
            if had_ended or not self._position.has_ended:
                return True
            try:
                _, self._begin = _DECODER.raw_decode(text, start)
            except ValueError:
                return True
        return False

    def _commas(self) -> list[int]:
        """Return the tokens of a comma after the value that ends here, with its quote."""
        quote = self._quote()
        return [*self._tokens_of(*(quote + comma for comma in _COMMAS), shortest=len(quote) + 1)]

    def _early_ends(self) -> list[int]:
        """Return the tokens that would end a call, or a list of choices, without what the request has."""
        position, argument, quote = self._position, self._argument(), self._quote()
        if not position.ends_member:
            return []
        if position.depth == _ARGUMENTS_DEPTH:
            is_early = any(self._stated_left()) and not self._has_all()
            return [*self._tokens_of(f"{quote}}}}}")] if is_early else []
        is_list = argument.is_list and position.depth == _ARGUMENTS_DEPTH + 1
        is_early = is_list and not {*position.items, position.content}.issuperset(argument.choices)
        ends = f"{quote}]}}}}", f"{quote}],"
        return [*self._tokens_of(*ends, shortest=len(quote) + 1)] if is_early else []

    def _quote(self) -> str:
        return '"' if self._position.kind == "string" else ""

    def _argument(self) -> ArgumentEvidence:
        """Return the evidence for the argument whose value is being written."""
        arguments = self._evidence.arguments.get(self._position.tool, {})
        return arguments.get(self._position.argument, ArgumentEvidence())

    def _of_tool_name(self) -> dict[int, float]:
        position = self._position
        if (position.depth, position.kind, position.keys[-1:]) != (1, "string", ("name",)):
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
        copied = [*self._evidence.phrases, *self._evidence.entries]
        if self._argument().is_path:
            copied = [text for text in copied if " " not in text]
        is_copied = len(position.content) >= _SHORTEST_REPEATED
        return losing | dict.fromkeys(self._continuing(copied), CHOICE_BONUS if is_copied else BONUS)

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
        unused = [text for text in numbers if numbers.count(text) > self._position.numbers.count(text)]
        if written is None or not unused:
            return {}
        if not written and (used := self._used()):
            losing = self._tokens_of(*(text for text in used if text[:1].isdigit()))
            return dict.fromkeys(losing, -CHOICE_BONUS) | dict.fromkeys(self._tokens_of(*unused), BONUS)
        if not written:
            has_share = any(text.startswith("0.") for text in unused)
            return dict.fromkeys(self._tokens_of("0"), BONUS) if has_share else {}
        longer = [text[len(written) :] for text in unused if text.startswith(written) and text != written]
        if written not in unused:
            return dict.fromkeys(self._tokens_of(*longer), BONUS)
        return {} if longer else dict.fromkeys(self._tokens_of(*"0123456789."), -CHOICE_BONUS)

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
        if self._missing() or all(evidence.is_supported for evidence in arguments.values()):
            return False
        written = [text for text in (*self._position.values, self._position.content) if text]
        return all(
            any(phrase in text or text in phrase for text in written) for phrase in self._evidence.phrases
        )

    def _missing(self) -> frozenset[str]:
        """Return the supported arguments that the call does not have yet."""
        arguments = self._evidence.arguments.get(self._position.tool, {})
        supported = (name for name, evidence in arguments.items() if evidence.is_supported)
        return frozenset(supported).difference(self._position.keys)

    def _stated_left(self) -> Iterator[str]:
        """Yield the arguments with a value in the request that the call has neither yet."""
        position = self._position
        written = {*position.values, position.content}
        numbers = [*position.numbers, *([position.number] if position.number else [])]
        for name, evidence in self._evidence.arguments.get(position.tool, {}).items():
            if not evidence.is_stated or name in position.keys:
                continue
            if evidence.choices:
                is_left = written.isdisjoint(evidence.choices)
            else:
                is_left = evidence.is_affirmed or bool(Counter(evidence.numbers) - Counter(numbers))
            if is_left:
                yield name

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
