"""How probable the values of a JSON answer were: names, enum values, booleans and numbers.

Where the grammar allows few values, each is scored as a whole, if the backend can (`ValueScorer`): its
probability is that of the model, with the bonus of the evidence, given that it is one of them. Otherwise the
probability is the product over the value's tokens, each given what the grammar allows; of the tokens that a
server does not report, none counts as allowed. Strings that may be anything have none.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Protocol

from gbnf.compiler.grammar import Grammar
from gbnf.errors import GrammarError
from gbnf.grammar.alternatives import scalar_alternatives
from gbnf.grammar.match import MatchState
from gbnf.partial_json import locate
from gbnf.schema.keywords import path_pointer
from gbnf_server.backends.base import MAX_ALTERNATIVES
from gbnf_server.llama.token_values import TokenLogprob, ValueProbability, token_range


class ValueScorer(Protocol):
    """What scores values in an answer, in a backend that has the model's logits."""

    def scores(self, start: int, end: int, alternatives: Sequence[str]) -> Sequence[float] | None:
        """Return the log-probability of each text in place of `text[start:end]`, None if it is unknown."""

    def logprobs(self, start: int, end: int) -> tuple[int, Sequence[TokenLogprob]]:
        """Return the tokens of `text[start:end]`, and where in the text the first begins."""


@dataclass(frozen=True, slots=True)
class _Value:
    """A value where the grammar left a choice: `text[start:end]`."""

    pointer: str
    start: int
    end: int
    alternatives: tuple[str, ...] | None


def value_probabilities(grammar: Grammar, text: str, scorer: ValueScorer) -> tuple[ValueProbability, ...]:
    """Return the probabilities of the values in an answer, in its order; () for one that is not JSON."""
    scored: list[ValueProbability] = []
    for value in reversed(list(_values(grammar, text))):  # the KV cache is rolled back, so from the end
        written = text[value.start : value.end]
        scores = value.alternatives and scorer.scores(value.start, value.end, value.alternatives)
        if scores:
            most = max(scores)
            weights = [math.exp(score - most) for score in scores]
            shares = [weight / sum(weights) for weight in weights]
            ranked = sorted(zip(value.alternatives or (), shares, strict=True), key=lambda pair: -pair[1])
            scored.append(ValueProbability(value.pointer, dict(ranked).get(written, 0.0), tuple(ranked)))
        elif value.alternatives or not written.startswith('"'):
            first, tokens = scorer.logprobs(value.start, value.end)
            state = grammar.matcher.start().advance(text[:first])
            if state is not None and tokens:
                scored.append(ValueProbability(value.pointer, _masked(state, tokens)))
    return tuple(reversed(scored))


@dataclass(frozen=True, slots=True)
class ReportedTokens:
    """Scores values by what a server reports of its tokens."""

    text: str
    tokens: Sequence[TokenLogprob]

    def scores(self, start: int, end: int, alternatives: Sequence[str]) -> None:
        """Return None."""
        return

    def logprobs(self, start: int, end: int) -> tuple[int, Sequence[TokenLogprob]]:
        """See `ValueScorer`."""
        ends = list(accumulate((len(token.token) for token in self.tokens), initial=0))
        first, last, begins = token_range(self.text, ends, start, end)
        return begins, self.tokens[first:last]


def _values(grammar: Grammar, text: str) -> Iterator[_Value]:
    """Yield the values of the answer where the grammar leaves a choice."""
    begin = text.find("{")
    try:
        state: MatchState | None = grammar.matcher.start()
        if begin < 0 or not grammar.match(text).complete:
            return
        position = 0
        for path, written, offset in locate(text[begin:]).scalars:
            start = begin + offset
            state = state and state.advance(text[position:start])
            if state is None:
                return
            position = start
            alternatives = scalar_alternatives(state, MAX_ALTERNATIVES)
            if alternatives is None or len(alternatives) > 1:
                yield _Value(path_pointer(path), start, start + len(written), alternatives)
    except GrammarError:
        return


def _masked(state: MatchState, tokens: Sequence[TokenLogprob]) -> float:
    """Return the probability of tokens after a state of the grammar, each among those that it allows."""
    probability = 1.0
    now: MatchState | None = state
    for reported in tokens:
        others = {token: logprob for token, logprob in reported.top if token != reported.token}
        allowed = sum(
            math.exp(logprob)
            for token, logprob in others.items()
            if now is not None and now.advance(token.decode(errors="replace")) is not None
        )
        own = math.exp(reported.logprob)
        probability *= own / (own + allowed) if own else 0.0
        now = now and now.advance(reported.token.decode(errors="replace"))
    return probability
