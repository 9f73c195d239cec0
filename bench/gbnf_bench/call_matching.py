"""Match the calls of a run with the expected calls of a case. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from gbnf.tools import Tool
from gbnf_bench.cases import ExpectedCall, Plan
from gbnf_bench.expectations import step_number

References: TypeAlias = Mapping[str, Mapping[str, tuple[str | None, bool]]]
"""Tool -> its step references -> the argument that each fills, and whether that is a string."""


@dataclass(frozen=True, slots=True)
class ActualCall:
    """A call that a run executed: its step, the model's arguments, and the entries of its result."""

    step: int
    name: str
    arguments: Mapping[str, Any]
    entries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """How well calls match a plan.

    Of the `needed` calls, `exact_matches` were made, and `named` at least by name; `false_positives` executed
    calls match nothing in the plan.
    """

    needed: int
    exact_matches: int
    named: int
    false_positives: int


def references_of(tools: Sequence[Tool]) -> dict[str, dict[str, tuple[str | None, bool]]]:
    """Return the step references of these tools."""
    return {
        tool.name: {
            name: (target, tool.args["properties"].get(target or "", {}).get("type") == "string")
            for name, target in tool.step_references.items()
        }
        for tool in tools
        if tool.step_references
    }


def best_assignment(
    plans: Sequence[Plan], actual: Sequence[ActualCall], references: References
) -> Assignment | None:
    """Return the assignment to the plan that matches best; None if there is no plan."""
    assignments = [_assign(plan, actual, references) for plan in plans]
    return max(
        assignments,
        key=lambda tried: (
            tried.exact_matches / tried.needed if tried.needed else 1.0,
            -tried.false_positives,
        ),
        default=None,
    )


def _assign(plan: Plan, actual: Sequence[ActualCall], references: References) -> Assignment:
    """Return the assignment with most needed calls, then most optional ones, then fewest false positives."""
    chosen = _search(plan, actual, references)
    needed = [index for index, call in enumerate(plan) if not call.optional]
    exact_matches = sum(chosen[index] is not None for index in needed)
    used = sum(place is not None for place in chosen)
    names = [call.name for call in actual]
    named = 0
    for index in needed:
        if plan[index].name in names:
            names.remove(plan[index].name)
            named += 1
    return Assignment(len(needed), exact_matches, max(named, exact_matches), len(actual) - used)


_Chosen: TypeAlias = tuple[int | None, ...]


def _search(plan: Plan, actual: Sequence[ActualCall], references: References) -> _Chosen:
    """Assign a made call or none to each expected call, so that as many as possible have one.

    Calls that others refer to are assigned by search, the others by a maximum matching.
    """
    referred = sorted({number - 1 for call in plan for number in _referred(call, references)})
    best_assignment: _Chosen = (None,) * len(plan)
    for tried in _tries(plan, actual, references, referred, {}):
        matched = _matched(plan, actual, references, tried)
        if _worth(plan, matched) > _worth(plan, best_assignment):
            best_assignment = matched
        if None not in best_assignment:
            break
    return best_assignment


def _tries(
    plan: Plan,
    actual: Sequence[ActualCall],
    references: References,
    places: Sequence[int],
    tried: Mapping[int, int | None],
) -> Iterator[Mapping[int, int | None]]:
    """Yield each assignment of different matching calls, or none, to these expected calls."""
    if not places:
        yield tried
        return
    place, *others = places
    calls = _calls(tried, actual, place)
    for index, call in enumerate(actual):
        if index not in tried.values() and _fits(plan[place], call, references, calls):
            yield from _tries(plan, actual, references, others, {**tried, place: index})
    yield from _tries(plan, actual, references, others, {**tried, place: None})


def _matched(
    plan: Plan,
    actual: Sequence[ActualCall],
    references: References,
    tried: Mapping[int, int | None],
) -> _Chosen:
    """Extend the assignment found by search to as many other calls as possible, required ones first."""
    places = sorted(set(range(len(plan))) - tried.keys(), key=lambda place: plan[place].optional)
    free = [index for index in range(len(actual)) if index not in tried.values()]
    calls = _calls(tried, actual, len(plan))
    chosen = maximum_matching(
        len(places),
        len(free),
        lambda place, index: _fits(plan[places[place]], actual[free[index]], references, calls),
    )
    indices = {**tried, **{places[place]: free[index] for place, index in chosen.items()}}
    return tuple(indices.get(place) for place in range(len(plan)))


def _calls(
    tried: Mapping[int, int | None], actual: Sequence[ActualCall], places: int
) -> list[ActualCall | None]:
    """Return the call assigned by search to each of the first `places` expected ones, or None."""
    return [actual[index] if (index := tried.get(place)) is not None else None for place in range(places)]


def _referred(call: ExpectedCall, references: References) -> Iterator[int]:
    """Return the numbers of the expected calls that this one refers to."""
    for name in references.get(call.name, {}):
        number = step_number(call.expectations.get(name))
        if number is not None:
            yield number


def _worth(plan: Plan, chosen: _Chosen) -> tuple[int, int]:
    pairs = list(zip(plan, chosen, strict=True))
    return (
        sum(index is not None for call, index in pairs if not call.optional),
        sum(index is not None for call, index in pairs if call.optional),
    )


def _fits(
    expected: ExpectedCall, call: ActualCall, references: References, earlier: Sequence[ActualCall | None]
) -> bool:
    """Return whether the call is the expected one, by reference or with the referred entries written out."""
    if expected.name != call.name:
        return False
    referring = written_out = expected
    for name, (target, is_text) in references.get(call.name, {}).items():
        number = step_number(expected.expectations.get(name))
        if number is None:
            continue
        source = earlier[number - 1]
        if source is None or source.step >= call.step:
            return name in expected.optional_arguments and expected.without(name).accepts(call.arguments)
        referring = referring.replacing(name, source.step)
        if target is not None:
            entries = "\n".join(source.entries) if is_text else list(source.entries)
            written_out = written_out.without(name).without(target)
            written_out = replace(
                written_out, arguments={**written_out.arguments, target: {"const": entries}}
            )
    return referring.accepts(call.arguments) or written_out.accepts(call.arguments)


def maximum_matching(seekers: int, offers: int, fits: Callable[[int, int], bool]) -> dict[int, int]:
    """Return seeker -> offer, for as many seekers as possible, in the order of the offers.

    Both are counted from 0; `fits(seeker, offer)`. Among equal matchings, the first seekers and offers are
    preferred.
    """
    owner: dict[int, int] = {}

    def assign(seeker: int, tried: set[int]) -> bool:
        for offer in range(offers):
            if offer not in tried and fits(seeker, offer):
                tried.add(offer)
                if offer not in owner or assign(owner[offer], tried):
                    owner[offer] = seeker
                    return True
        return False

    for seeker in range(seekers):
        assign(seeker, set())
    return {seeker: offer for offer, seeker in sorted(owner.items(), key=lambda pair: pair[1])}
