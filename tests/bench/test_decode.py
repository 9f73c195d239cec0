"""The scripted model generates its script in every loop, and contenders are compared fairly."""

from __future__ import annotations

from pathlib import Path

import pytest

from calls import CALLS
from decode import Result, ours, plain_prompt, plot, prompt_tokens, script, summary, verdict
from gbnf import compile_pool, load_manifests
from gbnf.prompts.messages import Message, call_text
from gbnf_server.backends.base import Request
from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.native import NativeModel
from gbnf_server.system.folders import manifests_path
from scripted import Shape, write_model

MESSAGES: list[Message] = [{"role": "system", "content": "s"}, {"role": "user", "content": "go"}]


@pytest.mark.slow
def test_a_scripted_model_writes_its_call_with_and_without_a_grammar(tmp_path: Path) -> None:
    text = call_text({"name": "find_files", "arguments": CALLS["find_files"]})
    model = NativeModel(model_path(), vocab_only=True)
    said = script(model, prompt_tokens(model, plain_prompt(MESSAGES)), text)
    path = tmp_path / "scripted.gguf"
    write_model(path, model_path(), said, Shape(width=256, layers=1, heads=4, context=512), name="scripted")
    grammar = compile_pool(load_manifests(manifests_path()), whitespace="spaced")
    for constrained, options in ((None, {}), (grammar, {"jump_forward": False}), (grammar, {})):
        backend, _ = ours(path, constrained, 512, **options)
        with backend:
            found = backend.complete(Request(MESSAGES, grammar=constrained, max_tokens=200))
        assert (found.text, found.finish_reason) == (text, "stop")
        assert found.usage.forced_tokens == 0 or (constrained and not options)


def _result(contender: str, seconds: float, *, is_same: bool = True, grammar_s: float = 0.0) -> Result:
    grammar_times = (grammar_s,) * bool(grammar_s)
    return Result(contender, "default", "get_now", (seconds,), grammar_times, 10, 0, is_same)


def test_what_was_written_otherwise_is_not_counted(tmp_path: Path) -> None:
    results = [
        _result("unconstrained", 1.0),
        _result("llama-cpp-python", 1.0),
        _result("full mask", 2.0),
        _result("token by token", 1.1, grammar_s=0.01),
        _result("jump-forward", 0.1, is_same=False),
    ]
    table = summary(results, "default")
    assert list(table.columns[1].cells) == ["1", "1", "1", "1", "0"]
    assert list(verdict(results)) == [
        "a step of the model: 100.0 ms",
        "our constraint: 1000 µs a token, 1.00% of that",
        "llama-cpp-python's mask: 100.0 ms a token, 100 times as much",
    ]
    plot(results, tmp_path / "plot.svg")
    drawn = (tmp_path / "plot.svg").read_text()
    assert "full mask (default)" in drawn
    assert "jump-forward" not in drawn


@pytest.mark.parametrize("name", list(CALLS))
def test_every_call_is_in_the_grammar(name: str) -> None:
    from support.oracle import engine

    grammar = compile_pool(load_manifests(manifests_path()))
    text = call_text({"name": name, "arguments": CALLS[name]})
    assert engine().match(grammar, text).complete
