"""Calls of a model as values that a file keeps: the request, the answer, and what happened at each token.

In JSON, an entry of a trace is a list, since a run has thousands:

    [token, kind, at_s, left, probability, allowed_probability, [[token, probability, refused_by], …]]

A token is a string, or {"bytes": "e282"} if it is not a sequence of whole characters. Times are rounded to
microseconds, probabilities to five digits.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Annotated, Any, Literal

from pydantic import BeforeValidator

from gbnf import Grammar
from gbnf.prompts.messages import Image
from gbnf.protocols.protocol import AnswerFormat
from gbnf_server.backends.base import Completion, Request, Timings, Usage
from gbnf_server.llama.token_values import TracedToken
from gbnf_server.planner.events import Purpose

_ENTRY = ("token", "kind", "at_s", "left", "probability", "allowed_probability", "candidates")


def _from_row(row: Any) -> Any:
    """Return the members of an entry of a trace. Raises ValueError."""
    if isinstance(row, TracedToken):
        return row
    if not isinstance(row, list) or len(row) != len(_ENTRY):
        raise ValueError(f"must be a list of {len(_ENTRY)} values: {', '.join(_ENTRY)}")
    entry = dict(zip(_ENTRY, row, strict=True))
    candidates = []
    for candidate in entry["candidates"] if isinstance(entry["candidates"], list) else [None]:
        if not isinstance(candidate, list) or len(candidate) != 3:
            raise ValueError("candidates must be lists of 3 values: token, probability, refused_by")
        token, probability, refused_by = candidate
        given = {"token": _token(token), "probability": _probability(probability), "refused_by": refused_by}
        candidates.append(given)
    for name in ("probability", "allowed_probability"):
        if entry[name] is not None:
            entry[name] = _probability(entry[name])
    return {**entry, "token": _token(entry["token"]), "candidates": candidates}


def _token(value: Any) -> bytes:
    match value:
        case str():
            return value.encode()
        case {"bytes": str(digits)}:
            return bytes.fromhex(digits)
    raise ValueError(f'{json.dumps(value)[:40]} is no token; it must be a string, or {{"bytes": "e282"}}')


def _probability(value: Any) -> float:
    if isinstance(value, int | float) and not isinstance(value, bool) and 0 <= value <= 1:
        return float(value)
    raise ValueError(f"{json.dumps(value)[:40]} is no probability; it must be a number from 0 to 1")


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """One call of a model. Its fields are those of `Request` and `Completion`; `step` 0 is none.

    `grammar`: as GBNF, or a JSON Schema as JSON, "" without one. `error`: why there is no answer, "" if there
    is. `trace` is empty if the backend has none.
    """

    messages: tuple[Mapping[str, Any], ...] = ()
    grammar: str = ""
    max_tokens: int = 0
    temperature: float = 0.0
    seed: int = 0
    text: str = ""
    reasoning: str = ""
    finish_reason: Literal["stop", "length", ""] = ""
    error: str = ""
    usage: Usage = field(default_factory=Usage)
    timings: Timings = field(default_factory=Timings)
    shortened_at: int | None = None
    repeated: str = ""
    step: int = 0
    purpose: Purpose = "call"
    trace: tuple[Annotated[TracedToken, BeforeValidator(_from_row)], ...] = ()

    @classmethod
    def of(
        cls, request: Request, answer: Completion | BaseException, step: int = 0, purpose: Purpose = "call"
    ) -> RecordedCall:
        """Return a call of a model. No request contains credentials: no model gets them."""
        asked: dict[str, Any] = {
            "messages": tuple(_plain_message(message) for message in request.messages),
            "grammar": grammar_text(request.grammar),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
            "step": step,
            "purpose": purpose,
        }
        if isinstance(answer, BaseException):
            return cls(**asked, error=str(answer) or type(answer).__name__)
        names = {field.name for field in fields(cls)} & {field.name for field in fields(Completion)}
        return cls(**asked, **{name: getattr(answer, name) for name in names})

    def to_json(self) -> dict[str, Any]:
        """Return the call as JSON."""
        value = {field.name: getattr(self, field.name) for field in fields(self)}
        return value | {
            "messages": list(self.messages),
            "usage": asdict(self.usage),
            "timings": asdict(self.timings),
            "trace": trace_to_json(self.trace),
        }


def trace_to_json(trace: Sequence[TracedToken]) -> list[Any]:
    """Return a trace as JSON, an entry for each token."""
    return [
        [
            token_to_json(entry.token),
            entry.kind,
            round(entry.at_s, 6),
            entry.left,
            _rounded(entry.probability),
            _rounded(entry.allowed_probability),
            [
                [token_to_json(each.token), _rounded(each.probability), each.refused_by]
                for each in entry.candidates
            ],
        ]
        for entry in trace
    ]


def token_to_json(token: bytes) -> str | dict[str, str]:
    """Return a token as a string, or its bytes in hexadecimal digits."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        return {"bytes": token.hex()}


def _rounded(probability: float | None) -> float | None:
    # a sum of rounded probabilities may exceed 1 in the last digit
    return None if probability is None else min(float(f"{probability:.5g}"), 1.0)


def grammar_text(grammar: AnswerFormat | None) -> str:
    """Return a grammar as GBNF, or a JSON Schema as JSON; "" for none."""
    if grammar is None:
        return ""
    return str(grammar) if isinstance(grammar, Grammar) else json.dumps(grammar, ensure_ascii=False)


def _plain_message(message: Mapping[str, Any]) -> dict[str, Any]:
    """Return a message as JSON; of images, only the type and the size."""

    def plain(value: Any) -> Any:
        match value:
            case Image(data, media_type):
                return {"media_type": media_type, "bytes": len(data)}
            case Mapping():
                return {key: plain(member) for key, member in value.items()}
            case list() | tuple():
                return [plain(member) for member in value]
        return value

    return {key: plain(value) for key, value in message.items()}
