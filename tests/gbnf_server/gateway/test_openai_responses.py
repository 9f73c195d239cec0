"""Laws of the Responses API; the judges are the types and the stream parser of the package openai."""

from __future__ import annotations

import json
from typing import Any

import openai
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from openai.types.responses import Response, ResponseStreamEvent
from pydantic import TypeAdapter

from gbnf.prompts.messages import Image
from gbnf.tool_formats import TextDelta
from gbnf_server.gateway.answers import Finished, Started
from gbnf_server.gateway.chat import FunctionTool, JsonObject, JsonSchema, ToolChoice
from gbnf_server.gateway.openai_responses import Responses
from gbnf_server.llama.token_values import TokenLogprob
from gbnf_server.web.errors import HttpError
from support.answers import ENFORCEMENT, USAGE, Answer, Call, answers, client_of, undeclared
from support.effort import scaled
from support.gateway_answers import compile_all

FUNCTION = {"type": "function", "name": "f", "parameters": {"type": "object"}, "strict": True}
NAMESPACE = {
    "type": "namespace",
    "name": "agents",
    "description": "Agents.",
    "tools": [
        {"type": "function", "name": "wait", "parameters": {"type": "object"}, "strict": False},
        {"type": "custom", "name": "exec", "description": "Runs JavaScript."},
    ],
}
PATCH = {
    "type": "custom",
    "name": "patch",
    "format": {"type": "grammar", "syntax": "lark", "definition": 'start: "+" /.+/'},
}
SEARCH = {
    "type": "tool_search",
    "execution": "client",
    "description": "Searches.",
    "parameters": {"type": "object"},
}
TOOLS: Any = [FUNCTION, NAMESPACE, PATCH, SEARCH]
NAMES, CUSTOM = ("f", "agents__wait", "tool_search"), ("patch", "agents__exec")
PLACES = {
    "f": (None, "f"),
    "patch": (None, "patch"),
    "agents__wait": ("agents", "wait"),
    "agents__exec": ("agents", "exec"),
}
CALL_TYPES = {"function_call", "custom_tool_call", "tool_search_call"}

STREAM_EVENT: TypeAdapter[ResponseStreamEvent] = TypeAdapter(ResponseStreamEvent)


def parsed(**body: Any) -> Any:
    return Responses().parse({"model": "m", "input": "hi", **body}).request


def made(item: Any) -> Any:
    """Return what an item of a call says."""
    match item.type:
        case "function_call":
            return item.call_id, item.namespace, item.name, item.arguments
        case "custom_tool_call":
            return item.call_id, item.namespace, item.name, item.input
        case _:
            return item.call_id, item.execution, item.arguments


def expected_call(call: Call) -> Any:
    """Return what the item of a call has to say."""
    arguments = json.loads(call.arguments)
    if call.name == "tool_search":
        return call.id, "client", arguments
    return call.id, *PLACES[call.name], arguments["input"] if call.name in CUSTOM else call.arguments


def content(response: Response) -> list[Any]:
    """Return the output without ids, and without what the client adds."""
    own: Any = {"id": True, "parsed_arguments": True, "content": {"__all__": {"parsed"}}}
    return [item.model_dump(exclude=own) for item in response.output]


@pytest.mark.slow
@settings(max_examples=scaled(40))
@given(answers(NAMES, custom=CUSTOM), st.booleans())
def test_the_stream_and_the_body_say_the_same(answer: Answer, summarized: bool) -> None:
    options: Any = {"model": "m", "input": "hi", "tools": TOOLS}
    options |= {"reasoning": {"effort": "low", "summary": "auto" if summarized else None}}
    client = client_of(Responses(), answer, answer)
    whole = client.responses.create(**options)
    with client.responses.stream(**options) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert content(whole) == content(final)
    assert whole.output_text == "".join(answer.text) == final.output_text
    assert [made(item) for item in whole.output if item.type in CALL_TYPES] == list(
        map(expected_call, answer.calls)
    )
    assert whole.status == final.status == "completed"
    assert whole.usage == final.usage
    assert whole.usage is not None
    assert whole.usage.total_tokens == USAGE.prompt_tokens + USAGE.completion_tokens


