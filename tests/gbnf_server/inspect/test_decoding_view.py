"""What is shown of a decoding: every token, visibly, in order, and where the grammar changed the choice."""

from __future__ import annotations

import json
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.backends.base import Timings, Usage
from gbnf_server.inspect.pages.run_view import limit_facts, token_facts, view_run
from gbnf_server.inspect.step_rendering import render_decoding, render_decodings, visible
from gbnf_server.llama.token_values import Candidate, TracedToken
from gbnf_server.planner.events import ModelCalled
from gbnf_server.planner.runs.recording import RecordedCall
from gbnf_server.planner.runs.run_files import RecordedRun
from support.by_hand import NOW


def traced(token: bytes, *refusals: Literal["grammar", "limit"] | None, kind: Any = "sampled") -> TracedToken:
    candidates = tuple(Candidate(b"c", 0.1, refusal) for refusal in refusals)
    return TracedToken(token, kind, 0.5, 3, 0.1, 0.9, candidates)


def entries_of(html: str) -> list[Any]:
    """The entries of the tokens, which the script of the page reads."""
    entries: list[Any] = json.loads(html.partition('class="trace">')[2].partition("</script>")[0])
    return entries


@pytest.mark.parametrize("form", [ModelCalled, RecordedCall])
@pytest.mark.parametrize(
    ("finish_reason", "shortened_at", "repeated", "facts"),
    [
        ("stop", None, "", []),
        ("stop", 7, "", ["shortened by the token limit from character 7 on"]),
        ("stop", 7, "ha", ["shortened by the repetition of 'ha' from character 7 on"]),
        ("length", None, "", ["truncated by the token limit"]),
        ("length", None, "ha", ["truncated by the repetition of 'ha'"]),
    ],
)
def test_a_limit_is_told_alike_in_the_run_and_in_the_decoding(
    form: Any, finish_reason: str, shortened_at: int | None, repeated: str, facts: list[str]
) -> None:
    ended: dict[str, Any] = {
        "finish_reason": finish_reason,
        "shortened_at": shortened_at,
        "repeated": repeated,
    }
    own: dict[str, Any] = {} if form is RecordedCall else {"at": NOW, "step": 1, "duration_s": 1.0}
    call = form(text="ha", usage=Usage(9, 3, 4), timings=Timings(), **ended, **own)
    assert limit_facts(call) == facts
    assert token_facts(call.usage) == ["9 prompt tokens (4 cached)", "3 generated"]
    decoding = RecordedCall(text="ha", usage=Usage(9, 3), **ended)
    run = RecordedRun("r", "go", None, decodings=(decoding,))
    assert view_run(run).steps[0].entries[0].facts == ("9 prompt tokens", "3 generated", *facts)


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
    html = render_decoding("one", RecordedCall(text="x", trace=(traced(b"x", *refusals),)))
    assert f"changed here” ({changed})" in html
    assert f'class="t s{" x" if changed else ""}">x</span>' in html


def test_a_text_without_a_trace_is_one_token() -> None:
    html = render_decoding("one", RecordedCall(text="all of it", reasoning="why"))
    assert html.count('role="option"') == 1
    assert 'class="t u">all of it</span>' in html
    assert len(entries_of(html)) == 1
    assert ">why</pre>" in html


@given(
    st.lists(
        st.builds(traced, st.binary(max_size=5), st.sampled_from(["grammar", "limit", None])), max_size=4
    )
)
def test_the_page_has_an_entry_for_each_token(trace: list[TracedToken]) -> None:
    html = render_decodings(["one"], [RecordedCall(trace=tuple(trace))])
    assert html.count('role="option"') == len(trace)
    assert len(entries_of(html)) == len(trace)


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
