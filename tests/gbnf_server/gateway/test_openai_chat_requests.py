"""Requests of the chat API: what the SDK sends is read, and what is not supported is named."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_server.gateway.chat import GbnfText, JsonObject, JsonSchema, Sampling, ToolChoice
from gbnf_server.gateway.openai_chat.request import parse_body
from gbnf_server.web.errors import HttpError

ASK = {"role": "user", "content": "hello"}
TOOL = {"type": "function", "function": {"name": "go", "parameters": {"type": "object"}}}
OTHER = {"type": "function", "function": {"name": "stay"}}

strings = st.text(st.characters(exclude_categories=["Cs"]), max_size=10)
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-5, 5) | strings,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(strings, inner, max_size=3),
    max_leaves=6,
)
parts = st.lists(strings.map(lambda text: {"type": "text", "text": text}), min_size=1, max_size=3)
contents = strings | parts
arguments = st.dictionaries(strings, json_values, max_size=3)
tool_calls = st.lists(
    st.builds(
        lambda name, given_: {
            "id": f"call_{name}", "type": "function",
            "function": {"name": name, "arguments": json.dumps(given_)},
        },
        strings.filter(bool), arguments,
    ),
    min_size=1, max_size=3,
)  # fmt: skip
messages = st.lists(
    st.builds(lambda role, content: {"role": role, "content": content},
              st.sampled_from(["system", "developer", "user", "assistant"]), contents)
    | st.builds(lambda calls: {"role": "assistant", "content": None, "tool_calls": calls}, tool_calls)
    | st.builds(lambda content: {"role": "tool", "tool_call_id": "call_1", "content": content}, contents),
    min_size=1, max_size=5,
)  # fmt: skip


def parse(**fields: Any) -> Any:
    return parse_body({"model": "m", "messages": [ASK], **fields})


def refusal(**fields: Any) -> HttpError | None:
    try:
        parse(**fields)
    except HttpError as error:
        return error
    return None


def said(content: Any) -> str:
    return content if isinstance(content, str) else "\n".join(part["text"] for part in content or ())


@given(given_=messages)
def test_messages_keep_their_order_texts_and_calls(given_: list[dict[str, Any]]) -> None:
    parsed = parse(messages=given_)
    assert parsed.ignored == ()
    for before, after in zip(given_, parsed.request.messages, strict=True):
        assert after["role"] == {"developer": "system"}.get(before["role"], before["role"])
        assert after["content"] == said(before["content"])
        assert after.get("tool_call_id") == before.get("tool_call_id")
        calls = [
            (call["function"]["name"], call["function"]["arguments"]) for call in after.get("tool_calls", ())
        ]
        assert calls == [
            (call["function"]["name"], json.loads(call["function"]["arguments"]))
            for call in before.get("tool_calls", ())
        ]


@given(value=json_values, key=strings)
def test_any_value_of_any_field_is_read_or_refused_with_its_path(value: Any, key: str) -> None:
    fields = [
        "messages", "tools", "tool_choice", "response_format", "stop", "n", "temperature", "stream",
        "grammar", "stream_options", "logprobs", "seed", "chat_template_kwargs",
        "parallel_tool_calls", key or "x",
    ]  # fmt: skip
    for field in fields:
        error = refusal(**{field: value})
        assert error is None or (error.status == 400 and (error.param or "").startswith(field))


def test_images_are_data_urls() -> None:
    url = f"data:image/png;base64,{base64.b64encode(b'abc').decode()}"
    content = [
        {"type": "text", "text": "what?"},
        {"type": "image_url", "image_url": {"url": url, "detail": "low"}},
    ]
    parsed = parse(messages=[{"role": "user", "content": content}])
    (message,) = parsed.request.messages
    assert message["content"] == "what?"
    assert [(image.data, image.media_type) for image in message["images"]] == [(b"abc", "image/png")]
    assert parsed.ignored == ("messages.content.image_url.detail",)


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        (None, ToolChoice()),
        ("auto", ToolChoice("auto")),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "function": {"name": "go"}}, ToolChoice("required", ("go",))),
        (
            {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": [
                {"type": "function", "function": {"name": "stay"}}]}},
            ToolChoice("auto", ("stay",)),
        ),
    ],
)  # fmt: skip
def test_tool_choices(choice: Any, expected: ToolChoice) -> None:
    assert parse(tools=[TOOL, OTHER], tool_choice=choice).request.tool_choice == expected


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"response_format": {"type": "text"}}, None),
        ({"response_format": {"type": "json_object"}}, JsonObject()),
        (
            {"response_format": {"type": "json_object", "schema": {"type": "object"}}},
            JsonSchema({"type": "object"}, param="response_format.schema"),
        ),
        (
            {
                "response_format": {
                    "type": "json_schema",
                    "json_schema": {"name": "a", "schema": {}, "strict": True},
                }
            },
            JsonSchema({}, strict=True),
        ),
        ({"grammar": 'root ::= "a"'}, GbnfText('root ::= "a"')),
    ],
)
def test_output_formats(fields: Any, expected: Any) -> None:
    assert parse(**fields).request.output == expected


def test_limits_and_sampling() -> None:
    sampling = parse(max_tokens=5, max_completion_tokens=7, temperature=0, top_p=0.5, seed=-1, logprobs=True,
                     top_logprobs=2, stop="x").request  # fmt: skip
    assert (sampling.sampling.max_tokens, sampling.sampling.temperature) == (7, 0)
    assert (sampling.sampling.top_p, sampling.sampling.seed, sampling.sampling.logprobs) == (
        0.5,
        2**32 - 1,
        2,
    )
    assert sampling.stop == ("x",)
    assert parse().request.sampling == Sampling()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"reasoning_effort": "high"}, True),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "minimal"}, False),
        ({"chat_template_kwargs": {"enable_thinking": True}}, True),
        ({"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}}, False),
    ],
)
def test_reasoning(fields: Any, expected: bool | None) -> None:
    assert parse(**fields).request.reasoning is expected


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"messages": []}, "messages", "at least 1"),
        ({"messages": [{"role": "bot", "content": "x"}]}, "messages[0]", "role"),
        ({"messages": [{"role": "user", "content": 3}]}, "messages[0].content", "got 3"),
        ({"messages": [ASK, {"role": "user"}]}, "messages[1].content", "required"),
        ({"messages": [{**ASK, "content": [{"type": "input_audio"}]}]}, "messages[0].content[0]", "audio"),
        (
            {"messages": [{"role": "user", "content": [
                {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}]}]},
            "messages[0].content[0].image_url.url", "data URL",
        ),
        (
            {"messages": [{"role": "assistant", "tool_calls": [
                {"id": "a", "function": {"name": "go", "arguments": "{"}}]}]},
            "messages[0].tool_calls[0].function.arguments", "JSON",
        ),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "function"),
        ({"tools": [TOOL, TOOL]}, "tools", "two tools"),
        ({"tools": [TOOL], "tool_choice": OTHER}, "tool_choice", "'stay'"),
        ({"tool_choice": "required"}, "tool_choice", "no tools"),
        ({"n": 99}, "n", "16"),
        ({"temperature": "hot"}, "temperature", "number"),
        ({"logit_bias": {"1": 2}}, "logit_bias", "not supported"),
        ({"frequency_penalty": 0.5}, "frequency_penalty", "not supported"),
        ({"functions": [{"name": "go"}]}, "functions", "Use tools"),
        ({"modalities": ["text", "audio"]}, "modalities", "not supported"),
        ({"chat_template_kwargs": {"other": 1}}, "chat_template_kwargs.other", "not supported"),
        ({"top_logprobs": 2}, "top_logprobs", "logprobs"),
        ({"grammar": "root ::= x", "response_format": {"type": "json_object"}}, "grammar", "either"),
        ({"stream": "yes"}, "stream", "got 'yes'"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_named(fields: Any, param: str, words: str) -> None:
    with pytest.raises(HttpError) as caught:
        parse(**fields)
    assert (caught.value.status, caught.value.param) == (400, param)
    assert words in caught.value.message


def test_parameters_without_effect_are_listed_and_neutral_ones_are_not() -> None:
    parsed = parse(
        user="me", frequency_penalty=0, ignore_eos=False, logit_bias={}, modalities=["text"], metadata=None,
        store=True, tools=[{**TOOL, "cache_control": {}}],
    )  # fmt: skip
    assert parsed.ignored == ("user", "store", "tools.cache_control")
