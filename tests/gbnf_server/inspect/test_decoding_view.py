"""What is shown of a decoding: every token, visibly, in order, and where the grammar changed the choice."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.inspect.step_rendering import render_decodings, view_decoding, visible
from gbnf_server.llama.token_values import Candidate, TracedToken
from gbnf_server.planner.recording import RecordedCall


def traced(token: bytes, *refusals: Literal["grammar", "limit"] | None, kind: Any = "sampled") -> TracedToken:
    candidates = tuple(Candidate(b"c", 0.1, refusal) for refusal in refusals)
    return TracedToken(token, kind, 0.5, 3, 0.1, 0.9, candidates)


@given(st.binary(max_size=8))
def test_every_token_can_be_seen(token: bytes) -> None:
    shown = visible(token)
    assert shown.strip()
    assert all(each.isprintable() or each in "\n\t" or ord(each) >= 0x7F for each in shown)


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        (b"", "∅"),
        (b" ", "␣"),
        (b"   ", "␣␣␣"),
        (b" a", " a"),
        (b"\n", "↵\n"),
        (b"\r\n\t", "␍↵\n⇥\t"),
        (b"\x1b[31m", "\\x1b[31m"),
        ("é".encode(), "é"),
        ("é".encode()[:1], "\\xc3"),
    ],
)
def test_how_tokens_are_shown(token: bytes, shown: str) -> None:
    assert visible(token) == shown


@pytest.mark.parametrize(
    ("refusals", "changed"),
    [((), 0), ((None,), 0), (("grammar", None), 1), (("limit", None), 1), ((None, "grammar"), 0)],
)
def test_a_choice_is_changed_if_the_likeliest_token_was_refused(refusals: Any, changed: int) -> None:
    view = view_decoding(RecordedCall(text="x", trace=(traced(b"x", *refusals),)), "one")
    assert view.changed == changed
    assert [token.is_changed for token in view.tokens] == [bool(changed)]


def test_a_text_without_a_trace_is_one_token() -> None:
    view = view_decoding(RecordedCall(text="all of it", reasoning="why"), "one")
    assert [(token.text, token.kind) for token in view.tokens] == [("all of it", "untraced")]
    assert len(view.data) == 1
    assert view.reasoning == "why"


@given(
    st.lists(
        st.builds(traced, st.binary(max_size=5), st.sampled_from(["grammar", "limit", None])), max_size=4
    )
)
def test_the_page_has_an_entry_for_each_token(trace: list[TracedToken]) -> None:
    html = render_decodings(["one"], [RecordedCall(trace=tuple(trace))])
    assert html.count('role="option"') == len(trace)
    embedded = html.partition('class="trace">')[2].partition("</script>")[0]
    assert len(json.loads(embedded)) == len(trace)


def test_nothing_of_a_text_is_markup() -> None:
    evil = "</script><script>alert(1)</script>\"'<img src=x onerror=alert(1)><!--"
    call = RecordedCall(
        text=evil,
        grammar=evil,
        messages=({"role": evil, "content": evil},),
        trace=(traced(evil.encode(), None),),
    )
    for given_call in (call, RecordedCall(text=evil), RecordedCall(error=evil)):
        html = render_decodings([evil], [given_call])
        assert "<img" not in html
        assert html.count("<script") == html.count("</script>") == 1
        assert "<!--" not in html
