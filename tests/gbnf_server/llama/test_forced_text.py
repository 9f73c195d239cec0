"""Text with drafts of forced and copied text is the text without, whatever the bytes of the tokens are."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from gbnf import Grammar, SchemaError, compile_schema
from gbnf_server.llama.drafts import Drafter, DraftHistory, following_tokens
from gbnf_server.llama.native import NativeModel
from gbnf_server.llama.sampler import Sampler
from gbnf_server.system.errors import BackendError
from support.effort import scaled
from support.oracle import SHARED, engine
from support.pure_models import PureModel, Run, no_model_is_small, run_pure, vocabulary
from support.schemas import SHALLOW
from support.smollm2 import model_file

MARKER = "<|tool|>"
FILES = {
    "bundled": None,
    "gemma-4": SHARED / "vocabs" / "ggml-vocab-gemma-4.gguf",
    "smollm2": model_file(),
}
REAL = [name for name, path in FILES.items() if name == "bundled" or (path is not None and path.is_file())]


__all__ = ["no_model_is_small"]


@cache
def model_of(name: str) -> NativeModel:
    path: Path | None = FILES[name]
    return vocabulary() if path is None else NativeModel(path, vocab_only=True)


@cache
def byte_tokens(name: str) -> dict[bytes, int]:
    """Return the tokens of at most four bytes that are text."""
    model = model_of(name)
    control = {text.encode() for text in model.control_tokens}
    return {
        piece: token
        for token, piece in enumerate(model._read_pieces())
        if 0 < len(piece) <= 4 and piece not in control and token not in model.end_tokens
    }


words = st.sampled_from(
    [
        "日本語",
        "日本",
        "😀",
        "👩‍👩‍👧",
        "🇩🇪",
        "e\u0301",
        "\u0301",
        "é",
        "नमस्ते",
        "�",
        "trips/r",
        '{"',
        '": "',
        " ",
        "\n",
    ]
)
texts = st.lists(words | st.text(max_size=3), max_size=6).map("".join).filter(lambda text: "\0" not in text)
raw_bytes = st.lists(texts.map(str.encode) | st.binary(max_size=3), max_size=5).map(b"".join)


@st.composite
def token_lists(draw: st.DrawFn, name: str, raw: bytes) -> list[int]:
    """Tokens that spell the bytes, split also inside of characters, except bytes without a token."""
    known, tokens, at = byte_tokens(name), list[int](), 0
    while at < len(raw):
        size = draw(st.integers(1, 4))
        piece = next(
            (raw[at : at + count] for count in range(size, 0, -1) if raw[at : at + count] in known), b""
        )
        tokens += [known[piece]] if piece else []
        at += len(piece) or 1
    return tokens


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
@settings(max_examples=scaled(20))
@given(st.data(), raw_bytes, texts)
def test_tokens_that_follow_spell_the_text(name: str, data: st.DataObject, before: bytes, text: str) -> None:
    model = model_of(name)
    tokens = data.draw(token_lists(name, before))
    found = following_tokens(model, tokens, text)
    assert found is None or b"".join(map(model.piece, found)) == text.encode()
    assert model.end_tokens.isdisjoint(found or ())


def both(model: PureModel, *arguments: Any) -> None:
    """Check that the text is the same; the model is not asked for the tokens of a forced end."""

    def run(*, jumps: bool) -> Run:
        fresh = PureModel(model.vocabulary, model.prompt, model.wanted, model.strength)
        return run_pure(fresh, grammar, Sampler(temperature, seed), max_tokens, jumps=jumps)

    grammar, temperature, seed, max_tokens = arguments
    try:
        drafted: Run | None = run(jumps=True)
    except BackendError as error:
        assert "dead end" in str(error)  # noqa: PT017  # a token may end inside a character that can't go on
        drafted = None
    try:
        plain = run(jumps=False)
    except BackendError:
        return  # a forced end has no dead end
    assert drafted is not None
    one, other = drafted.answer, plain.answer
    assert one.text == other.text
    assert "".join(drafted.pieces) == one.text
    assert other.forced_tokens == other.drafted_tokens == 0
    ends = one.tokens[: len(other.tokens)] != other.tokens
    assert not ends or (grammar is not None and one.finish_reason == "stop")
    raw = b"".join(map(model.vocabulary.piece, one.tokens))
    whole = raw.decode(errors="replace")
    assert whole.startswith(one.text.rstrip("\ufffd"))


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
@settings(max_examples=scaled(12))
@given(st.data(), raw_bytes, raw_bytes, st.sampled_from([0.0, 1.0]), st.floats(5, 30))
def test_any_bytes_are_the_same_with_and_without_drafts(
    name: str, data: st.DataObject, start: bytes, repeated: bytes, temperature: float, strength: float
) -> None:
    prompt = data.draw(token_lists(name, b"user: " + start + b" " + repeated * 2))
    wanted = data.draw(token_lists(name, repeated * 2 + start))
    model = PureModel(model_of(name), prompt, wanted, strength)
    both(model, None, temperature, 7, len(wanted) + 2)


@pytest.mark.slow
@pytest.mark.parametrize("name", REAL)
@settings(max_examples=scaled(12))
@given(st.data(), SHALLOW, texts, st.sampled_from([0.0, 1.0, 3.0]), st.integers(1, 40))
def test_any_schema_has_the_same_text_with_and_without_drafts(
    name: str, data: st.DataObject, schema: Any, text: str, temperature: float, max_tokens: int
) -> None:
    """Schemas, since the engine has no bound on the ways to read a long token in an ambiguous grammar."""
    try:
        grammar = compile_schema(schema)
    except SchemaError:  # no value satisfies it
        assume(False)
        raise
    wanted = data.draw(token_lists(name, text.encode()))
    model = PureModel(model_of(name), model_of(name).tokenize("Call.", special=False), wanted, 9.0)
    both(model, grammar, temperature, 5, max_tokens)


def test_a_guess_inside_of_a_character_does_not_raise() -> None:
    """The text of tokens that end inside of a character is shorter than their bytes."""
    name = "smollm2" if "smollm2" in REAL else "bundled"
    model, known = model_of(name), byte_tokens(name)
    text = "日本語 日本語 日本語".encode()
    tokens = [known[bytes([byte])] for byte in text]
    both(PureModel(model, tokens, tokens, 30.0), None, 0.0, 0, 30)


def test_a_preferred_split_is_drafted_next_time() -> None:
    model = vocabulary()
    history = DraftHistory()
    grammar = Grammar.parse('root ::= "[" "trips" [0-9] "trips" [0-9] "trips" [0-9]')
    whole = model.tokenize("[trips1", special=False)
    split = [token for byte in b"[trips1trips2trips3" for token in model.speller.spell(bytes([byte])) or ()]
    assert len(whole) < 7
    first, second = (
        run_pure(PureModel(model, [1], split, 40.0), grammar, Sampler(0.0, 0), 40, history=history)
        for _ in range(2)
    )
    assert history.splits
    assert first.answer.text == second.answer.text == "[trips1trips2trips3"
    assert len(second.evaluated) < len(first.evaluated)


@given(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), max_size=8))
def test_refused_guesses_count_for_the_next_answers_and_are_forgotten(answers: list[tuple[int, int]]) -> None:
    history = DraftHistory()
    for drafted, accepted in answers:
        before = history.balance
        history.add(drafted, min(drafted, accepted))
        assert -16 <= history.balance <= max(before, drafted)
    for _ in range(12):
        history.add(0, 0)
    assert abs(history.balance) < 1


def test_an_answer_after_many_refused_guesses_has_none() -> None:
    history = DraftHistory()
    history.add(60, 0)
    drafter = Drafter(vocabulary(), [1], None, history=history)
    assert history.balance > 16
    assert drafter.propose([], "", None, spaced=True) == []
    drafter.end()
    assert history.balance < 16


# Forced text that names control tokens.


def test_a_control_text_is_drafted_as_its_token_and_a_sampled_one_stays() -> None:
    model = engine().model
    assert following_tokens(model, [], f"{MARKER}get_", [MARKER])[:1] == model.tokenize(MARKER, special=True)  # type: ignore[index]  # there are some
    assert following_tokens(model, [], f"{MARKER}get_") == model.tokenize(f"{MARKER}get_", special=False)
    sampled = model.tokenize(MARKER, special=True)
    assert following_tokens(model, sampled, "get_", [MARKER]) == model.tokenize("get_", special=False)


def test_tokens_spell_the_text() -> None:
    model = engine().model
    text = f'a{MARKER}{MARKER}{{"b": 1}}<|user|>'
    for control in ([], [MARKER], [MARKER, "<|user|>"], ["absent"]):
        tokens = model.tokenize_exactly(text, control)
        assert tokens is not None
        assert b"".join(map(model.piece, tokens)) == text.encode()
        assert tokens.count(model.tokenize(MARKER, special=True)[0]) == (2 if MARKER in control else 0)
