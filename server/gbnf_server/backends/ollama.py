"""Ollama's `/api/chat`. It takes no grammar: the union of calls is sent as a JSON Schema, in `format`.

Ollama's default context is short, and it truncates longer conversations silently. So `num_ctx` is always
sent, `truncate` and `shift` are disabled (servers since late 2025 then answer with an error), and truncation
by older servers is detected from their own count of the prompt's tokens. A truncated prompt is an error: the
model has not seen its tools.

After truncation, by `llm/llama_server.go` and earlier runners, a prompt has as many tokens as the context, or
one less; or half of them and half of `num_keep`. So a complete prompt is refused only if it leaves no space
for an answer, or if by chance it has the tokens of half a context and many bytes per token. Not detected:
servers before late 2025 first drop the oldest messages (never the system message) and count the rest; servers
before 0.4 keep any number of tokens between half of the context and all of it; some use a shorter context
than requested.

Wire format: `docs/openapi.yaml` of the project; for `truncate` and `shift`, its issue tracker.
"""

from __future__ import annotations

import json
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import asdict
from functools import partial
from typing import Any

import httpx

from gbnf.prompts.control_tokens import escape_control_tokens
from gbnf.prompts.messages import PromptStyle
from gbnf.strict_json import map_texts
from gbnf_server.backends.base import BackendEvent, Completion, Dialect, ModelInfo, Request, Timings, Usage
from gbnf_server.backends.http_backend import EventStream, HttpBackend, OllamaStream, schema_of, stream_answer
from gbnf_server.backends.http_client import HttpClient, HttpSession, RetryPolicy, run_beside
from gbnf_server.backends.image_messages import ollama_message
from gbnf_server.backends.model_traits import model_traits
from gbnf_server.backends.prompts import TemplateRoles, adapt_messages
from gbnf_server.backends.wire import GrammarErrors, parse_count, parse_number, read_object
from gbnf_server.system.errors import (
    ContextOverflowError,
    RequestNotSupportedError,
    ServerResponseError,
)

_BYTES_PER_TOKEN = 6.0
"""Prompts of tools and JSON have 3 to 4 bytes per token; one truncated to half the context has twice as many
or more per counted token. So may prose and tables: this alone proves nothing."""

_KEPT = 16
"""How many tokens beyond half of the context a server may keep: half of `num_keep`, by default 4."""

_GRAMMAR_ERRORS: GrammarErrors = ((400, 500), ("format", "grammar", "schema"))
_NANO = 1e-9


