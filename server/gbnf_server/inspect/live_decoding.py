"""Decodes a request while the page is open: as the first step of the planner would, or for a schema."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeAlias

from gbnf.errors import GbnfError
from gbnf.tools import Tool
from gbnf.tools.providers import PROVIDERS, Provider
from gbnf_server.backends.answer import Asked, collect_answer
from gbnf_server.backends.base import Backend, Request
from gbnf_server.inspect.grammar_choice import PLAIN, GrammarChoice
from gbnf_server.planner.drivers import first_request
from gbnf_server.planner.options import CallFormat, PlannerOptions, ResolvedOptions
from gbnf_server.planner.runs.recording import RecordedCall
from gbnf_server.web.errors import HttpError, invalid_request

Strategy: TypeAlias = Literal["json", "unconstrained", "native", "text", "lines"]
STRATEGIES: dict[Strategy, str] = {
    "json": "JSON, with the grammar",
    "unconstrained": "JSON, without a grammar",
    "native": "The chat template's format, with the grammar",
    "text": "A text tool call, without a grammar",
    "lines": "The line protocol, without a grammar",
}
MOST_TOKENS = 2000
MOST_REQUEST = 2000
"""Characters of a request."""
_MOST_S = 120.0
_RANGES = (("max_tokens", 1, MOST_TOKENS), ("temperature", 0, 10), ("seed", 0, 2**32 - 1))
_INSTRUCTIONS = "Answer with one JSON value that fits this JSON Schema, and nothing else:\n"


@dataclass(frozen=True, slots=True)
class DecodingOptions:
    """What the form asks for. Raises HttpError for a value out of range."""

    request: str
    strategies: tuple[Strategy, ...]
    max_tokens: int = 256
    temperature: float = 0.0
    seed: int = 0

    def __post_init__(self) -> None:
        for name, least, most in _RANGES:
            if not least <= (value := getattr(self, name)) <= most:
                raise invalid_request(f"{name} is {str(value)[:40]}; it must be from {least} to {most}.")
        if not self.request.strip() or len(self.request) > MOST_REQUEST:
            raise invalid_request(f"the request must have from 1 to {MOST_REQUEST} characters.")
        unknown = [item for item in self.strategies if not isinstance(item, str) or item not in STRATEGIES]
        if unknown or not 1 <= len(self.strategies) <= 2:
            raise invalid_request(f"strategies must be one or two of {', '.join(STRATEGIES)}.")


class LiveDecoder:
    """Decodes requests for tools, or for one schema. The model is loaded for the first one.

    One request is decoded at a time, for at most two minutes. `name` is the model's, for the page. `choice`:
    how the grammars are compiled; the strategy decides the syntax of calls.
    """

    def __init__(
        self,
        open_backend: Callable[[], Backend],
        name: str,
        tools: Sequence[Tool] = (),
        schema: Any = None,
        providers: Mapping[str, Provider] = PROVIDERS,
        choice: GrammarChoice = PLAIN,
    ) -> None:
        self.name, self._providers, self._choice = name, providers, choice
        self._open, self._tools, self._schema = open_backend, tuple(tools), schema
        self._backend: Backend | None = None
        self._lock = threading.Lock()
        self._turn = asyncio.Lock()

    @property
    def strategies(self) -> Mapping[Strategy, str]:
        """Those that the tools, or the schema, allow, with their labels."""
        return STRATEGIES if self._tools else {key: STRATEGIES[key] for key in ("json", "unconstrained")}

    async def decode(self, options: DecodingOptions) -> tuple[RecordedCall, ...]:
        """Return a decoding for each strategy; cancelling it ends the generation. Raises HttpError."""
        async with self._turn:
            try:
                async with asyncio.timeout(_MOST_S):
                    return tuple([await self._decode(options, strategy) for strategy in options.strategies])
            except TimeoutError:
                raise HttpError(504, f"decoding took more than {_MOST_S:g} s.", "timeout") from None

    def close(self) -> None:
        """Release the model."""
        with self._lock:
            if self._backend is not None:
                self._backend.close()

    async def _decode(self, options: DecodingOptions, strategy: Strategy) -> RecordedCall:
        try:
            backend = await asyncio.to_thread(self._loaded)
            request = await asyncio.to_thread(self._request, backend, options, strategy)
        except (GbnfError, ValueError) as error:
            if isinstance(error, HttpError):
                raise
            raise invalid_request(str(error)) from None
        try:
            return RecordedCall.of(request, (await collect_answer(backend, Asked(request))).completion)
        except GbnfError as error:
            return RecordedCall.of(request, error)

    def _loaded(self) -> Backend:
        with self._lock:
            if self._backend is None:
                self._backend = self._open()
            return self._backend

    def _request(self, backend: Backend, options: DecodingOptions, strategy: Strategy) -> Request:
        limits: dict[str, Any] = {
            "max_tokens": options.max_tokens,
            "temperature": float(options.temperature),
            "seed": options.seed,
        }
        trace = backend.info().traits.traces
        if not self._tools:
            schema = json.dumps(self._schema, ensure_ascii=False)
            return Request(
                [
                    {"role": "system", "content": _INSTRUCTIONS + schema},
                    {"role": "user", "content": options.request},
                ],
                self._choice.of_schema(self._schema) if strategy == "json" else None,
                trace=trace,
                **limits,
            )
        call_format: CallFormat = "json" if strategy == "unconstrained" else strategy
        planner_options = PlannerOptions(
            call_format=call_format,
            providers=self._providers,
            whitespace=self._choice.whitespace,
            property_order=self._choice.property_order,
            max_depth=self._choice.max_depth_of_calls,
            **limits,
        )
        constrained = strategy != "unconstrained"
        resolved = ResolvedOptions.resolve(planner_options, backend, constrained=constrained)
        asked = first_request(options.request, self._tools, resolved)
        return replace(asked, trace=trace, timeout_s=None, **limits)
