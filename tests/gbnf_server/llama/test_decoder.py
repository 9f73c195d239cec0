"""Decoding with forced text, on real vocabularies and random weights: laws of the loop."""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf import Grammar, compile_pool
from gbnf.grammar.ir import Rules
from gbnf.grammar.match import Matcher
from gbnf.prompts.messages import Message
from gbnf_server.backends.base import Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.llama.bindings import llama_cpp
from gbnf_server.llama.cancellation import Cancellation
from gbnf_server.llama.kv_cache import Slot, shared_prefix_length
from gbnf_server.system.errors import BackendError, SetupError
from gbnf_server.system.event_loop import shared_loop
from support.backends import ASK, prompt_tokens, streamed
from support.effort import scaled
from support.grammars import grammars
from support.oracle import SHARED, engine
from support.pools import BUNDLED
from support.vocabularies import make_model_over

RUNS = int(os.environ.get("GBNF_DECODING_RUNS", "30"))
"""How often a random model writes a call at temperature 2; a thorough check takes 1,000.

Where it is set, part of the models have a real vocabulary of 128k entries, which takes 15 seconds to write.
"""
REAL = SHARED / "vocabs" / "ggml-vocab-llama-bpe.gguf"
SHARES = (
    {"small": 0.97, "real": 0.03} if "GBNF_DECODING_RUNS" in os.environ and REAL.is_file() else {"small": 1.0}
)


@cache
def pool_grammar(names: tuple[str, ...] = (), whitespace: Any = "default") -> Grammar:
    tools = [tool for tool in BUNDLED if not names or tool.name in names]
    return compile_pool(tools, final_answer=True, steps=(1, 2), whitespace=whitespace)


@pytest.fixture(scope="module")
def real(tmp_path_factory: pytest.TempPathFactory) -> Iterator[InProcess]:
    path = make_model_over(REAL, tmp_path_factory.mktemp("models") / "random.gguf")
    with InProcess(path, threads=1, prompt_style="minimal") as model:
        yield model


@pytest.fixture(scope="module")
def small(random_model: Path) -> Iterator[InProcess]:
    with InProcess(random_model, threads=1, prompt_style="minimal", parallel=2) as model:
        yield model


@pytest.fixture(scope="module")
def alone(random_model: Path) -> Iterator[InProcess]:
    options: dict[str, Any] = {"threads": 1, "prompt_style": "minimal"}
    with InProcess(random_model, parallel=3, deterministic=True, **options) as model:
        yield model


