"""Which of a run's calls are those that a case expects: pure, from plans and calls to an assignment."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from gbnf.manifests import Executor
from gbnf_server.bench.cases import ExpectedCall, Plan
from gbnf_server.bench.patterns import Equals, OneOf, Optional, Pattern, exact_number, fits_members

References: TypeAlias = Mapping[str, Mapping[str, tuple[str | None, bool]]]
"""Tool -> its arguments that take a step's number -> the argument that each fills, and whether it is text."""


@dataclass(frozen=True, slots=True)
class MadeCall:
    """A call that a run executed: its step, what the model wrote, and the entries that came of it."""

    step: int
    name: str
    arguments: Mapping[str, Any]
    entries: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Assignment:
    """How well calls fit a plan. Of the `needed` calls, `right` were made, and `named` at least by name.

    `stray` calls were made and fit nothing of the plan.
    """

    needed: int
    right: int
    named: int
    stray: int


def references_of(tools: Sequence[Executor]) -> dict[str, dict[str, tuple[str | None, bool]]]:
    """The step references of these tools."""
    return {
        tool.name: {
            name: (target, tool.args["properties"].get(target or "", {}).get("type") == "string")
            for name, target in tool.step_references.items()
        }
        for tool in tools
        if tool.step_references
    }


def best(plans: Sequence[Plan], made: Sequence[MadeCall], references: References) -> Assignment | None:
    """The assignment to the plan that fits best; None where there is no plan."""
    found = [_assign(plan, made, references) for plan in plans]
    return max(found, key=lambda each: (each.right / max(1, each.needed), -each.stray), default=None)


def _assign(plan: Plan, made: Sequence[MadeCall], references: References) -> Assignment:
    """The assignment with most needed calls, then most optional ones, then least strays by their names."""
    chosen = _search(plan, made, references, (), frozenset())
    needed = [index for index, call in enumerate(plan) if not call.optional]
    right = sum(chosen[index] is not None for index in needed)
    used = sum(each is not None for each in chosen)
    names = [call.name for call in made]
    named = 0
    for index in needed:
        if plan[index].name in names:
            names.remove(plan[index].name)
            named += 1
    return Assignment(len(needed), right, max(named, right), len(made) - used)


_Chosen: TypeAlias = tuple[int | None, ...]


def _search(
    plan: Plan, made: Sequence[MadeCall], references: References, chosen: _Chosen, used: frozenset[int]
) -> _Chosen:
    """The best completion of `chosen`, which gives the first expected calls a made call each, or none."""
    if len(chosen) == len(plan):
        return chosen
    earlier = [None if each is None else made[each] for each in chosen]
    fitting: list[int | None] = [
        index
        for index, call in enumerate(made)
        if index not in used and _fits(plan[len(chosen)], call, references, earlier)
    ]
    completions = (
        _search(plan, made, references, (*chosen, index), used if index is None else used | {index})
        for index in [*fitting, None]
    )
    return max(completions, key=lambda each: _worth(plan, each))


def _worth(plan: Plan, chosen: _Chosen) -> tuple[int, int]:
    pairs = list(zip(plan, chosen, strict=True))
    return (
        sum(index is not None for call, index in pairs if not call.optional),
        sum(index is not None for call, index in pairs if call.optional),
    )


def _fits(
    expected: ExpectedCall, call: MadeCall, references: References, earlier: Sequence[MadeCall | None]
) -> bool:
    """Whether the call is the expected one, by reference or with the referred entries written out."""
    if expected.name != call.name:
        return False
    referring, written_out = dict(expected.arguments), dict(expected.arguments)
    for name, (target, is_text) in references.get(call.name, {}).items():
        number = exact_number(expected.arguments.get(name))
        if number is None:
            continue
        source = earlier[number - 1]
        if source is None or source.step >= call.step:
            return isinstance(expected.arguments[name], Optional) and fits_members(
                {**expected.arguments, name: _ABSENT}, call.arguments
            )
        step: Pattern = Equals(source.step)
        referring[name] = Optional(step) if isinstance(expected.arguments[name], Optional) else step
        if target is not None:
            written_out[name] = _ABSENT
            written_out[target] = Equals("\n".join(source.entries) if is_text else list(source.entries))
    return fits_members(referring, call.arguments) or fits_members(written_out, call.arguments)


_ABSENT: Pattern = Optional(OneOf(()))
