"""A model in this process, with a real (if senseless) one: laws of decoding, then what once broke."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf import Grammar
from gbnf.grammar.ir import EPSILON, Literal, Ref, Rules, char_class, seq
from gbnf.prompts.messages import Message
from gbnf.tool_formats import TextDelta
from gbnf_server.backends.base import Backend, Completion, Request
from gbnf_server.backends.in_process import InProcess, _PieceQueue
from gbnf_server.llama import grammar_engines
from gbnf_server.llama.cancellation import Cancellation
from gbnf_server.llama.decoder import Decoder
from gbnf_server.llama.native_grammar import NativeGrammar
from gbnf_server.system.errors import (
    AnswerTimeoutError,
    BackendError,
    ContextOverflowError,
    GrammarRefusedError,
    ModelLoadError,
)
from support.backends import ASK, acomplete, prompt_tokens
from support.models import SPECIAL, TEMPLATE, make_model
from support.server import CONTEXT

CALL = Grammar.parse('root ::= "{\\"name\\": \\"" ("find" | "write") "\\"}"')
LONG = Grammar.parse("root ::= a{100}\na ::= b{100}\nb ::= [xy]{20}")  # 200,000 characters
WORDS = ["a", "ab", "hello", "è", "é", "日本", "😀", '"', "\n", "<|user|>"]


@pytest.fixture(scope="module")
def backend(tiny_model: Path) -> Iterator[InProcess]:
    with InProcess(tiny_model, threads=1) as loaded:
        yield loaded


def _spell(word: str) -> str:
    return '"' + word.replace('"', '\\"').replace("\n", "\\n") + '"'


@st.composite
def languages(draw: st.DrawFn) -> tuple[Grammar, re.Pattern[str]]:
    """A few words, repeated between bounds: as GBNF, and as a regular expression."""
    words = draw(st.lists(st.sampled_from(WORDS), min_size=1, max_size=4, unique=True))
    low = draw(st.integers(0, 3))
    high = low + draw(st.integers(0, 4))
    grammar = Grammar.parse(f"root ::= ({' | '.join(map(_spell, words))}){{{low},{max(high, 1)}}}")
    return grammar, re.compile(f"(?:{'|'.join(map(re.escape, words))}){{{low},{max(high, 1)}}}")


def test_the_event_loop_runs_while_a_thread_ends() -> None:
    async def ticks() -> int:
        pieces, answered = _PieceQueue(), Future[Completion]()
        answered.add_done_callback(pieces.wake)
        pieces.put(TextDelta("a"))
        threading.Timer(0.1, answered.set_exception, [BackendError("ended")]).start()
        ending, count = asyncio.ensure_future(pieces.end(answered)), 0
        while not ending.done():
            await asyncio.sleep(0.001)
            count += 1
        return count

    assert asyncio.run(ticks()) > 3


# Laws of decoding.


@given(
    language=languages(),
    temperature=st.sampled_from([0.0, 0.7, 3.0]),
    seed=st.integers(0, 2**32),
    max_tokens=st.integers(1, 40),
)
def test_the_text_is_in_the_language_or_a_truncated_prefix_of_it(
    backend: InProcess,
    language: tuple[Grammar, re.Pattern[str]],
    temperature: float,
    seed: int,
    max_tokens: int,
) -> None:
    grammar, pattern = language
    options = {"temperature": temperature, "seed": seed}
    completion = backend.complete(Request(ASK, grammar=grammar, max_tokens=max_tokens, **options))  # type: ignore[arg-type]  # both are floats
    whole = backend.complete(Request(ASK, grammar=grammar, max_tokens=200, **options))  # type: ignore[arg-type]  # as above
    assert whole.finish_reason == "stop"
    assert pattern.fullmatch(whole.text)
    assert completion.usage.completion_tokens <= max_tokens
    if completion.shortened_at is not None:
        assert completion.finish_reason == "stop"
        assert pattern.fullmatch(completion.text)
        return
    assert whole.text.startswith(completion.text)
    assert (completion.text == whole.text) or completion.finish_reason == "length"
    assert completion.grammar_violation is None


@pytest.mark.slow
def test_no_character_is_written_in_bytes_that_are_no_utf_8(backend: InProcess) -> None:
    """The engine takes the overlong F0 86 97 A5 for "日" where the F0 of "😀" may come."""
    for seed in range(50):
        answer = backend.complete(
            Request(ASK, grammar=Grammar.parse('root ::= ("日本" | "😀"){1,3}'), temperature=3.0, seed=seed)
        )
        assert re.fullmatch("(日本|😀){1,3}", answer.text)


def test_the_seed_decides(backend: InProcess) -> None:
    def say(seed: int) -> str:
        return backend.complete(
            Request(
                ASK, grammar=Grammar.parse("root ::= [a-z]{30}"), temperature=1.5, seed=seed, max_tokens=50
            )
        ).text

    assert say(1) == say(1)
    assert len({say(seed) for seed in range(5)}) > 1


@given(st.lists(st.sampled_from(["hello", "è", " x", "<|end|>"]), max_size=6), st.integers(0, 2))
def test_a_warm_memory_changes_nothing_but_the_count(
    backend: InProcess, words: list[str], common: int
) -> None:
    earlier = [*ASK[:common], {"role": "user", "content": "".join(words)}]
    prompt = prompt_tokens(backend, ASK, constrained=True)
    backend._kv_cache._sequences[0].cached_tokens.clear()
    cold = backend.complete(Request(ASK, grammar=Grammar.parse("root ::= [a-z]{5}")))
    backend.complete(Request(earlier, grammar=CALL))  # type: ignore[arg-type]  # a list of the same dicts
    shared = 0
    while (
        shared < len(prompt) - 1
        and shared < len(backend._kv_cache._sequences[0].cached_tokens)
        and prompt[shared] == backend._kv_cache._sequences[0].cached_tokens[shared]
    ):
        shared += 1
    warm = backend.complete(Request(ASK, grammar=Grammar.parse("root ::= [a-z]{5}")))
    assert (cold.text, cold.usage.cached_tokens) == (warm.text, 0)
    assert warm.usage.cached_tokens == shared
    assert warm.usage.prompt_tokens == len(prompt)


# Limits.


def test_truncation_never_splits_a_character(backend: InProcess) -> None:
    for max_tokens, text in ((1, ""), (2, ""), (3, "日"), (4, "日"), (6, "日本")):
        completion = backend.complete(
            Request(ASK, grammar=Grammar.parse('root ::= "日本語"'), max_tokens=max_tokens)
        )
        assert (completion.text, completion.finish_reason) == (text, "length")


def test_the_end_of_the_context_truncates(backend: InProcess) -> None:
    completion = backend.complete(Request(ASK, grammar=LONG, max_tokens=9999))
    assert completion.finish_reason == "length"
    assert completion.usage.prompt_tokens + completion.usage.completion_tokens == CONTEXT


@given(st.text(max_size=30), st.booleans())
def test_the_tokens_of_a_prompt_are_counted_as_they_are_evaluated(
    backend: InProcess, text: str, constrained: bool
) -> None:
    messages: list[Message] = [{"role": "user", "content": text}]
    request = Request(messages, CALL if constrained else None, max_tokens=1)
    assert asyncio.run(backend.count_tokens(request)) == backend.complete(request).usage.prompt_tokens


def test_messages_longer_than_the_context_are_counted_and_refused(backend: InProcess) -> None:
    long = Request([{"role": "user", "content": "x" * CONTEXT}])
    assert asyncio.run(backend.count_tokens(long)) == CONTEXT + 3  # without the first of the answer
    with pytest.raises(ContextOverflowError) as refused:
        backend.complete(long)
    assert (refused.value.needed, refused.value.available) == (CONTEXT + 4, CONTEXT)
    just = Request([{"role": "user", "content": "x" * (CONTEXT - 4)}])
    assert backend.complete(just).usage.completion_tokens == 1


def test_a_negative_temperature_is_refused(backend: InProcess) -> None:
    with pytest.raises(ValueError, match="is -1"):
        backend.complete(Request(ASK, temperature=-1.0))


# Faults, and being usable after them.


@pytest.mark.parametrize(
    ("grammar", "problem"),
    [
        ("root ::= x", "Grammar.parse"),
        ({"type": "object"}, "Grammar.parse"),
        (Grammar(Rules({"root": Ref("x")})), "Undefined rule identifier 'x'"),
        (Grammar(Rules({"root": EPSILON} | {f"r{n}": EPSILON for n in range(20_000)})), "20000 rules"),
    ],
)
def test_a_refused_grammar_is_an_error_and_no_crash(backend: InProcess, grammar: Any, problem: str) -> None:
    with pytest.raises(GrammarRefusedError, match=re.escape(problem)):
        backend.complete(Request(ASK, grammar=grammar))
    assert backend.complete(Request(ASK, grammar=CALL)).finish_reason == "stop"


def test_a_dead_end_is_an_error(backend: InProcess) -> None:
    with pytest.raises(BackendError, match="dead end"):
        backend.complete(Request(ASK, grammar=Grammar(Rules({"root": seq(Literal("a"), char_class("\0"))}))))
    assert backend.complete(Request(ASK, grammar=CALL)).finish_reason == "stop"


def test_acomplete_returns_the_same_text(backend: InProcess) -> None:
    async def both() -> list[str]:
        answers = await asyncio.gather(*(acomplete(backend, Request(ASK, grammar=CALL)) for _ in range(2)))
        return [answer.text for answer in answers]

    assert asyncio.run(both()) == [backend.complete(Request(ASK, grammar=CALL)).text] * 2


def test_a_cancelled_call_has_ended_when_its_cancellation_has(
    backend: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def hold(*given: Any, **limits: Any) -> Any:
        begun.set()
        go_on.wait()
        return decode(*given, **limits)

    decode = Decoder.generate
    monkeypatch.setattr(Decoder, "generate", hold)

    async def play() -> None:
        task = asyncio.ensure_future(acomplete(backend, Request(ASK, LONG, max_tokens=300)))
        await asyncio.to_thread(begun.wait)
        task.cancel()
        done, _ = await asyncio.wait([task], timeout=0.05)
        assert not done, "its thread has a sequence"
        go_on.set()
        with pytest.raises(asyncio.CancelledError):
            await task
        assert not backend._kv_cache._slots

    asyncio.run(play())


def test_a_long_question_to_the_grammar_engine_is_cancelled_between_its_parts(
    backend: InProcess, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(grammar_engines, "_PART", 8)
    stop, parts = Cancellation(), list[int]()
    allowed = NativeGrammar.allowed

    def counted(self: NativeGrammar, tokens: Any) -> Any:
        parts.append(len(tokens))
        if len(parts) == 2:
            stop.set()
        return allowed(self, tokens)

    monkeypatch.setattr(NativeGrammar, "allowed", counted)
    constraint = backend._engine.constraint(LONG)
    tokens = np.arange(100)
    whole = constraint.allowed(tokens)
    assert sum(parts) == 100
    assert [bool(each) for each in whole] == [constraint.allows(token) for token in range(100)]
    parts.clear()
    stop.clear()
    constraint.stop = stop
    with pytest.raises(BackendError, match="cancelled"):
        constraint.allowed(tokens)
    assert parts == [8, 8]


def test_forgotten_prompts_are_evaluated_again(backend: InProcess) -> None:
    backend.complete(Request(ASK, grammar=CALL))
    assert backend.complete(Request(ASK, grammar=CALL)).usage.cached_tokens > 0
    backend.clear_prompt_cache()
    assert backend.complete(Request(ASK, grammar=CALL)).usage.cached_tokens == 0


def test_a_closed_model_says_so(tiny_model: Path) -> None:
    with InProcess(tiny_model, threads=1) as closed:
        pass
    closed.close()
    with pytest.raises(BackendError, match="is closed"):
        closed.complete(Request(ASK, grammar=None))
    with pytest.raises(BackendError, match="is closed"):
        closed.clear_prompt_cache()


# Loading.


def test_nothing_is_printed(tiny_model: Path, capfd: pytest.CaptureFixture[str]) -> None:
    with InProcess(tiny_model, threads=1) as quiet:
        quiet.complete(Request(ASK, grammar=CALL))
    assert capfd.readouterr() == ("", "")


def test_a_file_without_weights_is_refused(tmp_path: Path, tiny_model: Path) -> None:
    path = tmp_path / "cut.gguf"
    path.write_bytes(tiny_model.read_bytes()[:-60_000])
    with pytest.raises(ModelLoadError):
        InProcess(path)


@pytest.mark.parametrize(
    ("name", "given_style", "style"),
    [
        ("gbnf-planner-demo", None, "minimal"),
        ("another", None, "full"),
        ("another", "minimal", "minimal"),
        ("gbnf-planner-demo", "full", "full"),
    ],
)
def test_the_prompt_style_follows_the_model(tmp_path: Path, name: str, given_style: Any, style: str) -> None:
    with InProcess(make_model(tmp_path / "m.gguf", name=name), threads=1, prompt_style=given_style) as loaded:
        typed: Backend = loaded
        traits = typed.info().traits
        assert (typed.name, traits.prompt_style) == (name, style)
        assert traits.answers_by_call_only != traits.takes_evidence == (name == "another")


@pytest.mark.parametrize(
    ("trained", "asked", "length"), [(300, None, 300), (100_000, None, 8192), (300, 256, 256)]
)
def test_the_context_length(tmp_path: Path, trained: int, asked: int | None, length: int) -> None:
    model = make_model(tmp_path / "m.gguf", context=trained)
    with InProcess(model, threads=1, context_length=asked) as loaded:
        assert loaded.context_length() == length


# Templates.

PLAIN = (
    "{% for m in messages %}{% if m.role == 'user' %}U:{{ m.content }}\n"
    "{% elif m.role == 'assistant' %}A:{{ m.content }}\n"
    "{% else %}OTHER{% endif %}{% endfor %}A:"
)
TOLD = 'A:c\nU:Result of step 1: {"n": 1}\nA:'
WHOLE = (
    '<|system|>S<|end|><|user|>q<|end|><|assistant|>c<|end|><|tool|>{"step": 1, "result": {"n": 1}}<|end|>'
)
RUN: list[Message] = [
    {"role": "system", "content": "S"},
    {"role": "user", "content": "q"},
    {"role": "assistant", "content": "c"},
    {"role": "tool", "content": '{"step": 1, "result": {"n": 1}}'},
]
CHATML = "".join(f"<|im_start|>{each['role']}\n{each['content']}<|im_end|>\n" for each in RUN)


@pytest.mark.parametrize(
    ("template", "prompt"),
    [
        (TEMPLATE, WHOLE + "<|assistant|>"),
        (PLAIN.replace("OTHER", ""), "U:S\n\nq\n" + TOLD),
        (PLAIN.replace("OTHER", "{{ raise_exception('no') }}"), "U:S\n\nq\n" + TOLD),
        (
            PLAIN.replace("{% else %}OTHER", "{% elif m.role == 'system' %}S:{{ m.content }}\n"),
            "S:S\nU:q\n" + TOLD,
        ),
        ("{{ bos_token }}" + PLAIN + "{{ eos_token }}", "<|start|>U:S\n\nq\n" + TOLD + "<|end|>"),
        (PLAIN + "{% if enable_thinking is false %}!{% endif %}", "U:S\n\nq\n" + TOLD + "!"),
        (None, CHATML + "<|im_start|>assistant\n"),
    ],
    ids=["all roles", "drops", "raises", "system only", "its tokens", "thinking off", "no template"],
)
def test_templates(tmp_path: Path, template: str | None, prompt: str) -> None:
    with InProcess(make_model(tmp_path / "m.gguf", template=template), threads=1) as loaded:
        assert loaded._template.prompt(Request(RUN)) == prompt


def test_variables_of_a_template(tmp_path: Path) -> None:
    template = "{% set own = 1 %}{{ bos_token }}" + PLAIN + "{{ tone }}{% if enable_thinking %}!{% endif %}"
    asked = Request(RUN, template_variables={"tone": "<|end|>", "enable_thinking": True, "own": 2})
    with InProcess(make_model(tmp_path / "m.gguf", template=template), threads=1) as loaded:
        prompt = loaded._template.prompt(asked)
        assert loaded.info().traits.template_variables == frozenset({"tone", "enable_thinking"})
    assert prompt.startswith("<|start|>U:S\n\nq\n" + TOLD)
    assert not prompt.endswith(("<|end|>", "!"))


@pytest.mark.parametrize(
    "template", ["{% for %}", "{{ messages | nothing }}", "{{ raise_exception('never') }}", "hm"]
)
def test_a_template_that_cannot_be_used(tmp_path: Path, template: str) -> None:
    with pytest.raises(ModelLoadError, match=r"the chat template of .* fails"):
        InProcess(make_model(tmp_path / "m.gguf", template=template), threads=1)


def test_a_template_that_refuses_one_conversation(tmp_path: Path) -> None:
    picky = TEMPLATE + "{% if 'bad' in messages[0].content %}{{ raise_exception('bad word') }}{% endif %}"
    with InProcess(make_model(tmp_path / "m.gguf", template=picky), threads=1) as loaded:
        with pytest.raises(BackendError, match="bad word"):
            loaded.complete(Request([{"role": "user", "content": "bad"}], grammar=None))
        assert (
            loaded.complete(Request([{"role": "user", "content": "good"}], grammar=CALL)).finish_reason
            == "stop"
        )


def test_reasoning_that_the_template_opens_is_closed_under_a_grammar(tmp_path: Path) -> None:
    with InProcess(make_model(tmp_path / "m.gguf", template=TEMPLATE + "<think>\n"), threads=1) as loaded:
        held, free = (prompt_tokens(loaded, ASK, constrained=constrained) for constrained in (True, False))
        ends = ["".join(map(loaded._model.token_text, tokens)) for tokens in (held, free)]
    assert ends[0] == ends[1].removesuffix("\n") + "\n\n</think>\n\n"


@pytest.mark.parametrize("template", [TEMPLATE, "{{ bos_token }}" + TEMPLATE])
def test_the_start_token_occurs_once(tmp_path: Path, template: str) -> None:
    model = make_model(tmp_path / "m.gguf", template=template, adds_start=True)
    with InProcess(model, threads=1) as loaded:
        tokens = prompt_tokens(loaded, ASK, constrained=True)
        assert tokens[0] == loaded._model.bos_token
        assert tokens.count(tokens[0]) == 1


def test_special_tokens_of_the_template_are_read_as_such(backend: InProcess) -> None:
    names = {backend._model.token_text(token) for token in prompt_tokens(backend, ASK, constrained=True)}
    assert names >= {"<|system|>", "<|user|>", "<|assistant|>", "<|end|>"}
    assert set(SPECIAL) >= {name for name in names if len(name) > 5}


def test_a_generation_ends_with_its_time(backend: InProcess) -> None:
    request = Request([{"role": "user", "content": "go on"}], max_tokens=400, timeout_s=1e-6)
    with pytest.raises(AnswerTimeoutError, match="did not finish its answer within 1e-06 s"):
        backend.complete(request)
    for limit in (None, float("inf")):
        assert backend.complete(replace(request, max_tokens=2, timeout_s=limit)).text
