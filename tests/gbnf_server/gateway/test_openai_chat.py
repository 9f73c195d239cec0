"""The chat API: what the SDK sends is read, what is not supported is named, and answers have its types.

The judges of answers are the types and the accumulator of OpenAI's own package.
"""

from __future__ import annotations

import base64
import itertools
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.lib.streaming.chat import ChatCompletionStreamState
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from gbnf_server.gateway.answers import Finished, ReplyEvent, Started
from gbnf_server.gateway.api import NOT_CONTINUED
from gbnf_server.gateway.chat import GbnfText, JsonObject, JsonSchema, Sampling, ToolChoice
from gbnf_server.gateway.openai_chat import ChatCompletions
from gbnf_server.gateway.openai_chat.reply import ChatReply
from gbnf_server.gateway.openai_chat.request import parse_body
from gbnf_server.llama.token_values import TokenLogprob
from gbnf_server.web.errors import HttpError
from support.answers import ENFORCEMENT, Answer, answers
from support.effort import scaled

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
def test_texts_and_calls_keep_their_order_in_turns_that_alternate(given_: list[dict[str, Any]]) -> None:
    parsed = parse(messages=given_)
    assert parsed.ignored == ((NOT_CONTINUED,) if given_[-1]["role"] == "assistant" else ())
    made = parsed.request.messages
    roles = [message["role"] for message in made]
    assert not [role for role, after in itertools.pairwise(roles) if role == after != "tool"]
    texts = [text for message in given_ if (text := said(message["content"]))]
    assert "\n\n".join(message["content"] for message in made if message["content"]) == "\n\n".join(texts)
    ids = [message["tool_call_id"] for message in given_ if message["role"] == "tool"]
    assert ids == [message["tool_call_id"] for message in made if message["role"] == "tool"]
    calls = [call["function"] for message in made for call in message.get("tool_calls", ())]
    assert [(call["name"], call["arguments"]) for call in calls] == [
        (call["function"]["name"], json.loads(call["function"]["arguments"]))
        for message in given_
        for call in message.get("tool_calls", ())
    ]


def test_instructions_in_a_conversation_keep_their_role() -> None:
    said_ = [("system", "S"), ("user", "U"), ("assistant", "A"), ("developer", "in French"), ("user", "V")]
    parsed = parse(messages=[{"role": role, "content": content} for role, content in said_])
    made = [(message["role"], message["content"]) for message in parsed.request.messages]
    assert made == [(role.replace("developer", "system"), content) for role, content in said_]


@given(value=json_values, key=strings)
def test_any_value_of_any_field_is_read_or_refused_with_its_path(value: Any, key: str) -> None:
    fields = [
        "messages", "tools", "tool_choice", "response_format", "stop", "n", "temperature", "stream",
        "grammar", "stream_options", "logprobs", "seed", "chat_template_kwargs",
        "parallel_tool_calls", "max_tool_calls", key or "x",
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
    result = {"role": "tool", "tool_call_id": "a", "content": content}
    parsed = parse(messages=[{"role": "user", "content": content}, result])
    for message in parsed.request.messages:
        assert message["content"] == "what?"
        assert [(image.data, image.media_type) for image in message["images"]] == [(b"abc", "image/png")]
    assert parsed.ignored == ("messages.content.image_url.detail",)


@pytest.mark.parametrize(
    ("said_", "options", "several"),
    [
        ("what is the weather in Rome?", {}, False),
        ("what is the weather in Rome?", {"parallel_tool_calls": True}, True),
        ("what is the weather in Rome?", {"parallel_tool_calls": True, "max_tool_calls": 1}, False),
        ("what is the weather in Rome?", {"parallel_tool_calls": True, "max_tool_calls": 2}, True),
        ("what is the weather in Rome and in Oslo?", {}, True),
        ("what is the weather in Rome and in Oslo?", {"parallel_tool_calls": False}, False),
    ],
)
def test_whether_an_answer_may_have_several_calls(said_: str, options: Any, several: bool) -> None:
    earlier = {"role": "user", "content": "one and two"}, {"role": "assistant", "content": "so"}
    asked = [*earlier, {"role": "user", "content": said_}]
    parsed = parse(
        messages=[*asked, {"role": "assistant", "content": "one and two"}], tools=[TOOL], **options
    )
    assert parsed.request.several == several
    assert parsed.request.max_calls == options.get("max_tool_calls")
    assert parsed.ignored == (NOT_CONTINUED,)


@pytest.mark.parametrize("name", ["a b", "a.b", "è", "", "a" * 65, "a\n"])
def test_a_name_that_openai_refuses_is_refused(name: str) -> None:
    error = refusal(tools=[{"type": "function", "function": {"name": name}}])
    assert error is not None
    assert (error.status, error.param) == (400, "tools[0].function.name")
    assert refusal(tools=[{"type": "function", "function": {"name": "a-B_9" * 12}}]) is None
    assert refusal(max_tool_calls=0) is not None


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
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {}, "strict": True}}},
            JsonSchema({}, strict=True),
        ),
        ({"grammar": 'root ::= "a"'}, GbnfText('root ::= "a"')),
    ],
)
def test_output_formats(fields: Any, expected: Any) -> None:
    assert parse(**fields).request.output == expected


