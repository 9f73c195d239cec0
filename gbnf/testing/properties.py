"""The two laws of a grammar, and the search for the smallest counterexample.

A grammar is *sound* if its language has no invalid value, except as the report says, and *complete* if it has
every valid value, in canonical spelling. The same seed gives the same examples.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, TypeVar

import hypothesis
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis import strategies as st
from hypothesis.errors import Unsatisfiable

from gbnf.compiler.grammar import Grammar
from gbnf.compiler.layout import PropertyOrder, Whitespace
from gbnf.errors import GbnfError
from gbnf.findings import Finding
from gbnf.testing.derivations import derivations
from gbnf.testing.generation import SPELLINGS, canonical_json
from gbnf.testing.mutations import NearMiss, near_misses_of
from gbnf.testing.subjects import Subject, ToolsOrSchema, subject

Accepts: TypeAlias = Callable[[str], bool]
"""Returns whether a text is in the grammar's language."""
Law = Literal["sound", "complete"]
Progress: TypeAlias = Callable[[], None]
"""Called for every example."""

_ATTEMPTS = 8  # to find more texts than examples that are alike
_T = TypeVar("_T")


class NoExampleError(GbnfError, ValueError):
    """No example was found to test a law with: valid values are too rare."""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """The smallest text found that breaks a law.

    `value` is the JSON value of `text`, None if it is not JSON. `engine`: whether the grammar accepted it.
    `errors`: those of the validator (none: valid). `broken`: for a near miss, the constraint and its
    location.
    `findings`: those of the report that concern the value.
    """

    law: Law
    text: str
    value: Any
    engine: str
    errors: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    broken: str = ""

    def __str__(self) -> str:
        fault = "; ".join(self.errors) or "valid"
        notes = "; ".join(map(str, self.findings)) or "none"
        lines = [f"text: {self.text}", f"grammar: {self.engine}", f"validator: {fault}", f"findings: {notes}"]
        return "\n".join([*([f"broken: {self.broken}"] if self.broken else []), *lines])


class LawBrokenError(GbnfError, AssertionError):
    """A grammar is not sound, or not complete, as `counterexample` shows."""

    def __init__(self, counterexample: Counterexample) -> None:
        self.counterexample = counterexample
        super().__init__(f"the grammar is not {counterexample.law}\n{counterexample}")


def assert_sound(
    grammar: Grammar,
    of: ToolsOrSchema,
    *,
    steps: Sequence[int] = (),
    closed: bool | None = None,
    accepts: Accepts | None = None,
    examples: int = 100,
    seed: int = 0,
) -> None:
    """Raise LawBrokenError if the grammar accepts an invalid value that the report does not explain.

    Tests `examples` derivations of the grammar, which must be valid, and as many near misses, which must be
    refused. `of`: what the grammar was compiled from, a schema or tools, with `FINAL_ANSWER` and `ASK_USER`
    if the grammar has them. `steps` and `closed` as for the compiler. `accepts`: None for gbnf's own matcher.
    """
    counterexample = find_unsound(
        grammar, subject(of, steps=steps, closed=closed), accepts=accepts, examples=examples, seed=seed
    )
    if counterexample is not None:
        raise LawBrokenError(counterexample)


def assert_complete(
    grammar: Grammar,
    of: ToolsOrSchema,
    *,
    steps: Sequence[int] = (),
    closed: bool | None = None,
    accepts: Accepts | None = None,
    whitespace: Whitespace = "default",
    property_order: PropertyOrder = "any",
    examples: int = 100,
    seed: int = 0,
) -> None:
    """Raise LawBrokenError if the grammar refuses a valid call or value, in canonical spelling.

    `whitespace` and `property_order` as for the compiler.
    """
    counterexample = find_incomplete(
        grammar,
        subject(of, steps=steps, closed=closed),
        accepts=accepts,
        whitespace=whitespace,
        property_order=property_order,
        examples=examples,
        seed=seed,
    )
    if counterexample is not None:
        raise LawBrokenError(counterexample)


