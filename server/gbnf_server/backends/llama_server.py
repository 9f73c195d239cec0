"""A llama-server over HTTP, whose answers are verified.

A call renders the messages with the model's own template, and completes the prompt with our grammar
(`/completion`). So the server does not parse the answer: it separates no reasoning, looks for no tool calls,
and the grammar applies from the first character that we get. Our own matcher then verifies the text.

Each call after the first of a conversation is one request. The first prompt is rendered by the server
(`/apply-template`), later ones here, where that is exact (`template_copy`). The server is asked for its model
(`/props`) over a connection that is then left open: until it closes, five seconds later or when the server
ends, the model is the same. The server closes the connection of each streamed answer.
"""

from __future__ import annotations

import secrets
import threading
from collections.abc import AsyncGenerator, Iterator
from contextlib import ExitStack, aclosing, contextmanager, suppress
from dataclasses import asdict, dataclass, field, replace
from functools import partial
from pathlib import PurePath
from typing import Any

import httpx

from gbnf import Grammar
from gbnf.grammar.analysis import token_terminals
from gbnf.prompts.control_tokens import control_tokens_in, make_escaper, strings_removed_by
from gbnf.prompts.messages import PromptStyle
from gbnf.tool_formats.probing import switches
from gbnf.tool_formats.rendering import adapt_conversation, close_prompt
from gbnf_server.backends import wire
from gbnf_server.backends.base import BackendEvent, Completion, Dialect, ModelInfo, Request, Timings, Usage
from gbnf_server.backends.http_backend import CompletionStream, EventStream, HttpBackend, stream_answer
from gbnf_server.backends.http_client import HttpClient, HttpSession, Method, RetryPolicy, run_beside
from gbnf_server.backends.image_messages import insert_image_markers, openai_message, refuse_images
from gbnf_server.backends.model_traits import model_traits
from gbnf_server.backends.prompts import PROBES, Conversation, TemplateRules, read_roles
from gbnf_server.backends.reasoning import open_reasoning_tags
from gbnf_server.backends.template_copy import TemplateCopy, TemplateInput, samples
from gbnf_server.llama.grammar_limits import guard_grammar, missing_token
from gbnf_server.system.addresses import llama_server_url
from gbnf_server.system.errors import (
    BackendError,
    ChatTemplateError,
    RequestNotSupportedError,
    ServerResponseError,
)


@dataclass(slots=True)
class _Slot:
    """A slot. `salt`: of what is in its cache, None if that is unknown.

    `running`: requests that name it; `overlapped`: whether there were several, whose order is not known.
    """

    id: int
    salt: str | None = None
    running: int = 0
    overlapped: bool = False
    last_used: int = 0


class ServerSlots:
    """Which requests may reuse what is in the cache of a server's slots, by their salts. Thread-safe.

    Without a salt, a llama-server reuses whatever begins a prompt in the cache of any slot, or among the
    prompts that it has moved to main memory (`--cache-ram`). A request that names a slot finds that slot's
    cache, and those in main memory; with `cache_prompt` false, nothing. So a request with a salt names a
    slot, and reuses its cache if the request before had the same salt, and the server keeps no prompts
    elsewhere.

    `are_separate`: whether it keeps no prompts outside of them, None if that is not known yet.
    """

    def __init__(self, total: int) -> None:
        self.are_separate: bool | None = None
        self._slots = [_Slot(number) for number in range(total)]
        self._lock = threading.Lock()
        self._count = 0

    @contextmanager
    def taken(self, salt: str) -> Iterator[tuple[int, bool]]:
        """Return the slot of a request that runs in the context, and whether it may reuse its cache."""
        with self._lock:
            self._count += 1
            slot = min(self._slots, key=lambda other: (other.running, other.salt != salt, other.last_used))
            slot.overlapped = slot.running > 0
            reuses = slot.salt == salt and not slot.overlapped and bool(self.are_separate)
            slot.salt = salt if reuses else None
            slot.running, slot.last_used = slot.running + 1, self._count
        try:
            yield slot.id, reuses
            with self._lock:  # answered: the cache has this prompt, and nothing of an earlier one
                slot.salt = None if slot.overlapped else salt
        finally:
            with self._lock:
                slot.running -= 1


@dataclass(frozen=True, slots=True)
class _ServerProperties:
    """Properties of a server and its model. `props`: the response that they were read from.

    `slots`: what its slots have in their caches since then. `tokens`: how many a text is, as far as it was
    asked. `watched`, `connection`: where it told them.
    """

    props: dict[str, Any]
    context_length: int
    info: ModelInfo
    rules: TemplateRules
    media_marker: str
    slots: ServerSlots
    template: TemplateCopy
    tokens: dict[str, int] = field(default_factory=dict)
    watched: HttpSession | None = None
    connection: object | None = None


