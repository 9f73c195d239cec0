"""A peer of the leaderboard's table: an OpenAI-compatible server that calls tools by itself.

Its answers become the events of a run, so that they are graded as ours are.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx

from gbnf.prompts.descriptions import declare_tool
from gbnf.tools import Tool
from gbnf_bench.bfcl.files import LeaderboardEntry
from gbnf_bench.runner import RunOptions
from gbnf_server.system.errors import BackendUnreachableError

TIMEOUT_S = 600.0
"""Seconds for an answer."""


@dataclass(frozen=True, slots=True)
class Peer:
    """A server at `url`, without `/v1`, that takes the tools of a request."""

    url: str
    api_key: str | None = None

    def events(
        self, entry: LeaderboardEntry, tools: Sequence[Tool], tool_choice: str, options: RunOptions
    ) -> tuple[dict[str, Any], ...]:
        """Ask one question; return the events of its answer. Raises BackendUnreachableError."""
        request = {
            "messages": list(entry.messages),
            "tools": [declare_tool(tool) for tool in tools],
            "tool_choice": "auto" if entry.kind == "none" else tool_choice,
            "parallel_tool_calls": entry.kind == "several",
            "max_tokens": options.max_tokens,
            "temperature": options.temperature,
            "seed": options.seed,
        }
        headers = {"Authorization": f"Bearer {self.api_key}"} if self.api_key else {}
        begun = time.perf_counter()
        try:
            response = httpx.post(
                f"{self.url.rstrip('/')}/v1/chat/completions",
                json=request,
                headers=headers,
                timeout=TIMEOUT_S,
                trust_env=False,
            )
        except httpx.ConnectError as error:
            raise BackendUnreachableError(self.url, str(error)) from None
        except httpx.HTTPError as error:
            return (_text("", "stop", 0, time.perf_counter() - begun), _failure(f"no answer: {error!r}"))
        seconds = time.perf_counter() - begun
        try:
            value = response.json()
            return tuple(_events(value, seconds))
        except (LookupError, TypeError, ValueError):
            problem = f"HTTP {response.status_code}: {response.text[:200]}"
            return (_text("", "stop", 0, seconds), _failure(problem))


def _events(value: Any, seconds: float) -> Iterator[dict[str, Any]]:
    choice, usage = value["choices"][0], value.get("usage", {})
    message = choice["message"]
    reason = "length" if choice.get("finish_reason") == "length" else "stop"
    yield _text(message.get("content") or "", reason, int(usage.get("completion_tokens", 0)), seconds)
    for call in message.get("tool_calls") or ():
        function = call["function"]
        arguments = json.loads(function["arguments"])
        yield {"event": "tool_called", "name": function["name"], "arguments": arguments}


def _text(text: str, reason: str, tokens: int, seconds: float) -> dict[str, Any]:
    return {
        "event": "model_called",
        "text": text,
        "finish_reason": reason,
        "shortened_at": None,
        "usage": {"completion_tokens": tokens},
        "timings": {"prompt_s": 0.0, "completion_s": seconds},
    }


def _failure(problem: str) -> dict[str, Any]:
    return {"event": "run_finished", "run": {"outcome": "failed", "error": problem}}