def test_limits_and_sampling() -> None:
    request = parse(max_tokens=5, max_completion_tokens=7, temperature=0, top_p=0.5, seed=-1, logprobs=True,
                    top_logprobs=2, stop="x").request  # fmt: skip
    assert request.sampling == Sampling(7, 0, 0.5, seed=2**32 - 1, logprobs=2)
    assert request.stop == ("x",)
    assert parse().request.sampling == Sampling()


@pytest.mark.parametrize(
    ("fields", "expected"),
    [
        ({}, None),
        ({"reasoning_effort": "high"}, True),
        ({"reasoning_effort": "none"}, False),
        ({"reasoning_effort": "minimal"}, False),
        ({"chat_template_kwargs": {"enable_thinking": True}}, True),
        ({"chat_template_kwargs": {"thinking": True}}, True),
        ({"reasoning_effort": "high", "chat_template_kwargs": {"enable_thinking": False}}, False),
    ],
)
def test_reasoning(fields: Any, expected: bool | None) -> None:
    assert parse(**fields).request.reasoning is expected


def test_variables_of_the_template_are_passed_if_they_are_no_conversation() -> None:
    given_ = {"preserve_thinking": True, "effort": "low", "budget": 0.5}
    others = {"tools": "x", "add_generation_prompt": False, "bos_token": "", "listed": [1]}
    parsed = parse(chat_template_kwargs={**given_, **others, "none": None})
    assert parsed.request.template_variables == given_
    assert {*parsed.ignored} == {f"chat_template_kwargs.{name}" for name in others}


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


# -- answers

NAMES = ("f", "g")
TOKENS = (TokenLogprob(b"\xc3", -0.5, ((b"a", -0.1),)),)


@st.composite
def replies(draw: st.DrawFn) -> list[ReplyEvent]:
    """The events of one to three answers."""
    events: list[ReplyEvent] = []
    for _ in range(draw(st.integers(1, 3))):
        *made, end = draw(answers(NAMES) | answers(NAMES, truncated=True)).events()
        assert isinstance(end, Finished)
        events += [*made, replace(end, logprobs=draw(st.sampled_from([(), TOKENS])))]
    return events


def reply(events: list[ReplyEvent], **fields: Any) -> ChatReply:
    count = sum(isinstance(event, Started) for event in events)
    body = {"model": "m", "messages": [{"role": "user", "content": "x"}], "n": count, **fields}
    return ChatCompletions().parse(body)


def whole(events: list[ReplyEvent]) -> dict[str, Any]:
    made = reply(events)
    assert [made.feed(event) for event in events] == [""] * len(events)
    return made.body()


def chunks(events: list[ReplyEvent], **options: Any) -> list[dict[str, Any]]:
    made = reply(events, stream=True, stream_options=options or None)
    lines = "".join(made.feed(event) for event in events).split("\n\n")
    assert lines[-2:] == ["data: [DONE]", ""]
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]


@settings(max_examples=scaled(60))
@given(events=replies(), usage=st.booleans())
def test_the_accumulated_chunks_are_the_whole_answer_in_the_types_of_the_client(
    events: list[ReplyEvent], usage: bool
) -> None:
    made = chunks(events, **({"include_usage": True} if usage else {}))
    check_deltas(made)
    state = ChatCompletionStreamState()
    for chunk in made:
        state.handle_chunk(ChatCompletionChunk.model_validate(chunk, strict=True))
    # the SDK's own final step fails on "length", so the snapshot is compared
    streamed = state.current_completion_snapshot
    body = ChatCompletion.model_validate(whole(events), strict=True)
    assert (streamed.usage is not None) == usage
    if usage:
        assert streamed.usage == body.usage
    for ours, theirs in zip(streamed.choices, body.choices, strict=True):
        assert (ours.index, ours.finish_reason) == (theirs.index, theirs.finish_reason)
        assert (ours.message.content or "") == (theirs.message.content or "")
        assert ours.logprobs == theirs.logprobs
        if theirs.finish_reason == "length":
            assert theirs.message.tool_calls is None
        else:
            assert made_calls(ours) == made_calls(theirs)


def made_calls(choice: Any) -> list[tuple[str, str, str]]:
    return [
        (call.id, call.function.name, call.function.arguments) for call in choice.message.tool_calls or ()
    ]


def check_deltas(made: list[dict[str, Any]]) -> None:
    """Check that the indices of calls are stable, and that each has its name and id once."""
    seen: set[tuple[int, int]] = set()
    for choice in (choice for chunk in made for choice in chunk["choices"]):
        for call in choice["delta"].get("tool_calls", ()):
            key = (choice["index"], call["index"])
            if "name" in call["function"]:
                assert key not in seen
                assert call["id"]
                assert call["index"] == sum(index == choice["index"] for index, _ in seen)
                seen.add(key)
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


def test_errors_have_the_shape_of_the_api() -> None:
    api = ChatCompletions()
    kinds = {400: "invalid_request_error", 401: "authentication_error", 429: "rate_limit_error"}
    for status, kind in {**kinds, 503: "server_error"}.items():
        error = api.error(HttpError(status, "no", "code", "tools"))
        assert error == {"error": {"message": "no", "type": kind, "param": "tools", "code": "code"}}
    failed = reply([Started(0, ENFORCEMENT)], stream=True).fail(HttpError(502, "no"))
    assert json.loads(failed.removeprefix("data: "))["error"]["message"] == "no"
