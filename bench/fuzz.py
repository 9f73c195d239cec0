"""Fuzz the targets with fresh random inputs, and report each failure with its smallest input.

    python bench/fuzz.py [--minutes N] [--target NAME]… [--seed N] [--json FILE]

The targets are in `fuzz_targets`; the time is shared equally between them. Hypothesis generates and shrinks
the inputs in this process, and each is checked in another one with limits on time and memory, so that an
abort of the engine, a hang and excessive memory use are failures like others. A failure is identified by its
exception and by where it was raised, and is reported once, as a program that reproduces it. Exits with status
1 if a failure was found.
"""

from __future__ import annotations

import json
import math
import secrets
import time
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cache, partial
from pathlib import Path
from pprint import pformat
from typing import Annotated, Any

import hypothesis
import typer
from hypothesis import HealthCheck, Phase, Verbosity, settings
from hypothesis.errors import Flaky
from rich.table import Table

import checkout
from fuzz_targets import TARGETS, Target
from isolation import Confined, Crashed, Finished, Outcome, TimedOut
from support.oracle import engine
from tables import new_table, show

LIMIT_S = 8.0
"""Seconds for one input: far more than any needs. One that takes longer is tried again."""
MEMORY_MIB = 1024
_ROUND = 200  # inputs that come from one seed
_SLICE_S = 20.0  # of one target, before it is the next one's turn
_SHRINKING_S = 30.0  # beyond a slice, for what was found in it


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure, where it was raised, and the smallest of the `cases` that reproduce it."""

    error: str
    place: str
    case: Any
    cases: int = 1

    @property
    def key(self) -> tuple[str, str]:
        """The type of the error and where it was raised."""
        return self.error.partition(":")[0], self.place

    def program(self, target: str) -> str:
        """Return a Python program that repeats the failure, with bench/ and tests/ on its path."""
        numbers = "from math import inf, nan\n\n" if _holds_odd_number(self.case) else ""
        case = pformat(self.case, width=100, sort_dicts=False)
        return f"from fuzz_targets import TARGETS\n{numbers}\nTARGETS[{target!r}].check({case})"


@dataclass(slots=True)
class Tally:
    """What is known of one target: inputs tried, what came of those that passed, and the failures."""

    tried: int = 0
    rounds: int = 0
    seconds: float = 0.0
    passed: Counter[str] = field(default_factory=Counter)
    failures: dict[tuple[str, str], Failure] = field(default_factory=dict)


class _Failed(Exception):  # noqa: N818  # it tells Hypothesis to shrink, and is no error of this program
    """An input failed."""


class _TimeIsUp(BaseException):  # as above; Hypothesis lets pass what is no `Exception`
    """The time for a target is over."""


@cache
def _failed(_key: tuple[str, str]) -> type[_Failed]:
    """Return an exception for each failure: Hypothesis takes those of one type and line for the same."""
    return type("_Failed", (_Failed,), {})


def fuzz(
    targets: Sequence[Target],
    *,
    seconds: float,
    seed: int,
    limit_s: float = LIMIT_S,
    memory_mib: int = MEMORY_MIB,
    examples: int = _ROUND,
    progress: Callable[[str], None] = lambda _: None,
) -> dict[str, Tally]:
    """Try fresh inputs of each target, for so many seconds together. The same seed gives the same inputs.

    Each target has its turn, even where shrinking what others have found took all the time.
    """
    tallies = {target.name: Tally() for target in targets}
    end = time.monotonic() + seconds
    slice_s = min(_SLICE_S, seconds / len(targets))
    while time.monotonic() < end or not all(tally.rounds for tally in tallies.values()):
        target = min(targets, key=lambda item: tallies[item.name].seconds)
        tally = tallies[target.name]
        begun = time.monotonic()
        with Confined(partial(checked, target.check), limit_s=limit_s, memory_mib=memory_mib) as confined:
            search = _Search(target, tally, confined, end=begun + slice_s)
            search.run(f"{seed} {target.name} {tally.rounds}", examples)
        tally.rounds += 1
        tally.seconds += time.monotonic() - begun
        for failure in search.new.values():
            progress(f"{target.name}: {failure.error} at {failure.place}")
    return tallies


class _Search:
    """One round over one target: inputs from one seed, and the smallest of those that fail anew."""

    def __init__(self, target: Target, tally: Tally, confined: Confined[Any], end: float) -> None:
        self._target, self._tally, self._confined, self._end = target, tally, confined, end
        self._known = frozenset(tally.failures)
        self.new: dict[tuple[str, str], Failure] = {}

    def run(self, seed: str, examples: int) -> None:
        """Check `examples` inputs with this seed, and collect the failures in `new`."""
        law = settings(
            max_examples=examples,
            database=None,
            deadline=None,
            derandomize=False,
            verbosity=Verbosity.quiet,
            phases=(Phase.generate, Phase.shrink),
            suppress_health_check=list(HealthCheck),
        )(hypothesis.seed(seed)(hypothesis.given(self._target.cases)(self._try)))
        with suppress(_TimeIsUp, _Failed, Flaky):
            try:
                law()
            except BaseExceptionGroup as several:
                others = several.split((_Failed, Flaky))[1]
                if others is not None:
                    raise others from None

    def _try(self, case: Any) -> None:
        # a target that has not been tried yet has its turn, however late
        if self._tally.tried and time.monotonic() > self._end + (_SHRINKING_S if self.new else 0.0):
            raise _TimeIsUp
        self._tally.tried += 1
        outcome = self._outcome(case)
        if isinstance(outcome, Finished) and "passed" in outcome.value:
            self._tally.passed[outcome.value["passed"]] += 1
            return
        failure = _failure(outcome, case)
        before = self._tally.failures.get(failure.key)
        if before is not None:
            is_known = failure.key in self._known
            smaller = before if is_known or len(repr(case)) > len(repr(before.case)) else failure
            failure = replace(smaller, cases=before.cases + 1)
        self._tally.failures[failure.key] = failure
        if failure.key in self._known:
            return  # what comes behind it is still to be found
        self.new[failure.key] = failure
        raise _failed(failure.key)

    def _outcome(self, case: Any) -> Outcome:
        """Return what comes of the case; tried again in a new process where the last one may be to blame."""
        outcome = self._confined.attempt(case)
        if isinstance(outcome, Finished) and "MemoryError" not in outcome.value.get("error", ""):
            return outcome
        if _failure(outcome, case).key in self._known:
            return outcome
        self._confined.renew()
        return self._confined.attempt(case)


def checked(check: Callable[[Any], str], case: Any) -> dict[str, str]:
    """Return the outcome of a check: `passed` with its label, or `error` and where it was raised."""
    try:
        return {"passed": check(case)}
    except BaseException as error:  # noqa: BLE001  # a panic in native code is no Exception
        message = " ".join(f"{type(error).__name__}: {error}".split())
        return {"error": message[:500], "place": _place(error)}


def _place(error: BaseException) -> str:
    """Where in this checkout the error was raised; of a recursion without end, where it was begun."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if frame.filename.startswith(f"{checkout.ROOT}/") and "site-packages" not in frame.filename
    ]
    frame = frames[min(2, len(frames) - 1) if isinstance(error, RecursionError) else -1]
    line = f":{frame.lineno}" if isinstance(error, AssertionError) else ""
    return f"{Path(frame.filename).relative_to(checkout.ROOT)}{line} in {frame.name}"


