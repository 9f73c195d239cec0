"""Laws of decoding with a real model and its vocabulary: SmolLM2-135M-Instruct, each on a few tokens.

Where two texts are to be the same, the greedy choice may differ between batches of different sizes, whose
last digits are rounded otherwise: then the two logits must be a near tie.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from gbnf import Grammar, compile_pool, compile_schema
from gbnf.errors import SchemaError
from gbnf.prompts.messages import Message, system_prompt
from gbnf.tools import Tool
from gbnf_server.backends.base import Completion, Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.llama.sampler import Logits, Sampler
from support.effort import scaled
from support.oracle import engine
from support.schemas import SHALLOW
from support.smollm2 import model_file, requires_smollm2
from support.values import canonical, is_valid

pytestmark = requires_smollm2
#: The difference of two logits that another order of sums may turn over: llama.cpp rounds activations to 8
#: bits, so that the same tokens beside other sequences change logits by up to 1.5. They spread over some 30.
_NEAR = 1.5
_FEW = settings(max_examples=scaled(4), suppress_health_check=list(HealthCheck))
ARGUMENTS = {
    "type": "object",
    "properties": {"city": {"type": "string", "maxLength": 20}, "unit": {"enum": ["celsius", "fahrenheit"]}},
    "required": ["city"],
}
TOOLS = (
    Tool("get_weather", "Return the weather of a city.", args=ARGUMENTS),
    Tool("get_time", "Return the time.", args={"type": "object"}),
)
PROMPT = system_prompt(TOOLS, style="minimal")
CITIES = ("Rome", "Oslo", "東京", "São Paulo")


@pytest.fixture(scope="module")
def model() -> Iterator[InProcess]:
    path = model_file()
    assert path is not None
    with InProcess(path, threads=1, context_length=1024, parallel=len(CITIES)) as backend:
        yield backend


@contextmanager
def replaced(owner: Any, name: str, value: Any) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(owner, name, value)
        yield


Sampled = list[tuple[int, Logits]]
"""The tokens that the model sampled, with their logits."""


@contextmanager
def recording(
    model: InProcess, *, jumps: bool = True
) -> Iterator[Callable[[Request], tuple[Completion, Sampled]]]:
    """Give a function that answers a request, in any thread, and returns what was sampled for it."""
    list_of: ContextVar[Sampled] = ContextVar("list_of")  # of the call that a thread decodes for
    sample = Sampler.sample

    def recorded(self: Sampler, logits: Logits, *rest: Any) -> int | None:
        token = sample(self, logits, *rest)
        list_of.get().append((-1 if token is None else token, logits.copy()))
        return token

    def answer(request: Request) -> tuple[Completion, Sampled]:
        sampled: Sampled = []
        list_of.set(sampled)
        return model.complete(request), sampled

    with replaced(Sampler, "sample", recorded), replaced(model, "_jumps", jumps):
        yield answer


def ask(model: InProcess, request: Request, *, jumps: bool = True) -> tuple[Completion, Sampled]:
    with recording(model, jumps=jumps) as answer:
        return answer(request)


def check_same(one: Any, other: Any) -> None:
    """Check that two answers are the same, or differ from a near tie on."""
    (answer, sampled), (plain, all_sampled) = one, other
    for (token, logits), (wanted, others) in zip(sampled, all_sampled, strict=False):
        if token != wanted:
            assert max(logits[token] - logits[wanted], others[wanted] - others[token]) < _NEAR
            return
    assert (answer.text, answer.finish_reason) == (plain.text, plain.finish_reason)


def request_of(schema: dict[str, Any], **options: Any) -> tuple[Request, Grammar]:
    try:
        grammar = compile_schema(schema)
    except SchemaError:  # no value satisfies it
        assume(False)
        raise
    content = f"Write JSON that fits: {json.dumps(schema, ensure_ascii=False)[:100]}"
    return Request([{"role": "user", "content": content}], grammar, **options), grammar


def call_request(question: str, **options: Any) -> Request:
    messages: list[Message] = [{"role": "system", "content": PROMPT}, {"role": "user", "content": question}]
    return Request(messages, compile_pool(TOOLS), **{"max_tokens": 40, **options})


@_FEW
@given(SHALLOW, st.integers(0, 99))
def test_with_a_grammar_the_output_is_valid(model: InProcess, schema: dict[str, Any], seed: int) -> None:
    request, grammar = request_of(schema, max_tokens=40, temperature=1.5, seed=seed)
    found = model.complete(request)
    if found.finish_reason == "stop" and grammar.exact:
        assert is_valid(schema, canonical(json.loads(found.text)))
    assert engine().match(grammar, found.text).accepted


@pytest.mark.slow
@_FEW
@given(SHALLOW)
def test_a_jump_changes_nothing_in_json(model: InProcess, schema: dict[str, Any]) -> None:
    request, _ = request_of(schema, max_tokens=20)
    check_same(ask(model, request), ask(model, request, jumps=False))


@pytest.mark.slow
def test_a_jump_changes_nothing_in_calls(model: InProcess) -> None:
    request = call_request("Is it raining in Rome? 東京は？ 🌧")
    jumped = ask(model, request)
    check_same(jumped, ask(model, request, jumps=False))
    assert jumped[0].usage.forced_tokens
    check_same(ask(model, replace(request, logprobs=2)), jumped)  # nor does asking for log-probabilities


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "temperature"),
    [("Repeat: 日本語 日本語 日本 中文 中文", 0.0), ("Repeat: 🇩🇪 👩‍👩‍👧 e\u0301 e\u0301 नमस्ते", 1.0)],
)
def test_free_text_is_the_same_with_drafts(model: InProcess, text: str, temperature: float) -> None:
    request = Request([{"role": "user", "content": text}], max_tokens=20, temperature=temperature, seed=4)
    drafted, plain = ask(model, request), ask(model, request, jumps=False)
    if not temperature:
        check_same(drafted, plain)
    assert drafted[0].usage.completion_tokens


@pytest.mark.slow
def test_several_sequences_write_what_one_does(model: InProcess) -> None:
    requests = [call_request(f"How is the weather in {city}?", max_tokens=16) for city in CITIES]
    with recording(model) as answer:
        alone = list(map(answer, requests))
        with ThreadPoolExecutor(len(requests)) as threads:
            together = list(threads.map(answer, requests))
    for one, other in zip(together, alone, strict=True):
        check_same(one, other)
