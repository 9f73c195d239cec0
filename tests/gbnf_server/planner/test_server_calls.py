"""The tool calls of servers' own APIs: against scripted servers, a real llama-server, and OpenAI's client."""

from __future__ import annotations

import json
from contextlib import closing
from itertools import pairwise
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from openai.lib.streaming.chat._completions import ChatCompletionStreamState
from openai.types.chat import ChatCompletionChunk
from pydantic import BaseModel, Field

from gbnf.protocols.readers import CALL_MARK
from gbnf.tools import Tool
from gbnf_server import Extractor, InProcess
from gbnf_server.backends.base import Request
from gbnf_server.backends.http_backend import ChatStream
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.backends.ollama import Ollama
from gbnf_server.backends.openai_compatible import OpenAICompatible
from gbnf_server.backends.reasoning import ReasoningSplitter
from gbnf_server.llama import server_build as build
from gbnf_server.llama.native import NativeModel
from gbnf_server.planner import Planner, PlannerOptions
from gbnf_server.planner.events import Run, RunFinished, TextWritten
from gbnf_server.system.errors import RequestNotSupportedError
from support.backends import ASK, QUICK
from support.executors import world
from support.models import make_model
from support.qwen import MODEL, requires_qwen
from support.server import Reply, require_llama_server, scripted
from support.wires import closed

CALLED: list[Any] = []


def _look(arguments: Any, _context: Any) -> dict[str, Any]:
    CALLED.append(arguments)
    return {"seen": arguments["depth"]}


DEPTH = {"type": "integer", "minimum": 1, "maximum": 3}
LOOK = Tool(
    "look",
    args={"type": "object", "required": ["depth"], "properties": {"depth": DEPTH, "at": {"type": "string"}}},
    function=_look,
)


@pytest.fixture(autouse=True)
def nothing_called() -> None:
    CALLED.clear()


def call(arguments: str, name: str = "look", index: int | None = 0, id_: str | None = "a") -> dict[str, Any]:
    function = {"name": name, "arguments": arguments}
    return {"index": index, "id": id_, "type": "function", "function": function}


def chunk(delta: dict[str, Any], finish_reason: str | None = None) -> dict[str, Any]:
    choice = {"index": 0, "delta": delta, "finish_reason": finish_reason}
    return {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}


def stream(*deltas: dict[str, Any], reason: str = "tool_calls") -> Reply:
    events = [*(chunk(each) for each in deltas), chunk({}, reason)]
    return Reply(200, "".join(f"data: {json.dumps(each)}\n\n" for each in events) + "data: [DONE]\n\n")


def calling(arguments: str, **fields: Any) -> Reply:
    return stream({"role": "assistant", "content": None, "tool_calls": [call(arguments, **fields)]})


ANSWER = stream({"role": "assistant", "content": "It is "}, {"content": "deep."}, reason="stop")


def refused(status: int, message: str) -> Reply:
    return Reply(status, {"error": {"message": message}})


def served(*replies: Reply) -> Any:
    answers: dict[str, list[Any]] = {"v1/chat/completions": list(replies)}
    return scripted(**answers)


def client(url: str, kind: Any = "plain") -> OpenAICompatible:
    return OpenAICompatible(url, kind, model="m", context_length=4096, retry_policy=QUICK)


def planned(tmp_path: Path, backend: Any, request: str = "how deep is it?", **options: Any) -> Run:
    chosen = PlannerOptions(**{"salvage": False, "filter": False, **options})
    return Planner([LOOK], backend, chosen, context=world(tmp_path)).run(request)


_TEXT = {"type": "string"}
_FUNCTION = closed(["name", "arguments"], name=_TEXT, arguments=_TEXT)
_CALLS = {
    "type": "array",
    "items": closed(["id", "type", "function"], id=_TEXT, type={"const": "function"}, function=_FUNCTION),
}
# OpenAI's ChatCompletionRequest…Message; `name` of a tool message is that of the older function message.
MESSAGES = {
    "type": "array",
    "items": {
        "oneOf": [
            closed(["role", "content"], role={"enum": ["system", "user", "assistant"]}, content=_TEXT),
            closed(["role", "tool_calls"], role={"const": "assistant"}, content=_TEXT, tool_calls=_CALLS),
            closed(["role", "tool_call_id", "content"], role={"const": "tool"}, tool_call_id=_TEXT,
                   content=_TEXT, name=_TEXT),
        ]
    },
}  # fmt: skip


