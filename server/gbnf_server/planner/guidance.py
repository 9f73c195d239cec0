"""What the planner does for a model that is too small to plan: a rule each, so that each is measured alone.

`python bench/levers.py` runs requests without one of them at a time. A model that is not small has none.
"""

from __future__ import annotations

from dataclasses import dataclass, fields, replace
from typing import Self


@dataclass(frozen=True, slots=True)
class Guidance:
    """The rules that lead a model through a run; the default is none.

    How it is asked. `divides`: for each part of the request that stands for itself, one after the other.
    `suggests_best`: the request names the tool that fits best by far, and makes the answer
    more likely where none fits. `tells_dates`: the dates and times that the request has in words follow it.
    `declares_needed`: declared are the tools and arguments that the request may need, the best first.
    `chooses_first`: the model is asked for the tool that it means before others are declared.

    What it may call. `begins_as_asked`: the first step offers only the call that answers the request alone.
    `finds_first`: it offers only what finds or reads the files that are changed, sent or copied.
    `changes_only_what_is_asked`: only what a word of the request asks for is changed or sent, and only where
    it says. `holds_to_values_left`: a further call takes values of the request that no call has.
    `follows_request`: after a call, what is left of the request is offered, the answer when that is nothing,
    and a run that gets nowhere ends. `ends_when_done`: a run ends when its calls cover the request.
    `goes_on`: it does not end while the request asks for another call.

    What it writes. `spells_as_requested`: texts are spelled, and paths and choices completed, by the request
    and the results. `sends_dictated`: a text that the request dictates is sent as it is. `checks_changes`: a
    change that loses what is in a file is refused. `corrects_answers`: an answer that is, or proposes, a call
    is made or refused. `adds_unread`: an answer tells what it leaves out of the results.
    """

    divides: bool = False
    suggests_best: bool = False
    tells_dates: bool = False
    declares_needed: bool = False
    chooses_first: bool = False
    begins_as_asked: bool = False
    finds_first: bool = False
    changes_only_what_is_asked: bool = False
    holds_to_values_left: bool = False
    follows_request: bool = False
    ends_when_done: bool = False
    goes_on: bool = False
    spells_as_requested: bool = False
    sends_dictated: bool = False
    checks_changes: bool = False
    corrects_answers: bool = False
    adds_unread: bool = False

    def in_prompt(self) -> Self:
        """Return the rules for a model whose tools a prompt describes, since it was not trained to call."""
        return replace(self, **dict.fromkeys(_OF_TEMPLATES, False))


_OF_TEMPLATES = (
    "declares_needed",
    "chooses_first",
    "finds_first",
    "follows_request",
    "goes_on",
    "spells_as_requested",
    "checks_changes",
    "corrects_answers",
)
"""The rules that were measured with models whose chat template declares the tools, and lead these only."""

UNGUIDED = Guidance()
GUIDED = Guidance(*(True for _ in fields(Guidance)))
