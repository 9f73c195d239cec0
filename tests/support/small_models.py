"""Small models that call natively: their options, what they write, and runs with it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from gbnf.errors import GbnfError
from gbnf.tool_formats import detect
from gbnf_server.backends.base import Completion
from gbnf_server.llama.token_values import TokenLogprob, ValueProbability
from gbnf_server.planner.guidance import GUIDED, UNGUIDED
from support.by_hand import Driven, call, completion, drive_by_hand, resolved
from support.pools import BUNDLED
from support.tool_templates import JSON_IN_TAGS

FORMAT = detect(JSON_IN_TAGS, eos_token="<|end|>")
SMALL: dict[str, Any] = {"call_format": "native", "tool_format": FORMAT, "guidance": GUIDED}
LARGE: dict[str, Any] = {**SMALL, "guidance": UNGUIDED}
ASKED_FIRST: dict[str, Any] = {**SMALL, "gives_logprobs": True, "max_tools": 16}
"""Of a small model that is asked which tool it means before others are declared."""
MODES: Mapping[str, dict[str, Any]] = {
    "small": SMALL,
    "large": LARGE,
    "json": {"call_format": "json"},
    "small json": {"call_format": "json", "guidance": GUIDED.in_prompt()},
    "text": {"call_format": "text"},
    "lines": {"call_format": "lines"},
}
NO_CHOICE = completion("{}")  # among the tools, of a server that gives no probabilities
FOLDER_REQUEST = "create a folder invoices"
FOLDER_CALL = {"name": "create_dirs", "arguments": {"paths": ["invoices"]}}
BILL_REQUEST = "dinner was 289.80 and there were 7 of us"
BILL_CALL = {"name": "compute", "arguments": {"expression": "289.80 / 7"}}


def written(call: Any) -> str:
    """A call as these models write it: JSON in the text."""
    return f"```json\n{json.dumps(call)}\n```"


def drive(
    query: str, *texts: str | Completion | GbnfError, options: dict[str, Any] = SMALL, **more: Any
) -> Driven:
    said = [completion(text) if isinstance(text, str) else text for text in texts]
    return drive_by_hand(BUNDLED, said, query=query, options=resolved(**options), **more)


def odds(log_odds: float) -> Completion:
    share = 1 / (1 + math.exp(-log_odds))
    top = ((b'{"', math.log(share / 2)), (b"```", math.log(share / 2)), (b"The", math.log(1 - share)))
    return replace(completion("x"), logprobs=(TokenLogprob(b"x", -1.0, top),))


def chosen(shares: dict[str, float]) -> Completion:
    """The answer of a model that chooses among tools with these probabilities."""
    ranked = tuple((json.dumps(name), share) for name, share in sorted(shares.items(), key=lambda x: -x[1]))
    text = f'{{"name": {ranked[0][0]}}}'
    return replace(completion(text), probabilities=(ValueProbability("/name", ranked[0][1], ranked),))


def drive_in(mode: str, *texts: str, query: str, replies: Any = ()) -> Driven:
    """A run in one of `MODES`, in which the model writes calls, as JSON, and answers, as text."""
    native, by_call = mode in ("small", "large"), mode.endswith("json")
    said = []
    for text in texts:
        if text.startswith('{"name"'):
            said.append(written(json.loads(text)) if native else text)
        else:
            said.append(call("final_answer", message=text) if by_call else text)
    return drive(query, *said, options=MODES[mode], replies=replies)