@contextmanager
def changed(model: InProcess, **attributes: Any) -> Iterator[None]:
    before = {name: getattr(model, name) for name in attributes}
    for name, value in attributes.items():
        setattr(model, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(model, name, value)


def forget(model: InProcess) -> None:
    for sequence in model._kv_cache._sequences:
        model._kv_cache.roll_back(sequence, 0)


# The language.


@settings(max_examples=scaled(60))
@given(grammars(), st.sampled_from([0.0, 1.0, 5.0]), st.integers(0, 2**32), st.integers(1, 60))
def test_whatever_the_grammar_the_text_is_in_its_language(
    small: InProcess, rules: Rules, temperature: float, seed: int, max_tokens: int
) -> None:
    asked = Request(ASK, Grammar(rules), temperature=temperature, seed=seed, max_tokens=max_tokens)
    try:
        found, pieces, _ = streamed(small, asked)
    except BackendError as error:
        assert "dead end" in str(error)  # noqa: PT017  # a token may end inside a character that can't go on
        return
    match = Grammar(rules).match(found.text)
    assert match.complete if found.finish_reason == "stop" else match.accepted
    assert "".join(pieces) == found.text
    assert all(pieces)
    assert 0 <= found.usage.forced_tokens <= found.usage.completion_tokens <= max_tokens


@pytest.mark.slow
@pytest.mark.parametrize(("model", "share"), SHARES.items())
def test_random_models_write_valid_calls_and_nothing_crashes(
    model: str, share: float, request: pytest.FixtureRequest
) -> None:
    """At temperature 2, over the bundled pool and random parts of it, with the engine as judge."""
    backend: InProcess = request.getfixturevalue(model)
    chance = random.Random(17)
    finished = 0
    for run in range(round(RUNS * share)):
        names = tuple(sorted(chance.sample([tool.name for tool in BUNDLED], chance.randint(1, 4))))
        grammar = pool_grammar(names if run % 3 else (), chance.choice(["default", "spaced", "compact"]))
        found = backend.complete(Request(ASK, grammar=grammar, temperature=2.0, seed=run, max_tokens=100))
        judged = engine().match(grammar, found.text)
        assert judged.accepted
        if found.finish_reason == "stop":
            finished += 1
            assert judged.complete
        if run % 10 == 0:
            forget(backend)
    assert finished or RUNS * share < 10


# Jumping.


@pytest.mark.slow
def test_a_jump_changes_nothing(small: InProcess) -> None:
    """At any temperature: forced text decides only which tokens are evaluated together."""
    texts: dict[bool, list[str]] = {True: [], False: []}
    for seed in range(6):
        grammar = pool_grammar(
            ("create_dirs", "compute", "get_now", "find_files"), ["default", "spaced", "compact"][seed % 3]
        )
        asked = Request(ASK, grammar=grammar, temperature=seed / 4, seed=seed, max_tokens=120)
        for jumps in (True, False):
            forget(small)
            with changed(small, _jumps=jumps):
                found = small.complete(asked)
            texts[jumps].append(found.text)
            assert bool(found.usage.forced_tokens) == jumps
    # of six texts five: how much batches round is the processor's, and some say another word early on
    assert sum(map(alike, texts[True], texts[False])) >= 5


def test_a_complete_answer_takes_no_further_step(small: InProcess, monkeypatch: pytest.MonkeyPatch) -> None:
    evaluated = 0
    decode = llama_cpp.llama_decode

    def counted(*arguments: Any) -> Any:
        nonlocal evaluated
        evaluated += 1
        return decode(*arguments)

    monkeypatch.setattr(llama_cpp, "llama_decode", counted)
    found = small.complete(Request(ASK, grammar=Grammar.parse('root ::= "nothing else"')))
    assert (found.text, found.finish_reason, evaluated) == ("nothing else", "stop", 0)
    assert found.usage.forced_tokens == found.usage.completion_tokens


def test_the_last_token_is_withheld(small: InProcess) -> None:
    """Forced is `he`; what the model then says may be any token that begins with it, or in it."""
    said = {
        small.complete(
            Request(ASK, grammar=Grammar.parse('root ::= "he" [a-z]{3}'), temperature=3.0, seed=seed)
        ).text
        for seed in range(5)
    }
    assert len(said) > 3
    assert all(text.startswith("he") for text in said)


@given(st.integers(1, 30), st.integers(0, 3))
@settings(max_examples=scaled(15))
def test_a_truncated_text_is_a_prefix_of_the_whole_one(small: InProcess, max_tokens: int, seed: int) -> None:
    grammar = pool_grammar(("get_now", "undo_last_turn"), "spaced")
    whole = small.complete(Request(ASK, grammar=grammar, temperature=1.0, seed=seed, max_tokens=150))
    cut = small.complete(Request(ASK, grammar=grammar, temperature=1.0, seed=seed, max_tokens=max_tokens))
    assert cut.usage.completion_tokens <= max_tokens
    if cut.shortened_at is not None:
        assert grammar.match(cut.text).complete
        assert whole.text.startswith(cut.text[: cut.shortened_at])
        return
    assert whole.text.startswith(cut.text)
    assert cut.finish_reason == "length" or cut == whole or cut.text == whole.text


def test_where_the_engine_disagrees_nothing_is_forced(
    small: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An automaton that is wrong costs speed, never the language."""
    monkeypatch.setattr(Grammar, "matcher", Matcher(Grammar.parse('root ::= "surely this" [a-z]').rules))
    assert small.complete(
        Request(ASK, grammar=Grammar.parse('root ::= "b"{3} [a-z]'), max_tokens=20)
    ).text.startswith("bbb")


# The other engine.


@pytest.mark.slow
def test_both_engines_hold_the_same_calls(small: InProcess) -> None:
    pytest.importorskip("llguidance", reason="pip install llguidance")
    from gbnf_server.llama.grammar_engines import grammar_engine

    guided = grammar_engine("llguidance", small._model)
    for seed, whitespace in enumerate(["default", "spaced", "compact"]):
        grammar = pool_grammar(("create_dirs", "find_files", "get_inputs"), whitespace)
        by_llama = small.complete(Request(ASK, grammar=grammar, temperature=1.0, seed=seed, max_tokens=150))
        with changed(small, _engine=guided):
            by_guidance = small.complete(
                Request(ASK, grammar=grammar, temperature=1.0, seed=seed, max_tokens=150)
            )
        for found in (by_llama, by_guidance):
            judged = engine().match(grammar, found.text)
            assert judged.complete if found.finish_reason == "stop" else judged.accepted
        assert by_guidance.finish_reason == by_llama.finish_reason
    # llguidance lets no control token stand for its name, as llama.cpp does where a text may hold it
    grammar = Grammar.parse('root ::= "{\\"name\\": \\"" [a-z_]{20} "\\"" ("," [0-9 ]+)? "}"')
    greedy = Request(ASK, grammar=grammar, max_tokens=100)
    with changed(small, _engine=guided):
        text = small.complete(greedy).text
    assert text == small.complete(greedy).text


def test_an_engine_that_is_not_there_says_so(tiny_model: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "llguidance", None)
    with pytest.raises(SetupError, match="pip install"):
        InProcess(tiny_model, engine="llguidance")
    with pytest.raises(ValueError, match="unknown grammar engine 'none'"):
        InProcess(tiny_model, engine="none")  # type: ignore[arg-type]  # that is the point


# Several at once.

SYSTEM = "Tools: " + ", ".join(tool.name for tool in BUNDLED)


def conversation(user: str) -> list[Message]:
    return [{"role": "system", "content": SYSTEM}, {"role": "user", "content": user}]


def alike(one: str, other: str) -> bool:
    """Whether texts begin alike. Batches round otherwise, so that in the end random weights may say another
    word; that a sequence sees nothing of the others is tested on logits (`test_kv_cache`)."""
    shared = shared_prefix_length([*map(ord, one)], [*map(ord, other)])
    return shared >= 0.4 * max(len(one), len(other))


@settings(max_examples=scaled(20))
@given(st.permutations(["get_now", "create_dirs", "compute"] * 2))
def test_a_deterministic_answer_depends_on_its_request_only(alone: InProcess, names: list[str]) -> None:
    """To the last digit, whatever was answered before it or is answered beside it."""

    def ask(name: str) -> tuple[str, Any]:
        grammar = pool_grammar((name,))
        found = alone.complete(Request(conversation(name), grammar, max_tokens=12, logprobs=2))
        assert found.usage.cached_tokens == 0
        return found.text, found.logprobs

    expected = {name: ask(name) for name in names}
    with ThreadPoolExecutor(3) as threads:
        assert list(threads.map(ask, names)) == [expected[name] for name in names]


def test_a_prompt_is_evaluated_once_for_all(small: InProcess) -> None:
    """A second conversation takes an empty sequence, and copies what the first one has of its prompt."""
    forget(small)
    grammar = pool_grammar(("get_now",), "spaced")
    first = small.complete(Request(conversation("one"), grammar=grammar, max_tokens=40))
    assert first.usage.cached_tokens == 0
    second = small.complete(Request(conversation("another"), grammar=grammar, max_tokens=40))
    system = shared_prefix_length(
        prompt_tokens(small, conversation("one"), constrained=True),
        prompt_tokens(small, conversation("another"), constrained=True),
    )
    assert second.usage.cached_tokens == system
    pasts = [len(sequence.cached_tokens) for sequence in small._kv_cache._sequences]
    assert min(pasts) > system  # neither has lost what it had
    again = small.complete(Request(conversation("one"), grammar=grammar, max_tokens=40))
    assert again.usage.cached_tokens == again.usage.prompt_tokens - 1
    assert again.text == first.text


def test_a_sequence_is_released_after_every_outcome(small: InProcess) -> None:
    for _ in range(5):
        events = shared_loop().iterate(small.generate(Request(ASK, Grammar.parse("root ::= [a-z]{9}"))))
        next(events)
        events.close()
    assert len(small.complete(Request(ASK, grammar=Grammar.parse("root ::= [a-z]{9}"))).text) == 9


@given(at=st.integers(1, 6), after=st.booleans(), leads=st.booleans())
@settings(max_examples=scaled(12))
def test_an_interrupt_in_one_call_leaves_the_others(
    small: InProcess, at: int, after: bool, leads: bool
) -> None:
    """One call dies inside of an evaluation, perhaps one that it makes for both: the other is as alone."""
    grammar = Grammar.parse("root ::= [a-z]{25}")
    alone = small.complete(Request(conversation("other"), grammar=grammar, max_tokens=40)).text
    calls, is_mine = 0, ContextVar("is_mine", default=False)
    decode = llama_cpp.llama_decode

    def interrupted(*arguments: Any) -> Any:
        nonlocal calls
        if not is_mine.get():
            return decode(*arguments)
        calls += 1
        if calls == at and not after:
            raise KeyboardInterrupt
        status = decode(*arguments)
        if calls == at:
            raise KeyboardInterrupt
        return status

    with pytest.MonkeyPatch.context() as patch, ThreadPoolExecutor(1) as threads:
        patch.setattr(llama_cpp, "llama_decode", interrupted)
        other = threads.submit(small.complete, Request(conversation("other"), grammar=grammar, max_tokens=40))
        if not leads:
            other.result()
        is_mine.set(True)
        with suppress(KeyboardInterrupt):
            small.complete(Request(conversation("mine"), grammar=grammar, max_tokens=40))
        assert alike(other.result().text, alone)
    assert all(sequence.slot is None for sequence in small._kv_cache._sequences)
    assert alike(small.complete(Request(conversation("other"), grammar=grammar, max_tokens=40)).text, alone)


def test_more_calls_than_sequences_wait(small: InProcess) -> None:
    slot, other = Slot(), Slot()
    for each in (slot, other):
        small._kv_cache.acquire(each, [1, 2, 3], Cancellation())
    asked = Request(ASK, grammar=Grammar.parse('root ::= "a" [b]'), max_tokens=5)
    with ThreadPoolExecutor(1) as threads:
        waiting = threads.submit(small.complete, asked)
        with pytest.raises(TimeoutError):
            waiting.result(0.05)
        small._kv_cache.release(slot)
        assert waiting.result().text == "ab"
    small._kv_cache.release(other)
