"""Answers: what leaves of them, what violates a grammar, and what is asked for again."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncGenerator
from contextlib import aclosing
from functools import partial
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf import Grammar, Tool
from gbnf.prompts.messages import Message
from gbnf.protocols.call_protocols import JsonCallStream
from gbnf.tool_formats import ArgumentsDelta, CallEnded, CallStarted, Delta, TextDelta
from gbnf_server.backends.answer import Answered, AnswerEvent, AnswerPiece, Asked, answer, grammar_violation
from gbnf_server.backends.base import BackendEvent, Completion, Request, Usage
from support.backends import FakeBackend
from support.hostile_grammars import HOSTILE
from support.wires import SIZES, cut

CALL = Grammar.parse('root ::= "{\\"name\\": \\"" ("find" | "write") "\\"}"')
WHOLE = '{"name": "find"}'


@given(st.integers(0, len(WHOLE)))
def test_every_prefix_matches_as_truncated_and_only_the_whole_text_as_finished(length: int) -> None:
    text = WHOLE[:length]
    assert grammar_violation(CALL, text, truncated=True) is None
    assert (grammar_violation(CALL, text, truncated=False) is None) == (text == WHOLE)


@pytest.mark.parametrize(
    ("text", "truncated", "problem"),
    [
        ("Sure! {", False, "at character 0: found 'Sure! {', expected"),
        ("Sure! {", True, "at character 0"),
        ('{"name": "fend"}', False, "at character 11: found 'end\"}'"),
        (WHOLE + "x", False, "at character 16: found 'x', expected end of text"),
        ("", False, "at character 0: the text is empty"),
        (WHOLE[:5], False, "at character 5: the text ends"),
    ],
)
def test_messages_of_violations(text: str, truncated: bool, problem: str) -> None:
    assert problem in (grammar_violation(CALL, text, truncated=truncated) or "")


def test_a_character_split_by_truncation_is_no_violation() -> None:
    assert grammar_violation(Grammar.parse('root ::= "è😀"'), "è\ufffd", truncated=True) is None
    assert grammar_violation(Grammar.parse('root ::= "è😀"'), "è\ufffd", truncated=False) is not None


def test_a_long_list_of_what_was_expected_is_clipped() -> None:
    grammar = Grammar.parse("root ::= " + " | ".join(f'"{chr(97 + n)}"' for n in range(20)))
    problem = grammar_violation(grammar, "!", truncated=False) or ""
    assert problem.endswith(", …")
    assert len(problem) < 120


# Whole answers.

ASK: list[Message] = [{"role": "user", "content": "hello"}]
WORDS = Grammar.parse('root ::= ("ab" | "cd" | ", ")*')


class Saying(FakeBackend):
    """A server: it writes pieces, whatever the grammar. `asked`: the seeds of the requests."""

    enforces_grammar = False

    def __init__(self, *answers: list[str], finish: Literal["stop", "length"] = "stop") -> None:
        self._answers, self._finish = answers, finish
        self.asked: list[int] = []
        self.has_said: list[str] = []

    async def generate(self, request: Request) -> AsyncGenerator[BackendEvent, None]:
        pieces = self._answers[min(len(self.asked), len(self._answers) - 1)]
        self.asked.append(request.seed)
        self.has_said.clear()
        for piece in pieces:
            self.has_said.append(piece)
            yield TextDelta(piece)
        yield Completion("".join(pieces), self._finish, Usage(3, len(pieces)))

    async def count_tokens(self, _request: Request) -> int:
        return 7


def deltas_of(backend: Saying, asked: Asked) -> tuple[list[Delta], Answered]:
    """Return what leaves, and the end."""

    async def collect() -> list[AnswerEvent]:
        async with aclosing(answer(backend, asked)) as events:
            return [event async for event in events]

    *pieces, end = asyncio.run(collect())
    assert isinstance(end, Answered)
    return [delta for piece in pieces if isinstance(piece, AnswerPiece) for delta in piece.deltas], end


def heard(backend: Saying, asked: Asked) -> tuple[str, Answered]:
    """Return what leaves as text, and the end."""
    deltas, end = deltas_of(backend, asked)
    return "".join(delta.text for delta in deltas if isinstance(delta, TextDelta)), end


ARGUMENTS = (
    '{"a": 1, "b": "x"}', '{"b": "x", "a": 1}', '{"a": 1.0,"b":"x"}', '{"a": 2, "b": "x"}', "{}",
    '{"a": true}',
)  # fmt: skip
TOOLS = (Tool("find", args={}), Tool("write", args={}))
CALLS = [f'{{"name": "{name}", "arguments": {each}}}' for name in ("find", "write") for each in ARGUMENTS]


@given(
    st.lists(st.sampled_from(CALLS), min_size=1, max_size=6),
    SIZES,
    st.none() | st.integers(1, 3),
    st.booleans(),
)
def test_no_call_leaves_twice_and_no_more_than_were_asked_for(
    given_: list[str], sizes: list[int], most: int | None, streams: bool
) -> None:
    backend = Saying(list(cut("\n".join(given_), sizes)))
    reader = partial(JsonCallStream, TOOLS, final_answer=False)
    asked = Asked(Request(ASK), reader, streams=streams, max_calls=most)
    deltas, end = deltas_of(backend, asked)
    expected: list[Any] = []
    for call in map(json.loads, given_):
        if call in expected or len(expected) == most:
            break
        expected.append(call)
    left = [{"name": delta.name, "arguments": ""} for delta in deltas if isinstance(delta, CallStarted)]
    for delta in deltas:
        if isinstance(delta, ArgumentsDelta):
            left[delta.index]["arguments"] += delta.json_text
    assert [{**call, "arguments": json.loads(call["arguments"])} for call in left] == expected
    assert [call.ended for call in end.calls] == [True] * len(expected)
    again = len(expected) < len(given_) and len(expected) != most
    assert end.completion.repeated == (json.loads(given_[len(expected)])["name"] if again else "")
    read = given_[: len(expected) + again]
    assert sum(map(len, backend.has_said[:-1])) < len("\n".join(read)), "it is stopped at that call"


def test_a_call_that_was_withheld_when_the_limit_came_does_not_leave() -> None:
    text = "\n".join([CALLS[0], CALLS[3]])[:-5]
    deltas, end = deltas_of(
        Saying([text], finish="length"),
        Asked(Request(ASK), partial(JsonCallStream, TOOLS, final_answer=False)),
    )
    assert [type(delta) for delta in deltas] == [CallStarted, ArgumentsDelta, CallEnded]
    assert [call.ended for call in end.calls] == [True, False], "so the reason is the limit"


TEXTS = st.text("abcd, x", max_size=30)


@given(TEXTS, SIZES, st.booleans())
def test_nothing_leaves_that_the_grammar_does_not_allow(text: str, sizes: list[int], streams: bool) -> None:
    backend = Saying(list(cut(text, sizes)))
    said, end = heard(backend, Asked(Request(ASK, WORDS), streams=streams))
    violation = grammar_violation(WORDS, text, truncated=False)
    assert (end.completion.grammar_violation is None) == (violation is None)
    assert WORDS.match(said).accepted
    if violation is None:
        assert said == end.completion.text == text
        assert end.verified
    elif not WORDS.match(text).accepted:
        at = WORDS.match(text).position
        assert sum(map(len, backend.has_said[:-1])) <= at, "it is stopped at the piece that is wrong"
    if not streams and violation is not None:
        assert said == ""


@given(TEXTS, SIZES, st.lists(st.text("abcd", min_size=1, max_size=3), max_size=3))
def test_nothing_leaves_after_a_stop_string(text: str, sizes: list[int], stop: list[str]) -> None:
    said, end = heard(Saying(list(cut(text, sizes))), Asked(Request(ASK), stop=tuple(stop)))
    ends = [at for at in range(len(text) + 1) if text[:at].endswith(tuple(stop))] if stop else []
    if ends:
        assert end.completion.stop_string is not None
        assert said + end.completion.stop_string == text[: ends[0]]
    else:
        assert (said, end.completion.stop_string) == (text, None)


def test_an_ignored_grammar_is_asked_for_again_while_nothing_has_left() -> None:
    wrong, right = ["no", "pe"], ["ab"]
    backend = Saying(wrong, wrong, right)
    said, end = heard(backend, Asked(Request(ASK, WORDS, seed=5), retries=3))
    assert (said, end.retries, backend.asked) == ("ab", 2, [5, 6, 7])
    backend = Saying(["ab", "x"], right)
    said, end = heard(backend, Asked(Request(ASK, WORDS), retries=3))
    assert (said, end.retries, len(backend.asked)) == ("ab", 0, 1)
    assert end.completion.grammar_violation is not None
    backend = Saying(["ab", "x"], right)
    said, end = heard(backend, Asked(Request(ASK, WORDS), retries=3, streams=False))
    assert (said, end.retries, len(backend.asked)) == ("ab", 1, 2)


def test_an_invalid_answer_is_asked_for_again_as_long_as_it_is_held() -> None:
    def check(end: Answered) -> tuple[str, ...]:
        return ("too short",) if len(end.completion.text) < 4 else ()

    backend = Saying(["ab"], ["abcd"])
    said, end = heard(backend, Asked(Request(ASK, WORDS), retries=1, check=check, streams=False))
    assert (said, end.invalid, end.retries) == ("abcd", (), 1)
    said, end = heard(Saying(["ab"]), Asked(Request(ASK, WORDS), retries=1, check=check))
    assert (said, end.invalid, end.retries) == ("ab", ("too short",), 0)


def test_a_backend_that_enforces_the_grammar_is_matched_only_where_that_is_asked_for() -> None:
    backend = Saying(["nope"])
    backend.enforces_grammar = True
    assert heard(backend, Asked(Request(ASK, WORDS)))[1].completion.grammar_violation is None
    verified = heard(backend, Asked(Request(ASK, WORDS), verifies=True))[1]
    assert verified.completion.grammar_violation is not None


@pytest.mark.parametrize("is_enforced", [False, True])
def test_an_answer_that_is_not_matched_says_so(is_enforced: bool) -> None:
    ambiguous = HOSTILE["doubling of nothing"](60).replace("root ::=", "next ::=", 1)
    backend = Saying(["a", "nope"])
    backend.enforces_grammar = is_enforced
    asked = Asked(Request(ASK, Grammar.parse(f'root ::= "a" next\n{ambiguous}')), verifies=True)
    said, end = heard(backend, asked)
    assert (said, end.verified) == ("anope", False)
    assert bool(end.completion.unmatched) != is_enforced


def test_a_truncated_answer_may_be_a_prefix() -> None:
    backend = Saying(["ab", "c"], finish="length")
    said, end = heard(backend, Asked(Request(ASK, WORDS)))
    assert (said, end.completion.grammar_violation, end.completion.finish_reason) == ("abc", None, "length")


def test_the_tokens_of_an_answer_that_is_ended_here_are_counted() -> None:
    _, end = heard(Saying(["a", "b", "c", "d"]), Asked(Request(ASK), stop=("c",)))
    assert (end.completion.usage.prompt_tokens, end.completion.usage.completion_tokens) == (7, 3)
