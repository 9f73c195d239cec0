"""Parse llama-server's responses into completions and errors. Pure.

The formats are those of llama.cpp's `tools/server/README.md`, and of proxies in front of a server.
"""

from __future__ import annotations

from typing import Any, Literal

import httpx

from gbnf_server.backends.base import Completion, Request, Timings, Usage
from gbnf_server.backends.http_client import value_of
from gbnf_server.backends.wire import message_text, parse_count, parse_logprobs, parse_number, value_at
from gbnf_server.system.errors import (
    BackendError,
    ContextOverflowError,
    GrammarRefusedError,
    ServerResponseError,
)


def unpack_response(response: httpx.Response, streamed: dict[str, Any] | None = None) -> dict[str, Any]:
    """Return the JSON object of a response. `streamed`: see `value_of`.

    Raises ServerResponseError, GrammarRefusedError, ContextOverflowError or MalformedTextError.
    """
    if response.is_success and streamed == {}:
        raise BackendError("llama-server's answer ended too early. See its log.")
    value = value_of(response, streamed)
    error = value.get("error") if isinstance(value, dict) else None
    if response.is_success and error is None:
        if isinstance(value, dict):
            return value
        raise ServerResponseError(response.status_code, f"no JSON object: {response.text[:200]!r}")
    if not isinstance(error, dict):
        error = {"message": str(error or response.text[:200] or response.reason_phrase)}
    message = str(error.get("message", error))
    # an error in a stream comes with the status of its beginning
    status = (response.is_success and parse_count(error.get("code"))) or response.status_code
    if error.get("type") == "exceed_context_size_error":
        raise ContextOverflowError(
            parse_count(error.get("n_prompt_tokens")) or None, parse_count(error.get("n_ctx")) or None
        )
    if status == httpx.codes.BAD_REQUEST and "grammar" in message.lower():
        raise GrammarRefusedError(message)
    raise ServerResponseError(status, message)


def read_completion(
    answer: dict[str, Any], request: Request, context_length: int | None = None
) -> Completion:
    """Return the Completion of a response of `/completion`."""
    text, stop = answer.get("content"), answer.get("stop_type")
    if not isinstance(text, str) or stop not in ("eos", "word", "limit", "none"):
        raise BackendError("llama-server's answer has no text, or no reason for its end. Update the server.")
    finish: Literal["stop", "length"] = (
        "stop" if stop in {"eos", "word"} and not answer.get("truncated") else "length"
    )
    timings = answer.get("timings")
    stopped = answer.get("stopping_word") if stop == "word" else None
    return Completion(
        text=text,
        finish_reason=finish,
        usage=Usage(
            parse_count(answer.get("tokens_evaluated")),
            parse_count(answer.get("tokens_predicted")),
            parse_count(value_at(timings, "cache_n")),
        ),
        timings=Timings(
            parse_number(value_at(timings, "prompt_ms")) / 1000,
            parse_number(value_at(timings, "predicted_ms")) / 1000,
        ),
        context_length=context_length,
        stop_string=message_text(stopped),
        logprobs=parse_logprobs(answer.get("completion_probabilities"), request.logprobs),
    )
