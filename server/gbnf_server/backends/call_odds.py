"""Whether a small model means to call a tool: the odds of a call at the first token that nothing constrains.

A model of this size calls some tool for nearly anything once its grammar lets it. How sure it is shows before
the grammar: of 60 questions of the leaderboard, half of them with tools that fit, log-odds of 1.4 keep 29 of
the 30 calls of a model with 0.5 billion parameters, and turn 21 of the 30 other ones into answers.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace

from gbnf_server.backends.base import MAX_LOGPROBS, Completion, Request

LEAST_CALL_ODDS: Mapping[bool | None, float] = {True: -1.0, None: 1.4, False: 3.2}
"""The least log-odds of a call, against a text, with which a small model may call a tool: for a request that
is about what the tools are for (`gbnf.requests.ranking.is_about`), may be, or is not."""

_BEGINNINGS = "`{[<"
"""What calls begin with, in a text and in most formats."""


def means_text(odds: float, about: bool | None) -> bool:
    """Return whether a small model with these odds of a call means a text; `about`: what `is_about` says."""
    return odds < LEAST_CALL_ODDS[about]


def odds_request(request: Request) -> Request:
    """Return the request whose completion has the odds: of one token, which nothing constrains."""
    return replace(
        request,
        grammar=None,
        max_tokens=1,
        temperature=0.0,
        logprobs=MAX_LOGPROBS,
        probabilities=False,
        stop=(),
    )


def call_odds(completion: Completion, call_begin: str = "") -> float | None:
    """Return the log-odds of a call at the first token, None where the backend has reported none.

    `call_begin`: what begins every call of the model's format.
    """
    if not completion.logprobs or not completion.logprobs[0].top:
        return None
    likeliest = completion.logprobs[0].top
    beginnings = tuple(_BEGINNINGS + call_begin.lstrip()[:1])
    call = sum(
        math.exp(logprob)
        for token, logprob in likeliest
        if token.decode(errors="replace").lstrip()[:1] in beginnings
    )
    share = min(max(call, 1e-6), 1 - 1e-6)
    return math.log(share / (1 - share))