def test_calls_results_and_the_answer_are_those_of_the_api(tmp_path: Path) -> None:
    with served(calling('{"depth": 2}'), ANSWER) as script, client(script.url) as backend:
        planner = Planner([LOOK], backend, PlannerOptions(), context=world(tmp_path))
        events = list(planner.stream("how deep is it?"))
    finished = events[-1]
    assert isinstance(finished, RunFinished)
    run = finished.run
    assert (run.outcome, run.answer, run.warnings) == ("answered", "It is deep.", ())
    assert CALLED == [{"depth": 2}]
    said = [event.answer for event in events if isinstance(event, TextWritten)]
    assert "".join(said) == "It is deep."
    first, second = (body for _, body in script.asked)
    assert [tool["function"]["name"] for tool in first["tools"]] == ["look"]
    assert "tool_choice" not in first
    for body in (first, second):
        Draft202012Validator(MESSAGES).validate(body["messages"])
    *_, called, result = second["messages"]
    assert json.loads(called["tool_calls"][0]["function"]["arguments"]) == {"depth": 2}
    assert result["tool_call_id"] == called["tool_calls"][0]["id"]
    assert json.loads(result["content"])["result"] == {"seen": 2}


def test_where_no_answer_is_possible_a_call_is_required(tmp_path: Path) -> None:
    with served(calling('{"depth": 2}'), ANSWER) as script, client(script.url) as backend:
        assert planned(tmp_path, backend, required=("look",)).answer == "It is deep."
    assert [body.get("tool_choice") for _, body in script.asked] == ["required", None]


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [('{"depth": 2', "unparsed"), ('{"depth": 2}}', "unparsed"), ("[2]", "unparsed"), ('"2"', "unparsed"),
     ('{"depth": 2, "depth": 3}', "unparsed"), ('{"depth": 2}, "more": {}', "unparsed"),
     (f'{{"depth": 2}}}}\n{CALL_MARK}{{"name": "look", "arguments": {{"depth": 1}}', "unparsed"),
     ('{"depth": NaN}', "unparsed"), ("", "invalid"), ('{"depth": 9}', "invalid"),
     ('{"deep": {}}', "invalid")],
)  # fmt: skip
def test_what_is_no_valid_call_is_refused_and_never_made(
    arguments: str, refusal: str, tmp_path: Path
) -> None:
    with served(calling(arguments), ANSWER) as script, client(script.url) as backend:
        run = planned(tmp_path, backend)
    assert ([step.refusal for step in run.steps], CALLED) == ([refusal, None], [])
    assert run.answer == "It is deep."
    messages = script.asked[1][1]["messages"]
    Draft202012Validator(MESSAGES).validate(messages)
    assert CALL_MARK not in json.dumps(messages, ensure_ascii=False)
    assert json.loads(messages[-1]["content"])["error"]
    assert messages[-1]["role"] == ("tool" if refusal == "invalid" else "user")


@pytest.mark.parametrize(
    "delta", [{"tool_calls": [call('{"depth": 2}')]}, {"content": 'CALL look {"depth": 2'}, {"content": "It"}]
)
def test_what_is_cut_is_neither_made_nor_an_answer(delta: dict[str, Any], tmp_path: Path) -> None:
    with served(stream(delta, reason="length"), ANSWER) as script, client(script.url) as backend:
        run = planned(tmp_path, backend)
    assert ([step.refusal for step in run.steps], CALLED) == (["truncated", None], [])
    assert run.answer == "It is deep."


