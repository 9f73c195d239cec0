"""The last rung: an answer out of what a run has already found, where the run itself gave none.

A run that was blocked, exhausted or failed has often done its work: the tools' results are there, and only
the answer is missing. `salvage` puts them into words, by a model under a plain-text contract where one is
given, else as a list. It executes nothing, says which steps it stands on, and is never taken for the run's
own answer.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from gbnf.lines import Contract, text
from gbnf.prompt import result_text
from gbnf_server.backends.base import Backend
from gbnf_server.lines import SAFETY_TIMEOUT_S, run_contract
from gbnf_server.planner.events import Run, Step

CONTRACT = Contract(answer=text(rest=True))
_RESULT_LIMIT = 600  # characters of one result, for the model and for the list
_ASKED = {
    "en": (
        "The request was: {query}\n\nThis was found:\n{found}\n\n"
        "Answer the request from this alone, and say what is missing."
    ),
    "it": (
        "La richiesta era: {query}\n\nÈ stato trovato questo:\n{found}\n\n"
        "Rispondi alla richiesta solo con questo, e di' che cosa manca."
    ),
}
_LISTED = {
    "en": "This was done before it stopped:\n{found}",
    "it": "Prima di fermarsi è stato fatto questo:\n{found}",
}


@dataclass(frozen=True, slots=True)
class Salvaged:
    """An answer from results: `by` the model, or as a list. `steps` are the numbers that it stands on.

    `error` says why the model's words were not used, where they were asked for.
    """

    text: str
    by: Literal["model", "list"]
    steps: tuple[int, ...]
    error: str = ""


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
    done = [step for step in run.steps if step.result is not None]
    if run.answer is not None or not done:
        return None
    short = language if language in _ASKED else "en"
    numbers = tuple(step.number for step in done)
    listed = _LISTED[short].format(found="\n".join(_line(step) for step in done))
    if backend is None:
        return Salvaged(listed, "list", numbers)
    found = "\n".join(
        f"{step.name}: {result_text(step.number, step.result or {}, limit=_RESULT_LIMIT)}" for step in done
    )
    answer = run_contract(
        CONTRACT,
        _ASKED[short].format(query=run.query, found=found),
        backend,
        grammar=grammar,
        language=short,
        max_tokens=max_tokens,
        timeout_s=timeout_s,
    )
    if answer.exit == "success":
        return Salvaged(answer.values["answer"], "model", numbers)
    return Salvaged(listed, "list", numbers, f"{answer.exit}: {answer.error}")


def _line(step: Step) -> str:
    """`- find_files: notes/rome.md, notes/paris.md`."""
    said = _plain(step.result)
    return f"- {step.name}: {said if len(said) <= _RESULT_LIMIT else said[: _RESULT_LIMIT - 1] + '…'}"


def _plain(value: Any) -> str:
    match value:
        case {"entries": list(entries)} if entries:
            return ", ".join(_plain(entry) for entry in entries)
        case dict():
            return "; ".join(f"{key}: {_plain(member)}" for key, member in value.items()) or "done"
        case list():
            return ", ".join(_plain(member) for member in value) or "nothing"
        case _:
            return " ".join(str(value).split())
