"""Forced text that names control tokens."""

from __future__ import annotations

from gbnf import Grammar
from gbnf.grammar.forced_continuation import forced_continuation
from gbnf_server.inference.jump_forward import jump
from support.oracle import engine

MARKER = "<|tool|>"
FORCED = Grammar.parse(f'root ::= "{MARKER}get_" ("time" | "weather") "{MARKER}"\n').matcher.start()


def test_a_control_text_is_forced_as_its_token() -> None:
    model = engine().model
    jumped = jump(model, [], "", forced_continuation(FORCED, spaced=True), [MARKER])
    assert jumped is not None
    assert jumped.tokens[:1] == model.tokenize(MARKER, special=True)
    assert jumped.text.startswith(MARKER)
    spelled = jump(model, [], "", forced_continuation(FORCED, spaced=True))
    assert spelled is not None
    assert spelled.tokens[:1] == model.tokenize(MARKER, special=False)[:1]


def test_a_sampled_control_token_stays() -> None:
    model = engine().model
    sampled = model.tokenize(MARKER, special=True)
    following = FORCED.advance(MARKER)
    assert following is not None
    jumped = jump(model, sampled, MARKER, forced_continuation(following, spaced=True), [MARKER])
    assert jumped is not None
    assert jumped.kept == 1
    assert jumped.tokens[:1] == sampled
    assert jumped.text == "get_"[: len(jumped.text)]


def test_tokens_spell_the_text() -> None:
    model = engine().model
    text = f'a{MARKER}{MARKER}{{"b": 1}}<|user|>'
    for control in ([], [MARKER], [MARKER, "<|user|>"], ["absent"]):
        tokens = model.tokenize_exactly(text, control)
        assert tokens is not None
        assert b"".join(map(model.piece, tokens)) == text.encode()
        assert tokens.count(model.tokenize(MARKER, special=True)[0]) == (2 if MARKER in control else 0)