class LlamaServer(HttpBackend):
    """A llama-server at an address, by default on port 9931 or else 8080 of this machine.

    `api_key`: by default that of a server that this user started there. `prompt_style`: by default "minimal"
    for the bundled model, otherwise "full".
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        api_key: str | None = None,
        prompt_style: PromptStyle | None = None,
        retry_policy: RetryPolicy | None = None,
    ) -> None:
        """Prepare a client; no request is sent. Raises BackendUnreachableError if the URL is invalid."""
        self._http = HttpClient(
            url or llama_server_url(),
            server_name="llama-server",
            api_key=api_key,
            retry_policy=retry_policy,
            hint="Start one with `gbnf server start --model …`",
            on_broken=self._clear_properties,
            closes_streams=True,
        )
        self.url = self._http.url
        self.name = f"llama-server at {self.url}"
        self._prompt_style = prompt_style
        self._properties: _ServerProperties | None = None
        self._reuses = True
        self.dialect: Dialect = "gbnf"

    async def facts(self) -> tuple[ModelInfo, int | None]:
        """Return what the server reports of its present model, which its file names; see `Backend`.

        It takes images only if it was started with `--mmproj`.
        """
        properties = await self._present()
        return properties.info, properties.context_length

    async def count_tokens(self, request: Request) -> int:
        """Return the number of tokens of the request's prompt; see `Backend`."""
        properties = await self._present()
        async with self._http.session() as session:
            prompt, images = await self._prompt(request, properties, session)
            if images:
                raise RequestNotSupportedError(self.name, "counting the tokens of images", "Leave them out.")
            body = {"content": prompt, "add_special": True, "parse_special": True}
            tokens = (await _request(session, "POST", "/tokenize", body)).get("tokens")
        if not isinstance(tokens, list):
            raise BackendError(f"{self.url}/tokenize returned no tokens. Is it a llama-server?")
        return len(tokens)

    def clear_prompt_cache(self) -> None:
        """Make the server evaluate the whole prompt of the next call."""
        self._reuses = False

    async def _events(self, request: Request, session: HttpSession) -> AsyncGenerator[BackendEvent, None]:
        # a server hangs and crashes on the same grammars as the engine here
        grammar = None if request.grammar is None else guard_grammar(request.grammar)
        (properties, prompt, images, preserved), request = await self._timed(
            request, self._prepare(request, grammar, session)
        )
        body: dict[str, Any] = {
            "prompt": {"prompt_string": prompt, "multimodal_data": images} if images else prompt,
            "n_predict": request.max_tokens,
            "temperature": request.temperature,
            "samplers": ["temperature"],  # nothing else, as in this process
            "seed": request.seed,
            "cache_prompt": self._reuses,
        }
        self._reuses = True
        if not request.truncation.keeps_all:
            truncation = asdict(request.truncation)
            body |= {**truncation, "samplers": [*truncation, "temperature"]}
        if request.stop:
            body["stop"] = list(request.stop)
        if (count := request.reported_logprobs) is not None:
            body["n_probs"] = max(count, 1)  # 0 returns none, not even those of the answer
        if grammar is not None:
            body["grammar"] = str(grammar)
        if preserved:
            body["preserved_tokens"] = preserved  # otherwise the server drops special tokens
        open_tags = open_reasoning_tags(prompt)
        read = partial(_read_completion, context_length=properties.context_length)
        with ExitStack() as stack:
            if request.cache_salt:
                slots = properties.slots
                if slots.are_separate is None:
                    slots.are_separate = await _has_separate_slots(session)
                slot, reuses = stack.enter_context(slots.taken(request.cache_salt))
                body |= {"id_slot": slot, "cache_prompt": reuses and body["cache_prompt"]}
            answer = stream_answer(session, "/completion", body, request, CompletionStream, read, open_tags)
            async with aclosing(answer):
                async for event in answer:
                    yield event

    async def _prepare(
        self, request: Request, grammar: Grammar | None, session: HttpSession
    ) -> tuple[_ServerProperties, str, list[str], list[str]]:
        """Return the present properties, the prompt with its images, and the special tokens to preserve."""
        properties = await self._present()
        prompt, images = await self._prompt(request, properties, session)
        preserved: list[str] = []  # whose texts belong to the answer
        traits = properties.info.traits
        if request.is_native and traits.tool_format is not None:
            preserved += traits.tool_format.control_texts
        elif request.grammar is None and traits.reasoning_tags is not None:
            preserved += traits.reasoning_tags.tokens
        if grammar is not None and grammar.is_parsed:
            preserved += await _terminal_texts(grammar, session, properties.tokens, self.name)
        return properties, prompt, images, preserved

    async def _prompt(
        self, request: Request, properties: _ServerProperties, session: HttpSession
    ) -> tuple[str, list[str]]:
        """Return the prompt, with a marker for each image, and the images."""
        if not properties.info.takes_images:
            refuse_images(request.messages, self.name)

        def begin() -> tuple[Conversation, TemplateInput, list[str], str | None]:
            conversation = properties.rules.conversation(request)
            template_input, images = _template_input(conversation, properties.media_marker)
            return conversation, template_input, images, properties.template.render(template_input)

        read = request.messages, request.tools
        conversation, template_input, images, prompt = await run_beside(begin, read)
        if prompt is None:
            prompt = await self._render(session, template_input)
            await run_beside(partial(properties.template.compare, template_input, prompt), read)
        if conversation.tool_format is not None:
            prompt = close_prompt(conversation.tool_format, prompt, reasoning=conversation.reasons)
        return conversation.finish(prompt), images

    async def _present(self) -> _ServerProperties:
        """Return the properties of the present server and model, the cached ones while it is the same."""
        current = self._properties
        if current is not None:
            watched = current.watched  # until it closes, the server is the same process
            if watched is not None and watched.connection is current.connection is not None:
                return current
        async with self._http.session() as session:
            fetched = await self._fetch_properties(session, current)
            self._clear_properties()
            session.is_watched = True
            self._properties = replace(fetched, watched=session, connection=session.connection)
            return self._properties

    async def _fetch_properties(
        self, session: HttpSession, properties: _ServerProperties | None = None
    ) -> _ServerProperties:
        """Return the properties of the present server, those that are known if they are the same."""
        props = await _request(session, "GET", "/props")
        if properties is not None and props == properties.props:
            return properties
        length = wire.parse_count(wire.value_at(props, "default_generation_settings", "n_ctx"))
        if not length:
            raise BackendError(f"{self.url}/props has no context length. Is it a llama-server?")
        slots = wire.parse_count(props.get("total_slots")) or 1
        probes = [TemplateInput(messages, {"enable_thinking": False}) for messages in PROBES]
        try:
            roles = read_roles([await self._attempt(session, probe) for probe in probes])
        except ChatTemplateError as error:
            raise BackendError(f"the model's chat template fails: {error}") from None
        template = str(props.get("chat_template", ""))
        begin, end = (str(props.get(key) or "") for key in ("bos_token", "eos_token"))
        traits = model_traits(
            str(props.get("model_alias", "")),
            template,
            begin,
            end,
            prompt_style=self._prompt_style,
            parameters=await _parameters(session),
        )
        marker = str(props.get("media_marker") or _MEDIA_MARKER)
        names = strings_removed_by(template) | {marker} | control_tokens_in(f"{template} {begin} {end}")
        rules = TemplateRules(roles, make_escaper(names), traits)
        copy = TemplateCopy(template, begin, end)
        for request in (
            samples(with_tools=traits.tool_format is not None) if copy.renderer is not None else ()
        ):
            sample, _ = _template_input(rules.conversation(request), marker)
            copy.compare(sample, await self._attempt(session, sample), is_sample=True)
        return _ServerProperties(
            props,
            length,
            ModelInfo(
                name=PurePath(str(props.get("model_path") or props.get("model_alias") or "")).name,
                traits=traits,
                takes_images=bool(wire.value_at(props, "modalities", "vision")),
                slots=slots,
                build=str(props.get("build_info", "")),
            ),
            rules,
            marker,
            ServerSlots(slots),
            copy,
        )

    async def _attempt(self, session: HttpSession, template_input: TemplateInput) -> str | ChatTemplateError:
        """Have the server render a prompt that its template may refuse."""
        try:
            return await self._render(session, template_input)
        except ServerResponseError as error:
            if error.status not in {400, 500}:
                raise
            return ChatTemplateError(error.message)

    async def _render(self, session: HttpSession, template_input: TemplateInput) -> str:
        body: dict[str, Any] = {
            "messages": [openai_message(message) for message in template_input.messages],
            "chat_template_kwargs": template_input.variables,
        }
        if template_input.tools:
            body["tools"] = list(template_input.tools)
        answer = await _request(session, "POST", "/apply-template", body)
        prompt = answer.get("prompt")
        if not isinstance(prompt, str):
            raise BackendError(f"{self.url}/apply-template returned no prompt. Is it a llama-server?")
        return prompt

    def _clear_properties(self) -> None:
        if (properties := self._properties) is not None and properties.watched is not None:
            properties.watched.is_watched = False
        self._properties = None