def _failure(outcome: Outcome, case: Any) -> Failure:
    match outcome:
        case Finished(value):
            return Failure(value["error"], value["place"], case)
        case Crashed(reason):
            return Failure(f"{reason}: the process died", "", case)
        case TimedOut(seconds):
            return Failure(f"TimedOut: no end within {seconds:.0f} s", "", case)


def _holds_odd_number(value: Any) -> bool:
    match value:
        case float():
            return not math.isfinite(value)
        case dict():
            return any(_holds_odd_number(member) for pair in value.items() for member in pair)
        case list() | tuple():
            return any(map(_holds_odd_number, value))
        case _:
            return False


def report(tallies: dict[str, Tally]) -> Table:
    """Return a line for each target: inputs tried, failures, and what came of those that passed."""
    table = new_table("target | tried | failed | s | passed", "Fuzzing", left=("passed",))
    for name, tally in tallies.items():
        passed = ", ".join(f"{count:,} {word}" for word, count in tally.passed.most_common())
        table.add_row(name, f"{tally.tried:,}", str(len(tally.failures)), f"{tally.seconds:.0f}", passed)
    return table


def main(
    minutes: Annotated[
        float, typer.Option(min=0.01, help="Time for all targets together, in minutes.")
    ] = 5.0,
    target: Annotated[
        list[str] | None, typer.Option(help=f"Target, repeatable: {', '.join(TARGETS)}.")
    ] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of an earlier run, to repeat its inputs.")] = None,
    out: Annotated[
        Path | None, typer.Option("--json", help="Write counts and failures to this file.")
    ] = None,
) -> None:
    """Look for inputs that break something."""
    if unknown := set(target or ()) - TARGETS.keys():
        raise typer.BadParameter(f"there is no target {min(unknown)!r}: give {', '.join(TARGETS)}")
    seed = secrets.randbits(32) if seed is None else seed
    print(f"seed {seed}", flush=True)
    engine()  # so that each process that is forked from this one has it
    chosen = [TARGETS[name] for name in dict.fromkeys(target or TARGETS)]
    tallies = fuzz(chosen, seconds=60 * minutes, seed=seed, progress=partial(print, flush=True))
    show(report(tallies))
    for name, tally in tallies.items():
        for failure in tally.failures.values():
            print(f"\n# {name}: {failure.error}\n# at {failure.place}, in {failure.cases} cases")
            print(failure.program(name))
    tried, failed = (
        sum(tally.tried for tally in tallies.values()),
        sum(len(tally.failures) for tally in tallies.values()),
    )
    print(f"\n{tried:,} tried, {failed} failed (seed {seed})")
    if out is not None:
        out.write_text(json.dumps(_as_json(tallies, seed), indent=1))
    if failed:
        raise typer.Exit(1)


def _as_json(tallies: dict[str, Tally], seed: int) -> dict[str, Any]:
    return {
        "seed": seed,
        "targets": {
            name: {
                "tried": tally.tried,
                "seconds": round(tally.seconds, 1),
                "passed": dict(tally.passed),
                "failures": [
                    {
                        "error": failure.error,
                        "place": failure.place,
                        "cases": failure.cases,
                        "program": failure.program(name),
                    }
                    for failure in tally.failures.values()
                ],
            }
            for name, tally in tallies.items()
        },
    }


if __name__ == "__main__":
    typer.run(main)
