"""The call format native: the chat template's own calls, in process, over a server, and in the loop."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf import Grammar
from gbnf.calls.validation import validate_call
from gbnf.prompts.descriptions import declare_tool
from gbnf.prompts.messages import Message, call_text, system_prompt
from gbnf.tool_formats import TemplateRenderer, ToolFormat, detect
from gbnf.tools import ASK_USER, FINAL_ANSWER
from gbnf_server.backends.base import Backend, ModelInfo, Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.backends.llama_server import LlamaServer
from gbnf_server.backends.model_traits import ModelTraits
from gbnf_server.llama import server_build as build
from gbnf_server.llama.demo_model import model_path
from gbnf_server.planner import Planner, PlannerOptions, Run
from gbnf_server.planner.events import CallModel
from gbnf_server.planner.options import ResolvedOptions
from gbnf_server.system.errors import BackendError, RequestNotSupportedError
from support.backends import ANY, FakeBackend
from support.by_hand import completion, drive_by_hand, resolved
from support.effort import scaled
from support.executors import world
from support.models import make_model
from support.pools import BUNDLED as POOL
from support.server import require_llama_server
from support.toys import NEVER

HERMES = (
    "{% if tools %}<|system|>Tools:{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}<|end|>{% endif %}"
    "{% for m in messages %}<|{{ m.role }}|>{{ m.content }}{% if m.tool_calls %}"
    "{% for c in m.tool_calls %}{% if not loop.first or m.content %}\n{% endif %}"
    '<tool_call>\n{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n'
    "</tool_call>{% endfor %}{% endif %}<|end|>{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
MISTRAL = (
    "{% if tools %}<|system|>{{ tools | tojson }}<|end|>{% endif %}{% for m in messages %}"
    "{% if m.tool_calls %}<|assistant|>[TOOL_CALLS]{% for c in m.tool_calls %}"
    "{% if c.id | length != 9 %}{{ raise_exception('an id has nine characters') }}{% endif %}"
    "{{ c.function.name }}[ARGS]{{ c.function.arguments | tojson }}{% endfor %}<|end|>"
    "{% elif m.role == 'tool' %}<|tool|>{{ m.tool_call_id }}:{{ m.content }}<|end|>"
    "{% else %}<|{{ m.role }}|>{{ m.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>{% endif %}"
)
TEMPLATES = {"hermes": HERMES, "mistral": MISTRAL}
PING = next(tool for tool in POOL if tool.name == "get_now")
FORMAT = detect(HERMES, eos_token="<|end|>")
NATIVE: dict[str, Any] = {"call_format": "native", "tool_format": FORMAT}


def called(name: str, arguments: str = "{}") -> str:
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def planned(backend: Backend, folder: Path, query: str = "how late is it?", **options: Any) -> Run:
    chosen = PlannerOptions(
        **{"max_steps": 3, "max_tokens": 90, "salvage": False, "repeat_calls": True, **options}
    )
    tools = [PING, NEVER] if chosen.required else [PING]
    return Planner(tools, backend, chosen, context=world(folder)).run(query)


# Real models.


@pytest.fixture(scope="module")
def demo() -> Iterator[InProcess]:
    with InProcess(model_path(), threads=1) as model:
        yield model


def test_the_demonstration_model_is_asked_as_it_was_trained(demo: InProcess) -> None:
    """Its template writes declared tools, calls and results as the prompts of the training have them."""
    tools = [*POOL, ASK_USER, FINAL_ANSWER]
    call = {"name": "create_dirs", "arguments": {"paths": ['è "x"\n', "y"], "n": [1, 2.5, True, None]}}
    trained: list[Message] = [
        {"role": "system", "content": system_prompt(tools, style="minimal")},
        {"role": "user", "content": "hi"},
        {"role": "assistant", "content": call_text(call)},
        {"role": "tool", "content": '{"step": 1}'},
    ]
    entry = {"id": "call00001", "type": "function", "function": call}
    native: list[Message] = [
        trained[1],
        {"role": "assistant", "content": "", "tool_calls": [entry]},
        trained[3],
    ]
    for patterns in (True, False):
        declared = [declare_tool(tool, patterns=patterns) for tool in tools]
        prompt = demo._template.prompt(Request(native, ANY, declared))
        assert prompt == demo._template.prompt(Request(trained, ANY))


@pytest.mark.slow
@pytest.mark.parametrize("query", ["create a folder trips", "find the notes about rome"])
def test_the_demonstration_model_calls_the_same_natively(demo: InProcess, query: str, tmp_path: Path) -> None:
    def run(name: str, **options: Any) -> Run:
        planner = Planner(POOL, demo, PlannerOptions(**options), context=world(tmp_path / name))
        assert planner.options.call_format == (options or {"call_format": "native"})["call_format"]
        return planner.run(query)

    native, json = run("native"), run("json", call_format="json")
    assert [(step.text, step.call) for step in native.steps] == [
        (step.text, step.call) for step in json.steps
    ]
    assert (native.outcome, native.answer) == (json.outcome, json.answer)
    assert native.prompt_tokens == json.prompt_tokens


@pytest.mark.slow
@pytest.mark.parametrize("template", TEMPLATES)
def test_a_random_model_makes_valid_calls_in_its_own_format_here_and_on_a_server(
    template: str, tmp_path: Path
) -> None:
    require_llama_server()
    path = make_model(tmp_path / "m.gguf", template=TEMPLATES[template], context=4096)
    with ExitStack() as stack:
        here = stack.enter_context(InProcess(path, threads=1))
        server = stack.enter_context(build.start(path, threads=1))
        there = stack.enter_context(LlamaServer(server.url))
        assert there.info().traits.tool_format == here.info().traits.tool_format
        runs = [
            planned(model, tmp_path / name, required=(NEVER.name,))
            for name, model in (("here", here), ("there", there))
        ]
        wild = [planned(here, tmp_path / f"{n}", temperature=2.0, seed=n) for n in range(3)]
    texts = [[step.text for step in run.steps] for run in runs]
    assert texts[0] == texts[1]
    assert runs[0].steps[0].call == {"name": PING.name, "arguments": {}}
    assert runs[0].prompt_tokens == runs[1].prompt_tokens
    for run in wild:
        assert run.steps
        for step in run.steps:
            assert step.refusal in {None, "truncated"}
            if step.call is not None and step.call["name"] == PING.name:
                assert validate_call(step.call, [PING]).ok


# The loop.


def test_calls_and_results_are_messages_of_their_own() -> None:
    driven = drive_by_hand(
        [PING],
        [completion(called("get_now")), completion("It is noon.")],
        replies=[{"time": "12:00"}],
        options=resolved(**NATIVE),
    )
    first, second = driven.of(CallModel)
    assert [tool["function"]["name"] for tool in first.request.tools] == ["get_now"]
    assert [message["role"] for message in first.request.messages] == ["system", "user"]
    assert "get_now" not in first.request.messages[0]["content"]
    assert "final_answer" not in str((second.request.messages, second.request.tools))
    call, result = second.request.messages[-2:]
    assert call["tool_calls"][0]["function"] == {"name": "get_now", "arguments": {}}
    assert result["role"] == "tool"
    assert result["tool_call_id"] == call["tool_calls"][0]["id"]
    assert (driven.run.outcome, driven.run.answer) == ("answered", "It is noon.")


def test_the_grammar_allows_a_text_only_where_the_run_may_end() -> None:
    driven = drive_by_hand(
        [PING],
        [completion(called("get_now")), completion("done")],
        replies=[{}],
        options=resolved(**NATIVE, required=("get_now",)),
    )
    first, second = (call.request.grammar for call in driven.of(CallModel))
    assert isinstance(first, Grammar)
    assert isinstance(second, Grammar)
    assert not first.match("It is noon.").accepted
    assert second.match("It is noon.").complete
    assert first.match(called("get_now")).complete
    assert not first.match(called("get_time")).accepted
    assert not second.match(called("final_answer", '{"message": "x"}')).accepted


def test_an_error_goes_back_in_the_role_of_its_call() -> None:
    again = [completion(called("get_now"))] * 3
    driven = drive_by_hand([PING], [*again, completion("noon")], replies=[{}, {}], options=resolved(**NATIVE))
    call, error = driven.of(CallModel)[-1].request.messages[-2:]
    assert driven.run.steps[2].refusal == "repeated"
    assert (call["role"], error["role"]) == ("assistant", "tool")
    assert error["tool_call_id"] == call["tool_calls"][0]["id"]
    assert "already called" in error["content"]


def test_a_text_that_is_no_call_is_refused_to_the_user_role() -> None:
    driven = drive_by_hand(
        [PING],
        [completion("<tool_call>\n{", finish="length"), completion(called("get_now")), completion("noon")],
        replies=[{}],
        options=resolved(**NATIVE),
    )
    text, error = driven.of(CallModel)[1].request.messages[-2:]
    assert driven.run.steps[0].refusal == "truncated"
    assert (text["role"], error["role"]) == ("assistant", "user")
    assert driven.run.outcome == "answered"


@settings(max_examples=scaled(40))
@given(
    texts=st.lists(st.sampled_from([called("get_now"), "noon", "<tool_call>", called("x"), ""]), max_size=8)
)
def test_every_prompt_can_be_rendered(texts: list[str]) -> None:
    """Whatever the model writes, each call has one outcome with its id, and templates accept the history."""
    driven = drive_by_hand(
        [PING],
        [completion(text) for text in texts] + [completion("noon")] * 9,
        replies=[{}] * 9,
        options=resolved(**NATIVE, max_steps=9, max_blocked=9),
    )
    for effect in driven.of(CallModel):
        request = effect.request
        ids = [call["id"] for message in request.messages for call in message.get("tool_calls", ())]
        assert ids == [m["tool_call_id"] for m in request.messages if m["role"] == "tool"]
        assert len(set(ids)) == len(ids)
        for source in TEMPLATES.values():
            TemplateRenderer(source).render(request.messages, tools=request.tools)


# Which format is used.


class Native(FakeBackend):
    def __init__(self, tool_format: ToolFormat | None, dialect: Any = "gbnf") -> None:
        self.model = ModelInfo(traits=ModelTraits(tool_format=tool_format))
        self.dialect = dialect


@pytest.mark.parametrize(
    ("backend", "options", "chosen"),
    [
        (Native(FORMAT), {}, "native"),
        (Native(None), {}, "json"),
        (Native(FORMAT), {"reasoning": "field"}, "json"),
        (Native(FORMAT), {"call_format": "json"}, "json"),
        (Native(None, "none"), {}, "text"),
        (Native(None, "json_schema"), {}, "json"),
    ],
)
def test_the_default_is_native_where_there_is_a_format(
    backend: Native, options: dict[str, Any], chosen: str
) -> None:
    assert ResolvedOptions.resolve(PlannerOptions(**options), backend).call_format == chosen


def test_native_is_refused_where_there_is_no_format() -> None:
    with pytest.raises(RequestNotSupportedError, match="call format json"):
        ResolvedOptions.resolve(PlannerOptions(call_format="native"), Native(None))
    with pytest.raises(ValueError, match="field"):
        PlannerOptions(call_format="native", reasoning="field")


def test_tools_are_refused_by_a_template_without_them(tiny_model: Path) -> None:
    with InProcess(tiny_model, threads=1) as model, pytest.raises(BackendError, match="tools"):
        model._template.prompt(Request([{"role": "user", "content": "x"}], ANY, [declare_tool(PING)]))


def test_a_declaration_has_only_standard_keywords() -> None:
    for tool in POOL:
        declared = declare_tool(tool)
        text = str(declared)
        assert "requires_one_of" not in text
        assert "fills" not in text
        assert declared["function"]["parameters"]["type"] == "object"