async def _terminal_texts(
    grammar: Grammar, session: HttpSession, tokens: dict[str, int], name: str
) -> list[str]:
    """Return the texts of token terminals. `tokens`: how many a text is, as far as the server was asked.

    Raises GrammarRefusedError for one that is no token of the server `name`.
    """
    terminals = {term.token: term for term in token_terminals(grammar.rules) if isinstance(term.token, str)}
    for text, term in terminals.items():
        if text not in tokens:
            body = {"content": text, "parse_special": True}
            counted = (await _request(session, "POST", "/tokenize", body)).get("tokens")
            if not isinstance(counted, list):
                continue
            if len(tokens) >= _MOST_TEXTS:
                tokens.clear()
            tokens[text] = len(counted)
        if tokens[text] != 1:
            raise missing_token(name, term, tokens[text])
    return list(map(str, terminals))


async def _has_separate_slots(session: HttpSession) -> bool:
    """Return whether the server forgets a prompt for the next one in its slot: not with `--cache-ram`."""
    first, second = secrets.token_hex(32), secrets.token_hex(32)
    body = {"n_predict": 0, "id_slot": 0}
    for prompt, reuses in ((first, False), (second, False), (first, True)):
        complete_body = {**body, "prompt": prompt, "cache_prompt": reuses}
        answer = await _request(session, "POST", "/completion", complete_body)
    cached = wire.parse_count(wire.value_at(answer, "timings", "cache_n"))
    return cached * 2 < wire.parse_count(answer.get("tokens_evaluated"))


