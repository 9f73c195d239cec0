"""A case as a value: the request, the initial state, and the expected calls, state and answer.

`read_case` creates cases from the tables of suite files and of the Python functions. `source` is that table
with defaults, stored with the runs of the case; reading it again gives an equal case.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from datetime import date, datetime
from typing import Any, Literal, TypeAlias
from zoneinfo import ZoneInfo

from gbnf.tools import ASK_USER, FINAL_ANSWER, Tool
from gbnf_bench.errors import KeyPath, SuiteFieldError
from gbnf_bench.expectations import (
    ADDRESSES,
    MOMENT,
    TEXT,
    Expectation,
    accepts,
    read_expectation,
)
from gbnf_bench.paths import all_inside, check_after, check_before, keyed_inside

Complexity: TypeAlias = Literal["simple", "medium", "complex", "ambiguous"]
COMPLEXITIES: tuple[Complexity, ...] = ("simple", "medium", "complex", "ambiguous")

NOW, TIMEZONE, USER_EMAIL = "2026-11-21T10:32", "Europe/Rome", "me@example.com"
"""Defaults: the time, a Saturday; its time zone; the address of the person."""

MAX_STEPS = 12
SPARE_STEPS = 2
"""Default number of acceptable steps beyond the minimum."""

ABSTENTION_TOOLS = frozenset({FINAL_ANSWER.name, ASK_USER.name, "request_new_executor"})
"""Tools that a model may call although no tool fits."""


@dataclass(frozen=True, slots=True)
class ExpectedCall:
    """An expected call. It must have all of `arguments`, may have `optional_arguments`, and no others.

    An integer that is expected for a step reference is the number of an expected call in the plan, from 1. It
    stands for the step that made that call, whatever its number in the run.
    """

    name: str
    arguments: Mapping[str, Expectation]
    optional_arguments: Mapping[str, Expectation] = field(default_factory=dict)
    optional: bool = False

    @property
    def expectations(self) -> Mapping[str, Expectation]:
        """All allowed arguments, with the expectation for each."""
        return {**self.arguments, **self.optional_arguments}

    def schema(self) -> Expectation:
        """Return the schema of the accepted arguments."""
        return {
            "type": "object",
            "properties": dict(self.expectations),
            "required": list(self.arguments),
            "additionalProperties": False,
        }

    def accepts(self, arguments: Mapping[str, Any]) -> bool:
        """Return whether a call with these arguments is the expected one."""
        return accepts(self.schema(), arguments)

    def replacing(self, name: str, value: Any) -> ExpectedCall:
        """Return this call with another value for one of its arguments."""
        changed = {name: {"const": value}}
        if name in self.arguments:
            return replace(self, arguments={**self.arguments, **changed})
        return replace(self, optional_arguments={**self.optional_arguments, **changed})

    def without(self, name: str) -> ExpectedCall:
        """Return this call without one of its arguments."""
        return replace(
            self,
            arguments={key: value for key, value in self.arguments.items() if key != name},
            optional_arguments={key: value for key, value in self.optional_arguments.items() if key != name},
        )


Plan: TypeAlias = tuple[ExpectedCall, ...]


@dataclass(frozen=True, slots=True)
class InitialState:
    """The state before a run; the suite format describes the fields."""

    files: Mapping[str, str] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    events: tuple[Mapping[str, str], ...] = ()
    calls: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True)
class ExpectedState:
    """An expected state after a run. With `others`, other changes are allowed."""

    files: Mapping[str, Expectation] = field(default_factory=dict)
    folders: tuple[str, ...] = ()
    gone: tuple[str, ...] = ()
    events: tuple[Mapping[str, Expectation], ...] = ()
    gone_events: tuple[Mapping[str, Expectation], ...] = ()
    messages: tuple[Mapping[str, Expectation], ...] = ()
    gone_messages: tuple[Mapping[str, Expectation], ...] = ()
    others: bool = False


@dataclass(frozen=True, slots=True)
class PersonScript:
    """The person's answers: `choose` counts options from 1, `answers` are by kind or by name."""

    choose: int = 1
    answers: Mapping[str, Any] = field(default_factory=dict)
    approve: bool = True


