"""Every shipped case can be won: played by its own plan, with the real executors, it converges."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pytest

from gbnf.regular import ecma262
from gbnf_server.backends.base import Completion
from gbnf_server.evaluation.call_matching import references_of
from gbnf_server.evaluation.cases import Case, Suite
from gbnf_server.evaluation.configurations import named
from gbnf_server.evaluation.patterns import (
    Anything,
    Contains,
    Equals,
    ListPattern,
    Matches,
    ObjectPattern,
    OneOf,
    OptionalPattern,
    Pattern,
    Unordered,
    exact_number,
)
from gbnf_server.evaluation.runner import Bench, RunOptions
from gbnf_server.evaluation.scoring import RunScore, score
from gbnf_server.evaluation.suite_files import bundled_suites, load_suite
from support.backends import FakeBackend
from support.executors import shipped

TOOLS = tuple(shipped().values())
SMALL = 5
"""Cases of a suite that are played; of a longer one, so many at equal distances."""


class Player(FakeBackend):
    """A model that knows the plan. Its answer says all that its tools have said."""

    def __init__(self, case: Case) -> None:
        self._calls = [] if case.abstain else list(_played(case))

    def complete(self, messages: Sequence[Mapping[str, str]], **_limits: Any) -> Completion:
        done = sum(message["role"] == "assistant" for message in messages)
        if done < len(self._calls):
            call = self._calls[done]
        else:
            heard = [json.loads(message["content"]) for message in messages if message["role"] == "tool"]
            answer = " ".join(_said(heard)) or "no tool fits"
            call = {"name": "final_answer", "arguments": {"message": answer}}
        return Completion(json.dumps(call), "stop", 1, 1, 0, 0.0, 0.0)


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
        tool = shipped()[expected.name]
        arguments: dict[str, Any] = {}
        for name, pattern in expected.arguments.items():
            referred = exact_number(pattern) if name in tool.step_references else None
            if referred is not None:
                arguments[name] = steps[referred]
            elif isinstance(pattern, Anything) and name in _USUAL:
                arguments[name] = _USUAL[name]
            elif not isinstance(pattern, OptionalPattern | Anything) or name in tool.args.get("required", ()):
                arguments[name] = _value(pattern)
        yield {"name": expected.name, "arguments": arguments}


_USUAL: Mapping[str, Any] = {
    "limit": 1,
    "dialog": [{"var": "choice", "prompt": "Which one?", "schema": {"kind": "choice"}}],
}
"""What stands for anything, where "something" will not do."""


def _value(pattern: Pattern) -> Any:
    match pattern:
        case Equals(value):
            return value
        case Anything():
            return "something"
        case OneOf(patterns):
            return _value(patterns[0])
        case Contains(members):
            return " ".join(_value(member) for member in members)
        case Matches(regex):
            return ecma262.search(regex.pattern).shortest()
        case ListPattern(patterns) | Unordered(patterns):
            return [_value(each) for each in patterns]
        case ObjectPattern(patterns):
            return {
                name: _value(each) for name, each in patterns.items() if not isinstance(each, OptionalPattern)
            }
        case _:
            raise AssertionError(pattern)


def play(suite: Suite, case: Case) -> RunScore:
    backend: Any = Player(case)
    one = Suite(suite.name, "", (case,), suite.decoys)
    bench = Bench([one], named(["filter"]), TOOLS, backend, model="player", options=RunOptions())
    return score(case, bench.run(bench.jobs[0]), references_of(TOOLS))


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
