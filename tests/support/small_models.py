"""Small models that call natively: their options, what they write, and runs with it."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from typing import Any

from gbnf.errors import GbnfError
from gbnf.tool_formats import detect
from gbnf_server.backends.base import Completion
from gbnf_server.llama.token_values import TokenLogprob
from gbnf_server.planner.guidance import GUIDED, UNGUIDED
from support.by_hand import Driven, completion, drive_by_hand, resolved
from support.pools import BUNDLED
from support.tool_templates import JSON_IN_TAGS

FORMAT = detect(JSON_IN_TAGS, eos_token="<|end|>")
SMALL: dict[str, Any] = {"call_format": "native", "tool_format": FORMAT, "guidance": GUIDED}
LARGE: dict[str, Any] = {**SMALL, "guidance": UNGUIDED}


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