@dataclass(frozen=True, slots=True, eq=False)
class Case:
    """One request with its initial state and what is expected. Made by `read_case`.

    `pool` None: all tools. `plans`: expected calls, one plan is enough; empty with `abstain`, or if only the
    state and the answer are compared. `least_steps` and `most_steps` count the answer.
    `checks_calls`: neither a state nor an answer is expected, so calls are compared.
    """

    id: str
    query: str
    language: str
    complexity: Complexity
    tags: tuple[str, ...]
    pool: tuple[str, ...] | None
    decoys: tuple[str, ...]
    first: frozenset[str]
    plans: tuple[Plan, ...]
    least_steps: int
    most_steps: int
    abstain: bool
    before: InitialState
    script: PersonScript
    after: tuple[ExpectedState, ...]
    answer: Expectation | None
    checks_calls: bool
    now: datetime
    user_email: str
    max_steps: int
    source: Mapping[str, Any]

    def tools(self, tools: tuple[Tool, ...], decoys: tuple[Tool, ...]) -> tuple[Tool, ...]:
        """Return the pool: the manifests' tools that the case names, and its decoys, in name order."""
        offered = [tool for tool in tools if self.pool is None or tool.name in self.pool]
        offered += [tool for tool in decoys if tool.name in self.decoys]
        return tuple(sorted(offered, key=lambda tool: tool.name))


@dataclass(frozen=True, slots=True, eq=False)
class Suite:
    """Cases under one name, and the decoys that they may add to their pools."""

    name: str
    description: str
    cases: tuple[Case, ...]
    decoys: tuple[Tool, ...] = ()


def read_case(table: Mapping[str, Any]) -> Case:
    """Return the case that a table of the suite format describes; its keys and types must have been checked.

    Raises SuiteFieldError, located inside the table.
    """
    abstain = bool(table.get("abstain", False))
    plans = _plans(table)
    after = tuple(_after(state, key_path) for state, key_path in expected_states(table))
    answer = read_expectation(table["answer"], ("answer",), TEXT) if "answer" in table else None
    _check_intent(table, plans, abstain=abstain)
    checks_calls = not abstain and "after" not in table and answer is None
    least, most = _steps(table, plans, checks_calls=checks_calls)
    person = table.get("person", {})
    max_steps = int(table.get("max_steps", MAX_STEPS))
    if max_steps < (needed := max(least, _needed_steps(plans))):
        raise SuiteFieldError(
            ("max_steps",), max_steps, f"the calls and the answer take {needed} steps",
            "Allow as many, or expect fewer calls.",
        )  # fmt: skip
    return Case(
        id=table["id"],
        query=table["query"],
        language=table.get("language", "en"),
        complexity=table.get("complexity", _complexity(plans)),
        tags=tuple(table.get("tags", ())),
        pool=None if table.get("pool", "all") == "all" else tuple(table["pool"]),
        decoys=tuple(table.get("decoys", ())),
        first=frozenset(table.get("first", _first(plans))),
        plans=plans,
        least_steps=least,
        most_steps=most,
        abstain=abstain,
        before=_before(table.get("before", {})),
        script=PersonScript(**{**person, "choose": int(person.get("choose", 1))}),
        after=after,
        answer=answer,
        checks_calls=checks_calls,
        now=_now(table),
        user_email=table.get("user_email", USER_EMAIL),
        max_steps=max_steps,
        source=dict(table),
    )


def _plans(table: Mapping[str, Any]) -> tuple[Plan, ...]:
    if "calls" in table and "plans" in table:
        raise SuiteFieldError(
            ("plans",), None, "calls and plans are both given", "Move the calls into plans."
        )
    plans: dict[KeyPath, Any] = {
        ("plans", index): calls for index, calls in enumerate(table.get("plans", ()))
    }
    if "calls" in table:
        plans = {("calls",): table["calls"]}
    return tuple(
        tuple(_expected_call(call, (*key_path, index)) for index, call in enumerate(calls))
        for key_path, calls in plans.items()
    )


def _expected_call(call: Mapping[str, Any], key_path: KeyPath) -> ExpectedCall:
    required, optional = (
        {name: read_expectation(value, (*key_path, key, name)) for name, value in call.get(key, {}).items()}
        for key in ("arguments", "optional_arguments")
    )
    for name in required.keys() & optional.keys():
        raise SuiteFieldError(
            (*key_path, "optional_arguments", name), None, "the argument is in arguments too",
            "Remove one of them.",
        )  # fmt: skip
    return ExpectedCall(call["name"], required, optional, optional=call.get("optional", False))


def _steps(table: Mapping[str, Any], plans: tuple[Plan, ...], *, checks_calls: bool) -> tuple[int, int]:
    needed = _needed_steps(plans)
    steps = table.get("steps", needed)
    if isinstance(steps, int | float):
        least, most = int(steps), int(steps) + SPARE_STEPS
    else:
        least, most = map(int, steps)
    if least > most:
        raise SuiteFieldError(
            ("steps",), steps, "the minimum exceeds the maximum", "Write [minimum, maximum]."
        )
    if checks_calls and least < needed:  # if the state or the answer is compared, there may be a shorter plan
        raise SuiteFieldError(
            ("steps",), steps, f"the calls and the answer take {needed} steps",
            "Correct the number, or omit it.",
        )  # fmt: skip
    return least, most


