"""Greedy answers of a real model, SmolLM2, with drafts and without: the text must be the same.

Where the two differ, the logits of the first two tokens that differ must be a near tie.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from functools import cache
from typing import Any

from hypothesis import strategies as st

from fuzz_targets.common import Target
from gbnf import compile_schema
from gbnf.errors import SchemaError
from gbnf_server.backends.base import Completion, Request
from gbnf_server.backends.in_process import InProcess
from gbnf_server.system.model_files import has_smollm2, smollm2_path
from near_ties import gap, more_logprobs
from support.schemas import SCHEMAS

_NEAR = 0.5
"""The greatest gap of two logits that batches may turn over, where their size does change the logits."""


@cache
def _model(*, jumps: bool) -> InProcess:
    return InProcess(smollm2_path(), threads=1, context_length=1024, jump_forward=jumps)


def _answer(request: Request, *, jumps: bool) -> Completion:
    """Answer with an empty prompt cache, which would depend on the jumps in earlier answers."""
    model = _model(jumps=jumps)
    model.clear_prompt_cache()
    return model.complete(request)


def check_jumps(case: Mapping[str, Any]) -> str:
    """Check that drafts, and asking for log-probabilities, change no text at temperature 0."""
    if not has_smollm2():
        return "no model"
    try:
        grammar = compile_schema(case["schema"], whitespace=case["whitespace"])
    except SchemaError:
        return "no grammar"
    content = f"Write JSON that fits: {json.dumps(case['schema'], ensure_ascii=False)[:400]}"
    request = Request([{"role": "user", "content": content}], grammar, max_tokens=case["max_tokens"])
    with more_logprobs():
        plain = _answer(replace(request, logprobs=20), jumps=False)
    jumped = _answer(replace(request, logprobs=0 if case["logprobs"] else None), jumps=True)
    if jumped.text == plain.text:
        return "same text"
    distance = gap(plain.logprobs, _answer(replace(request, logprobs=0), jumps=True).logprobs)
    assert distance < _NEAR, f"{jumped.text!r} with jumps, {plain.text!r} without: {distance}"
    return "near tie"


JUMPS = Target(
    "jumps",
    st.fixed_dictionaries(
        {
            "schema": SCHEMAS,
            "whitespace": st.sampled_from(["default", "compact", "spaced", "free"]),
            "max_tokens": st.integers(8, 60),
            "logprobs": st.booleans(),
        }
    ),
    check_jumps,
)
