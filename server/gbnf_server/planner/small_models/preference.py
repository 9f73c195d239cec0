"""Which tools a small model prefers for a request: its own choice by their purposes, and the request's words.

The model knows what words do not say: "the bill was 289.80 and there were 7 of us" has none of `compute`. By
words alone, the first tool is right for 127 of 184 requests of the suites; with a model of 0.5 billion
parameters, for 144. It is asked once, before the first step, with all tools, but without their arguments: the
prompt is the same for all requests up to the request itself.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from contextlib import suppress
from functools import lru_cache

from gbnf import compile_schema
from gbnf.compiler.grammar import Grammar
from gbnf.requests.ranking import BM25, Ranker
from gbnf.tools import Tool
from gbnf_server.backends.base import Completion

FEW = 4
"""So many tools are all declared: there is nothing to choose before."""

NEAR, LIKELY = 1.0, 5.0
"""A tool that is offered in the first step is at most so much less preferred than the best, one that is
declared for later steps at most so much."""

_WORDS = 5.0
"""What the words of a request add to the log-probability of the tool that fits best by them."""

_CLEAR_WORDS = 4.0
"""A score of `BM25` that a word or two of a tool's purpose have: less adds less."""

GREETING = "Hello"
"""A request that needs no tool: what a model chooses for it, it prefers anyway."""

SURE, _CLEAR_LIFT = math.log(0.5), 2.5
"""The least log-probability, and its least gain over that for a greeting, of a clear choice."""

_LEAST_SHARE = 1e-6


@lru_cache(maxsize=64)
def choice_grammar(names: tuple[str, ...]) -> Grammar:
    """Return the grammar of the beginning of a call that names the tool: `{"name": "find_files"}`."""
    schema = {
        "type": "object",
        "properties": {"name": {"enum": list(names)}},
        "required": ["name"],
        "additionalProperties": False,
    }
    return compile_schema(schema)


def read_choice(completion: Completion, names: tuple[str, ...]) -> Mapping[str, float]:
    """Return the log-probability of each tool's name in an answer; nothing if none is known.

    Of a backend that reports only the probability of the name written, the others share the rest.
    """
    if not completion.probabilities:
        return {}
    told = completion.probabilities[0]
    shares = {json.loads(text): share for text, share in told.alternatives}
    if not shares:
        with suppress(ValueError, KeyError, TypeError):
            shares = {json.loads(completion.text)["name"]: told.probability}
    rest = max(1 - sum(shares.values()), 0) / max(len(set(names) - shares.keys()), 1)
    return {name: math.log(max(shares.get(name, rest), _LEAST_SHARE)) for name in names} if shares else {}


def is_clear(choice: Mapping[str, float], neutral: Mapping[str, float]) -> bool:
    """Return whether a choice is that of one tool, and one that the model does not choose for a greeting."""
    best = max(choice, key=choice.__getitem__)
    return choice[best] > SURE and choice[best] - neutral.get(best, 0.0) > _CLEAR_LIFT


def preference(
    scores: Mapping[Tool, float], choice: Mapping[str, float], ranker: Ranker = BM25
) -> Mapping[str, float]:
    """Return how much each tool is preferred, in the logarithm, by its name; nothing without a choice.

    `scores`: how well they fit, by `ranker`; `choice`: the model's, see `read_choice`.
    """
    least = _CLEAR_WORDS if ranker is BM25 else 0.0
    best = max(least, *scores.values()) if scores else least
    by_name = {tool.name: max(score, 0.0) / best for tool, score in scores.items() if best > 0}
    return {name: logprob + _WORDS * by_name.get(name, 0.0) for name, logprob in choice.items()}


def near_best(tools: Mapping[Tool, float], within: float) -> tuple[Tool, ...]:
    """Return the tools that are at most `within` less preferred than the best, the best first."""
    best = max(tools.values(), default=0.0)
    near = (tool for tool, score in tools.items() if score >= best - within)
    return tuple(sorted(near, key=lambda tool: -tools[tool]))