class Ollama(HttpBackend):
    """A model of an Ollama server. `context_length`: in tokens, prompt and answer together.

    `constrained=False` sends no `format`: calls are then parsed from text. `tool_role` sends results with the
    role `tool`, for models whose template supports it (others drop them silently), instead of `user`.
    `prompt_style`: by default "minimal" for the bundled model, otherwise "full".
    """

    def __init__(
        self,
        model: str,
        url: str = "http://127.0.0.1:11434",
        *,
        context_length: int = 8192,
        constrained: bool = True,
        tool_role: bool = False,
        api_key: str | None = None,
        prompt_style: PromptStyle | None = None,
        retry_policy: RetryPolicy | None = None,
    ) -> None:
        """Prepare a client; no request is sent. Raises BackendUnreachableError if the URL is invalid."""
        if context_length < 1:
            raise ValueError(f"context_length is {context_length}; it must be at least 1")
        self._http = HttpClient(url, server_name="Ollama", api_key=api_key, retry_policy=retry_policy)
        self.model, self.url = model, self._http.url
        self.name = f"Ollama's {model} at {self.url}"
        self._context_length: int = context_length
        self._info = ModelInfo(
            name=model,
            traits=model_traits(model, prompt_style=prompt_style, gives_logprobs=False),
            takes_tools=constrained,
            takes_images=True,  # Ollama itself handles them for a model without vision
        )
        self.dialect: Dialect = "json_schema" if constrained else "none"
        self._roles = TemplateRoles(system=True, tool=tool_role)

    async def _events(self, request: Request, session: HttpSession) -> AsyncGenerator[BackendEvent, None]:
        if request.tools and request.tool_choice is None:
            raise RequestNotSupportedError(self.name, "tools", "Ollama constrains no calls of its own tools.")
        if request.template_variables:
            raise RequestNotSupportedError(self.name, "template_variables", "Leave them out.")
        if request.reported_logprobs is not None:
            raise RequestNotSupportedError(self.name, "logprobs", "Use a llama-server.")
        if request.stop and request.grammar is not None:
            raise RequestNotSupportedError(self.name, "stop with a JSON Schema", "Leave out one of the two.")
        body = await run_beside(partial(self._body, request), request.messages)
        read = partial(self._read, body=body)
        answer = stream_answer(session, "/api/chat", body, request, OllamaStream, read)
        async with aclosing(answer):
            async for event in answer:
                yield event

    def _body(self, request: Request) -> dict[str, Any]:
        roles = self._roles if request.tool_choice is None else TemplateRoles(system=True, tool=True)
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [ollama_message(message) for message in adapt_messages(request.messages, roles)],
            "truncate": False,
            "shift": False,
            "options": {
                "num_ctx": self._context_length,
                "num_predict": request.max_tokens,
                "temperature": request.temperature,
                "seed": request.seed,
                # disable all other samplers, which Ollama's defaults would not
                **asdict(request.truncation),
                "repeat_penalty": 1.0,
            },
        }
        if request.grammar is not None:
            body["format"] = schema_of(self.name, request.grammar)
            body["think"] = request.reasoning
        elif request.reasoning:
            body["think"] = True
        if request.tools:
            body["tools"] = map_texts(list(request.tools), escape_control_tokens)
        if request.stop:
            body["options"]["stop"] = list(request.stop)
        return body

    def _read(self, response: httpx.Response, stream: EventStream, body: dict[str, Any]) -> Completion:
        try:
            answer = read_object(
                response, stream.last, context_length=self._context_length, grammar_errors=_GRAMMAR_ERRORS
            )
        except ServerResponseError as error:
            if error.status == httpx.codes.NOT_FOUND and "model" in error.message:
                hint = f"Get it with `ollama pull {self.model}`."
                raise ServerResponseError(error.status, f"{error.message}. {hint}") from None
            if "tools" in body and error.status == httpx.codes.BAD_REQUEST and "tool" in error.message:
                raise RequestNotSupportedError(self.name, "tools", f"It answered: {error.message}") from None
            raise
        self._check_whole(answer, [*body["messages"], {"content": json.dumps(body.get("tools", ()))}])
        # servers before 0.3 give no reason: then only the count shows a truncation
        full = parse_count(answer.get("eval_count")) >= body["options"]["num_predict"]
        reason = answer.get("done_reason", "length" if full else "stop")
        return Completion(
            text="",
            finish_reason="stop" if reason == "stop" else "length",
            usage=Usage(parse_count(answer.get("prompt_eval_count")), parse_count(answer.get("eval_count"))),
            timings=Timings(
                parse_number(answer.get("prompt_eval_duration")) * _NANO,
                parse_number(answer.get("eval_duration")) * _NANO,
            ),
            context_length=self._context_length,
        )

    def _check_whole(self, answer: dict[str, Any], messages: Sequence[Mapping[str, Any]]) -> None:
        """Raise ContextOverflowError if the count of tokens shows that the prompt was truncated.

        The server counts the tokens that it kept. A prompt of no more bytes than the context has tokens
        always fits. A longer one was truncated, or leaves no space for an answer, if it fills the context; or
        if the count is what a server keeps that halves the context, and too low for the prompt's bytes.
        """
        counted = parse_count(answer.get("prompt_eval_count"))
        size = sum(len(message["content"].encode()) for message in messages)
        if not counted or size <= self._context_length:
            return
        is_half = 0 <= counted - self._context_length // 2 <= _KEPT
        if counted >= self._context_length - 1 or (is_half and size / counted > _BYTES_PER_TOKEN):
            raise ContextOverflowError(None, self._context_length)
