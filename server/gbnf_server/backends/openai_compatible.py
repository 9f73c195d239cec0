"""Servers with OpenAI's `/v1/chat/completions`, each with its own fields for constrained decoding.

    vllm        structured_outputs: {"grammar": GBNF}       since vLLM 0.12
    sglang      ebnf: GBNF
    lm_studio   response_format: {"type": "json_schema"}    LM Studio, llama-server and others
    plain       nothing: the server's own `tools`, or calls that are parsed from text

vLLM and SGLang get the grammar in the subset of GBNF that xgrammar supports. Their chat endpoints take calls
out of the text with a parser that depends on how they were started, and do not show the chat template. So
tools are declared only if the template is given here: then the prompt is rendered here, and completed by
`/v1/completions`, which parses nothing. A server may ignore unknown fields, so every answer is verified by
our own matcher or by the schema.
Sources: vLLM's "Structured Outputs", SGLang's `entrypoints/openai/protocol.py`, LM Studio's "Structured
Output".
"""

from __future__ import annotations

import reprlib
from collections.abc import AsyncGenerator, Mapping
from contextlib import aclosing, suppress
from dataclasses import replace
from functools import partial
from typing import Any, Literal

import httpx

from gbnf.dialects import xgrammar_text
from gbnf.prompts.control_tokens import (
    control_tokens_in,
    escape_control_tokens,
    make_escaper,
    strings_removed_by,
)
from gbnf.prompts.messages import PromptStyle
from gbnf.protocols.protocol import AnswerFormat
from gbnf.strict_json import map_texts
from gbnf.tool_formats import detect
from gbnf_server.backends import wire
from gbnf_server.backends.base import BackendEvent, Completion, Dialect, ModelInfo, Request, Usage
from gbnf_server.backends.http_backend import ChatStream, EventStream, HttpBackend, schema_of, stream_answer
from gbnf_server.backends.http_client import HttpClient, HttpSession, RetryPolicy, run_beside
from gbnf_server.backends.image_messages import openai_message, refuse_images
from gbnf_server.backends.model_traits import model_traits
from gbnf_server.backends.prompts import TemplateRoles, TemplateRules, adapt_messages
from gbnf_server.llama.grammar_limits import guard_grammar
from gbnf_server.system.errors import (
    BackendError,
    GrammarRefusedError,
    RequestNotSupportedError,
    ServerResponseError,
)
from gbnf_server.system.event_loop import shared_loop

ServerKind = Literal["vllm", "sglang", "lm_studio", "plain"]

_DIALECTS: dict[ServerKind, Dialect] = {
    "vllm": "gbnf",
    "sglang": "gbnf",
    "lm_studio": "json_schema",
    "plain": "none",
}
_REFUSED = frozenset({400, 404, 422, 500, 501})
"""The statuses of errors that may mean that a server has no field of this name."""
_GRAMMAR_ERRORS: wire.GrammarErrors = (
    (400, 422),
    ("grammar", "ebnf", "structured", "guided", "response_format", "schema"),
)