@given(answers(NAMES, custom=CUSTOM) | answers(NAMES, custom=CUSTOM, truncated=True), st.booleans())
def test_the_clients_types_declare_every_field(answer: Answer, summarized: bool) -> None:
    summary = {"summary": "auto"} if summarized else {}
    reply = Responses().parse(
        {"model": "m", "input": "hi", "tools": TOOLS, "stream": True, "reasoning": summary}
    )
    text = "".join(reply.feed(event) for event in answer.events())
    values = [
        json.loads(line.removeprefix("data: ")) for line in text.splitlines() if line.startswith("data: ")
    ]
    assert values
    for value in [*values, {"type": "response.completed", "sequence_number": 0, "response": reply.body()}]:
        event = STREAM_EVENT.validate_python(value)
        assert event.type == value["type"]
        assert [path for path in undeclared(event) if path != ".response.x_gbnf"] == []
    assert reply.body()["x_gbnf"]["grammar"] == ENFORCEMENT.grammar_hash


@settings(max_examples=scaled(40))
@given(answers(NAMES, custom=CUSTOM, truncated=True))
def test_a_truncated_answer_has_no_call(answer: Answer) -> None:
    client = client_of(Responses(), answer, answer)
    options: Any = {"model": "m", "input": "hi", "tools": TOOLS}
    whole = client.responses.create(**options)
    streamed = list(client.responses.create(**options, stream=True))
    last = streamed[-1]
    assert last.type == "response.incomplete"
    assert content(whole) == content(last.response)
    assert [item.type for item in whole.output if item.type in CALL_TYPES] == []
    assert whole.output_text == "".join(answer.text)
    assert whole.status == "incomplete"
    assert whole.incomplete_details
    assert whole.incomplete_details.reason == "max_output_tokens"
    # clients execute a call when its item is done
    done = [event.item.type for event in streamed if event.type == "response.output_item.done"]
    assert not CALL_TYPES & {*done}


@settings(max_examples=scaled(40))
@given(answers(NAMES, custom=CUSTOM), st.booleans())
def test_output_that_is_sent_back_is_what_the_model_said(answer: Answer, stored: bool) -> None:
    api = Responses()
    client = client_of(api, answer)
    first = client.responses.create(model="m", input="hi", instructions="Be brief.", tools=TOOLS)
    kinds = {"tool_search": "tool_search", **dict.fromkeys(CUSTOM, "custom_tool_call")}
    found = [FUNCTION, {"type": "custom", "name": "more"}]
    results = [
        {
            "type": f"{kinds.get(call.name, 'function_call')}_output",
            "call_id": call.id,
            **({"tools": found} if call.name == "tool_search" else {"output": f"result of {call.id}"}),
        }
        for call in answer.calls
    ]
    body: dict[str, Any] = {"model": "m", "tools": TOOLS}
    if stored:
        body |= {"previous_response_id": first.id, "input": results or "more"}
    else:
        output = [item.model_dump() for item in first.output]
        more = results or [{"role": "user", "content": "more"}]
        body["input"] = [{"role": "user", "content": "hi"}, *output, *more]
    request = api.parse(body).request
    messages = request.messages
    has_searched = any(call.name == "tool_search" for call in answer.calls)
    assert ("more" in {tool.name for tool in request.tools}) is has_searched
    assert messages[0] == {"role": "user", "content": "hi"}  # instructions are those of one request
    said = messages[1]
    assert said["role"] == "assistant"
    assert said["content"] == "".join(answer.text)
    assert said.get("reasoning_content", "") == "".join(answer.reasoning)
    assert [
        (call["id"], call["function"]["name"], call["function"]["arguments"])
        for call in said.get("tool_calls", ())
    ] == [(call.id, call.name, json.loads(call.arguments)) for call in answer.calls]
    expected: list[Any] = [
        {
            "role": "tool",
            "content": "Tools that can be called now: f, more"
            if call.name == "tool_search"
            else f"result of {call.id}",
            "tool_call_id": call.id,
            "name": call.name,
        }
        for call in answer.calls
    ]
    assert list(messages[2:]) == (expected or [{"role": "user", "content": "more"}])


def test_reasoning_is_the_summary_only_if_one_is_asked_for() -> None:
    answer = Answer(reasoning=("I ", "think"))
    client = client_of(Responses(), answer, answer)
    [content_item, _] = client.responses.create(model="m", input="hi").output
    [summary_item, _] = client.responses.create(model="m", input="hi", reasoning={"summary": "auto"}).output
    assert content_item.type == summary_item.type == "reasoning"
    assert (content_item.summary, [part.text for part in content_item.content or ()]) == ([], ["I think"])
    assert ([part.text for part in summary_item.summary], summary_item.content) == (["I think"], None)


