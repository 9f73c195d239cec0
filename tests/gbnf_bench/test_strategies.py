"""Strategies: their cases, their table, and which is best."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gbnf import Grammar, validate_call
from gbnf.requests.pool_filter import filter_pool
from gbnf.tools.providers import Provider
from gbnf_bench.call_matching import references_of
from gbnf_bench.configurations import BY_NAME, STRATEGIES, Configuration, supported, supported_strategies
from gbnf_bench.generated_cases import generate_suite, stub_result
from gbnf_bench.profile_files import save
from gbnf_bench.results import Results, about
from gbnf_bench.runner import Bench, RunOptions
from gbnf_bench.tables import best_strategy, strategy_table
from gbnf_server.backends.base import Completion, Dialect, ModelInfo, Timings, Usage
from gbnf_server.backends.model_traits import ModelTraits, find_tool_format
from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.native import NativeModel
from gbnf_server.planner.profiles import ModelKey, Profile, load
from gbnf_server.system.errors import SetupError
from support.backends import FakeBackend
from support.pools import BUNDLED as POOL
from support.toys import make_tool

SUITE, LEFT_OUT = generate_suite(POOL)
EVIDENCE = ("unaided", "values", "arguments")


class Speaks(FakeBackend):
    """A model that knows the case: it calls rightly, but only in the shape that it likes."""

    model = ModelInfo(traits=ModelTraits(takes_evidence=True))

    def __init__(self, shape: str) -> None:
        self._shape = shape

    def respond(self, messages: Sequence[Any], *, grammar: Grammar | None, **_limits: Any) -> Completion:
        query = messages[1]["content"]
        case = next(case for case in SUITE.cases if query.startswith(case.query))
        [expected] = case.plans[0]
        offered = f"\n{expected.name}(" in messages[0]["content"]
        done = any("entries" in message["content"] for message in messages[2:])
        if done or not offered:
            call: dict[str, Any] = {"name": "final_answer", "arguments": {"message": "done"}}
        else:
            table = case.source["calls"][0]
            arguments = {name: value["const"] for name, value in table["arguments"].items()}
            call = {"name": table["name"], "arguments": arguments}
        text = json.dumps(call)
        if grammar is None and self._shape == "fenced":
            text = f"Sure!\n```json\n{text}\n```"
        elif grammar is None and self._shape == "prose":
            text = "I would rather talk."
        elif self._shape == "indented":  # right where it may break lines, as it learned to
            text = json.dumps(call, indent=2)
            if grammar is not None and not grammar.match(text).complete:
                text = json.dumps({"name": "final_answer", "arguments": {"message": "?"}})
        if grammar is not None and "thought" in str(grammar):
            text = '{"thought": "so", ' + text.removeprefix("{")
        return Completion(text, "stop", Usage(10, 5), Timings(0.01, 0.01))


def climbed(shape: str, names: Sequence[str] = ()) -> Results:
    backend: Any = Speaks(shape)
    strategies = supported_strategies(backend, names)
    bench = Bench([SUITE], strategies, POOL, backend, model="m", options=RunOptions(), execute=stub_result)
    records = tuple(bench.run(job) for job in bench.jobs)
    return Results(
        about("t", {"name": "speaker"}, RunOptions()), strategies, (SUITE,), references_of(POOL), records
    )


def test_cases_of_manifests_can_be_won() -> None:
    called = {case.id.removeprefix("call-").replace("-", "_") for case in SUITE.cases if not case.abstain}
    assert called | set(LEFT_OUT) == {tool.name for tool in POOL}
    assert len(called) >= 8
    for case in SUITE.cases:
        tools = case.tools(POOL, ())
        if case.abstain:
            assert len(tools) == len(POOL) - 1
            continue
        [table] = case.source["calls"]
        arguments = {name: value["const"] for name, value in table["arguments"].items()}
        assert validate_call({"name": table["name"], "arguments": arguments}, tools).ok
        assert table["name"] in {tool.name for tool in filter_pool(tools, case.query).kept}
        assert case.checks_calls


def test_a_suite_is_generated_for_custom_tools(tmp_path: Path) -> None:
    tool = make_tool(tmp_path, "weigh", 'raise RuntimeError("never run")')
    made, left_out = generate_suite([tool])
    assert [case.id for case in made.cases] == ["call-weigh"]
    assert left_out == ()
    with pytest.raises(SetupError, match="no cases can be generated"):
        generate_suite([replace(tool, args={"type": "object", "required": ["x"], "properties": {"x": {}}})])


def test_a_variant_is_offered_to_requests_that_name_its_provider(tmp_path: Path) -> None:
    tools = [make_tool(tmp_path, name) for name in ("ping", "ping_acme")]
    assert generate_suite(tools)[1] == ()
    providers = {"_acme": Provider(("acme corporation",))}
    suite, left_out = generate_suite(tools, providers=providers)
    assert left_out == ("ping_acme",)
    assert {case.id for case in suite.cases} == {"call-ping", "decline-ping"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("shape", "converged", "best"),
    [
        ("clean", {"none", "text", "lines", "grammar", *EVIDENCE, "whitespace", "field", "free"}, "grammar"),
        ("fenced", {"text", "lines", "grammar", *EVIDENCE, "whitespace", "field", "free"}, "grammar"),
        ("prose", {"grammar", *EVIDENCE, "whitespace", "field", "free"}, "grammar"),
        ("indented", {"none", "text", "lines", "whitespace"}, "whitespace"),
    ],
)
def test_each_strategy_is_a_row(shape: str, converged: set[str], best: str) -> None:
    results = climbed(shape)
    table = strategy_table(results)
    offered = supported_strategies(Speaks(shape))
    assert [row[0] for row in table.rows] == [each.name for each in offered]
    won = {row[0] for row in table.rows if row[1].startswith("100%")}
    assert won == converged
    assert best_strategy(results) == best


def test_without_a_grammar_the_best_strategy_parses_text_calls() -> None:
    assert best_strategy(climbed("fenced", ["none", "text"])) == "text"


@pytest.mark.parametrize(
    ("dialect", "names"),
    [
        ("gbnf", ["none", "text", "lines", "grammar", "whitespace", "field", "free"]),
        ("json_schema", ["none", "text", "lines", "grammar", "field", "free"]),
        ("none", ["none", "text", "lines"]),
    ],
)
def test_a_server_without_grammars_has_fewer_strategies(dialect: Dialect, names: list[str]) -> None:
    backend = FakeBackend()
    backend.dialect = dialect
    assert [each.name for each in supported_strategies(backend)] == names


@pytest.mark.parametrize(
    ("dialect", "left_out"),
    [("gbnf", set()), ("json_schema", {"grammar"}), ("none", {"grammar", "union", "filter"})],
)
def test_a_server_runs_the_configurations_whose_grammar_it_takes(
    dialect: Dialect, left_out: set[str]
) -> None:
    backend = FakeBackend()
    backend.dialect = dialect
    kept = supported(BY_NAME, backend)
    assert {each.name for each in BY_NAME if each not in kept} == left_out


def test_native_and_server_are_strategies_where_the_template_or_the_server_has_tools() -> None:
    backend = FakeBackend()
    source = NativeModel(model_path(), vocab_only=True).metadata["tokenizer.chat_template"]
    traits = ModelTraits(tool_format=find_tool_format(source), takes_evidence=True)
    backend.model = ModelInfo(traits=traits, takes_tools=True)
    assert supported_strategies(backend) == STRATEGIES
    backend.model = ModelInfo(traits=traits)
    assert supported_strategies(backend) == tuple(each for each in STRATEGIES if each.name != "server")


@pytest.mark.parametrize("strategy", STRATEGIES, ids=lambda strategy: strategy.name)
def test_each_strategy_can_be_a_profile(strategy: Configuration, tmp_path: Path) -> None:
    profile = Profile(ModelKey("m.gguf"), "a1", strategy.name, dict(strategy.settings), {})
    assert load(save(profile, tmp_path)) == profile
