"""A bundled case that is played by its own plan, with the real executors, converges."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from gbnf.regular import ecma262
from gbnf_bench.call_matching import references_of
from gbnf_bench.cases import Case, Suite
from gbnf_bench.configurations import named
from gbnf_bench.expectations import Expectation, step_number
from gbnf_bench.runner import Bench, RunOptions
from gbnf_bench.scoring import RunScore, score
from gbnf_bench.suite_files import bundled_suites, load_suite
from gbnf_server.backends.base import Completion, Usage
from support.backends import FakeBackend
from support.executors import bundled_tools

TOOLS = tuple(bundled_tools().values())
SMALL = 5
"""Cases of a suite that are played; of a longer one, so many at equal distances."""


class Player(FakeBackend):
    """A model that knows the plan. Its answer says all that its tools have said."""

    def __init__(self, case: Case) -> None:
        self._calls = [] if case.abstain else list(_played(case))

    def respond(self, messages: Sequence[Mapping[str, str]], **_limits: Any) -> Completion:
        done = sum(message["role"] == "assistant" for message in messages)
        if done < len(self._calls):
            call = self._calls[done]
        else:
            heard = [json.loads(message["content"]) for message in messages if message["role"] == "tool"]
            answer = " ".join(_said(heard)) or "no tool fits"
            call = {"name": "final_answer", "arguments": {"message": answer}}
        return Completion(json.dumps(call), "stop", Usage(1, 1))


def _said(value: Any) -> Iterator[str]:
    match value:
        case Mapping():
            yield from _said(list(value.values()))
        case list():
            for each in value:
                yield from _said(each)
        case _:
            yield str(value)


def _played(case: Case) -> Iterator[dict[str, Any]]:
    steps: dict[int, int] = {}  # expected call -> its step
    for number, expected in enumerate(case.plans[0], 1):
        if expected.optional:
            continue
        steps[number] = len(steps) + 1
        tool = bundled_tools()[expected.name]
        arguments: dict[str, Any] = {}
        for name, expectation in expected.expectations.items():
            referred = step_number(expectation) if name in tool.step_references else None
            if name in expected.arguments or name in tool.args.get("required", ()) or name == "body":
                arguments[name] = steps[referred] if referred is not None else _value(name, expectation)
        if "from_step" in arguments and "body" not in expected.arguments:
            arguments.pop("body", None)
        yield {"name": expected.name, "arguments": arguments}


_USUAL: Mapping[str, Any] = {"limit": 1}
_FIELD = {"var": "choice", "prompt": "Which one?", "schema": {"kind": "choice"}}


def _value(name: str, expectation: Expectation) -> Any:
    match expectation:
        case {"const": value} | {"enum": [value, *_]}:
            return value
        case {"pattern": pattern}:
            return ecma262.search(pattern).shortest()
        case {"allOf": [*parts]} | {"anyOf": [*parts]}:
            return " ".join(_value(name, part) for part in parts)
        case {"items": items}:
            return [_value(name, items)]
        case {"properties": {"schema": {"properties": members}}}:
            given = {key: _value(key, each) for key, each in members.items() if each is not False}
            return {**_FIELD, "schema": given}
        case {"properties": members}:
            return {"path": "something", **{key: _value(key, each) for key, each in members.items()}}
        case _:
            return [_FIELD] if name == "dialog" else _USUAL.get(name, "something")


def play(suite: Suite, case: Case) -> RunScore:
    backend: Any = Player(case)
    one = Suite(suite.name, "", (case,), suite.decoys)
    bench = Bench([one], named(["filter"]), TOOLS, backend, model="player", options=RunOptions())
    return score(case, bench.run(bench.jobs[0]), references_of(TOOLS))


@pytest.mark.slow
@pytest.mark.parametrize("name", bundled_suites())
def test_a_case_played_by_its_plan_converges(name: str) -> None:
    suite = load_suite(name)
    every = -(-len(suite.cases) // SMALL)
    for case in suite.cases[::every]:
        found = play(suite, case)
        assert (case.id, found.faults) == (case.id, ())
        assert found.first_matches
        assert found.exact_matches == found.needed
        assert found.false_positives == 0
        assert found.acceptable_steps
