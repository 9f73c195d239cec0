"""Score the record of a run. Pure, so that a stored run can be scored again.

The only inputs are the events as JSON and the two snapshots, for live and for stored runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gbnf_bench.call_matching import ActualCall, Assignment, References, best_assignment
from gbnf_bench.cases import ABSTENTION_TOOLS, Case
from gbnf_bench.expectations import accepts
from gbnf_bench.run_log import RunRecord
from gbnf_bench.state_checks import destroyed, faults


@dataclass(frozen=True, slots=True)
class RunScore:
    """The score of one run.

    `converged`: it ended with an answer, and state and answer (or the calls, if the case expects neither) are
    as expected; `faults` are the reasons why not. A `salvaged` run has not converged, because its answer was
    made afterwards. Of the `needed` expected calls, `named` were made at least by name and `exact_matches`
    with the expected arguments; `false_positives` of the `executed` calls match no expected call, where calls
    are expected or none; `calls_made` are the executed calls of any run. `refusals`
    counts steps whose text was not executed, by reason; `repaired` those whose call was repaired during
    parsing. `destroyed`: whether something was overwritten, deleted or sent that the case does not name.
    Times are seconds: of the run, and of each step's model call, compilation and grammar (() if the backend
    does not report it).
    """

    outcome: str
    converged: bool
    faults: tuple[str, ...]
    first: str | None
    first_matches: bool
    needed: int
    named: int
    exact_matches: int
    executed: int
    calls_made: int
    false_positives: int
    should_abstain: bool
    abstained: bool
    steps: int
    least_steps: int
    acceptable_steps: bool
    refusals: Mapping[str, int]
    repaired: int
    prompt_tokens: int
    cached_tokens: int
    completion_tokens: int
    run_s: float
    model_s: tuple[float, ...]
    compile_s: tuple[float, ...]
    grammar_s: tuple[float, ...]
    salvaged: bool = False
    destroyed: bool = False

    @property
    def blocked(self) -> int:
        """Steps whose text was not executed."""
        return sum(self.refusals.values())


def score(case: Case, record: RunRecord, references: References) -> RunScore:
    """Score one run. `references` are the step references of the case's tools at the time of the run."""
    events = record.events
    run = events[-1]["run"]
    calls = _made(run["steps"], events)
    acting = [call for call in calls if call.name not in ABSTENTION_TOOLS]
    assigned = best_assignment(case.plans, calls, references) or Assignment(0, 0, 0, 0)
    answered = run["outcome"] == "answered"
    wrong = [] if answered else [f"the run ended {run['outcome']}: {run['error']}"]
    wrong += faults(case.after, record.before, record.after)
    if answered and case.answer is not None and not accepts(case.answer, run["answer"]):
        wrong.append(f"the answer is not as expected: {run['answer']}")
    if case.abstain and acting:
        wrong.append(f"{acting[0].name} was called, and no tool fits")
    if case.checks_calls and assigned.exact_matches < assigned.needed:
        wrong.append(f"{assigned.exact_matches} of {assigned.needed} expected calls were made")
    first = next((step["call"]["name"] for step in run["steps"] if step["call"] is not None), None)
    called = [event for event in events if event["event"] == "model_called"]
    return RunScore(
        outcome=run["outcome"],
        converged=not wrong,
        faults=tuple(wrong),
        first=first,
        first_matches=first in (ABSTENTION_TOOLS if case.abstain else case.first),
        needed=assigned.needed,
        named=assigned.named,
        exact_matches=assigned.exact_matches,
        executed=len(calls) if case.plans or case.abstain else 0,
        calls_made=len(calls),
        false_positives=len(acting) if case.abstain else assigned.false_positives,
        should_abstain=case.abstain,
        abstained=answered and not acting,
        salvaged=run["outcome"] == "salvaged",
        destroyed=bool(destroyed(case.after, record.before, record.after)),
        steps=len(run["steps"]),
        least_steps=case.least_steps,
        acceptable_steps=answered and len(run["steps"]) <= case.most_steps,
        refusals=dict(Counter(step["refusal"] for step in run["steps"] if step["refusal"] is not None)),
        repaired=sum(bool(step["repairs"]) for step in run["steps"]),
        prompt_tokens=run["prompt_tokens"],
        cached_tokens=run["cached_tokens"],
        completion_tokens=run["completion_tokens"],
        run_s=run["duration_s"],
        model_s=_model_seconds(called),
        compile_s=tuple(event["compile_s"] for event in events if event["event"] == "step_started"),
        grammar_s=tuple(
            grammar_s for event in called if (grammar_s := event["timings"]["grammar_s"]) is not None
        ),
    )


def _model_seconds(called: Sequence[Mapping[str, Any]]) -> tuple[float, ...]:
    """Return the seconds of each step's model calls: its reasoning and its call."""
    seconds: dict[int, float] = {}
    for event in called:
        if event.get("purpose") != "salvage":
            seconds[event["step"]] = seconds.get(event["step"], 0.0) + event["duration_s"]
    return tuple(seconds.values())


def _made(steps: Sequence[Mapping[str, Any]], events: Sequence[Mapping[str, Any]]) -> list[ActualCall]:
    """Return the executed calls in order, including failed ones, without the final answer."""
    executed = {event["step"] for event in events if event["event"] == "tool_called"}
    return [
        ActualCall(
            step["number"],
            step["call"]["name"],
            step["call"]["arguments"],
            tuple(str(entry) for entry in (step["result"] or {}).get("entries", ())),
        )
        for step in steps
        if step["number"] in executed
    ]