class OpenAICompatible(HttpBackend):
    """A model behind OpenAI's chat API. `url` is the server's address, with or without `/v1`.

    `model`: by default the first that the server lists. `context_length` (tokens): by default what the server
    reports, as vLLM and SGLang do. `tool_role` sends results with the role `tool` instead of `user`, for
    servers that take them without a call's id, and models whose template supports them. `chat_template`: the
    text of the model's chat template, for requests with tools to vLLM and SGLang.
    """

    def __init__(
        self,
        url: str,
        server: ServerKind,
        *,
        model: str | None = None,
        context_length: int | None = None,
        api_key: str | None = None,
        tool_role: bool = False,
        prompt_style: PromptStyle = "full",
        retry_policy: RetryPolicy | None = None,
        chat_template: str | None = None,
    ) -> None:
        """Prepare a client; no request is sent.

        Raises BackendUnreachableError if the URL is invalid, ToolFormatError for a template without tools.
        """
        if server not in _DIALECTS:
            raise ValueError(f"server is {server!r}; it must be one of {', '.join(_DIALECTS)}")
        if chat_template is not None and _DIALECTS[server] != "gbnf":
            raise ValueError(f"chat_template is given, but {server} takes no grammar; leave it out")
        self._http = HttpClient(url, server_name=server, api_key=api_key, retry_policy=retry_policy)
        self.url, self.server, self.dialect = self._http.url, server, _DIALECTS[server]
        self._template, self._prompt_style, self._rules = chat_template, prompt_style, None
        self._set_model(model or "")
        if chat_template is not None:  # the server adds the token that begins a prompt
            roles = TemplateRoles(system=True, tool=detect(chat_template).result_role == "tool")
            names = strings_removed_by(chat_template) | control_tokens_in(chat_template)
            self._rules = TemplateRules(roles, make_escaper(names), self._info.traits)
        self._roles = TemplateRoles(system=True, tool=tool_role)
        self._context_length = context_length
        self._refused: set[str] = set()  # fields that the server has refused
        self._is_listed = False  # whether the server has listed its models

    @property
    def name(self) -> str:  # type: ignore[override]  # it is known once the server has answered
        """The model, as far as it is known, and the server."""
        return f"{self._info.name or 'the model'} of {self.server} at {self.url}"

    def info(self) -> ModelInfo:
        """Return what is known of the model; sends no request. The server handles images for all models."""
        return self._info

    async def facts(self) -> tuple[ModelInfo, int | None]:
        """Return what is known of the model; see `Backend`. Many servers do not tell the context length."""
        if self._context_length is None and not self._is_listed:
            with suppress(BackendError):  # whether the server answers is seen soon
                await self._find_model()
        return self._info, self._context_length

    def model_name(self) -> str:
        """Return the model, as the server lists it, blocking. Raises BackendError if it lists none."""
        if not self._info.name:
            shared_loop().run(self._find_model())
        return self._info.name

    def context_length(self) -> int:
        """Return the longest conversation in tokens; see `Backend`."""
        if self._context_length is None:
            shared_loop().run(self._find_model())
        return super().context_length()

    async def _events(self, request: Request, session: HttpSession) -> AsyncGenerator[BackendEvent, None]:
        self._check(request)
        if not self._info.name:
            _, request = await self._timed(request, self._fetch_model(session))
        read = partial(self._read, request=request)
        path = "/v1/completions" if self._renders(request) else "/v1/chat/completions"
        has_begun = False
        while True:
            body = await run_beside(partial(self._body, request), (request.messages, request.tools))
            answer = stream_answer(session, path, body, request, ChatStream, read)
            try:
                async with aclosing(answer):
                    async for event in answer:
                        has_begun = True
                        yield event
            except ServerResponseError as error:
                if has_begun or not self._may_leave_out(error, request, body):
                    raise
            else:
                return

    def _may_leave_out(self, error: ServerResponseError, request: Request, body: Mapping[str, Any]) -> bool:
        """Return whether the server refuses a field without which it can be asked again.

        Raises RequestNotSupportedError if it refuses tools.
        """
        optional = {"tool_choice", "logprobs"} if request.logprobs is None else {"tool_choice"}
        message = error.message.lower() if error.status in _REFUSED else ""
        if fields := {name for name in optional & body.keys() if name.rstrip("s") in message}:
            self._refused |= fields
            return True
        if "tools" in body and ("tool" in message or "function call" in message):
            self._info = replace(self._info, takes_tools=False)
            raise RequestNotSupportedError(self.name, "tools", f"It answered: {error.message}") from None
        return False

    def _check(self, request: Request) -> None:
        """Raise RequestNotSupportedError for what the server would ignore, or do in its own way."""
        if request.tool_choice is not None and not self._info.takes_tools:
            raise RequestNotSupportedError(self.name, "tools", "Use the call format text.")
        if request.probabilities and self.dialect == "none":
            raise RequestNotSupportedError(self.name, "probabilities", "Use a server that takes a grammar.")
        if request.tools and request.tool_choice is None and self._rules is None:
            raise RequestNotSupportedError(self.name, "tools", "Set chat_template to that of the model.")
        if request.template_variables and self._info.traits.template_variables == frozenset():
            raise RequestNotSupportedError(self.name, "template_variables", "Leave them out.")
        if self._renders(request) and request.reported_logprobs is not None:
            raise RequestNotSupportedError(self.name, "logprobs with tools", "Leave out one of the two.")
        if request.grammar is None or self._renders(request):
            return
        if request.reasoning and self.dialect == "gbnf":
            raise RequestNotSupportedError(
                self.name, "reasoning with a grammar", "Whether the grammar covers it depends on the server."
            )
        if request.stop and self.dialect == "json_schema":
            raise RequestNotSupportedError(self.name, "stop with a JSON Schema", "Leave out one of the two.")

    def _set_model(self, name: str) -> None:
        traits = model_traits(
            name,
            # a server without grammars takes no variables of its template, which need not be known
            self._template if self.dialect == "gbnf" else "",
            prompt_style=self._prompt_style,
            gives_logprobs=self.dialect != "none",  # of no use without a grammar
        )
        traits = replace(traits, reasoning_tags=None)  # it continues no `reasoning_message`
        self._info = ModelInfo(name, traits, takes_images=True, takes_tools=self._template is None)

    async def _find_model(self) -> None:
        async with self._http.session() as session:
            await self._fetch_model(session)

    async def _fetch_model(self, session: HttpSession) -> None:
        listed = wire.read_object(await session.request("GET", "/v1/models")).get("data")
        if not isinstance(listed, list | None):
            raise BackendError(f"{self.url} returned {reprlib.repr(listed)} instead of a list of models")
        cards = [card for card in listed or () if isinstance(card, dict)]
        card = next((card for card in cards if self._info.name in ("", card.get("id"))), None)
        if card is None or not isinstance(card.get("id"), str):
            raise BackendError(f"{self.url} lists no model {self._info.name}. Load one there.")
        self._is_listed = True
        if not self._info.name:
            self._set_model(card["id"])
        if self._context_length is None:
            self._context_length = wire.parse_count(card.get("max_model_len")) or None

    def _body(self, request: Request) -> dict[str, Any]:
        truncation = request.truncation
        body: dict[str, Any] = {
            "model": self._info.name,
            **self._conversation(request),
            "max_tokens": request.max_tokens,
            "temperature": request.temperature,
            "seed": request.seed,
            "top_p": truncation.top_p,
        }
        if request.stop:
            body["stop"] = list(request.stop)
        if request.tools and request.tool_choice is not None:
            body["tools"] = map_texts(list(request.tools), escape_control_tokens)
            if request.tool_choice != "auto" and "tool_choice" not in self._refused:
                body["tool_choice"] = request.tool_choice
        if request.logprobs is not None or (request.probabilities and "logprobs" not in self._refused):
            body |= {"logprobs": True, "top_logprobs": request.reported_logprobs}
        if request.cache_salt and self.dialect == "gbnf":
            body["cache_salt"] = request.cache_salt  # of vLLM and SGLang
        if self.dialect == "gbnf":
            # disable all other samplers, which a model's defaults would not
            body |= {"top_k": truncation.top_k or -1, "min_p": truncation.min_p, "repetition_penalty": 1.0}
            if not self._renders(request):
                variables = dict(map_texts(request.template_variables, escape_control_tokens))
                if request.grammar is not None or request.reasoning:
                    variables["enable_thinking"] = request.reasoning
                body |= {"chat_template_kwargs": variables} if variables else {}
        elif truncation.top_k or truncation.min_p:
            body |= {"top_k": truncation.top_k, "min_p": truncation.min_p}  # beyond the API, but widespread
        return body if request.grammar is None else body | self._grammar_fields(request.grammar)

    def _renders(self, request: Request) -> bool:
        """Return whether the prompt is rendered here, since the server would parse the answer."""
        return request.is_native and self._rules is not None

    def _conversation(self, request: Request) -> dict[str, Any]:
        """Return the fields with the messages, or with the prompt that declares tools."""
        if self._rules is None or not self._renders(request):
            roles = TemplateRoles(system=True, tool=self._roles.tool or request.tool_choice is not None)
            messages = adapt_messages(request.messages, roles)
            return {"messages": [openai_message(message) for message in messages]}
        refuse_images(request.messages, "a prompt that is rendered here")
        return {
            "prompt": self._rules.conversation(request).render(),
            "skip_special_tokens": False,
            **({} if self.server == "sglang" else {"spaces_between_special_tokens": False}),
        }

    def _grammar_fields(self, grammar: AnswerFormat) -> dict[str, Any]:
        """Return the fields that constrain the answer, by the server's protocol."""
        match self.server:
            case "vllm":
                return {"structured_outputs": {"grammar": xgrammar_text(guard_grammar(grammar))}}
            case "sglang":
                return {"ebnf": xgrammar_text(guard_grammar(grammar))}
            case "lm_studio":
                schema = {"name": "call", "strict": True, "schema": schema_of(self.name, grammar)}
                return {"response_format": {"type": "json_schema", "json_schema": schema}}
            case "plain":
                raise GrammarRefusedError(f"{self.name} takes no grammar: use the call format text")

    def _read(self, response: httpx.Response, stream: EventStream, request: Request) -> Completion:
        answer = wire.read_object(
            response,
            stream.last,
            context_length=self._context_length,
            grammar_errors=((), ()) if request.grammar is None else _GRAMMAR_ERRORS,
        )
        ended = ("stop",) if request.tool_choice is None else ("stop", "tool_calls")
        usage, told = answer.get("usage"), (answer.get("stop_reason"), answer.get("matched_stop"))
        return Completion(
            text="",
            # any other reason ("content_filter", "abort", …) is a truncation, so that no call is executed
            finish_reason="stop" if answer.get("finish_reason") in ended else "length",
            usage=Usage(
                wire.parse_count(wire.value_at(usage, "prompt_tokens")),
                wire.parse_count(wire.value_at(usage, "completion_tokens")),
                wire.parse_count(wire.value_at(usage, "prompt_tokens_details", "cached_tokens"))
                if self.dialect == "gbnf" or not request.cache_salt
                else 0,
            ),
            context_length=self._context_length,
            # as far as the server tells (vLLM, SGLang)
            stop_string=next((text for text in told if text in request.stop), None),
        )
