"""Answers of the chat API, judged by the types and the accumulator of OpenAI's own package."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gbnf_server.gateway.answers import AnswerEvent, Finished, Started
from gbnf_server.gateway.openai_chat import ChatCompletions
from gbnf_server.gateway.openai_chat.reply import ChatReply
from gbnf_server.llama.token_values import TokenLogprob
from gbnf_server.web.errors import HttpError
from support.answers import ENFORCEMENT, Answer, answers

NAMES = ("f", "g")
TOKENS = (TokenLogprob(b"\xc3", -0.5, ((b"a", -0.1),)),)


@st.composite
def replies(draw: st.DrawFn) -> list[AnswerEvent]:
    """The events of one to three answers."""
    events: list[AnswerEvent] = []
    for _ in range(draw(st.integers(1, 3))):
        *made, end = draw(answers(NAMES) | answers(NAMES, truncated=True)).events()
        assert isinstance(end, Finished)
        events += [*made, replace(end, logprobs=draw(st.sampled_from([(), TOKENS])))]
    return events


def reply(events: list[AnswerEvent], **fields: Any) -> ChatReply:
    count = sum(isinstance(event, Started) for event in events)
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "n": count, **fields}
    return ChatCompletions().parse(body)


def whole(events: list[AnswerEvent]) -> dict[str, Any]:
    made = reply(events)
    assert [made.feed(event) for event in events] == [""] * len(events)
    return made.body()


def chunks(events: list[AnswerEvent], **options: Any) -> list[dict[str, Any]]:
    made = reply(events, stream=True, stream_options=options or None)
    lines = "".join(made.feed(event) for event in events).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


@given(events=replies())
def test_an_answer_and_its_chunks_have_the_types_of_the_client(events: list[AnswerEvent]) -> None:
    ChatCompletion.model_validate(whole(events), strict=True)
    for chunk in chunks(events, include_usage=True):
        ChatCompletionChunk.model_validate(chunk, strict=True)


@given(events=replies(), usage=st.booleans())
def test_the_accumulated_chunks_are_the_whole_answer(events: list[AnswerEvent], usage: bool) -> None:
    state = ChatCompletionStreamState()
    for chunk in chunks(events, **({"include_usage": True} if usage else {})):
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk))
    # the SDK's own final step fails on "length", so the snapshot is compared
    streamed = state.current_completion_snapshot
    body = ChatCompletion.model_validate(whole(events))
    assert (streamed.usage is not None) == usage
    if usage:
        assert streamed.usage == body.usage
    for ours, theirs in zip(streamed.choices, body.choices, strict=True):
        assert (ours.index, ours.finish_reason) == (theirs.index, theirs.finish_reason)
        assert (ours.message.content or "") == (theirs.message.content or "")
        assert ours.logprobs == theirs.logprobs
        calls = [
            (call.id, call.function.name, call.function.arguments) for call in ours.message.tool_calls or ()
        ]
        if theirs.finish_reason == "length":
            assert theirs.message.tool_calls is None
        else:
            assert calls == [
                (call.id, call.function.name, call.function.arguments)
                for call in theirs.message.tool_calls or ()
                if call.type == "function"
            ]


@given(events=replies())
def test_deltas_have_stable_indices_and_each_name_once(events: list[AnswerEvent]) -> None:
    seen: dict[tuple[int, int], int] = {}
    for chunk in chunks(events):
        for choice in chunk["choices"]:
            for call in choice["delta"].get("tool_calls", ()):
                key = (choice["index"], call["index"])
                if "name" in call["function"]:
                    assert key not in seen
                    assert call["id"]
                    assert call["index"] == sum(index == choice["index"] for index, _ in seen)
                    seen[key] = 1
                else:
                    assert key in seen
                    assert "id" not in call


def test_reasoning_and_the_enforcement_are_extensions() -> None:
    events = [*Answer(reasoning=("hm",), text=("yes",)).events()]
    body = whole(events)
    assert body["choices"][0]["message"]["reasoning_content"] == "hm"
    assert body["x_gbnf"]["grammar"] == "sha256:12"
    assert body["x_gbnf"]["verified"]
    streamed = chunks(events)
    assert streamed[-1]["x_gbnf"] == body["x_gbnf"]
    assert [chunk["choices"][0]["delta"].get("reasoning_content") for chunk in streamed][1] == "hm"


def test_headers_have_the_enforcement_and_what_has_no_effect() -> None:
    made = reply([*Answer().events()], user="me", store=True)
    made.feed(Started(0, ENFORCEMENT))
    assert made.headers() == {
        "x-gbnf": 'grammar="sha256:12", exact=?1',
        "x-gbnf-warning": "without effect: user, store",
    }


def test_errors_have_the_shape_of_the_api() -> None:
    api = ChatCompletions()
    kinds = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}
    for status, kind in {**kinds, 503: "server_error"}.items():
        error = api.error(HttpError(status, "no", "code", "tools"))
        assert error == {"error": {"message": "no", "type": kind, "param": "tools", "code": "code"}}
    failed = reply([Started(0, ENFORCEMENT)], stream=True).fail(HttpError(502, "no"))
    assert json.loads(failed.removeprefix("data: "))["error"]["message"] == "no"
