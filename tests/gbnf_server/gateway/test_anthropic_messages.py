"""Laws of the Messages API; the judges are the types and the stream parser of the package anthropic."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import anthropic
import httpx2
import pytest
from anthropic.types import ErrorResponse, Message, RawMessageStreamEvent
from hypothesis import given, settings
from pydantic import TypeAdapter

from gbnf.prompts.messages import Image
from gbnf.tool_formats import TextDelta
from gbnf_server.gateway.answers import Started
from gbnf_server.gateway.anthropic_messages import Messages
from gbnf_server.gateway.chat import FunctionTool, JsonSchema, Sampling, ToolChoice
from gbnf_server.web.errors import HttpError
from support.answers import ENFORCEMENT, USAGE, Answer, answers, api_transport, undeclared
from support.effort import scaled

TOOL: Any = {"name": "f", "description": "F.", "input_schema": {"type": "object"}}
NAMES = ("f", "g")
HI: Any = [{"role": "user", "content": "hi"}]
OPTIONS: Any = {"model": "m", "max_tokens": 10, "messages": HI, "tools": [TOOL]}

STREAM_EVENT: TypeAdapter[RawMessageStreamEvent] = TypeAdapter(RawMessageStreamEvent)


def client_of(*given_answers: Answer) -> anthropic.Anthropic:
    """Return a client whose requests get these answers, one after another."""
    remaining = iter(given_answers)
    transport = api_transport(Messages(), lambda _reply: next(remaining).events())
    return anthropic.Anthropic(
        api_key="none",
        base_url="http://gateway",
        http_client=httpx2.Client(transport=transport),
        max_retries=0,
    )


def parsed(**body: Any) -> Any:
    return Messages().parse({"model": "m", "max_tokens": 10, "messages": HI, **body}).request


def expected_content(answer: Answer) -> list[dict[str, Any]]:
    """Return the content blocks of an answer."""
    reasoning, text = "".join(answer.reasoning), "".join(answer.text)
    calls = () if answer.reason == "length" else answer.calls
    return [
        *([{"type": "thinking", "thinking": reasoning, "signature": "gbnf"}] if reasoning else []),
        *([{"type": "text", "text": text}] if text else []),
        *(
            {"type": "tool_use", "id": call.id, "name": call.name, "input": json.loads(call.arguments)}
            for call in calls
        ),
    ]


def content(message: Message) -> list[dict[str, Any]]:
    return [block.model_dump(exclude_none=True) for block in message.content]


@pytest.mark.slow
@settings(max_examples=scaled(40))
@given(answers(NAMES))
def test_the_stream_and_the_body_say_the_same(answer: Answer) -> None:
    client = client_of(answer, answer)
    whole = client.messages.create(**OPTIONS)
    with client.messages.stream(**OPTIONS) as stream:
        final = stream.get_final_message()
    assert content(whole) == content(final) == expected_content(answer)
    assert whole.stop_reason == final.stop_reason == ("tool_use" if answer.calls else "end_turn")
    assert whole.usage == final.usage
    usage = whole.usage
    assert (usage.input_tokens, usage.cache_read_input_tokens) == (6, 5)  # together the prompt's
    assert usage.output_tokens == USAGE.completion_tokens


@given(answers(NAMES) | answers(NAMES, truncated=True))
def test_the_clients_types_declare_every_field(answer: Answer) -> None:
    reply = Messages().parse({**OPTIONS, "stream": True})
    text = "".join(reply.feed(event) for event in answer.events())
    blocks = [block for block in text.split("\n\n") if block]
    values = [json.loads(block.partition("\ndata: ")[2]) for block in blocks]
    assert [block.partition("\n")[0] for block in blocks] == [f"event: {value['type']}" for value in values]
    for value in values:
        event = STREAM_EVENT.validate_python(value)
        assert {path.rpartition(".")[2] for path in undeclared(event)} <= {"x_gbnf"}
    assert undeclared(Message.model_validate(reply.body())) == [".x_gbnf"]
    assert values[0]["message"]["x_gbnf"] == values[-2]["x_gbnf"] == ENFORCEMENT.as_json()


@given(answers(NAMES) | answers(NAMES, truncated=True))
def test_blocks_come_one_after_another(answer: Answer) -> None:
    events = list(client_of(answer).messages.create(**OPTIONS, stream=True))
    assert [event.type for event in (events[0], *events[-2:])] == [
        "message_start",
        "message_delta",
        "message_stop",
    ]
    opened = -1
    is_open = False
    for event in events[1:-2]:
        match event.type:
            case "content_block_start":
                assert not is_open
                opened, is_open = opened + 1, True
            case "content_block_stop":
                assert is_open
                is_open = False
            case kind:
                assert kind == "content_block_delta"
                assert is_open
        assert event.index == opened
    # the block that stays open is a call that was truncated
    assert is_open == (answer.reason == "length" and bool(answer.calls))


@settings(max_examples=scaled(40))
@given(answers(NAMES, truncated=True))
def test_a_truncated_answer_has_no_call(answer: Answer) -> None:
    client = client_of(answer, answer)
    whole = client.messages.create(**OPTIONS)
    with client.messages.stream(**OPTIONS) as stream:
        complete = [event.content_block for event in stream if event.type == "content_block_stop"]
        final = stream.get_final_message()
    assert whole.stop_reason == final.stop_reason == "max_tokens"
    assert content(whole) == expected_content(answer)
    finished = [block for block in complete if block.type == "tool_use"]
    assert [block.id for block in finished] == [call.id for call in answer.calls[:-1]]


@settings(max_examples=scaled(40))
@given(answers(NAMES))
def test_content_that_is_sent_back_is_what_the_model_said(answer: Answer) -> None:
    first = client_of(answer).messages.create(**OPTIONS)
    results = [
        {"type": "tool_result", "tool_use_id": call.id, "content": f"result of {call.id}"}
        for call in answer.calls
    ]
    said_before = {"role": "assistant", "content": [block.model_dump() for block in first.content]}
    more = {"role": "user", "content": [*results, {"type": "text", "text": "more"}]}
    messages = parsed(messages=[*HI, said_before, more]).messages
    if not first.content:
        assert list(messages) == [{"role": "user", "content": "hi\n\nmore"}]
        return
    said, *rest = messages[1:]
    assert said["role"] == "assistant"
    assert said["content"] == "".join(answer.text)
    assert said.get("reasoning_content", "") == "".join(answer.reasoning)
    assert [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in said.get("tool_calls", ())
    ] == [(call.id, call.name, json.loads(call.arguments)) for call in answer.calls]
    assert rest == [
        *(
            {"role": "tool", "content": f"result of {call.id}", "tool_call_id": call.id, "name": call.name}
            for call in answer.calls
        ),
        {"role": "user", "content": "more"},
    ]


def test_a_stop_sequence_is_named() -> None:
    answer = Answer(text=("a",), stop_string="END")
    message = client_of(answer).messages.create(**OPTIONS, stop_sequences=["END"])
    assert (message.stop_reason, message.stop_sequence) == ("stop_sequence", "END")
    with client_of(answer).messages.stream(**OPTIONS) as stream:
        final = stream.get_final_message()
    assert (final.stop_reason, final.stop_sequence) == ("stop_sequence", "END")


def test_an_error_in_a_stream_raises() -> None:
    reply = Messages().parse({**OPTIONS, "stream": True})
    sent = "".join(reply.feed(event) for event in (Started(0, ENFORCEMENT), TextDelta("a")))
    sent += reply.fail(HttpError(502, "the backend is gone", "upstream_error"))
    transport = httpx2.MockTransport(
        lambda _: httpx2.Response(200, text=sent, headers={"content-type": "text/event-stream"})
    )
    client = anthropic.Anthropic(api_key="none", http_client=httpx2.Client(transport=transport))
    with (
        client.messages.stream(**OPTIONS) as stream,
        pytest.raises(anthropic.APIStatusError, match="the backend is gone"),
    ):
        stream.until_done()


@pytest.mark.parametrize(
    ("status", "code", "kind", "message"),
    [
        (400, "invalid_request", "invalid_request_error", "why"),
        (400, "context_length_exceeded", "invalid_request_error", "prompt is too long: why"),
        (401, None, "authentication_error", "why"),
        (403, None, "permission_error", "why"),
        (404, None, "not_found_error", "why"),
        (413, None, "invalid_request_error", "why"),
        (429, None, "rate_limit_error", "why"),
        (500, None, "api_error", "why"),
        (503, None, "overloaded_error", "why"),
        (504, None, "timeout_error", "why"),
    ],
)
def test_the_shape_of_errors(status: int, code: str | None, kind: str, message: str) -> None:
    error = ErrorResponse.model_validate(Messages().error(HttpError(status, "why", code)))
    assert (error.error.type, error.error.message) == (kind, message)
    assert undeclared(error) == []


# -- requests


def test_all_kinds_of_blocks_become_messages() -> None:
    source = {"type": "base64", "media_type": "image/png", "data": "aGk="}
    image = {"type": "image", "source": source}
    cached = {"cache_control": {"type": "ephemeral"}}
    text = {"type": "text", "text": "What is this?", **cached}
    document = {
        "type": "document",
        "title": "T",
        "source": {"type": "text", "media_type": "text/plain", "data": "D"},
    }
    request = parsed(
        system=[{"type": "text", "text": "Be brief."}, {"type": "text", "text": "Be kind.", **cached}],
        messages=[
            {"role": "user", "content": [text, image, document]},
            {"role": "system", "content": "A reminder."},
            {
                "role": "assistant",
                "content": [
                    {"type": "thinking", "thinking": "hm", "signature": "gbnf"},
                    {"type": "redacted_thinking", "data": "x"},
                    {"type": "text", "text": "I look."},
                    {"type": "tool_use", "id": "c1", "name": "f", "input": {"a": 1}},
                    {"type": "tool_use", "id": "c2", "name": "f", "input": {}, **cached},
                ],
            },
            {
                "role": "user",
                "content": [
                    {"type": "tool_result", "tool_use_id": "c2", "content": "gone", "is_error": True},
                    {
                        "type": "tool_result",
                        "tool_use_id": "c1",
                        "content": [
                            {"type": "text", "text": "one"},
                            image,
                            {"type": "tool_reference", "tool_name": "f"},
                        ],
                    },
                    {"type": "text", "text": "Well?"},
                ],
            },
            {"role": "user", "content": "Now."},
        ],
        tools=[TOOL],
    )
    shown = [Image(b"hi", "image/png")]
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}},
        {"id": "c2", "type": "function", "function": {"name": "f", "arguments": {}}},
    ]
    assert list(request.messages) == [
        {"role": "system", "content": "Be brief.\n\nBe kind."},
        {"role": "user", "content": "What is this?\n\nT\n\nD\n\nA reminder.", "images": shown},
        {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": calls},
        {"role": "tool", "content": "Error: gone", "tool_call_id": "c2", "name": "f"},
        {
            "role": "tool",
            "content": "one\nThe tool f can be called.",
            "tool_call_id": "c1",
            "name": "f",
            "images": shown,
        },
        {"role": "user", "content": "Well?\n\nNow."},
    ]


def test_parameters() -> None:
    request = parsed(
        stop_sequences=["END"], temperature=0.5, top_p=0.9, top_k=40, stream=True,
        tools=[{**TOOL, "type": "custom", "strict": True}],
    )  # fmt: skip
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.top_k) == (10, 0.5, 0.9, 40)
    assert request.stop == ("END",)
    assert request.stream
    assert not request.reasoning
    assert request.tools == (
        FunctionTool("f", "F.", {"type": "object"}, strict=True, param="tools[0].input_schema"),
    )


@pytest.mark.parametrize(
    ("thinking", "expected"),
    [
        (None, False),
        ({"type": "disabled"}, False),
        ({"type": "enabled", "budget_tokens": 1024}, True),
        ({"type": "adaptive"}, True),
    ],
)
def test_thinking_turns_reasoning_on(thinking: Any, expected: bool) -> None:
    assert parsed(thinking=thinking).reasoning is expected


@pytest.mark.parametrize("single", [None, False, True])
@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ({"type": "auto"}, ToolChoice()),
        ({"type": "any"}, ToolChoice("required")),
        ({"type": "tool", "name": "f"}, ToolChoice("required", ("f",))),
        ({"type": "none"}, ToolChoice("none")),
    ],
)
def test_tool_choice(choice: Any, expected: ToolChoice, single: bool | None) -> None:
    option = {} if single is None else {"disable_parallel_tool_use": single}
    request = parsed(tools=[TOOL], tool_choice={**choice, **option})
    assert request.tool_choice == expected
    assert request.parallel == {None: None, True: False, False: True}[single]


def test_the_format_of_the_text() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    request = parsed(output_config={"effort": "low", "format": {"type": "json_schema", "schema": schema}})
    assert request.output == JsonSchema(schema, param="output_config.format.schema")


BLOCK = "messages[0].content[0]"


def _user(block: Any) -> dict[str, Any]:
    return {"messages": [{"role": "user", "content": [block]}]}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "tool", "content": "x"}]}, "messages[0].role"),
        ({"messages": [*HI, {"role": "assistant", "content": "The answer is"}]}, "messages"),
        ({"max_tokens": 0}, "max_tokens"),
        (_user({"type": "text"}), f"{BLOCK}.text"),
        (_user({"type": "tool_use", "id": "a", "name": "f", "input": {}}), f"{BLOCK}.type"),
        (_user({"type": "tool_result", "tool_use_id": "c"}), f"{BLOCK}.tool_use_id"),
        (_user({"type": "image", "source": {"type": "url", "url": "https://a.b/c"}}), f"{BLOCK}.source.type"),
        (
            _user({"type": "image", "source": {"type": "base64", "media_type": "text/plain", "data": ""}}),
            f"{BLOCK}.source",
        ),
        (_user({"type": "document", "source": {"type": "base64"}}), f"{BLOCK}.source.type"),
        ({"system": [{"type": "image"}]}, "system[0].type"),
        ({"tools": [{"type": "web_search_20250305", "name": "web_search"}]}, "tools[0].type"),
        ({"tools": [{"name": "f"}]}, "tools[0].input_schema"),
        ({"tools": [{**TOOL, "name": "a b"}]}, "tools[0].name"),
        ({"tools": [{**TOOL, "name": "a" * 129}]}, "tools[0].name"),
        ({"tools": [TOOL], "max_tool_calls": 0}, "max_tool_calls"),
        ({"tools": [7]}, "tools[0]"),
        ({"messages": [{"role": "user", "content": 7}]}, "messages[0].content"),
        ({"system": 7}, "system"),
        ({"tools": [TOOL], "tool_choice": {"type": "tool", "name": "g"}}, "tool_choice"),
        ({"tools": [TOOL], "tool_choice": {"type": "required"}}, "tool_choice.type"),
        ({"tool_choice": {"type": "any"}}, "tool_choice"),
        ({"thinking": {"type": "always"}}, "thinking.type"),
        ({"temperature": -1}, "temperature"),
        ({"top_k": 1.5}, "top_k"),
        ({"stop_sequences": [""]}, "stop_sequences[0]"),
        ({"mcp_servers": [{"url": "x"}]}, "mcp_servers"),
        ({"container": "c"}, "container"),
        ({"thread": {"type": "create"}}, "thread"),
    ],
)
def test_errors_name_the_path(body: dict[str, Any], param: str) -> None:
    with pytest.raises(HttpError) as raised:
        parsed(**body)
    assert (raised.value.status, raised.value.param) == (400, param)


def test_clients_that_are_refused_a_thread_send_the_whole_conversation() -> None:
    with pytest.raises(anthropic.BadRequestError) as raised:
        client_of().beta.messages.create(**OPTIONS, thread={"type": "create"})
    details: Any = raised.value.body
    assert details["error"]["details"]["error_code"] == "thread_unsupported_request"
    with pytest.raises(HttpError):
        Messages().parse_count({"model": "m", "messages": HI, "thread": {"type": "create"}})


def test_what_has_no_effect_is_in_a_header() -> None:
    response = client_of(Answer()).messages.with_raw_response.create(
        **OPTIONS,
        service_tier="auto",
        metadata={"user_id": "u"},
        thinking={"type": "enabled", "budget_tokens": 1024},
        output_config={"effort": "high"},
        extra_body={"context_management": {"edits": []}},
        extra_query={"beta": "true"},
    )
    assert response.headers["x-gbnf"] == ENFORCEMENT.header()
    ignored = "service_tier, context_management, thinking.budget_tokens"
    assert response.headers["x-gbnf-warning"] == f"without effect: {ignored}"


def test_the_prompt_of_a_count_is_that_of_a_message() -> None:
    body = {
        "model": "m",
        "system": "Be brief.",
        "messages": HI,
        "tools": [TOOL],
        "thinking": {"type": "adaptive"},
    }
    api = Messages()
    message = api.parse({**body, "max_tokens": 10}).request
    assert api.parse_count(body) == replace(message, sampling=Sampling())
