"""Laws between the modules of `gbnf.grammar`, with llama.cpp's own engine as the oracle."""

from __future__ import annotations

import atexit
from functools import cache
from random import Random
from typing import Any, cast

from hypothesis import assume, given
from hypothesis import strategies as st

from gbnf.grammar.analysis import BYTE, cheapest_costs, nullable
from gbnf.grammar.emit import emit
from gbnf.grammar.ir import Rules
from gbnf.grammar.match import END_OF_TEXT, Matcher
from gbnf.grammar.parse import parse_gbnf
from gbnf.grammar.stacks import is_bounded
from isolation import Confined, Finished
from support.grammars import LETTERS, grammars, mutations
from support.oracle import engine
from support.random_texts import generate, shortest_text

seeds = st.integers(0, 2**32).map(Random)


@cache
def _confined() -> Confined[tuple[str, list[str]]]:
    engine()  # loaded once, for every process that is forked
    confined: Confined[tuple[str, list[str]]] = Confined(
        lambda item: engine().match_many(*item), limit_s=5, memory_mib=4096
    )
    atexit.register(confined.renew)
    return confined


def judged(rules: Rules, texts: list[str]) -> list[Any]:
    """What the engine says of the texts, of a grammar that is not refused for its ambiguity."""
    assume(is_bounded(rules))
    verdict = _confined().attempt((emit(rules), texts))
    assert isinstance(verdict, Finished), verdict
    return cast("list[Any]", verdict.value)


@given(grammars(), seeds, st.data())
def test_the_matcher_agrees_with_the_engine(rules: Rules, random: Random, data: st.DataObject) -> None:
    derived = generate(rules, random, budget=60)
    texts = [derived, derived[:-1], data.draw(mutations(derived)), data.draw(st.text(LETTERS, max_size=6))]
    matcher = Matcher(rules)
    assert matcher.match(derived).complete
    for text, judgement in zip(texts, judged(rules, texts), strict=True):
        found = matcher.match(text)
        assert (found.accepted, found.complete, found.position) == (
            judgement.accepted,
            judgement.complete,
            judgement.position,
        ), text


@given(grammars())
def test_parsing_what_is_emitted_gives_the_rules_back(rules: Rules) -> None:
    assert parse_gbnf(emit(rules)) == rules


@given(grammars(), seeds)
def test_advancing_in_pieces_is_matching_and_forced_text_the_only_continuation(
    rules: Rules, random: Random
) -> None:
    text = generate(rules, random, budget=40)
    matcher = Matcher(rules)
    state = matcher.start()
    for at, char in enumerate(text):
        assert char in state.allowed()
        forced = state.forced(limit=50)
        assert text.startswith(forced, at)
        assert not (forced and state.can_end)
        following = state.advance(char)
        assert following is not None
        state = following
    assert state.can_end
    assert END_OF_TEXT in state.expected()


@given(grammars(), seeds, st.sampled_from(LETTERS))
def test_what_is_not_allowed_is_refused(rules: Rules, random: Random, char: str) -> None:
    text = generate(rules, random, budget=40)
    state = Matcher(rules).start().advance(text[: random.randint(0, len(text))])
    assert state is not None
    assert (state.advance(char) is not None) == (char in state.allowed())


@given(grammars(), seeds)
def test_no_text_is_shorter_than_the_shortest(rules: Rules, random: Random) -> None:
    short = shortest_text(rules)
    assert Matcher(rules).match(short).complete
    assert len(short.encode()) == cheapest_costs(rules)["root"] // BYTE
    assert len(short.encode()) <= len(generate(rules, random, budget=20).encode())
    assert (short == "") == ("root" in nullable(rules))