def test_of_several_calls_the_first_is_made_and_a_text_beside_is_no_answer(tmp_path: Path) -> None:
    calls = [call('{"depth": "2"}'), call('{"depth": 3}', index=1, id_="b")]
    both = stream({"content": f"I look. {CALL_MARK}"}, {"tool_calls": calls})
    with served(both, ANSWER) as script, client(script.url) as backend:
        run = planned(tmp_path, backend)
    assert (CALLED, run.answer) == ([{"depth": 2}], "It is deep.")
    assert [each.split(":")[0] for each in run.steps[0].repairs][:1] == ["ignored"]
    assert any("depth" in each for each in run.steps[0].repairs)
    assert run.steps[0].text.startswith("I look. \u241e")


def test_a_call_that_the_server_leaves_in_the_text_is_read(tmp_path: Path) -> None:
    text = stream({"content": 'CALL look {"depth": 2}'}, reason="stop")
    with served(text, ANSWER) as script, client(script.url) as backend:
        assert planned(tmp_path, backend).answer == "It is deep."
    assert CALLED == [{"depth": 2}]


@pytest.mark.parametrize("terminal", [(), ("look",)])
@pytest.mark.parametrize("call_format", ["text", "lines", "server"])
def test_a_text_where_a_call_is_required_is_told_what_a_call_is(
    call_format: Any, terminal: tuple[str, ...], tmp_path: Path
) -> None:
    """A model that has never heard of final_answer does not hear of it in the refusal either."""
    texts = {"text": '{"name": "look", "arguments": {"depth": 2}}', "lines": "tool: look\nargs:\n  depth: 2"}
    written = [
        stream({"content": text}, reason="stop") for text in ("It is deep.", texts.get(call_format, ""))
    ]
    replies = [written[0], calling('{"depth": 2}') if call_format == "server" else written[1], ANSWER]
    with served(*replies) as script, client(script.url) as backend:
        run = planned(tmp_path, backend, call_format=call_format, required=("look",), terminal=terminal)
    assert (run.outcome, CALLED) == ("answered", [{"depth": 2}])
    first, second = (json.dumps(body["messages"]) for _, body in script.asked[:2])
    assert ("final_answer" in second) == ("final_answer" in first)
    error = str(run.steps[0].error)
    assert "look" in error
    if terminal and call_format != "lines":  # which asks for the arguments alone then
        assert error.startswith("this is no call of look; answer with a call of look")
        shown = {"text": '{"name": "look", "arguments": {"depth": '}
        assert shown.get(call_format, "") in error


PIECES = st.lists(st.integers(0, 60), max_size=6)


@given(
    written=st.lists(
        st.tuples(st.sampled_from(["look", "a-b"]), st.text(max_size=20)), min_size=1, max_size=3
    ),
    cuts=PIECES,
    content=st.text(st.characters(exclude_categories=["Cs"], exclude_characters=CALL_MARK), max_size=8),
    same_index=st.booleans(),
)
def test_streamed_calls_are_those_that_openais_client_reads(
    written: list[tuple[str, str]], cuts: list[int], content: str, same_index: bool
) -> None:
    same_index = same_index and len(written) == 1
    state = ChatCompletionStreamState()
    reader = ChatStream(ReasoningSplitter(lambda _: None), reads_calls=True)
    deltas: list[dict[str, Any]] = [{"role": "assistant", "content": content}]
    for index, (name, value) in enumerate(written):
        arguments = json.dumps({"v": value})
        places = sorted({0, len(arguments), *(min(cut, len(arguments)) for cut in cuts)})
        deltas.append({"tool_calls": [call("", name, index, f"id{index}")]})
        for a, b in pairwise(places):
            deltas.append({"tool_calls": [{"index": index, "function": {"arguments": arguments[a:b]}}]})
    for event in [*map(chunk, deltas), chunk({}, "tool_calls")]:
        state.handle_chunk(ChatCompletionChunk.model_validate(event))
        reader.feed(f"data: {json.dumps(event)}")
    reader.end()
    found = [json.loads(each) for each in reader.calls_text().split(CALL_MARK)[1:]]
    expected = state.get_final_completion().choices[0].message.tool_calls or []
    assert found == [
        {"name": each.function.name, "arguments": json.loads(each.function.arguments)} for each in expected
    ]


