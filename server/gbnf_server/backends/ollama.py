"""Ollama's `/api/chat`. It takes no grammar: the union of calls goes as a JSON Schema, in `format`.

Ollama's own fault line is the context. Its default is short, and a conversation that is longer is cut
without a word. So `num_ctx` is always sent, `truncate` and `shift` are refused (servers since late 2025 then
answer with an error), and where a server has cut tokens all the same it is found out by its own count of the
prompt's. A prompt that was cut is an error: the model hasn't seen its tools.

What is left of a prompt that was cut, by `llm/llama_server.go` and the runners before it: as many tokens as
the context has, or one less; or half of them and half of `num_keep`. So a whole prompt is refused only where
it leaves no room for an answer, or where by chance it has the tokens of half a context and many bytes for
each. What is not found out: servers before late 2025 first drop the oldest messages, though never the
system's, and count what is left; those before 0.4 keep anything between half of the context and all of it;
some give a model a shorter context than it was asked for.

Wire format: `docs/openapi.yaml` of the project; for `truncate` and `shift`, its issue tracker.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

import httpx

from gbnf.dialects import schema_violation
from gbnf.prompts.messages import Message, PromptStyle
from gbnf_server.backends.base import DEMO_MODEL_NAME, Capabilities, Completion
from gbnf_server.backends.http_backend import HttpBackend
from gbnf_server.backends.http_client import (
    Flow,
    HttpClient,
    RetryPolicy,
    is_context_overflow,
    parse_response,
)
from gbnf_server.backends.image_messages import ollama_message
from gbnf_server.backends.reasoning import reclaim, split_reasoning
from gbnf_server.backends.streaming import OllamaStream, ReasoningFilter
from gbnf_server.backends.template_roles import TemplateRoles, adapt_messages
from gbnf_server.backends.wire import message_text, parse_count, parse_number, value_at
from gbnf_server.errors import BackendError, ContextOverflow, GrammarRefused, ServerResponseError

_BYTES_PER_TOKEN = 6.0
"""Prompts of tools and JSON have 3 to 4 bytes a token. Of one that was cut to half the context, the bytes for
each token that is counted are twice as many or more. Prose and tables can have as many: this alone shows
nothing."""

_KEPT = 16
"""How many tokens more than half of the context a server keeps at most that halves. `num_keep`, of which it
keeps half, is 4 unless the model's own file says otherwise."""

_NANO = 1e-9