def test_an_error_in_a_stream_fails_the_response() -> None:
    api = Responses()
    reply = api.parse({"model": "m", "input": "hi", "stream": True})
    sent = "".join(reply.feed(event) for event in (Started(0, ENFORCEMENT), TextDelta("He")))
    sent += reply.fail(HttpError(502, "the backend is gone", "upstream_error"))
    event = STREAM_EVENT.validate_python(json.loads(sent.rstrip().rpartition("data: ")[2]))
    assert event.type == "response.failed"
    assert event.response.error is not None
    assert (event.response.error.code, event.response.error.message) == (
        "server_error",
        "the backend is gone",
    )
    assert api.store.get(event.response.id) is None


@pytest.mark.parametrize(
    ("status", "code", "expected"),
    [
        (400, "context_length_exceeded", "context_length_exceeded"),
        (400, "invalid_request", "invalid_prompt"),
        (429, "queue_full", "rate_limit_exceeded"),
    ],
)
def test_codes_of_errors_in_a_stream(status: int, code: str, expected: str) -> None:
    reply = Responses().parse({"model": "m", "input": "hi", "stream": True})
    sent = reply.fail(HttpError(status, "why", code))
    assert json.loads(sent.rstrip().rpartition("data: ")[2])["response"]["error"]["code"] == expected


# -- requests


