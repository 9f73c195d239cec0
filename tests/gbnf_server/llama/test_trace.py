"""The trace of an answer: it tells what happened, and changes nothing."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf import Grammar, compile_pool
from gbnf.grammar.ir import Rules
from gbnf.prompts.messages import Message
from gbnf_server.backends.base import Completion, Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.system.errors import BackendError, RequestNotSupportedError
from support.effort import scaled
from support.grammars import grammars
from support.pools import BUNDLED

ASK: list[Message] = [{"role": "user", "content": "hello"}]


def check(found: Completion) -> None:
    """The trace spells the text, and its probabilities are some."""
    tokens = [entry for entry in found.trace if entry.kind != "end"]
    assert len(tokens) == found.usage.completion_tokens
    raw = b"".join(entry.token for entry in tokens)
    assert raw.decode(errors="ignore").startswith(found.text.rstrip("\ufffd"))
    # forced text may be written in fewer tokens than the sampled ones that it replaces
    assert (
        sum(entry.kind != "sampled" for entry in tokens)
        >= found.usage.forced_tokens + found.usage.accepted_tokens
    )
    for entry in found.trace:
        if entry.kind == "forced":
            assert (entry.probability, entry.allowed_probability, entry.candidates) == (None, None, ())
            continue
        assert entry.probability is not None
        assert entry.allowed_probability is not None
        assert 0 <= entry.probability <= entry.allowed_probability + 1e-9 <= 1 + 2e-9
        chances = [candidate.probability for candidate in entry.candidates]
        assert chances == sorted(chances, reverse=True)
        if entry.kind != "end" and entry.probability > chances[-1]:
            chosen = [each for each in entry.candidates if each.token == entry.token]
            assert [each.refused_by for each in chosen] == [None] * len(chosen)


@pytest.mark.slow
@settings(max_examples=scaled(40))
@given(grammars(), st.sampled_from([0.0, 2.0]), st.integers(0, 2**32), st.integers(1, 40))
def test_a_trace_tells_what_happened(
    backend: InProcess, rules: Rules, temperature: float, seed: int, max_tokens: int
) -> None:
    asked = Request(ASK, Grammar(rules), temperature=temperature, seed=seed, max_tokens=max_tokens)
    try:
        plain = backend.complete(asked)
    except BackendError as error:
        assert "dead end" in str(error)  # noqa: PT017  # see test_decoder
        return
    found = backend.complete(replace(asked, trace=True))
    assert (found.text, found.finish_reason) == (plain.text, plain.finish_reason)
    assert (found.shortened_at, plain.trace) == (plain.shortened_at, ())
    check(found)


@pytest.mark.slow
def test_what_the_grammar_refused_does_not_fit(backend: InProcess) -> None:
    """Judged by the matcher, for candidates that are whole characters."""
    grammar = compile_pool([tool for tool in BUNDLED if tool.name in {"get_now", "create_dirs"}])
    found = backend.complete(
        Request(ASK, grammar=grammar, temperature=1.0, seed=3, max_tokens=120, trace=True)
    )
    check(found)
    before, judged = b"", {None: 0, "grammar": 0, "limit": 0}
    for entry in found.trace:
        for candidate in entry.candidates:
            try:
                text = (before + candidate.token).decode()
            except UnicodeDecodeError:
                continue
            judged[candidate.refused_by] += 1
            if candidate.token:
                assert grammar.match(text).accepted == (candidate.refused_by != "grammar")
        before += entry.token
    assert judged["grammar"] > 10


def test_a_limit_that_refuses_is_named(backend: InProcess) -> None:
    grammar = Grammar.parse('root ::= "\\"" [a-z]{0,200} "\\""')
    found = backend.complete(Request(ASK, grammar=grammar, temperature=2.0, seed=1, max_tokens=6, trace=True))
    assert found.shortened_at is not None
    refused = [each.refused_by for entry in found.trace for each in entry.candidates]
    assert "limit" in refused
    assert [entry.left for entry in found.trace if entry.kind != "end"] == [6, 5, 4, 3, 2, 1][
        : found.usage.completion_tokens
    ]


def test_text_without_a_grammar_has_a_trace(backend: InProcess) -> None:
    found = backend.complete(Request(ASK, temperature=1.0, seed=1, max_tokens=12, trace=True))
    check(found)
    assert all(entry.allowed_probability == pytest.approx(1.0) for entry in found.trace)


def test_servers_have_no_trace() -> None:
    with LlamaServer("http://127.0.0.1:9") as server, pytest.raises(RequestNotSupportedError, match="trace"):
        server.complete(Request(ASK, trace=True))
