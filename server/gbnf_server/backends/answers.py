"""What llama-server's answers mean: pure, from a response or its JSON to a value or an error.

The shapes are those of llama.cpp's `tools/server/README.md`, and of what other programs that stand before a
server may say instead.
"""

from __future__ import annotations

from typing import Any, Literal

import httpx

from gbnf_server.backends.base import Completion
from gbnf_server.backends.replay import violation
from gbnf_server.backends.thinking import split_reasoning
from gbnf_server.errors import BackendError, ContextOverflow, GrammarRefused, ServerError


def unpack(response: httpx.Response, streamed: dict[str, Any] | None = None) -> dict[str, Any]:
    """The JSON object of an answer. Raises ServerError, GrammarRefused or ContextOverflow.

    `streamed` is the object that a successful answer's lines were put together to.
    """
    value: Any = streamed
    if streamed is None or not response.is_success:
        try:
            value = response.json()
        except ValueError:
            value = None
    elif not streamed:
        raise BackendError("llama-server's answer stopped before its end. Its log says more.")
    error = value.get("error") if isinstance(value, dict) else None
    if response.is_success and error is None:
        if isinstance(value, dict):
            return value
        raise ServerError(response.status_code, f"no JSON object but {response.text[:200]!r}")
    if not isinstance(error, dict):
        error = {"message": str(error or response.text[:200] or response.reason_phrase)}
    message = str(error.get("message", error))
    if error.get("type") == "exceed_context_size_error":
        raise ContextOverflow(_whole(error.get("n_prompt_tokens")), _whole(error.get("n_ctx")))
    if response.status_code == httpx.codes.BAD_REQUEST and "grammar" in message.lower():
        raise GrammarRefused(message)
    raise ServerError(response.status_code, message)


def _whole(value: Any) -> int | None:
    return value if isinstance(value, int) else None


def read_completion(answer: dict[str, Any], grammar: str | None) -> Completion:
    """Make a Completion of what `/completion` answered, replayed where a grammar was to hold it."""
    text, stop = answer.get("content"), answer.get("stop_type")
    if not isinstance(text, str) or stop not in {"eos", "word", "limit", "none"}:
        raise BackendError(
            "llama-server's answer has no text, or does not tell why it ended. Update the server."
        )
    finish: Literal["stop", "length"] = (
        "stop" if stop in {"eos", "word"} and not answer.get("truncated") else "length"
    )
    timings = answer.get("timings") or {}
    prompt_tokens = int(answer.get("tokens_evaluated", 0))
    reasoning, wrong = "", None
    if grammar is None:
        reasoning, text = split_reasoning(text)
    else:
        wrong = violation(grammar, text, cut=finish == "length")
    return Completion(
        text=text,
        finish=finish,
        prompt_tokens=prompt_tokens,
        completion_tokens=int(answer.get("tokens_predicted", 0)),
        cached_tokens=int(timings.get("cache_n", 0)),
        prompt_s=float(timings.get("prompt_ms", 0.0)) / 1000,
        completion_s=float(timings.get("predicted_ms", 0.0)) / 1000,
        grammar_violation=wrong,
        reasoning=reasoning,
    )
