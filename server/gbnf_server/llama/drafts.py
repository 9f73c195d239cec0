"""Drafts: tokens that probably come next, because the grammar forces their text or it occurred before.

    prompt           … write passport and tickets to trips/rome/packing.txt
    answer so far    {"name": "write_files", "arguments": {"files": [{"path": "tr
    drafts           ips/rome/packing.txt", "content": "

The decoder evaluates the drafts with the last token, and samples each step from the logits of that step; a
draft that it does not sample is rolled back. So drafts change the time that an answer takes, and nothing
else. Invariants:

- No token of the answer is replaced, and its bytes need not be text: drafts follow the last token.
- A guess ends where the grammar refuses it. Text that the grammar forces after a guess is drafted as well.
- Guesses compare texts, not tokens: a value has other tokens after a quote than after a space.
- Drafts follow one evaluated token, not a prompt: long batches are computed by other kernels (see
  `bench/fuzz_targets/jumps.py`).
- On a CPU that computes all the time, a draft costs nearly as much as a step. So a guess is one word, and
  more only after guesses that were right, and fewer tokens are drafted after refused ones.

Arguments are often copied from the request or from earlier results. The method for these is prompt lookup
decoding (Saxena 2023, https://github.com/apoorvumang/prompt-lookup-decoding).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import accumulate, takewhile
from typing import NamedTuple

from gbnf.grammar.forced_continuation import ForcedContinuation
from gbnf_server.llama.constraint import Constraint
from gbnf_server.llama.native import NativeModel

_MOST_DRAFTS = 16  # evaluated at once: on a CPU, more save nothing, and all after a refused one are lost
_FEWEST_DRAFTS = 4  # after several refused ones
_CONTEXT = 8  # tokens before a text that may affect how it is split
_CONTINUATION_BYTES = bytes(range(0x80, 0xC0))
_LONGEST_KEY = 64  # characters of the answer that are looked up
_SHORTEST_KEY = 2
_DISTINCTIVE = 8  # characters of a key whose last occurrence decides; after a shorter one, all must agree
_MOST_OCCURRENCES = 8
_LONGEST_GUESS = 100  # characters
_MOST_WORDS = 16
_MOST_REFUSED = 16  # tokens more than the accepted ones: then guessing does not pay in this answer
_WORD = re.compile(r"\w+")
_SEPARATORS = re.compile(r"\0|<\|\w+\|>")  # control tokens, and the ones that are text in this vocabulary


@dataclass(slots=True)
class DraftHistory:
    """What the answers of a model teach about drafting the next ones.

    `splits`: how the model writes the text of a token in several. `balance`: how many more guessed tokens it
    refused than it accepted, halved after each answer.
    """

    splits: dict[int, tuple[int, ...]] = field(default_factory=dict)
    balance: float = 0.0

    def add(self, drafted: int, accepted: int) -> None:
        """Add an answer."""
        balance = self.balance + drafted - 2 * accepted
        self.balance = max(-_MOST_REFUSED, balance) / 2


class Draft(NamedTuple):
    """A likely next token. `is_guessed`: it includes text that the grammar does not force.

    `whole`: the tokenizer's token that begins here, which the model is expected to write in parts.
    """

    token: int
    is_guessed: bool
    whole: int


def following_tokens(
    model: NativeModel, tokens: Sequence[int], text: str, control_texts: Collection[str] = ()
) -> list[int] | None:
    """Return tokens that spell a text after an answer's tokens, None if none do.

    They are those of the tokenizer for the answer's end and the text, if one of them begins with the text;
    otherwise those for the text alone. `control_texts`: the texts that stand for control tokens.
    """
    if not text:
        return []
    end = b"".join(model.piece(token) for token in tokens[-_CONTEXT:]).lstrip(_CONTINUATION_BYTES)
    for before in (end.decode(errors="replace"), ""):
        spelled = model.tokenize_exactly(before + text, control_texts)
        starts = accumulate((len(model.piece(token)) for token in spelled or ()), initial=0)
        first = next((index for index, start in enumerate(starts) if start == len(before.encode())), None)
        if spelled is not None and first is not None:
            return spelled[first:]
    return None


class PromptLookup:
    """The text of a prompt, in which the last words of an answer are looked up."""

    def __init__(self, model: NativeModel, prompt: Sequence[int]) -> None:
        self._model, self._prompt = model, prompt

    def guess(self, text: str, words: int) -> str:
        """Return what probably follows `text`, at most so many words; "" if unknown.

        Looked up is what follows the last quote: in JSON, the value so far. The longest part of it that
        occurs decides; of its occurrences the latest, or what all agree on if it is short.
        """
        value = text.rfind('"') + 1
        for word in _WORD.finditer(text, max(value, len(text) - _LONGEST_KEY)):
            start = word.start()
            key = text[start:]
            if len(key) < _SHORTEST_KEY:
                break
            sections = (text[:-1], *self._sections)
            if hits := [hit for section in sections for hit in _occurrences(section, key)]:
                return _shortened(key, hits, words, is_value=0 < value == start)
        return ""

    @cached_property
    def _sections(self) -> list[str]:
        """The texts between control tokens, the last one first."""
        control = {text.encode() for text in self._model.control_tokens}
        pieces = map(self._model.piece, self._prompt)
        text = b"".join(b"\0" if piece in control else piece for piece in pieces).decode(errors="replace")
        return [section for section in reversed(_SEPARATORS.split(text)) if section.strip()]


class Drafter:
    """Proposes the drafts of one answer, and counts them.

    `drafted`: how many guessed tokens were evaluated, each of which the model has to sample. `accepted`: how
    many of them it sampled.
    """

    def __init__(
        self,
        model: NativeModel,
        prompt: Sequence[int],
        constraint: Constraint | None,
        control_texts: Collection[str] = (),
        history: DraftHistory | None = None,
    ) -> None:
        """Start before the first token. `history`: that of the model; by default, this answer's own."""
        self._model, self._constraint, self._control_texts = model, constraint, control_texts
        self._history = history if history is not None else DraftHistory()
        # a step of a small model takes no longer than the lookup
        self._lookup = None if model.is_small else PromptLookup(model, prompt)
        self._words = 1  # of the next guess
        self._before = (0, 0)  # `drafted` and `accepted` at the last guess
        # by position, those of the last evaluation until one is refused
        self._evaluated: dict[int, Draft] = {}
        self._most = _MOST_DRAFTS // 2  # of the next drafts
        self.drafted = self.accepted = 0

    def propose(
        self, tokens: Sequence[int], text: str, forced: ForcedContinuation | None, *, spaced: bool
    ) -> list[Draft]:
        """Return the likely tokens after an answer, given as tokens and text.

        `forced`: the text that the grammar forces, if it is known.
        """
        ahead, started = self._ahead(text, forced, spaced=spaced)
        drafts: list[Draft] = []
        end = 0
        for whole in following_tokens(self._model, tokens, ahead, self._control_texts) or []:
            parts = self._history.splits.get(whole, (whole,))
            for token, expected in zip(parts, (whole, *parts[1:]), strict=True):
                end += len(self._model.piece(token))
                drafts.append(Draft(token, end > started, expected))
        return drafts[: self._most]

    def _ahead(self, text: str, forced: ForcedContinuation | None, *, spaced: bool) -> tuple[str, int]:
        """Return the text that probably follows, and the number of its bytes before the first guess."""
        forced_text = "" if forced is None else forced.text
        nothing = forced_text, len(forced_text.encode())
        drafted, accepted = self._before
        if self.drafted > drafted:  # more words after a guess that was right, one word after another one
            is_right = self.accepted - accepted == self.drafted - drafted
            self._words = min(2 * self._words, _MOST_WORDS) if is_right else 1
        self._before = (self.drafted, self.accepted)
        refused = self._history.balance + self.drafted - 2 * self.accepted
        if self._lookup is None or refused > _MOST_REFUSED:
            return nothing
        lookup, words_left, started = self._lookup, self._words, -1

        def guess(ahead: str) -> str:
            nonlocal words_left, started
            guessed = lookup.guess(text + ahead, words_left) if words_left > 0 else ""
            words_left -= max(1, len(guessed.split()))
            if guessed and started < 0:
                started = len(ahead.encode())
            return guessed

        if self._constraint is None:
            return guess(""), 0
        continuation = self._constraint.forced_continuation(spaced=spaced, guess=guess)
        return nothing if continuation is None or started < 0 else (continuation.text, started)

    def evaluated(self, drafts: Sequence[Draft], position: int) -> None:
        """Count drafts that were evaluated, the first of them at this position of prompt and answer."""
        if self._evaluated:  # none of the last drafts was refused
            self._most = min(2 * self._most, _MOST_DRAFTS)
        self._evaluated = dict(enumerate(drafts, position))
        self.drafted += sum(draft.is_guessed for draft in drafts)

    def sampled(self, position: int, token: int) -> bool:
        """Learn from a token that the model sampled; return whether it was guessed."""
        draft = self._evaluated.get(position)
        if draft is None:
            return False
        if draft.token == token:
            self.accepted += draft.is_guessed
            return draft.is_guessed
        self._evaluated, self._most = {}, max(self._most // 2, _FEWEST_DRAFTS)
        whole, piece = self._model.piece(draft.whole), self._model.piece(token)
        if token == draft.whole:
            self._history.splits.pop(token, None)
        elif piece and whole.startswith(piece) and (rest := self._model.speller.spell(whole[len(piece) :])):
            self._history.splits[draft.whole] = (token, *rest)
        return False

    def end(self) -> tuple[int, int]:
        """Add the answer to the history; return how many tokens were guessed, and accepted."""
        self._history.add(self.drafted, self.accepted)
        return self.drafted, self.accepted


def _occurrences(section: str, key: str) -> list[tuple[str, str]]:
    """Return the character before and the text after each word that begins with `key`, the last one first."""
    occurrences: list[tuple[str, str]] = []
    start = section.rfind(key)
    while start >= 0 and len(occurrences) < _MOST_OCCURRENCES:
        before = section[start - 1 : start]
        if not _WORD.match(before):
            end = start + len(key)
            occurrences.append((before, section[end : end + _LONGEST_GUESS]))
        start = section.rfind(key, 0, start + len(key) - 1)
    return occurrences


def _shortened(key: str, occurrences: Sequence[tuple[str, str]], words: int, *, is_value: bool) -> str:
    """Return the part of the text after an occurrence that may be expected in the answer.

    `is_value`: the key is all of a value. If the value probably ends, a quote does.
    """
    before, text = occurrences[0]
    unshortened = text
    if len(key) < _DISTINCTIVE:
        for _, other in occurrences[1:]:
            pairs = zip(text, other, strict=False)
            text = text[: sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))]
    is_value = is_value and text == unshortened
    if is_value and not text:
        return '"'
    if before == '"' and (end := text.find('"')) >= 0:
        return text[: end + is_value]
    following = re.match(rf'[^\s"]*(?:[^\S\n]+[^\s"]+){{0,{words - 1}}}', text)
    guessed = following.group() if following is not None else ""
    if guessed.split() != [guessed]:
        return guessed
    guessed = guessed.rstrip(_PUNCTUATION)
    return guessed + '"' if is_value and _PRECISE.search(key + guessed) else guessed


_PUNCTUATION = ",.;:?!)'"
_PRECISE = re.compile(r"[/@_\d*]|\w\.\w")
"""Found in paths, addresses, dates and numbers, which rarely are only the first word of a value."""
