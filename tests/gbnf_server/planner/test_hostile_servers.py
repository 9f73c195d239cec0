"""Whatever a server sends, a run ends with an outcome, in bounded time and memory, and calls no tool."""

from __future__ import annotations

import tracemalloc
from concurrent.futures import ThreadPoolExecutor
from itertools import cycle
from pathlib import Path

import pytest

from gbnf_server.backends.http_client import RetryPolicy
from gbnf_server.planner import Planner
from gbnf_server.system.errors import BackendError
from support.effort import one_in
from support.executors import world
from support.hostile_modes import MODES
from support.hostile_server import TOOL, WAYS, WIRES, Attacked, Way, attack, hostile

OUTCOMES = {"answered", "failed", "blocked"}
MOST_SENT = 64 * 1024 * 1024
"""Bytes that one run may take from a server, with what the sockets hold: a fraction of what floods send."""
MOST_KEPT = 32 * 1024 * 1024


def attacks(root: Path, mode: str, cases: list[tuple[str, Way, str]]) -> list[tuple[str, Attacked]]:
    """The runs against a mode by wire, way and path, side by side."""

    def one(case: tuple[str, Way, str]) -> tuple[str, Attacked]:
        wire, way, path = case
        folder = root / "-".join(case).replace("/", "-")
        return " ".join(case), attack(MODES[mode], WIRES[wire], way, world(folder), path=path)

    with ThreadPoolExecutor(len(cases)) as pool:
        return list(pool.map(one, cases))


HEAVY = tuple(mode for mode in MODES if mode.startswith(("bomb", "flood", "many")))
"""What the transport limits, the same for all wires: one wire at a time for each."""


def pairs(mode: str) -> list[tuple[str, Way, str]]:
    """Each wire with one way, over the modes all of them with each other; HEAVY ones streamed and whole."""
    turn = [*MODES].index(mode)
    wires, some = [*WIRES], range(2 if mode in HEAVY else 3)
    return [(wires[(number + turn) % 3], WAYS[(number + turn) % 4], "") for number in some]


@pytest.mark.parametrize("mode", one_in(32, MODES))
def test_a_run_ends_whatever_the_answer_is(mode: str, tmp_path: Path) -> None:
    for case, ended in attacks(tmp_path, mode, pairs(mode)):
        assert ended.attacked, case
        assert ended.run.outcome in OUTCOMES, case
        assert bool(ended.run.error) == (ended.run.outcome != "answered"), case
        assert not ended.tools_called, case
        assert not ended.gave_up, f"{case}: nobody stopped the server"
        assert ended.sent < MOST_SENT, case
        if MODES[mode].answered is not None:
            assert (ended.run.outcome == "answered") == MODES[mode].answered, (case, ended.run.error)
        if MODES[mode].answered:
            assert str(ended.run.answer).startswith("hi"), case
            assert "\ufffd" not in str(ended.run.answer), case


OTHERS = [(name, path) for name, wire in WIRES.items() for path in wire.others]


def other_pairs(mode: str) -> list[tuple[str, Way, str]]:
    """Each other request in one of two ways, by turns; HEAVY modes attack one of them."""
    ways: tuple[Way, Way] = ("run", "stream")
    turn = [*MODES].index(mode)
    some = enumerate(OTHERS[turn % 3 :][:1] if mode in HEAVY else OTHERS)
    return [(wire, ways[(number + turn) % 2], path) for number, (wire, path) in some]


@pytest.mark.parametrize("mode", one_in(32, MODES))
def test_a_run_ends_whatever_other_requests_return(mode: str, tmp_path: Path) -> None:
    for case, ended in attacks(tmp_path, mode, other_pairs(mode)):
        assert ended.attacked, case
        assert ended.run.outcome in OUTCOMES, case
        assert not ended.tools_called, case
        assert not ended.gave_up, f"{case}: nobody stopped the server"
        assert ended.sent < MOST_SENT, case


def test_a_hostile_server_is_found_out_when_a_planner_asks_for_its_model(tmp_path: Path) -> None:
    retry_policy = RetryPolicy(timeout=120.0, retries=0, loading_timeout=0.0)
    wire = WIRES["llama-server"]
    with (
        hostile(MODES["resets"], wire, "/props") as server,
        wire.client(server.url, retry_policy) as backend,
        pytest.raises(BackendError),
    ):
        Planner([TOOL], backend, context=world(tmp_path))


MANY = ["retry_after_year_of_20_digits_503", "error_in_undefined", "cookie_of_latin_1", "resets", "latin_1"]


@pytest.mark.parametrize(("mode", "wire"), [*zip(MANY, cycle(WIRES), strict=False)])
def test_many_runs_end(mode: str, wire: str, tmp_path: Path) -> None:
    retry_policy = RetryPolicy(timeout=120.0, retries=1, backoff=0.001, loading_timeout=0.02)
    with hostile(MODES[mode], WIRES[wire]) as server, WIRES[wire].client(server.url, retry_policy) as backend:
        planner = Planner([TOOL], backend, context=world(tmp_path))
        with ThreadPoolExecutor(3) as threads:
            runs = list(threads.map(planner.run, ["look"] * 3))
    assert all(run.outcome in OUTCOMES for run in runs)


BOMBS = [mode for mode in MODES if mode.startswith("bomb")]
LONG = ["flood_of_line", "flood_of_lines", "flood_of_headers", "flood_of_error", "long_answer"]


@pytest.mark.slow
@pytest.mark.parametrize("way", ["run", "stream"])
@pytest.mark.parametrize("mode", one_in(4, [*BOMBS, *LONG]))
def test_hostile_responses_take_little_memory(mode: str, way: Way, tmp_path: Path) -> None:
    attack(MODES[mode], WIRES["chat"], way, world(tmp_path))  # what is made once, the bomb too
    tracemalloc.start()
    try:
        attack(MODES[mode], WIRES["chat"], way, world(tmp_path))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST_KEPT
