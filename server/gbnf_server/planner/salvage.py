"""Build an answer from the tool results of a finished run that has none.

The planner does the same at the end of each of its runs (`PlannerOptions.salvage`); this is for a run that
already exists, and for another model than the one that planned. It executes nothing, and its result says
which steps it is based on.
"""

from __future__ import annotations

from gbnf_server.backends.base import Backend
from gbnf_server.planner import salvaging
from gbnf_server.planner.contracts import DEFAULT_TIMEOUT_S, run_contract
from gbnf_server.planner.events import Run, SalvagedAnswer

__all__ = ["SalvagedAnswer", "salvage"]


def salvage(
    run: Run,
    backend: Backend | None = None,
    *,
    grammar: bool = True,
    language: str = "en",
    max_tokens: int = 256,
    timeout_s: float = DEFAULT_TIMEOUT_S,
) -> SalvagedAnswer | None:
    """Return an answer for a run without one; None if it has one, or has no results. Never raises.

    The answer is the text of `backend`, if it matches the contract in time, else that of the results.
    """
    done = salvaging.found(run.steps)
    if run.answer is not None or not done:
        return None
    if backend is None:
        return salvaging.answer_from_results(done, language)
    answer = run_contract(
        salvaging.CONTRACT,
        salvaging.question(run.query, done, language),
        backend,
        grammar=grammar,
        language=language,
        max_tokens=max_tokens,
        timeout_s=timeout_s,
    )
    if answer.outcome == "success":
        return salvaging.answer_from_text(answer.values["answer"], run.query, done, language)
    return salvaging.answer_from_results(done, language, f"{answer.outcome}: {answer.error}")
