"""The fuzzer finds what is broken on purpose, makes it small, reports it once, and says so by its status."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import typer
from hypothesis import strategies as st

import fuzz
from fuzz_targets import TARGETS, Target, servers
from gbnf.calls import parse_tool_calls
from isolation import Confined
from support.oracle import CHECKOUT
from support.processes import limits_s

# Newer Pythons warn of forks beside threads, which pytest-xdist has; the children here touch none.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]


NUMBERS = st.lists(st.integers())


def fuzzed(
    check: Any,
    cases: Any = NUMBERS,
    *,
    rounds: int = 1,
    seed: int = 1,
    examples: int = 200,
    limit_s: float = 1.0,
) -> fuzz.Tally:
    """Some rounds over lists of numbers, or other cases, by a check that fails for some."""
    target = Target("numbers", cases, check)
    tally = fuzz.Tally()
    for number in range(rounds):
        with Confined(partial(fuzz.checked, target.check), limit_s=limit_s, memory_mib=512) as confined:
            fuzz._Search(target, tally, confined, end=float("inf")).run(f"{seed} {number}", examples)
    return tally


def fails(numbers: list[int]) -> str:
    if sum(numbers) >= 1000:
        raise AssertionError("too much")
    return "small"


def raises(numbers: list[int]) -> str:
    return f"{1 // (len(numbers) - 3)} left"


def aborts(numbers: list[int]) -> str:
    if any(number > 99 for number in numbers):
        os.abort()
    return "alive"


def hangs(numbers: list[int]) -> str:
    if len(numbers) > 1:
        time.sleep(60)
    return "done"


def hoards(numbers: list[int]) -> str:
    return str(len(bytearray((4 << 30) if any(number < 0 for number in numbers) else 1)))


@pytest.mark.parametrize(
    ("check", "error", "smallest"),
    [
        (fails, "AssertionError: too much", [1000]),
        (raises, "ZeroDivisionError: integer division or modulo by zero", [0, 0, 0]),
        (aborts, "SIGABRT: the process died", [100]),
        (hoards, "MemoryError:", [-1]),
    ],
)
def test_a_failure_is_found_and_made_small(check: Any, error: str, smallest: list[int]) -> None:
    tally = fuzzed(check)
    [failure] = tally.failures.values()
    assert (failure.error, failure.case) == (error, smallest)
    assert failure.cases > 1


def test_a_hang_is_a_failure() -> None:
    for limit_s in limits_s(0.2):
        tally = fuzzed(hangs, st.lists(st.just(0), max_size=2), limit_s=limit_s)
        if tally.passed["done"]:
            break  # else the machine was too busy to do anything in that time
    [failure] = tally.failures.values()
    assert failure.error.startswith("TimedOut")
    assert failure.case == [0, 0]


def both(numbers: list[int]) -> str:
    if 7 in numbers:
        raise KeyError(7)
    if len(numbers) > 2:
        raise ValueError(numbers)
    return "neither"


def test_each_of_several_failures_is_reported_once_whatever_its_message() -> None:
    tally = fuzzed(both, st.lists(st.integers(0, 9)), rounds=3)
    found = {failure.error.partition(":")[0]: failure.case for failure in tally.failures.values()}
    assert found == {"KeyError": [7], "ValueError": [0, 0, 0]}
    assert tally.passed["neither"] > 0


def test_the_same_seed_draws_the_same_cases() -> None:
    def drawn(seed: int) -> list[Any]:
        tally = fuzzed(repr, seed=seed)
        return list(tally.passed.items())

    assert drawn(1) == drawn(1) != drawn(2)


def test_the_time_is_shared_and_each_target_has_its_turn() -> None:
    targets = [Target(name, st.integers(), lambda _: "fine") for name in "abc"]
    tallies = fuzz.fuzz(targets, seconds=0.2, seed=1, examples=5)
    assert all(tally.tried for tally in tallies.values())


def test_a_planted_defect_is_reported_as_a_program_that_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def planted(said: str, pool: Any) -> Any:
        if len(said) > 1:
            raise IndexError("planted")
        return parse_tool_calls(said, pool)

    monkeypatch.setattr("fuzz_targets.calls.parse_tool_calls", planted)
    out = tmp_path / "found.json"
    with pytest.raises(typer.Exit) as left:
        fuzz.main(minutes=0.02, target=["call-text"], seed=2, out=out)
    assert left.value.exit_code == 1
    said = capsys.readouterr().out
    [found] = json.loads(out.read_text())["targets"]["call-text"]["failures"]
    assert found["error"] == "IndexError: planted"
    assert found["program"] in said
    assert "failed (seed 2)" in said
    case = eval(found["program"].partition(".check")[2])
    assert len(case["before"] + case["after"]) < 8
    assert case["calls"] == []
    path = os.pathsep.join([str(CHECKOUT / "bench"), str(CHECKOUT / "tests")])
    environment = {**os.environ, "PYTHONPATH": path}
    again = subprocess.run([sys.executable, "-c", found["program"]], env=environment, check=False)
    assert again.returncode == 0  # in a process without the defect
    with pytest.raises(IndexError):
        TARGETS["call-text"].check(case)


@pytest.mark.parametrize("name", TARGETS)
def test_the_cases_of_every_target_can_be_pasted_and_sent(name: str) -> None:
    def check(case: Any) -> str:
        if repr(eval(repr(case), {"inf": float("inf"), "nan": float("nan")})) != repr(case):
            raise AssertionError(case)
        return "pasted"

    tally = fuzzed(check, TARGETS[name].cases, examples=15)
    assert tally.failures == {}
    assert tally.passed["pasted"] == tally.tried == 15


def test_a_target_that_does_not_exist_is_refused() -> None:
    with pytest.raises(typer.BadParameter, match="no target 'schemas'"):
        fuzz.main(target=["schemas"])


def test_a_schema_whose_every_value_is_long_is_no_failure() -> None:
    case = {"schema": {"type": "array", "minItems": 10**6}, "wrap": "", "times": 0, "order": "declared"}
    assert "grammar" in TARGETS["hostile-schema"].check(case)


@pytest.mark.parametrize("name", servers.SERVED)
def test_a_good_answer_of_every_server_is_an_answer(name: str) -> None:
    body = json.dumps(servers.SERVED[name].whole(servers.ANSWER)).encode()
    good = {"status": 200, "headers": [], "body": body, "length": None}
    case = {"wire": name, "way": "run", "grammar": True, "answers": [good], "others": {}}
    assert TARGETS["server"].check(case) == "answered"