@pytest.mark.parametrize(
    "calls",
    [
        [[call('{"v": 1}')], [call('{"v": 2}', id_="b")]],  # one index for several calls
        [[call('{"v": 1}', index=None, id_=None)], [call('{"v": 2}', index=None, id_=None)]],
        [[call('{"v": 1}'), call('{"v": 2}', index=1, id_="b")]],
        [[call('{"v"')], [call(": 1}")], [call('{"v": 2}', index=1, id_="b")]],  # the name again and again
    ],
)
def test_other_servers_number_calls_in_their_own_ways(calls: list[list[dict[str, Any]]]) -> None:
    reader = ChatStream(ReasoningSplitter(lambda _: None), reads_calls=True)
    for several in calls:
        reader.feed(f"data: {json.dumps(chunk({'tool_calls': several}))}")
    found = [json.loads(each)["arguments"] for each in reader.calls_text().split(CALL_MARK)[1:]]
    assert found == [{"v": 1}, {"v": 2}]


@pytest.mark.parametrize(
    ("status", "message"),
    [
        (400, '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set'),
        (422, "Extra inputs are not permitted: tools"),
        (404, "No endpoints found that support tool use."),
        (500, "tools param requires --jinja flag"),
    ],
)
def test_a_server_that_refuses_tools_is_asked_in_text(status: int, message: str, tmp_path: Path) -> None:
    answer = '{"name": "final_answer", "arguments": {"message": "deep"}}'
    texts = [stream({"content": text}, reason="stop") for text in ('CALL look {"depth": 2}', answer)]
    with served(refused(status, message), *texts) as script, client(script.url) as backend:
        planner = Planner([LOOK], backend, PlannerOptions(), context=world(tmp_path))
        first, second = planner.run("how deep is it?"), planner.run("how deep is it?")
    assert (first.answer, second.answer, CALLED) == ("deep", "deep", [{"depth": 2}])
    assert [message in warning for warning in first.warnings] == [True]
    assert second.warnings == ()
    assert [step.number for step in first.steps] == [1, 2]
    assert ["tools" in body for _, body in script.asked] == [True, False, False, False]
    assert "look" in script.asked[1][1]["messages"][0]["content"]


def test_a_server_that_refuses_tools_later_gets_the_same_conversation_as_text(tmp_path: Path) -> None:
    refusal = refused(400, "messages with role 'tool' are not supported")
    answer = stream({"content": "deep"}, reason="stop")
    with served(calling('{"depth": 2}'), refusal, answer) as script, client(script.url) as backend:
        run = planned(tmp_path, backend)
    assert (run.answer, CALLED) == ("deep", [{"depth": 2}])
    roles = [message["role"] for message in script.asked[-1][1]["messages"]]
    assert roles == ["system", "user", "assistant", "user"]
    assert json.loads(script.asked[-1][1]["messages"][2]["content"])["arguments"] == {"depth": 2}


def test_a_server_that_refuses_to_be_required_is_asked_without(tmp_path: Path) -> None:
    refusal = refused(400, "tool_choice: only 'auto' is supported")
    with served(refusal, calling('{"depth": 2}'), ANSWER) as script, client(script.url) as backend:
        run = planned(tmp_path, backend, required=("look",))
    assert (run.answer, run.warnings) == ("It is deep.", ())
    assert [body.get("tool_choice") for _, body in script.asked] == ["required", None, None]


def test_other_errors_are_errors(tmp_path: Path) -> None:
    with served(refused(401, "no key for tools")) as script, client(script.url) as backend:
        assert planned(tmp_path, backend).outcome == "failed"
    assert len(script.asked) == 1


class Depth(BaseModel):
    depth: int = Field(ge=1, le=3)


class Bore(BaseModel):
    where: Depth
    name: str


@pytest.mark.parametrize(
    "text", ['{"where": {"depth": 2}, "name": "a"}', '```json\n{"where": {"depth": 2}, "name": "a"}\n```']
)
def test_the_arguments_alone_are_a_typed_answer(text: str) -> None:
    with served(stream({"content": text}, reason="stop")) as script, client(script.url) as backend:
        assert Extractor(Bore, backend, call_format="text").extract("two").value == Bore(
            where=Depth(depth=2), name="a"
        )