def test_all_kinds_of_items_become_messages() -> None:
    png = "data:image/png;base64,aGk="
    request = parsed(
        instructions="Be brief.",
        input=[
            {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": "Careful."}]},
            {
                "role": "user",
                "content": [
                    {"type": "input_text", "text": "What"},
                    {"type": "input_text", "text": "is this?"},
                    {"type": "input_image", "image_url": png, "detail": "auto"},
                ],
            },
            {
                "type": "reasoning",
                "id": "rs_1",
                "summary": [{"type": "summary_text", "text": "hm"}],
                "encrypted_content": None,
            },
            {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": "I look."}]},
            {"type": "function_call", "call_id": "c1", "name": "f", "arguments": '{"a": 1}', "id": "fc_1"},
            {
                "type": "function_call",
                "call_id": "c2",
                "name": "wait",
                "namespace": "agents",
                "arguments": "{}",
            },
            {"type": "function_call_output", "call_id": "c1", "output": "one"},
            {
                "type": "function_call_output",
                "call_id": "c2",
                "output": [{"type": "input_text", "text": "two"}, {"type": "input_image", "image_url": png}],
            },
            {"role": "developer", "content": "Now decide."},
            {"role": "user", "content": "Well?"},
        ],
        tools=TOOLS,
    )
    image = Image(b"hi", "image/png")
    calls = [
        {"id": "c1", "type": "function", "function": {"name": "f", "arguments": {"a": 1}}},
        {"id": "c2", "type": "function", "function": {"name": "agents__wait", "arguments": {}}},
    ]
    assert list(request.messages) == [
        {"role": "system", "content": "Be brief.\n\nCareful."},
        {"role": "user", "content": "What\nis this?", "images": [image]},
        {"role": "assistant", "content": "I look.", "reasoning_content": "hm", "tool_calls": calls},
        {"role": "tool", "content": "one", "tool_call_id": "c1", "name": "f"},
        {"role": "tool", "content": "two", "tool_call_id": "c2", "name": "agents__wait", "images": [image]},
        {"role": "user", "content": "Now decide.\n\nWell?"},
    ]


def test_items_may_add_tools_and_messages_of_agents() -> None:
    def adds(*tools: Any) -> Any:
        return {"type": "additional_tools", "role": "developer", "tools": list(tools)}

    other = {**FUNCTION, "description": "another"}
    items = [
        adds(NAMESPACE, FUNCTION),
        {"role": "user", "content": "hi"},
        {"type": "tool_search_call", "call_id": None, "execution": "server", "arguments": {"paths": ["a"]}},
        {"type": "tool_search_output", "call_id": None, "execution": "server", "tools": [PATCH]},
        {"type": "agent_message", "author": "/root", "recipient": "/root/a", "content": [
            {"type": "input_text", "text": "go"}, {"type": "encrypted_content", "encrypted_content": "x"}]},
        adds(other),
        {"type": "tool_search_call", "call_id": "s", "execution": "client", "arguments": {"query": "x"}},
        {"type": "tool_search_output", "call_id": "s", "execution": "client", "tools": []},
    ]  # fmt: skip
    request = parsed(input=items, tools=[FUNCTION, SEARCH])
    assert [tool.name for tool in request.tools] == [
        "tool_search",
        "agents__wait",
        "agents__exec",
        "f",
        "patch",
    ]
    assert request.tools[3].description == "another"
    assert [(message["role"], message["content"]) for message in request.messages] == [
        ("user", "hi\n\nMessage from /root:\ngo\n"),
        ("assistant", ""),
        ("tool", "No tools were found."),
    ]


@pytest.mark.parametrize(
    ("form", "accepted", "refused", "note"),
    [
        (None, '\n"', None, None),
        ({"type": "text"}, "è", None, None),
        (PATCH["format"], "+a", "a", None),
        ({"type": "grammar", "syntax": "regex", "definition": "a.|b"}, "a\u2028", "ab\n", None),
        ({"type": "grammar", "syntax": "lark", "definition": "start: start"}, "x", None, "recursive"),
    ],
)
def test_the_text_of_a_custom_tool_is_constrained(
    form: Any,
    accepted: str,
    refused: str | None,
    note: str | None,
) -> None:
    tool = {"type": "custom", "name": "patch", **({} if form is None else {"format": form})}
    reply = Responses().parse({"model": "m", "input": "hi", "tools": [tool], "tool_choice": "required"})
    (compiled,) = compile_all([reply.request])
    assert compiled.grammar is not None
    for text, complete in ((accepted, True), (refused, False)):
        if text is not None:
            call = json.dumps({"name": "patch", "arguments": {"input": text}}, ensure_ascii=False)
            assert compiled.grammar.match(call).complete is complete
    assert compiled.enforcement.exact
    if form is not None and "definition" in form:
        declared = reply.request.tools[0].declaration()["function"]["parameters"]["properties"]["input"]
        assert form["definition"] in declared["description"]
        assert "pattern" not in declared
    assert ["recursive" in path for path in reply.ignored] == ([True] if note else [])


def test_parameters() -> None:
    request = parsed(
        max_output_tokens=5, temperature=0, top_p=0.5, top_logprobs=3, parallel_tool_calls=False, stream=True,
        max_tool_calls=3,
        reasoning={"effort": "medium"}, tools=TOOLS,
    )  # fmt: skip
    sampling = request.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.logprobs) == (5, 0, 0.5, 3)
    assert (request.several, request.max_calls) == (False, 3)
    assert request.stream
    assert request.reasoning
    assert request.tools[:2] == (
        FunctionTool("f", "", {"type": "object"}, strict=True, param="tools[0].parameters"),
        FunctionTool("agents__wait", "", {"type": "object"}, param="tools[1].tools[0].parameters"),
    )


@pytest.mark.parametrize(
    ("effort", "expected"),
    [(None, None), ("none", False), ("minimal", False), ("low", True), ("xhigh", True)],
)
def test_effort_turns_reasoning_on(effort: str | None, expected: bool) -> None:
    assert parsed(reasoning={"effort": effort, "summary": "auto"}).reasoning is expected


@pytest.mark.parametrize(
    ("choice", "expected"),
    [
        ("auto", ToolChoice()),
        ("none", ToolChoice("none")),
        ("required", ToolChoice("required")),
        ({"type": "function", "name": "f"}, ToolChoice("required", ("f",))),
        ({"type": "function", "name": "agents__wait"}, ToolChoice("required", ("agents__wait",))),
        ({"type": "custom", "name": "patch"}, ToolChoice("required", ("patch",))),
        (
            {"type": "allowed_tools", "mode": "auto", "tools": [{"type": "function", "name": "f"}]},
            ToolChoice("auto", ("f",)),
        ),
        (
            {
                "type": "allowed_tools",
                "mode": "required",
                "tools": [{"type": "function", "name": "f"}, {"type": "web_search"}],
            },
            ToolChoice("required", ("f",)),
        ),
    ],
)
def test_tool_choice(choice: Any, expected: ToolChoice) -> None:
    assert parsed(tools=TOOLS, tool_choice=choice).tool_choice == expected


def test_formats_of_the_text() -> None:
    schema = {"type": "object", "properties": {"a": {"type": "integer"}}}
    form = {"type": "json_schema", "name": "a", "schema": schema, "strict": True}
    assert parsed(text={"format": form}).output == JsonSchema(schema, strict=True, param="text.format.schema")
    assert parsed(text={"format": {"type": "json_object"}}).output == JsonObject()
    assert parsed(text={"format": {"type": "text"}}).output == parsed().output == parsed(text={}).output


ITEM = "input[0]"


def _user(**part: Any) -> dict[str, Any]:
    return {"input": [{"role": "user", "content": [part]}]}


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"model": 3}, 400, "model"),
        ({"input": []}, 400, "messages"),
        ({"input": 7}, 400, "input"),
        ({"input": [7]}, 400, ITEM),
        ({"tool_choice": 7}, 400, "tool_choice"),
        ({"input": [{"type": "web_search_call", "id": "x"}]}, 400, f"{ITEM}.type"),
        ({"input": [{"role": "tool", "content": ""}]}, 400, f"{ITEM}.role"),
        ({"input": [{"role": "user"}]}, 400, f"{ITEM}.content"),
        (_user(type="input_file"), 400, f"{ITEM}.content[0].type"),
        (_user(type="input_image", image_url="https://a.b/c.png"), 400, f"{ITEM}.content[0].image_url"),
        (_user(type="input_image", image_url="data:image/png;base64,?"), 400, f"{ITEM}.content[0].image_url"),
        ({"input": [{"type": "function_call_output", "call_id": "c", "output": ""}]}, 400, f"{ITEM}.call_id"),
        ({"input": [{"type": "item_reference", "id": "msg_1"}]}, 404, f"{ITEM}.id"),
        ({"previous_response_id": "resp_1"}, 404, "previous_response_id"),
        ({"tools": [{"type": "file_search", "vector_store_ids": []}]}, 400, "tools[0].type"),
        ({"tools": [{"type": "function", "name": ""}]}, 400, "tools[0].name"),
        ({"tools": [{"type": "function", "name": "a b"}]}, 400, "tools[0].name"),
        ({"tools": [{"type": "namespace", "name": "a.b", "tools": []}]}, 400, "tools[0].name"),
        ({"max_tool_calls": 0}, 400, "max_tool_calls"),
        ({"tools": [FUNCTION, FUNCTION]}, 400, "tools"),
        ({"tools": TOOLS, "tool_choice": "any"}, 400, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "function", "name": "g"}}, 400, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": {"type": "web_search_preview"}}, 400, "tool_choice.type"),
        ({"tool_choice": "required"}, 400, "tool_choice"),
        ({"text": {"format": {"type": "grammar"}}}, 400, "text.format.type"),
        ({"text": {"format": {"type": "json_schema", "name": "a"}}}, 400, "text.format.schema"),
        ({"max_output_tokens": 0}, 400, "max_output_tokens"),
        ({"temperature": 3}, 400, "temperature"),
        ({"reasoning": {"effort": "huge"}}, 400, "reasoning.effort"),
        ({"background": True}, 400, "background"),
        ({"conversation": "conv_1"}, 400, "conversation"),
        ({"prompt": {"id": "p"}}, 400, "prompt"),
    ],
)
def test_errors_name_the_path(body: dict[str, Any], status: int, param: str) -> None:
    with pytest.raises(HttpError) as raised:
        parsed(**body)
    error = raised.value
    assert (error.status, error.param) == (status, param)
    shape = Responses().error(error)["error"]
    assert shape["param"] == param
    assert shape["type"] == "invalid_request_error"


