"""What would help a run of `gbnf run` that ended without an answer. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator

from gbnf.tools import ASK_USER, FINAL_ANSWER, FIND_TOOLS
from gbnf.tools.pool_filter import BEST
from gbnf_server.planner import Event, Run, StepStarted
from gbnf_server.planner.calls import canonical

_BUILT_IN = {ASK_USER.name, FINAL_ANSWER.name, FIND_TOOLS.name}
_NO_CALL = {"cut", "ungrammatical", "unparsed"}
"""Refusals of texts that are no call at all."""


def run_hints(run: Run, events: Iterable[Event]) -> tuple[str, ...]:
    """Return what to try, each a sentence with the option of `gbnf run`; () if nothing in the steps says so.

    `events` are those of the run.
    """
    if run.outcome in {"answered", "failed"}:
        return ()
    offered = max((_offered(event) for event in events if isinstance(event, StepStarted)), default=0)
    return tuple(_hints(run, offered))


def _hints(run: Run, offered: int) -> Iterator[str]:
    done = {step.name for step in run.steps if step.result is not None} - _BUILT_IN
    if len(done) == 1:
        [name] = done
        yield f"If the result of {name} is the answer, end the run with it: --terminal {name}."
    calls = Counter(canonical(dict(step.call)) for step in run.steps if step.call is not None)
    has_trouble = any(step.error is not None for step in run.steps) or any(
        count > 1 for count in calls.values()
    )
    if not has_trouble:
        return
    if offered > BEST:
        yield f"Offer fewer than {offered} tools: --max-tools {max(BEST, offered // 3)}."
    if any(step.refusal in _NO_CALL for step in run.steps):
        yield "Let `gbnf tune` find the way of writing calls that suits the model."
    yield "Try a larger model: --model FILE.gguf."


def _offered(event: StepStarted) -> int:
    return len(set(event.tools) - _BUILT_IN)