def _needed_steps(plans: tuple[Plan, ...]) -> int:
    """Return the calls of the shortest plan, and the answer."""
    return min((sum(not call.optional for call in plan) for plan in plans), default=0) + 1


def _check_intent(table: Mapping[str, Any], plans: tuple[Plan, ...], *, abstain: bool) -> None:
    if abstain and plans:
        raise SuiteFieldError(
            ("abstain",), True, "a case that abstains has expected calls",
            "Remove calls and plans, or abstain.",
        )  # fmt: skip
    if not (abstain or plans or "after" in table or "answer" in table):
        raise SuiteFieldError(
            (), None, "nothing is expected",
            "Give calls, after, answer, or abstain = true.",
        )  # fmt: skip
    if not (abstain or plans or "first" in table):
        raise SuiteFieldError((), None, "no tool is expected to come first", "Give calls, plans or first.")
    if not (abstain or plans or "steps" in table):
        raise SuiteFieldError((), None, "the number of steps is missing", "Give calls, plans or steps.")


def _complexity(plans: tuple[Plan, ...]) -> Complexity:
    calls = _needed_steps(plans) - 1
    return "simple" if calls <= 1 else "medium" if calls == 2 else "complex"


def _first(plans: tuple[Plan, ...]) -> list[str]:
    """Return the first call of each plan, with those before it that are optional."""
    names = []
    for plan in plans:
        for call in plan:
            names.append(call.name)
            if not call.optional:
                break
    return names


def _before(table: Mapping[str, Any]) -> InitialState:
    for index, event in enumerate(table.get("events", ())):
        start, end = (_moment(event[key], ("before", "events", index, key)) for key in ("start", "end"))
        if isinstance(start, datetime) != isinstance(end, datetime) or not start < end:
            raise SuiteFieldError(
                ("before", "events", index), dict(event), "the event does not end after it starts",
                "Give two times, or two dates, in order.",
            )  # fmt: skip
    files = keyed_inside(table.get("files", {}), ("before", "files"))
    folders = all_inside(table.get("folders", ()), ("before", "folders"))
    check_before(files, folders, ("before",))
    return InitialState(
        files=files,
        folders=folders,
        events=tuple(table.get("events", ())),
        calls=tuple(table.get("calls", ())),
    )


_COMPARED = {"start": MOMENT, "end": MOMENT, "to": ADDRESSES}
"""Fields of events and messages that are not plain text."""


def expected_states(table: Mapping[str, Any]) -> list[tuple[Mapping[str, Any], KeyPath]]:
    """Return the expected states of a case, each a table and its location.

    There may be one, or several in an array.
    """
    states = table.get("after", {})
    if isinstance(states, Mapping):
        return [(states, ("after",))]
    return [(state, ("after", index)) for index, state in enumerate(states)]


def _after(table: Mapping[str, Any], key_path: KeyPath) -> ExpectedState:
    def rows(key: str) -> tuple[Mapping[str, Expectation], ...]:
        return tuple(
            {
                name: read_expectation(value, (*key_path, key, index, name), _COMPARED.get(name, TEXT))
                for name, value in row.items()
            }
            for index, row in enumerate(table.get(key, ()))
        )

    texts = {
        path: read_expectation(value, (*key_path, "files", path), TEXT)
        for path, value in table.get("files", {}).items()
    }
    files = keyed_inside(texts, (*key_path, "files"))
    folders, gone = (all_inside(table.get(key, ()), (*key_path, key)) for key in ("folders", "gone"))
    check_after(files, folders, gone, key_path)
    return ExpectedState(
        files=files,
        folders=folders,
        gone=gone,
        events=rows("events"),
        gone_events=rows("gone_events"),
        messages=rows("messages"),
        gone_messages=rows("gone_messages"),
        others=table.get("others", False),
    )


def _now(table: Mapping[str, Any]) -> datetime:
    name = table.get("timezone", TIMEZONE)
    try:
        zone = ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise SuiteFieldError(
            ("timezone",), name, "not an IANA time zone", "Write one like Europe/Rome."
        ) from None
    moment = _moment(table.get("now", NOW), ("now",))
    if not isinstance(moment, datetime):
        raise SuiteFieldError(("now",), table["now"], "the time of day is missing", f"Write it like {NOW}.")
    return moment.replace(tzinfo=zone)


def _moment(text: str, key_path: KeyPath) -> datetime | date:
    """Return a local time, or a whole day."""
    try:
        moment = datetime.fromisoformat(text) if "T" in text else date.fromisoformat(text)
    except ValueError:
        raise SuiteFieldError(key_path, text, "not a time", f"Write it like {NOW}, or {NOW[:10]}.") from None
    if isinstance(moment, datetime) and moment.tzinfo is not None:
        raise SuiteFieldError(key_path, text, "a local time has no offset", f"Write it like {NOW}.")
    return moment
