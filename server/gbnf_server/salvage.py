"""An answer out of what a finished run has found, where the run itself gave none.

The planner does the same at the end of each of its runs (`Planner(…, salvage=True)`); this is for a run that
is already there, and for another model than the one that planned. It executes nothing, says which steps it
stands on, and is never taken for the run's own answer.
"""

from __future__ import annotations

from gbnf_server.backends.base import Backend
from gbnf_server.lines import SAFETY_TIMEOUT_S, run_contract
from gbnf_server.planner import salvaging
from gbnf_server.planner.events import Run, Salvaged

__all__ = ["Salvaged", "salvage"]


def salvage(
    run: Run,
    backend: Backend | None = None,
    *,
    grammar: bool = True,
    language: str = "en",
    max_tokens: int = 256,
    timeout_s: float = SAFETY_TIMEOUT_S,
) -> Salvaged | None:
    """What a run without an answer has found; None where it answered, or found nothing. Never raises.

    With a `backend` its words are taken where they keep the contract in time, else the list.
    """
    done = salvaging.found(run.steps)
    if run.answer is not None or not done:
        return None
    if backend is None:
        return salvaging.listed(done, language)
    answer = run_contract(
        salvaging.CONTRACT,
        salvaging.question(run.query, done, language),
        backend,
        grammar=grammar,
        language=language,
        max_tokens=max_tokens,
        timeout_s=timeout_s,
    )
    if answer.exit == "success":
        return salvaging.worded(answer.values["answer"], done, language)
    return salvaging.listed(done, language, f"{answer.exit}: {answer.error}")