@pytest.mark.parametrize("kind", ["plain", "lm_studio"])
def test_a_typed_answer_of_a_server_that_refuses_logprobs(kind: Literal["plain", "lm_studio"]) -> None:
    text = "2" if kind == "plain" else '{"name": "Depth", "arguments": {"depth": 2}}'
    answer = stream({"content": text}, reason="stop")
    replies = [answer] if kind == "plain" else [refused(400, "logprobs is not supported"), answer, answer]
    with served(*replies) as script, client(script.url, kind) as backend:
        extractor = Extractor(Depth, backend)
        assert [extractor.extract("two").value.depth for _ in range(2)] == [2, 2]
    asked = ["logprobs" in body for _, body in script.asked]
    assert asked == ([False, False] if kind == "plain" else [True, False, False])


def test_what_is_asked_for_by_name_is_not_left_out() -> None:
    with served(refused(400, "logprobs is not supported")) as script, client(script.url) as backend:
        with pytest.raises(Exception, match="logprobs"):
            backend.complete(Request(ASK, logprobs=1))
        with pytest.raises(RequestNotSupportedError, match="probabilities"):
            backend.complete(Request(ASK, probabilities=True))
    assert len(script.asked) == 1


# Ollama.


def ollama(message: dict[str, Any], **fields: Any) -> Reply:
    return Reply(200, {"message": {"role": "assistant", "content": "", **message}, "done": True, **fields})


def test_ollama_calls_tools_where_it_is_asked_to(tmp_path: Path) -> None:
    called = ollama({"tool_calls": [{"function": {"name": "look", "arguments": {"depth": 2}}}]})
    answers: dict[str, list[Any]] = {"api/chat": [called, ollama({"content": "deep"})]}
    with scripted(**answers) as script, Ollama("m", script.url, retry_policy=QUICK) as backend:
        assert planned(tmp_path, backend, call_format="server").answer == "deep"
    assert CALLED == [{"depth": 2}]
    first, second = (body for _, body in script.asked)
    assert first["tools"][0]["function"]["name"] == "look"
    assert "format" not in first
    *_, made, result = second["messages"]
    assert made["tool_calls"] == [{"function": {"name": "look", "arguments": {"depth": 2}}}]
    assert (result["role"], result["tool_name"]) == ("tool", "look")


def test_ollama_is_asked_in_text_without_a_schema_on_request(tmp_path: Path) -> None:
    answers: dict[str, list[Any]] = {
        "api/chat": [ollama({"content": 'CALL look {"depth": 2}'}), ollama({"content": "deep"})]
    }
    with (
        scripted(**answers) as script,
        Ollama("m", script.url, retry_policy=QUICK, constrained=False) as backend,
    ):
        assert planned(tmp_path, backend).answer == "deep"
    assert CALLED == [{"depth": 2}]
    assert not any({"format", "tools"} & body.keys() for _, body in script.asked)


def test_a_model_of_ollama_without_tools_is_asked_in_text(tmp_path: Path) -> None:
    refusal = Reply(400, {"error": "registry.ollama.ai/library/m does not support tools"})
    answers: dict[str, list[Any]] = {"api/chat": [refusal, ollama({"content": "deep"})]}
    with scripted(**answers) as script, Ollama("m", script.url, retry_policy=QUICK) as backend:
        run = planned(tmp_path, backend, call_format="server")
    assert run.answer == "deep"
    assert "does not support tools" in run.warnings[0]


# Backends of other kinds.


def test_backends_that_constrain_calls_have_no_such_format(tiny_model: Path, tmp_path: Path) -> None:
    with InProcess(tiny_model) as model:
        with pytest.raises(RequestNotSupportedError, match="call format server"):
            planned(tmp_path, model, call_format="server")
        with pytest.raises(RequestNotSupportedError, match="tool_choice"):
            model.complete(Request(ASK, tools=({"type": "function"},), tool_choice="auto"))
    no_choice = pytest.raises(RequestNotSupportedError, match="tool_choice")
    with scripted() as script, LlamaServer(script.url) as server, no_choice:
        server.complete(Request(ASK, tools=({"type": "function"},), tool_choice="auto"))
    with pytest.raises(ValueError, match="'field'"):
        PlannerOptions(reasoning="field", call_format="server")


