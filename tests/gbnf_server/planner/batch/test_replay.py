"""What a replayed run gets is what the recorded one got: each reply, each error, and the time."""

from __future__ import annotations

import json
from collections.abc import Generator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.errors import GbnfError
from gbnf.prompts.messages import Message
from gbnf.tool_formats import ReasoningDelta, TextDelta
from gbnf_server.backends.answer import AnswerPiece, unfinished
from gbnf_server.backends.base import Completion, Request, Timings, Usage
from gbnf_server.llama.token_values import TokenLogprob, ValueProbability
from gbnf_server.planner.batch.replay import Replay, ReplayError
from gbnf_server.planner.events import AskApproval, AskPerson, CallModel, Purpose
from gbnf_server.planner.runs.run_log import RunLogError
from gbnf_server.system import errors

BEGAN = datetime(2026, 3, 5, 23, 59, tzinfo=UTC)
ASKED: tuple[Message, ...] = ({"role": "user", "content": "go"},)
SHARES = st.floats(0, 1)
TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=5)
COMPLETIONS = st.builds(
    Completion,
    TEXTS,
    st.sampled_from(["stop", "length"]),
    st.builds(Usage, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    st.builds(Timings, SHARES, SHARES),
    st.none() | TEXTS,
    reasoning=TEXTS,
    shortened_at=st.none() | st.integers(0, 9),
    logprobs=st.lists(
        st.builds(
            TokenLogprob,
            st.binary(max_size=3),
            SHARES,
            st.lists(st.tuples(st.binary(max_size=3), SHARES), max_size=2).map(tuple),
        ),
        max_size=2,
    ).map(tuple),
    probabilities=st.lists(
        st.builds(ValueProbability, TEXTS, SHARES, st.lists(st.tuples(TEXTS, SHARES), max_size=2).map(tuple)),
        max_size=2,
    ).map(tuple),
)
ERRORS: list[GbnfError] = [
    errors.BackendError("broken"),
    errors.AnswerTimeoutError("late"),
    errors.ServerResponseError(400, "no"),
    errors.GrammarRefusedError("no grammar"),
    errors.RequestNotSupportedError("b", "f", "h"),
    errors.ContextOverflowError(2, None),
    errors.MalformedTextError("half a character"),
    errors.ConversationRefusedError("roles"),
    errors.ExecutorError("bad\nword"),
    errors.ExecutorTimeoutError("tool", 3, killed=False),
    errors.SetupError("no disk"),
]
PIECES = st.lists(
    st.builds(lambda text: AnswerPiece(text, (TextDelta(text),)), TEXTS.filter(bool))
    | st.builds(lambda text: AnswerPiece("", (ReasoningDelta(text),)), TEXTS.filter(bool)),
    max_size=3,
)


def recorded(effect: Any, reply: Any) -> tuple[Any, Any]:
    """Return what the loop gets for an effect when it is recorded, and when it is replayed."""
    entries: list[Any] = []
    got: list[Any] = []

    def loop() -> Generator[Any, Any, Any]:
        try:
            got.append((yield effect))
        except GbnfError as error:
            got.append(error)

    first = Replay([], lambda entry, **_: entries.append(json.loads(json.dumps(entry))), BEGAN)
    run = first.planning(loop())
    assert next(run) is effect
    with pytest.raises(StopIteration):
        _ = run.throw(reply) if isinstance(reply, GbnfError) else run.send(reply)
    if isinstance(effect, CallModel):
        effect.pieces.clear()
    with pytest.raises(StopIteration):
        next(Replay(entries, lambda *_, **__: None, BEGAN).planning(loop()))
    return got[0], got[1]


def asking(purpose: Purpose) -> CallModel:
    return CallModel(Request(ASKED, None), lambda: None, 1, purpose)  # type: ignore[arg-type,return-value]  # it is not read


@given(COMPLETIONS, st.sampled_from(["call", "choice", "tool"]))
def test_a_completion_is_replayed(completion: Completion, purpose: Purpose) -> None:
    first, second = recorded(asking(purpose), completion)
    assert first == completion
    assert second == (
        completion if purpose == "choice" else Completion(**{**_fields(completion), "logprobs": ()})
    )


def _fields(completion: Completion) -> dict[str, Any]:
    return {name: getattr(completion, name) for name in Completion.__dataclass_fields__}


@given(st.sampled_from(ERRORS), PIECES)
def test_an_error_is_replayed_with_what_was_written_before(
    error: GbnfError, pieces: list[AnswerPiece]
) -> None:
    effect = asking("call")
    effect.pieces.extend(pieces)
    first, second = recorded(effect, error)
    assert first is error
    assert (type(second), str(second), vars(second)) == (type(error), str(error), vars(error))
    assert bool(effect.pieces) == bool(pieces)
    if pieces:
        assert unfinished(effect.pieces) == unfinished(pieces)


@pytest.mark.parametrize(
    ("effect", "reply"), [(AskPerson("which?", ()), "x"), (AskApproval({}), True), (AskApproval({}), False)]
)
def test_a_person_is_replayed(effect: Any, reply: Any) -> None:
    assert recorded(effect, reply) == (reply, reply)


def test_a_reply_is_of_what_it_replies_to() -> None:
    entries = [{"kind": "model salvage", "at_s": 0.0, "reply": {}}]
    replay = Replay(entries, lambda *_, **__: None, BEGAN)
    with pytest.raises(ReplayError, match="the log has 'model salvage' where the run expects 'model call'"):
        next(replay.planning(_once(asking("call"))))


def _once(effect: Any) -> Generator[Any, Any, Any]:
    yield effect


def test_time_goes_on_where_it_was() -> None:
    entries = [{"kind": "AskPerson", "at_s": at_s, "reply": "x"} for at_s in (5.0, 9.0)]
    replay = Replay(entries, lambda *_, **__: None, BEGAN)
    times = [replay.clock()]
    for _ in entries:
        with pytest.raises(StopIteration):
            next(replay.planning(_once(AskPerson("which?", ()))))
        times.append(replay.clock())
    assert times[:2] == [BEGAN, BEGAN + timedelta(seconds=5)]
    assert times[2] >= BEGAN + timedelta(seconds=9)


def test_a_run_ends_where_a_reply_cannot_be_logged() -> None:
    def full(*_: Any, **__: Any) -> None:
        raise RunLogError("no space")

    def loop() -> Generator[Any, Any, Any]:
        try:
            yield AskPerson("which?", ())
        except GbnfError:
            pytest.fail("the loop would go on")

    run = Replay([], full, BEGAN).planning(loop())
    next(run)
    with pytest.raises(ReplayError, match="no space"):
        run.send("x")
