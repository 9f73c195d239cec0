"""The two laws of a grammar, and the search for the smallest text that breaks one.

A grammar is *sound* where nothing invalid is in its language unless the report says so, and *complete* where
every valid value, in canonical spelling, is. The same seed tries the same examples.
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
from gbnf.compiler.layout import Whitespace
from gbnf.compiler.report import Finding
from gbnf.errors import GbnfError
from gbnf.testing.canonical import SPELLINGS, canonical_json
from gbnf.testing.derivations import derivations
from gbnf.testing.mutations import NearMiss, near_misses_of
from gbnf.testing.subjects import Subject, ToolsOrSchema, subject

Accepts: TypeAlias = Callable[[str], bool]
"""A judge: whether a text is in the grammar's language."""
Law = Literal["sound", "complete"]
Progress: TypeAlias = Callable[[], None]
"""Called for every example that is tried."""
PropertyOrder = Literal["declared", "any"]

_T = TypeVar("_T")


class NoExampleError(GbnfError, ValueError):
    """No example was found to try a law with: what is asked for is too rare to be come upon."""


@dataclass(frozen=True, slots=True)
class Counterexample:
    """The smallest text found that breaks a law.

    `value` is the JSON value of `text`, None where `text` is no JSON. `engine` says what the judge of the
    grammar made of it, `errors` what the validator did (none: valid). `broken` tells for a near miss what was
    broken, and where. `findings` are those of the report that concern the value.
    """

    law: Law
    text: str
    value: Any
    engine: str
    errors: tuple[str, ...]
    findings: tuple[Finding, ...] = ()
    broken: str = ""

    def __str__(self) -> str:
        said = "; ".join(self.errors) or "valid"
        found = "; ".join(map(str, self.findings)) or "none"
        lines = [f"text: {self.text}", f"grammar: {self.engine}", f"validator: {said}", f"findings: {found}"]
        return "\n".join([*([f"broken: {self.broken}"] if self.broken else []), *lines])


class LawBrokenError(GbnfError, AssertionError):
    """A grammar that isn't sound, or isn't complete; `counterexample` shows it."""

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
    """Raise LawBrokenError if the grammar takes something invalid that the report doesn't explain.

    Tried are `examples` derivations of the grammar, which must be JSON and valid, and as many near misses,
    which must be refused. `of` is what the grammar was compiled from: executors, `FINAL_ANSWER` and
    `ASK_USER` among them where the grammar has them, or a schema; `steps` and `closed` as for the compiler.
    `accepts` judges texts (None: gbnf's own matcher).
    """
    found = find_unsound(
        grammar, subject(of, steps=steps, closed=closed), accepts=accepts, examples=examples, seed=seed
    )
    if found is not None:
        raise LawBrokenError(found)


def assert_complete(
    grammar: Grammar,
    of: ToolsOrSchema,
    *,
    steps: Sequence[int] = (),
    closed: bool | None = None,
    accepts: Accepts | None = None,
    whitespace: Whitespace = "default",
    property_order: PropertyOrder = "declared",
    examples: int = 100,
    seed: int = 0,
) -> None:
    """Raise LawBrokenError if the grammar refuses a valid call or value, in canonical spelling.

    `whitespace` and `property_order` as for the compiler: they say how values are written.
    """
    found = find_incomplete(
        grammar,
        subject(of, steps=steps, closed=closed),
        accepts=accepts,
        whitespace=whitespace,
        property_order=property_order,
        examples=examples,
        seed=seed,
    )
    if found is not None:
        raise LawBrokenError(found)


def find_unsound(
    grammar: Grammar,
    of: Subject,
    *,
    accepts: Accepts | None = None,
    examples: int = 100,
    seed: int = 0,
    progress: Progress | None = None,
) -> Counterexample | None:
    """The smallest text that breaks soundness, of `2 * examples` that are tried; None where none is found."""
    judge = accepts or _own(grammar)

    def wrong_derivation(text: str) -> Counterexample | None:
        if not judge(text):
            return Counterexample("sound", text, None, "refuses its own derivation", ())
        try:
            value = json.loads(text)
        except ValueError as error:
            return Counterexample("sound", text, None, "accepted", (f"no JSON: {error}",))
        return _taken(grammar, of, text, value)

    def wrong_near_miss(miss: NearMiss) -> Counterexample | None:
        text = canonical_json(miss.value)
        if not judge(text):
            return None
        return _taken(grammar, of, text, miss.value, f"{miss.broken} at {miss.pointer or '/'}")

    return _smallest(derivations(grammar), wrong_derivation, examples, seed, progress) or _smallest(
        near_misses_of(of), wrong_near_miss, examples, seed, progress
    )


def find_incomplete(
    grammar: Grammar,
    of: Subject,
    *,
    accepts: Accepts | None = None,
    whitespace: Whitespace = "default",
    property_order: PropertyOrder = "declared",
    examples: int = 100,
    seed: int = 0,
    progress: Progress | None = None,
) -> Counterexample | None:
    """The smallest valid value that is refused, of `examples` that are tried; None where none is found."""
    judge = accepts or _own(grammar)
    shuffled = property_order == "any" and all(one.kind != "declared_order" for one in grammar.report)

    def refused(value: Any) -> Counterexample | None:
        for spelling in SPELLINGS[whitespace]:
            text = spelling(value)
            if not judge(text):
                findings = tuple(one for one in grammar.report if of.concerns(one, value))
                return Counterexample("complete", text, value, "refused", (), findings)
        return None

    drawn = of.valid().flatmap(_reordered) if shuffled else of.valid()
    return _smallest(drawn, refused, examples, seed, progress, "valid value")


def _own(grammar: Grammar) -> Accepts:
    return lambda text: grammar.match(text).complete


def _taken(grammar: Grammar, of: Subject, text: str, value: Any, broken: str = "") -> Counterexample | None:
    """A counterexample where an accepted value is invalid and no finding explains it."""
    errors = of.errors(value)
    findings = tuple(one for one in grammar.report if of.concerns(one, value))
    if not errors or any(one.kind == "unenforced" for one in findings):
        return None
    return Counterexample("sound", text, value, "accepted", errors, findings, broken)


@st.composite
def _reordered(draw: st.DrawFn, value: Any) -> Any:
    """The value with the arguments of a call, or the keys of an object, in any order."""
    if not isinstance(value, dict):
        return value
    if value.keys() == {"name", "arguments"} and isinstance(value["arguments"], dict):
        return {**value, "arguments": dict(draw(st.permutations(list(value["arguments"].items()))))}
    return dict(draw(st.permutations(list(value.items()))))


class _Broken(GbnfError):  # noqa: N818  # it carries a result through Hypothesis, no error
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
    """The smallest example that `check` says is one, after Hypothesis has shrunk it.

    Where there is no example at all, raises NoExampleError if one is `needed`: the word for it.
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
        found = check(example)
        if found is not None:
            raise _Broken(found)

    try:
        law()
    except _Broken as broken:
        return broken.counterexample
    except Unsatisfiable:
        if needed:
            raise NoExampleError(
                f"no {needed} was found to try: test this grammar with texts of yours"
            ) from None
    return None