def test_what_has_no_effect_is_in_a_header() -> None:
    client = client_of(Responses(), Answer())
    response = client.responses.with_raw_response.create(
        model="m",
        input="hi",
        tools=[{"type": "web_search"}],
        truncation="auto",
        service_tier="flex",
        include=["reasoning.encrypted_content", "file_search_call.results"],
        text={"verbosity": "low"},
        metadata={"a": "b"},
        prompt_cache_key="k",
        extra_body={"client_metadata": {"é\n": ""}, 'odd\r\nname"': 1},
    )
    assert response.headers["x-gbnf"] == ENFORCEMENT.header()
    assert response.headers["x-gbnf-warning"] == (
        'without effect: tools[0] (web_search), service_tier, client_metadata, odd??name", text.verbosity, '
        "include[1], truncation"
    )
    parsed_response = response.parse()
    assert parsed_response.metadata == {"a": "b"}
    assert parsed_response.prompt_cache_key == "k"


# -- stored responses


def test_stored_responses_are_returned_and_deleted() -> None:
    api = Responses()
    first = client_of(api, Answer(text=("one",))).responses.create(model="m", input="hi")
    assert Response.model_validate(api.retrieve(first.id)).output_text == "one"
    assert api.delete(first.id)["deleted"]
    for gone in (api.retrieve, api.delete):
        with pytest.raises(HttpError) as raised:
            gone(first.id)
        assert raised.value.status == 404


