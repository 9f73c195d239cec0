"""Drafts by prompt lookup: they change how long an answer takes, and nothing else."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf import Grammar, compile_pool, load_manifests
from gbnf_server.llama.drafts import PromptLookup
from gbnf_server.llama.kv_cache import shared_prefix_length
from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.sampler import Sampler
from gbnf_server.system.errors import BackendError
from support.effort import scaled
from support.grammars import grammars
from support.oracle import CHECKOUT
from support.pure_models import PureModel, Run, no_model_is_small, run_pure, vocabulary

REQUEST = "write passport and tickets to trips/rome/packing.txt, and dinner is at eight to anna@example.org"
RESULT = (
    '{"step": 1, "result": {"entries": ["archive/a.csv", "archive/old/b.csv"], "at": "2026-11-24T10:00"}}'
)


__all__ = ["no_model_is_small"]


@cache
def prompt() -> list[int]:
    return vocabulary().tokenize(f"<|user|>{REQUEST}<|tool|>{RESULT}<|assistant|>", special=True)


@cache
def pool_grammar(whitespace: Any) -> Grammar:
    return compile_pool(load_manifests(CHECKOUT / "manifests"), final_answer=True, whitespace=whitespace)


def run(
    grammar: Grammar | None,
    temperature: float,
    seed: int,
    max_tokens: int,
    *,
    wanted: str = "",
    strength: float = 9.0,
    **options: Any,
) -> Run:
    model = PureModel(vocabulary(), prompt(), vocabulary().tokenize(wanted, special=False), strength)
    return run_pure(model, grammar, Sampler(temperature, seed), max_tokens, **options)


def run_without_drafts(*arguments: Any, **options: Any) -> Run:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PromptLookup, "guess", lambda *_: "")
        return run(*arguments, **options)


def check_equal(drafted: Run, plain: Run, max_tokens: int) -> None:
    one, other = drafted.answer, plain.answer
    assert (one.tokens, one.text, one.finish_reason) == (other.tokens, other.text, other.finish_reason)
    assert one.stop_string == other.stop_string
    assert "".join(drafted.pieces) == "".join(plain.pieces)
    assert other.drafted_tokens == other.accepted_tokens == 0
    assert 0 <= one.accepted_tokens <= one.drafted_tokens
    for each in (drafted, plain):
        answer = each.answer
        assert max(each.evaluated, default=0) <= len(prompt()) + max_tokens
        whole = [*prompt(), *answer.tokens]
        if answer.finish_reason == "stop":  # forced text that is truncated may have other tokens at its end
            assert shared_prefix_length(each.cached_tokens, whole) == min(len(each.cached_tokens), len(whole))
        sampled = len(answer.tokens) - answer.forced_tokens - answer.accepted_tokens
        assert 0 <= sampled <= len(each.evaluated)


CALLS = [
    '{"name": "write_files", "arguments": {"files": [{"path": "trips/rome/packing.txt", "content": "to"}]}}',
    '{"name": "send_messages", "arguments": {"to": ["anna@example.org"], "subject": "dinner", "body": "to"}}',
    '{"name": "delete_files", "arguments": {"paths": ["archive/a.csv", "archive/old/b.csv"]}}',
    '{"name": "final_answer", "arguments": {"message": "Moved archive/a.csv, archive/old/b.csv."}}',
]
PLAIN = "You find archive/a.csv and archive/old/b.csv, and dinner is at eight. Write to anna@example.org."
models = st.fixed_dictionaries({"wanted": st.sampled_from([*CALLS, PLAIN, ""]), "strength": st.floats(0, 20)})
temperatures = st.sampled_from([0.0, 0.5, 1.0, 2.0])
seeds = st.integers(0, 2**32)


pool_grammars = st.sampled_from(["default", "spaced", "compact"]).map(pool_grammar)
stops = st.sampled_from(["a", "e/", "rome", '"', "a.csv", "old/b"]).map(lambda text: [text])


@pytest.mark.slow
@given(
    st.none() | pool_grammars | grammars().map(Grammar),
    temperatures,
    seeds,
    st.integers(1, 90),
    st.just([]) | stops,
    models,
)
@settings(max_examples=scaled(120))
def test_texts_are_the_same(
    grammar: Grammar | None,
    temperature: float,
    seed: int,
    max_tokens: int,
    stop_strings: list[str],
    model: dict[str, Any],
) -> None:
    arguments, options = (grammar, temperature, seed, max_tokens), {"stop_strings": stop_strings, **model}
    try:
        plain = run_without_drafts(*arguments, **options)
    except BackendError as error:
        with pytest.raises(BackendError) as raised:
            run(*arguments, **options)
        assert str(raised.value) == str(error)  # noqa: PT017  # the same dead end
        return
    check_equal(run(*arguments, **options), plain, max_tokens)


@pytest.mark.parametrize("wanted", [CALLS[0], PLAIN])
def test_copied_text_takes_fewer_steps(wanted: str) -> None:
    arguments = (None if wanted == PLAIN else pool_grammar("spaced"), 0.0, 0, 60)
    options: dict[str, Any] = {
        "wanted": wanted,
        "strength": 30.0,
        "stop_strings": ["org."] if wanted == PLAIN else [],
    }
    drafted, plain = run(*arguments, **options), run_without_drafts(*arguments, **options)
    check_equal(drafted, plain, 60)
    assert wanted.startswith(drafted.answer.text)
    assert drafted.answer.finish_reason == "stop"
    assert drafted.answer.accepted_tokens
    assert len(drafted.evaluated) < len(plain.evaluated)


@pytest.mark.slow
@given(st.none() | pool_grammars, temperatures, seeds, models)
@settings(max_examples=scaled(20))
def test_log_probabilities_are_the_same(
    grammar: Grammar | None, temperature: float, seed: int, model: dict[str, Any]
) -> None:
    arguments, options = (grammar, temperature, seed, 60), {"logprobs": 2, **model}
    drafted, plain = run(*arguments, **options), run(*arguments, **options, jumps=False)
    assert drafted.answer.logprobs == plain.answer.logprobs
    assert len(drafted.answer.tokens) == len(drafted.answer.logprobs)
    assert drafted.answer.text == plain.answer.text
    assert drafted.answer.text == run(*arguments, **model).answer.text


@pytest.mark.parametrize(("is_small", "jumps"), [(True, True), (False, False)])
def test_a_small_model_and_one_that_cannot_roll_back_draft_nothing(
    is_small: bool, jumps: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(NativeModel, "is_small", is_small)
    assert run(None, 0.0, 0, 40, wanted=PLAIN, strength=30.0, jumps=jumps).answer.drafted_tokens == 0


def test_drafting_stops_where_it_does_not_pay() -> None:
    """The model begins words of the request, and never continues them: the guesses end after a few."""
    grammar = Grammar.parse('root ::= (("trips/r" | "archive/o" | "anna@e" | "passp") "! ")+')
    found = run(grammar, 2.0, 1, 400)
    assert found.answer.accepted_tokens == 0
    assert 0 < found.answer.drafted_tokens < 40


# The guesses.


@pytest.mark.parametrize(
    ("text", "words", "guess"),
    [
        ('{"path": "tr', 1, 'ips/rome/packing.txt"'),
        ('{"paths": ["archive', 1, "/"),  # what follows differs
        ('{"paths": ["archive/a.csv", "arch', 1, "ive/"),
        ('{"to": ["anna', 1, '@example.org"'),
        ('{"subject": "din', 1, "ner"),  # perhaps the first of several words
        ('{"subject": "dinner', 3, " is at"),
        ('{"subject": "dinner is at eight", "body": "din', 4, "ner is at eight"),
        ("I found archive/o", 1, "ld/b.csv"),  # no value
        ('{"message": "Read archive/o', 1, "ld/b.csv"),  # not all of the value
        ('{"path": "', 1, ""),
        ('{"path": "xtr', 1, ""),
        ('{"path": "acking', 1, ""),  # inside of a word
        ("", 1, ""),
    ],
)
def test_what_is_guessed(text: str, words: int, guess: str) -> None:
    assert PromptLookup(vocabulary(), prompt()).guess(text, words) == guess