# Clamped numbers.


@pytest.mark.parametrize("call_format", ["text", "lines", "server"])
@pytest.mark.parametrize(("written", "given_"), [("17", 3), ("-4", 1), ("2", 2)])
def test_numbers_are_moved_to_their_bounds_where_that_is_asked_for(
    call_format: Any, written: str, given_: int, tmp_path: Path
) -> None:
    texts = {
        "text": stream({"content": f'CALL look {{"depth": {written}}}'}, reason="stop"),
        "lines": stream({"content": f"tool: look\nargs:\n  depth: {written}"}, reason="stop"),
        "server": calling(f'{{"depth": {written}}}'),
    }
    for clamp in (True, False):
        CALLED.clear()
        with served(texts[call_format], ANSWER) as script, client(script.url) as backend:
            run = planned(tmp_path, backend, call_format=call_format, clamp=clamp)
        is_valid = written == str(given_)
        made = [{"depth": given_}] if clamp or is_valid else []
        assert made == CALLED
        assert any("clamped" in each for each in run.steps[0].repairs) == (clamp and not is_valid)


# A real llama-server, which reads the calls of its model by the chat template.


@pytest.mark.slow
@requires_qwen
@pytest.mark.parametrize("tag", ["<tool_call>", "```json"])
def test_a_real_server_calls_its_tools(tag: str, tmp_path: Path) -> None:
    """This model writes its calls in code blocks: with tags in its template, a server leaves them text."""
    require_llama_server()
    with closing(NativeModel(MODEL, vocab_only=True)) as native:
        template = native.metadata["tokenizer.chat_template"]
    if tag == "```json":
        template = template.replace("</tool_call>", "```").replace("<tool_call>", tag)
    extra = ["--jinja", "--chat-template", template]
    start = build.start(MODEL, threads=1, context_length=4096, extra=extra)
    with start as server, client(server.url) as backend:
        run = planned(tmp_path, backend, "look at depth 2", required=("look",), max_steps=2, max_tokens=64)
        assert backend.info().takes_tools
    assert run.warnings == ()
    assert CALLED[0]["depth"] == 2
    assert run.steps[0].text.startswith(CALL_MARK) == (tag == "```json")


def test_a_real_server_without_tools_is_asked_in_text(tmp_path: Path) -> None:
    require_llama_server()
    path = make_model(tmp_path / "tools.gguf", context=4096)
    with build.start(path, threads=1, extra=["--no-jinja"]) as server, client(server.url) as backend:
        run = planned(tmp_path, backend, max_steps=1, max_tokens=4)
        assert not backend.info().takes_tools
    assert any("call format text" in warning for warning in run.warnings)


def test_pieces_of_several_calls_in_turn_belong_to_their_index(tmp_path: Path) -> None:
    more: Any = {"index": 0, "function": {"arguments": " 2}"}}
    pieces = [call('{"depth":'), call('{"depth":', index=1, id_="b"), more]
    interleaved = stream(*({"tool_calls": [piece]} for piece in pieces))
    with served(interleaved, ANSWER) as script, client(script.url) as backend:
        assert planned(tmp_path, backend).answer == "It is deep."
    assert CALLED == [{"depth": 2}]


def test_a_call_is_not_made_unasked_where_no_probabilities_are_known(tmp_path: Path) -> None:
    text = stream({"content": '{"name": "look", "arguments": {"depth": 2}}'}, reason="stop")
    with (
        served(refused(400, "logprobs is not supported"), text) as script,
        client(script.url, "lm_studio") as backend,
    ):
        run = planned(tmp_path, backend, confirm_below=0.9)
    assert (run.outcome, CALLED) == ("failed", [])


def test_a_model_reads_what_it_has_said_before_a_call_of_the_server(tmp_path: Path) -> None:
    both = stream({"content": "I look first."}, {"tool_calls": [call('{"depth": 2}')]})
    with served(both, ANSWER) as script, client(script.url) as backend:
        planned(tmp_path, backend)
    [_, asked] = script.asked
    assert [each["content"] for each in asked[1]["messages"] if each["role"] == "assistant"] == [
        "I look first."
    ]
