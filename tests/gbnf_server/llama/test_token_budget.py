"""Answers within a token limit: complete wherever the limit has space for one, unchanged until it binds."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gbnf import Grammar, compile_pool
from gbnf.grammar.ir import Rules
from gbnf.prompts.messages import Message
from gbnf_server.backends.base import Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.llama.native import NativeModel, Speller
from gbnf_server.llama.token_values import Truncation
from support.effort import scaled
from support.grammars import grammars
from support.oracle import engine
from support.pools import BUNDLED

ASK: list[Message] = [{"role": "user", "content": "hello"}]
RUNS = int(os.environ.get("GBNF_DECODING_RUNS", "30"))


@pytest.fixture(scope="module")
def sampling(random_model: Path) -> Iterator[InProcess]:
    """Without forced text: one random choice for each token."""
    with InProcess(random_model, threads=1, prompt_style="minimal", jump_forward=False) as model:
        yield model


def shortest(model: NativeModel, grammar: Grammar) -> int | None:
    """Return the tokens that the shortest text takes at the most; None if there is none."""
    if grammar.matcher.start().ending_length == float("inf"):
        return None
    spelled = model.speller.spell(grammar.matcher.start().shortest_ending().encode())
    return None if spelled is None else len(spelled)


# The language.


@pytest.mark.slow
def test_random_models_end_every_call_within_the_limit(backend: InProcess) -> None:
    """At temperature 2, with a few tokens more than the shortest call takes; the engine is the judge."""
    chance = random.Random(4)
    names = [tool.name for tool in BUNDLED]
    for run in range(RUNS):
        chosen = chance.sample(names, chance.randint(1, 5))
        tools = [tool for tool in BUNDLED if tool.name in chosen]
        layout: Any = chance.choice(["default", "spaced", "compact"])
        grammar = compile_pool(tools, final_answer=bool(run % 2), whitespace=layout)
        least = shortest(backend._model, grammar)
        assert least is not None
        limit = least + chance.choice([0, 0, 1, 2, 5, 20])
        found = backend.complete(Request(ASK, grammar=grammar, temperature=2.0, seed=run, max_tokens=limit))
        assert found.finish_reason == "stop"
        assert engine().match(grammar, found.text).complete
        assert found.usage.completion_tokens <= limit


@pytest.mark.slow
@settings(max_examples=scaled(60))
@given(
    rules=grammars(),
    more=st.integers(0, 8),
    temperature=st.sampled_from([0.0, 2.0]),
    seed=st.integers(0, 2**32),
    truncation=st.sampled_from([{}, {"top_p": 0.7}, {"top_k": 3}]),
    jumps=st.booleans(),
)
def test_whatever_the_grammar_its_texts_are_complete(
    backend: InProcess,
    sampling: InProcess,
    rules: Rules,
    more: int,
    temperature: float,
    seed: int,
    truncation: dict[str, Any],
    jumps: bool,
) -> None:
    grammar = Grammar(rules)
    least = shortest(backend._model, grammar)
    assume(least is not None and least + more)
    assert least is not None
    found = (backend if jumps else sampling).complete(
        Request(
            ASK,
            grammar=grammar,
            max_tokens=least + more,
            temperature=temperature,
            seed=seed,
            truncation=Truncation(**truncation),
        )
    )
    assert grammar.match(found.text).complete
    if found.finish_reason == "length":  # the model chose to go on, where the text could have ended
        assert found.shortened_at is None


def test_characters_of_several_tokens_end_too(sampling: InProcess) -> None:
    """The vocabulary spells these characters byte by byte, and a limit may be near inside of one."""
    grammar = Grammar.parse('root ::= "[" [😀-😆é日]* "é]"')
    least = shortest(sampling._model, grammar)
    assert least is not None
    for seed in range(40):
        limit = least + seed % 7
        found = sampling.complete(Request(ASK, grammar=grammar, temperature=2.0, seed=seed, max_tokens=limit))
        assert engine().match(grammar, found.text).complete


def test_a_limit_below_the_shortest_text_truncates(backend: InProcess) -> None:
    grammar = Grammar.parse('root ::= "{\\"name\\": \\"" [a-z]* "\\", \\"rest\\": [1, 2, 3, 4, 5, 6, 7]}"')
    found = backend.complete(Request(ASK, grammar=grammar, temperature=1.0, max_tokens=3))
    assert (found.finish_reason, found.shortened_at) == ("length", None)
    assert grammar.match(found.text).accepted


@pytest.mark.parametrize("text", ["root ::= [a-z ]*", "root ::= [ab] root"])
def test_text_that_may_end_anywhere_or_nowhere_is_truncated(backend: InProcess, text: str) -> None:
    """Where an end is not chosen for the limit's sake, nothing says that the model was done."""
    found = backend.complete(Request(ASK, grammar=Grammar.parse(text), temperature=2.0, max_tokens=5))
    assert (found.finish_reason, found.shortened_at) == ("length", None)


# Spelling.


@given(st.lists(st.binary(min_size=1, max_size=3), max_size=12), st.binary(max_size=8))
def test_no_spelling_is_shorter(pieces: list[bytes], raw: bytes) -> None:
    speller = Speller(enumerate(pieces))
    found = speller.spell(raw)
    reached = {0: 0}  # the fewest pieces up to each offset, by trying all of them
    for at in range(len(raw)):
        for piece in pieces:
            if at in reached and raw.startswith(piece, at):
                end = at + len(piece)
                reached[end] = min(reached.get(end, len(raw)), reached[at] + 1)
    assert (None if found is None else len(found)) == reached.get(len(raw))
    if found is not None:
        assert b"".join(pieces[token] for token in found) == raw


def test_control_tokens_spell_nothing(backend: InProcess) -> None:
    model = backend._model
    for text in model.control_tokens:
        for token in model.speller.spell(text.encode()) or []:
            assert model.piece(token).decode(errors="replace") not in model.control_tokens


def test_the_speller_knows_every_byte_of_the_vocabulary(backend: InProcess) -> None:
    spelled = backend._model.speller.spell(bytes(np.arange(256, dtype=np.uint8)))
    assert backend._model.speller.spells_every_byte == (spelled is not None)