async def _request(
    session: HttpSession, method: Method, path: str, body: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Send a request, and return the JSON object of the response."""
    return wire.read_object(await session.request(method, path, body))


def _read_completion(response: httpx.Response, stream: EventStream, context_length: int) -> Completion:
    """Return what the end of an answer tells; see llama.cpp's `tools/server/README.md`."""
    answer = wire.read_object(response, stream.last, grammar_errors=_GRAMMAR_ERRORS)
    stop = answer.get("stop_type")
    if stop not in ("eos", "word", "limit", "none"):
        raise BackendError("llama-server's answer has no reason for its end. Update the server.")
    timings = answer.get("timings")
    stopped = answer.get("stopping_word") if stop == "word" else None
    return Completion(
        text="",
        finish_reason="stop" if stop in {"eos", "word"} and not answer.get("truncated") else "length",
        usage=Usage(
            wire.parse_count(answer.get("tokens_evaluated")),
            wire.parse_count(answer.get("tokens_predicted")),
            wire.parse_count(wire.value_at(timings, "cache_n")),
        ),
        timings=Timings(
            wire.parse_number(wire.value_at(timings, "prompt_ms")) / 1000,
            wire.parse_number(wire.value_at(timings, "predicted_ms")) / 1000,
        ),
        context_length=context_length,
        stop_string=wire.message_text(stopped),
    )


async def _parameters(session: HttpSession) -> int | None:
    """Return the number of the model's weights, None if the server does not say it."""
    with suppress(ServerResponseError):
        match await _request(session, "GET", "/v1/models"):
            case {"data": [{"meta": {"n_params": int(count)}}, *_]}:
                return count
    return None


def _template_input(conversation: Conversation, media_marker: str) -> tuple[TemplateInput, list[str]]:
    """Return what the template renders, with a marker for each image, and the images."""
    messages, images = insert_image_markers(conversation.messages, media_marker)
    form, reasons = conversation.tool_format, conversation.reasons
    if form is None:
        return TemplateInput(messages, {**conversation.variables, "enable_thinking": reasons}), images
    variables = {**conversation.variables, **switches(form.template, reasoning=reasons)}
    return TemplateInput(adapt_conversation(form, messages), variables, conversation.tools), images


_GRAMMAR_ERRORS: wire.GrammarErrors = ((400,), ("grammar",))
_MOST_TEXTS = 10_000
"""Token terminals whose tokens are remembered: grammars come from clients."""
_MEDIA_MARKER = "<__media__>"
"""The marker of an image in a prompt, if the server reports none: llama.cpp's default."""