class Ollama(HttpBackend):
    """A model that Ollama serves. `context_length` is in tokens, prompt and answer together.

    `constrained=False` sends no `format`: calls are then read softly. `tool_role` sends the results of tools
    as such, for models whose template shows them; others drop them without a word, and a user's words stay.
    `prompt_style`: by default "minimal" for the embedded model, else "full".
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
        """Nothing is sent yet. Raises BackendUnreachable where the URL is no address."""
        if context_length < 1:
            raise ValueError(f"context_length is {context_length}; a context has at least one token")
        self._http = HttpClient(
            url, server_name="Ollama", api_key=api_key, retry_policy=retry_policy or RetryPolicy()
        )
        self.model, self.url = model, self._http.url
        self.name = f"Ollama's {model} at {self.url}"
        self.context_length = context_length
        # Ollama itself handles images for a model without vision
        self.capabilities = Capabilities("json_schema" if constrained else "none", takes_images=True)
        self._roles = TemplateRoles(system=True, tool=tool_role)
        demonstration = DEMO_MODEL_NAME in model
        self.prompt_style: PromptStyle = prompt_style or ("minimal" if demonstration else "full")

    def _complete(
        self,
        messages: Sequence[Message],
        grammar: str | None,
        max_tokens: int,
        temperature: float,
        seed: int,
        on_text: Callable[[str], None] | None,
    ) -> Flow[Completion]:
        body = self._body(messages, grammar, max_tokens, temperature, seed)
        if on_text is None:
            response = yield from self._http.request("POST", "/api/chat", body, tokens=max_tokens)
            return self._read(response, None, body, grammar)
        reasoning_filter = ReasoningFilter(on_text, constrained=grammar is not None)
        lines = OllamaStream(reasoning_filter, max_tokens)
        response = yield from self._http.request(
            "POST", "/api/chat", {**body, "stream": True}, on_line=lines.feed, tokens=max_tokens
        )
        return reasoning_filter.end(self._read(response, lines.end(), body, grammar))

    def _body(
        self,
        messages: Sequence[Message],
        grammar: str | None,
        max_tokens: int,
        temperature: float,
        seed: int,
    ) -> dict[str, Any]:
        if max_tokens < 1:
            raise ValueError(f"max_tokens is {max_tokens}; an answer has at least one token")
        body: dict[str, Any] = {
            "model": self.model,
            "messages": [ollama_message(message) for message in adapt_messages(messages, self._roles)],
            "stream": False,
            "truncate": False,
            "shift": False,
            "options": {
                "num_ctx": self.context_length,
                "num_predict": max_tokens,
                "temperature": temperature,
                "seed": seed,
                # nothing but the temperature shapes the choice; Ollama's defaults would
                "top_k": 0,
                "top_p": 1.0,
                "min_p": 0.0,
                "repeat_penalty": 1.0,
            },
        }
        if grammar is not None:
            body["format"] = read_schema(grammar, self.name)
            body["think"] = False
        return body

    def _read(
        self,
        response: httpx.Response,
        streamed: dict[str, Any] | None,
        body: dict[str, Any],
        schema: str | None,
    ) -> Completion:
        answer, error = parse_response(response, streamed)
        if error:
            raise self._refusal(response.status_code, error)
        text = message_text(value_at(answer, "message", "content"))
        if text is None or answer.get("done") is not True:
            raise BackendError(f"{self.name} answered without a text, or only a part. Is it Ollama?")
        self._check_whole(answer, body["messages"])
        # servers before 0.3 give no reason: then a full count is the only sign of a cut
        full = parse_count(answer.get("eval_count")) >= body["options"]["num_predict"]
        reason = answer.get("done_reason", "length" if full else "stop")
        finish: Literal["stop", "length"] = "stop" if reason == "stop" else "length"
        reasoning, wrong, reclaimed = message_text(value_at(answer, "message", "thinking")) or "", None, False
        if schema is None:
            thought, text = split_reasoning(text)
            reasoning = reasoning or thought
        elif finish == "stop":
            text, reclaimed = reclaim(text, reasoning, lambda said: schema_violation(schema, said))
            wrong = schema_violation(schema, text)
        return Completion(
            text=text,
            finish=finish,
            prompt_tokens=parse_count(answer.get("prompt_eval_count")),
            completion_tokens=parse_count(answer.get("eval_count")),
            cached_tokens=0,  # Ollama does not tell
            prompt_s=parse_number(answer.get("prompt_eval_duration")) * _NANO,
            completion_s=parse_number(answer.get("eval_duration")) * _NANO,
            grammar_violation=wrong,
            reasoning=reasoning,
            reclaimed=reclaimed,
        )

    def _check_whole(self, answer: dict[str, Any], messages: Sequence[Mapping[str, Any]]) -> None:
        """Raise ContextOverflow where the count of tokens shows that the prompt was cut.

        The server counts what it kept. A prompt of no more bytes than the context has tokens fits for
        certain. A longer one was cut, or leaves no room for an answer, where it fills the context; or where
        just as many tokens were kept as a server keeps that halves, and too few for its bytes.
        """
        counted = parse_count(answer.get("prompt_eval_count"))
        size = sum(len(message["content"].encode()) for message in messages)
        if not counted or size <= self.context_length:
            return
        is_half = 0 <= counted - self.context_length // 2 <= _KEPT
        if counted >= self.context_length - 1 or (is_half and size / counted > _BYTES_PER_TOKEN):
            raise ContextOverflow(None, self.context_length)

    def _refusal(self, status: int, error: str) -> BackendError:
        if is_context_overflow(error):
            return ContextOverflow(None, self.context_length)
        if status == httpx.codes.NOT_FOUND and "model" in error:
            return ServerResponseError(status, f"{error}. Get it with `ollama pull {self.model}`.")
        if status in {400, 500} and any(word in error.lower() for word in ("format", "grammar", "schema")):
            return GrammarRefused(error)
        return ServerResponseError(status, error)


def read_schema(text: str, name: str) -> dict[str, Any]:
    """The JSON Schema in `text`. Raises GrammarRefused where a GBNF grammar stands there instead."""
    try:
        schema = json.loads(text)
    except ValueError:
        schema = None
    if not isinstance(schema, dict):
        raise GrammarRefused(f"{name} takes a JSON Schema and no GBNF; see gbnf.dialects.call_schema")
    return schema