def test_a_response_is_not_stored_against_the_clients_will() -> None:
    api = Responses()
    client = client_of(api, Answer(text=("one",)))
    first = client.responses.create(model="m", input="hi", store=False)
    with pytest.raises(openai.NotFoundError):
        client.responses.create(model="m", input="hi", previous_response_id=first.id)


def test_a_reference_is_the_item_of_a_stored_response() -> None:
    api = Responses()
    first = client_of(api, Answer(text=("one",))).responses.create(model="m", input="hi")
    reference = {"type": "item_reference", "id": first.output[0].id}
    messages = api.parse(
        {"model": "m", "input": [reference, {"role": "user", "content": "x"}]}
    ).request.messages
    assert messages[0] == {"role": "assistant", "content": "one"}


def test_what_a_request_loads_is_loaded_once_and_reserved(monkeypatch: pytest.MonkeyPatch) -> None:
    api = Responses()
    text = "one" * 1000
    calls = tuple(Call(f"c{index}", "f", ("{}",)) for index in range(300))
    made = Answer(text=(text,), calls=calls, reason="tool_calls")
    first = client_of(api, made).responses.create(model="m", input="hi")
    statements, reserved = list[str](), list[int]()
    execute = api.store._database._execute

    def counted(statement: str, *values: Any) -> Any:
        statements.append(statement)
        return execute(statement, *values)

    monkeypatch.setattr(api.store._database, "_execute", counted)
    references = [{"type": "item_reference", "id": item.id} for item in first.output]
    assert len(references) == 301
    missing = {"type": "item_reference", "id": "msg_none_0"}
    for body in ({"input": references}, {"input": "more", "previous_response_id": first.id}):
        reserved.clear()
        reply = api.parse({"model": "m", **body}, reserve=reserved.append)
        (said,) = (message for message in reply.request.messages if message["role"] == "assistant")
        assert (said["content"], len(said["tool_calls"])) == (text, len(calls))
        assert len(text) < sum(reserved) < 2_000_000
    with pytest.raises(HttpError) as refused:
        api.parse({"model": "m", "input": [*references, missing]})
    assert (refused.value.status, refused.value.param) == (404, "input[301].id")
    reserved.clear()
    api.parse({"model": "m", "input": references[:1] * 1000}, reserve=reserved.append)
    assert sum(reserved) > 1000 * len(text)
    assert len(statements) < 20

    def full(_size: int) -> None:
        raise HttpError(503, "no memory.", "server_busy")

    with pytest.raises(HttpError, match="no memory"):
        api.parse({"model": "m", "input": references}, reserve=full)


def test_what_may_wait_or_takes_long_is_done_in_a_thread() -> None:
    answer = [*Answer(text=("hi",)).events()]
    long = {"instructions": "x" * 100_000, "store": False}
    for body, blocking in (({"store": False}, []), ({}, [Finished]), (long, [Started, Finished])):
        reply = Responses().parse({"model": "m", "input": "hi", **body})
        assert [type(event) for event in answer if reply.blocks(event)] == blocking


def test_log_probabilities_are_those_of_the_only_message() -> None:
    token = TokenLogprob(b"\xc3", -0.5, ((b"h", -1.0),))
    reply = Responses().parse({"model": "m", "input": "hi", "top_logprobs": 1})
    for event in (
        Started(0, ENFORCEMENT),
        TextDelta("é"),
        Finished("stop", USAGE, ENFORCEMENT, logprobs=(token,)),
    ):
        reply.feed(event)
    [message] = Response.model_validate(reply.body()).output
    assert message.type == "message"
    assert message.content[0].type == "output_text"
    logprobs = message.content[0].logprobs or []
    assert [(each.bytes, each.logprob, each.top_logprobs[0].token) for each in logprobs] == [
        ([0xC3], -0.5, "h")
    ]
