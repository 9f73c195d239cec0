"""Expected calls against calls that were made."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf_bench.call_matching import ActualCall, Assignment, best_assignment, references_of
from gbnf_bench.cases import ExpectedCall, Plan, read_case
from support.executors import bundled_tools

REFERENCES = references_of(tuple(bundled_tools().values()))
PATHS = st.sampled_from(["a", "b", "c"])


def _plan(*calls: dict[str, Any]) -> Plan:
    [plan] = read_case({"id": "x", "query": "q", "calls": list(calls)}).plans
    return plan


def _made(*calls: tuple[str, dict[str, Any]], entries: tuple[str, ...] = ()) -> list[ActualCall]:
    return [ActualCall(step, name, arguments, entries) for step, (name, arguments) in enumerate(calls, 1)]


def _read(path: str) -> tuple[str, dict[str, Any]]:
    return "read_files", {"paths": [path]}


@given(st.lists(PATHS, max_size=4), st.lists(PATHS, max_size=4))
def test_the_assignment_is_as_large_as_can_be(wanted: list[str], given_: list[str]) -> None:
    """Brute force: the most expected calls that any order of the made ones fulfils."""
    plan = tuple(ExpectedCall("read_files", _plan_arguments(path)) for path in wanted)
    found = best_assignment((plan,), _made(*map(_read, given_)), REFERENCES)
    orders = permutations([*given_, *[""] * len(wanted)], len(wanted))
    most = max(sum(map(str.__eq__, wanted, order)) for order in orders)
    assert found is not None
    assert (found.needed, found.exact_matches) == (len(wanted), most)
    assert found.false_positives == len(given_) - most
    assert found.exact_matches <= found.named <= found.needed


def _plan_arguments(path: str) -> Any:
    return _plan({"name": "read_files", "arguments": {"paths": [path]}})[0].arguments


MAIL_CALL = {"to": ["me"], "subject": "x"}
FIND = {"name": "find_files", "arguments": {"base_path": ".", "pattern": "*.md"}}
READ_IT = {"name": "read_files", "arguments": {"from_step": 1}}
FOUND = ("find_files", {"base_path": ".", "pattern": "*.md"})
WRONG = ("find_files", {"base_path": ".", "pattern": "*.txt"})
MAIL = {"name": "send_messages", "arguments": {"to": ["me"], "subject": {}, "from_step": 1}}

MAYBE = {
    "name": "send_messages",
    "arguments": {"to": ["me"], "subject": {}},
    "optional_arguments": {"from_step": 1},
}


@pytest.mark.parametrize(
    ("plan", "made", "expected"),
    [
        ([FIND, READ_IT], [FOUND, ("read_files", {"from_step": 1})], (2, 2, 2, 0)),
        # the reference means the step that made the expected call, whatever its number
        ([FIND, READ_IT], [WRONG, FOUND, ("read_files", {"from_step": 2})], (2, 2, 2, 1)),
        ([FIND, READ_IT], [WRONG, FOUND, ("read_files", {"from_step": 1})], (2, 1, 2, 2)),
        ([FIND, READ_IT], [WRONG, ("read_files", {"from_step": 1})], (2, 0, 2, 2)),
        # the entries written out are as good as the reference
        ([FIND, READ_IT], [FOUND, ("read_files", {"paths": ["a.md", "b.md"]})], (2, 2, 2, 0)),
        ([FIND, READ_IT], [FOUND, ("read_files", {"paths": ["b.md"]})], (2, 1, 2, 1)),
        ([FIND, MAIL], [FOUND, ("send_messages", {**MAIL_CALL, "from_step": 1})], (2, 2, 2, 0)),
        (
            [FIND, MAIL],
            [FOUND, ("send_messages", {**MAIL_CALL, "body": "a.md\nb.md"})],
            (2, 2, 2, 0),
        ),
        ([FIND, MAIL], [FOUND, ("send_messages", {**MAIL_CALL, "body": "a.md"})], (2, 1, 2, 1)),
        # a reference that may be given, whatever the step is that it would mean
        ([FIND, MAYBE], [FOUND, ("send_messages", {**MAIL_CALL, "from_step": 1})], (2, 2, 2, 0)),
        ([FIND, MAYBE], [FOUND, ("send_messages", MAIL_CALL)], (2, 2, 2, 0)),
        ([FIND, MAYBE], [WRONG, ("send_messages", MAIL_CALL)], (2, 1, 2, 1)),
        ([FIND, MAYBE], [WRONG, ("send_messages", {**MAIL_CALL, "from_step": 1})], (2, 0, 2, 2)),
        ([FIND], [("find_files", {**FOUND[1], "patterns": ["*"]})], (1, 0, 1, 1)),
        ([{**FIND, "optional": True}, {"name": "get_now"}], [("get_now", {})], (1, 1, 1, 0)),
        ([{**FIND, "optional": True}, {"name": "get_now"}], [FOUND, ("get_now", {})], (1, 1, 1, 0)),
        ([{"name": "get_now"}], [("get_now", {}), ("get_now", {})], (1, 1, 1, 1)),
        ([{"name": "get_now"}, {"name": "get_now"}], [("get_now", {})], (2, 1, 1, 0)),
        ([{"name": "get_now"}], [], (1, 0, 0, 0)),
    ],
)  # fmt: skip
def test_what_is_right(
    plan: list[dict[str, Any]], made: list[tuple[str, dict[str, Any]]], expected: tuple[int, ...]
) -> None:
    found = best_assignment((_plan(*plan),), _made(*made, entries=("a.md", "b.md")), REFERENCES)
    assert found == Assignment(*expected)


def test_the_plan_that_fits_best_counts() -> None:
    plans = (_plan({"name": "get_now"}, FIND), _plan({"name": "get_now"}))
    assert best_assignment(plans, _made(("get_now", {})), REFERENCES) == Assignment(1, 1, 1, 0)
    assert best_assignment((), _made(("get_now", {})), REFERENCES) is None


def test_overlapping_choices_are_assigned_without_trying_every_order() -> None:
    plan = _plan(
        *(
            {"name": "read_files", "arguments": {"paths": {"enum": [[f"{n}"], [f"{n + 1}"]]}}}
            for n in range(9)
        ),
        {"name": "get_now"},
    )
    made = _made(*[("read_files", {"paths": [f"{number % 10}"]}) for number in range(40)])
    assert best_assignment((plan,), made, REFERENCES) == Assignment(10, 9, 9, 31)


def test_where_every_call_is_optional_none_is_enough() -> None:
    plans = (_plan({"name": "get_now"}), _plan({"name": "compute", "optional": True}))
    assert best_assignment(plans, [], REFERENCES) == Assignment(0, 0, 0, 0)
