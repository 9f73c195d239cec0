"""Whatever an item does, it gets its outcome, and the others theirs."""

from __future__ import annotations

import ctypes
import os
import time
from typing import Any

import pytest

from isolation import Confined, Crashed, Finished, Outcome, TimedOut, isolated
from support.processes import children, limits_s

# Newer Pythons warn of forks beside threads, which pytest-xdist has; the children here touch none.
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")]


def work(item: str) -> Any:
    match item:
        case "segfault":
            ctypes.string_at(0)
        case "abort":
            os.abort()
        case "exit":
            os._exit(7)
        case "hang":
            time.sleep(60)
        case "hoard":
            return len(bytearray(4 << 30))
        case "raise":
            raise KeyError("lost")
        case "shout":
            os.write(1, b"x" * 100_000)
        case "much":
            return "y" * 3_000_000
    return item.upper()


REASONS = {
    "segfault": "SIGSEGV",
    "abort": "SIGABRT",
    "hoard": "out of memory",
    "raise": "KeyError: 'lost'",
    "exit": "exit status 7",
}
ITEMS = ["fine", "segfault", "abort", "hang", "hoard", "raise", "exit", "shout", "also fine", "much"]


@pytest.mark.parametrize(("per_process", "jobs"), [(1, 3), (3, 1), (100, 3)])
def test_each_item_gets_one_outcome(per_process: int, jobs: int) -> None:
    for limit_s in limits_s(0.3):
        found = list(
            isolated(work, ITEMS, jobs=jobs, limit_s=limit_s, memory_mib=512, per_process=per_process)
        )
        if sum(isinstance(outcome, TimedOut) for _, outcome in found) == 1:
            break  # else the machine was too busy to do the others in that time
    assert sorted(number for number, _ in found) == list(range(len(ITEMS)))
    outcomes = {ITEMS[number]: outcome for number, outcome in found}
    reasons = {item: outcome.reason for item, outcome in outcomes.items() if isinstance(outcome, Crashed)}
    assert reasons == REASONS
    assert [item for item, outcome in outcomes.items() if isinstance(outcome, TimedOut)] == ["hang"]
    assert outcomes["much"] == Finished("y" * 3_000_000)
    assert [outcomes[item] for item in ("fine", "shout", "also fine")] == [
        Finished("FINE"),
        Finished("SHOUT"),
        Finished("ALSO FINE"),
    ]


def test_nothing_is_left_running_when_the_caller_goes_away() -> None:
    before = children(os.getpid())  # of other tests, a server among them
    outcomes = isolated(work, ["fine", "hang", "hang"], jobs=3, limit_s=30.0)
    next(outcomes)
    assert set(children(os.getpid())) > set(before)
    outcomes.close()
    assert set(children(os.getpid())) <= set(before)


def test_no_items_no_outcomes() -> None:
    assert list(isolated(work, [])) == []


def test_a_confined_process_is_replaced_after_an_item_that_ends_it() -> None:
    for limit_s in limits_s(0.3):
        outcomes: list[tuple[str, Outcome]] = []
        with Confined(work, limit_s=limit_s, memory_mib=512) as confined:
            outcomes += [(item, confined.attempt(item)) for item in [*ITEMS, "fine"]]
        if sum(isinstance(outcome, TimedOut) for _, outcome in outcomes) == 1:
            break  # else the machine was too busy to do the others in that time
    reasons = {item: outcome.reason for item, outcome in outcomes if isinstance(outcome, Crashed)}
    assert reasons == REASONS
    assert [item for item, outcome in outcomes if isinstance(outcome, TimedOut)] == ["hang"]
    others = [outcome for item, outcome in outcomes if item in ("fine", "shout", "also fine", "much")]
    assert others == [Finished(each) for each in ("FINE", "SHOUT", "ALSO FINE", "y" * 3_000_000, "FINE")]


def pid_for(_: int) -> int:
    return os.getpid()


def test_a_confined_process_does_several_items_and_none_is_left() -> None:
    before = set(children(os.getpid()))
    with Confined(pid_for) as confined:
        pids = [str(confined.attempt(0)) for _ in range(3)]
        confined.renew()
        assert len({*pids, str(confined.attempt(0))}) == 2
    assert set(children(os.getpid())) <= before