def find_unsound(
    grammar: Grammar,
    of: Subject,
    *,
    accepts: Accepts | None = None,
    examples: int = 100,
    seed: int = 0,
    progress: Progress | None = None,
) -> Counterexample | None:
    """Return the smallest counterexample to soundness among `2 * examples` texts, None without one."""
    accepted = accepts or _own(grammar)

    def wrong_derivation(text: str) -> Counterexample | None:
        if not accepted(text):
            return Counterexample("sound", text, None, "refuses its own derivation", ())
        try:
            value = json.loads(text)
        except ValueError as error:
            return Counterexample("sound", text, None, "accepted", (f"not JSON: {error}",))
        return _unexplained(grammar, of, text, value)

    def wrong_near_miss(miss: NearMiss) -> Counterexample | None:
        text = canonical_json(miss.value)
        if not accepted(text):
            return None
        return _unexplained(grammar, of, text, miss.value, f"{miss.broken} at {miss.pointer or '/'}")

    return _smallest(derivations(grammar), wrong_derivation, examples, seed, progress) or _smallest(
        near_misses_of(of), wrong_near_miss, examples, seed, progress
    )


def find_incomplete(
    grammar: Grammar,
    of: Subject,
    *,
    accepts: Accepts | None = None,
    whitespace: Whitespace = "default",
    property_order: PropertyOrder = "any",
    examples: int = 100,
    seed: int = 0,
    progress: Progress | None = None,
) -> Counterexample | None:
    """Return the smallest valid value that is refused among `examples` values, None without one."""
    accepted = accepts or _own(grammar)

    def refused(value: Any) -> Counterexample | None:
        for spelling in SPELLINGS[whitespace]:
            text = spelling(value)
            if not accepted(text):
                findings = tuple(finding for finding in grammar.report if of.concerns(finding, value))
                return Counterexample("complete", text, value, "refused", (), findings)
        return None

    drawn = of.valid().flatmap(_reordered) if property_order == "any" else of.valid()
    return _smallest(drawn, refused, examples, seed, progress, "valid value")


def _own(grammar: Grammar) -> Accepts:
    return lambda text: grammar.match(text).complete


def _unexplained(
    grammar: Grammar, of: Subject, text: str, value: Any, broken: str = ""
) -> Counterexample | None:
    """Return a counterexample if an accepted value is invalid and no finding explains it."""
    errors = of.errors(value)
    findings = tuple(finding for finding in grammar.report if of.concerns(finding, value))
    if not errors or any(finding.kind == "unenforced" for finding in findings):
        return None
    return Counterexample("sound", text, value, "accepted", errors, findings, broken)


@st.composite
def _reordered(draw: st.DrawFn, value: Any) -> Any:
    """Draw an order of a call's arguments, or of an object's keys."""
    if not isinstance(value, dict):
        return value
    if value.keys() == {"name", "arguments"} and isinstance(value["arguments"], dict):
        return {**value, "arguments": dict(draw(st.permutations(list(value["arguments"].items()))))}
    return dict(draw(st.permutations(list(value.items()))))


def sample(grammar: Grammar, count: int, *, seed: int = 0) -> list[str]:
    """Return up to `count` different texts of the language, which short ones are likelier among.

    There are fewer if it has, or if more are hard to find. Raises GrammarError as `derivations` does.
    """
    strategy, texts = derivations(grammar), dict[str, None]()
    for attempt in range(_ATTEMPTS):
        if len(texts) < count:
            _smallest(
                strategy, lambda text: texts.update({text: None}), count, seed * _ATTEMPTS + attempt, None
            )
    return list(texts)[:count]


class _BrokenError(GbnfError):  # carries a result through Hypothesis
    def __init__(self, counterexample: Counterexample) -> None:
        self.counterexample = counterexample
        super().__init__()


def _smallest(
    strategy: st.SearchStrategy[_T],
    check: Callable[[_T], Counterexample | None],
    examples: int,
    seed: int,
    progress: Progress | None,
    needed: str = "",
) -> Counterexample | None:
    """Return the smallest counterexample that `check` returns, shrunk by Hypothesis.

    `needed`: the word for examples, if their absence raises NoExampleError.
    """

    @hypothesis.seed(seed)
    @settings(
        max_examples=examples,
        database=None,
        deadline=None,
        derandomize=False,
        report_multiple_bugs=False,
        verbosity=Verbosity.quiet,
        phases=(Phase.generate, Phase.shrink),
        suppress_health_check=list(HealthCheck),
    )
    @hypothesis.given(strategy)
    def law(example: _T) -> None:
        if progress is not None:
            progress()
        counterexample = check(example)
        if counterexample is not None:
            raise _BrokenError(counterexample)

    try:
        law()
    except _BrokenError as broken:
        return broken.counterexample
    except Unsatisfiable:
        if needed:
            raise NoExampleError(f"no {needed} was found. Test this grammar with your own texts.") from None
    return None
