"""Answer a request: choose the format, compile the grammar, decode, verify, and yield the events."""

from __future__ import annotations

import asyncio
import secrets
import string
from collections.abc import AsyncGenerator, Sequence
from contextlib import aclosing
from dataclasses import replace
from functools import partial
from typing import Literal, TypeAlias

from gbnf import Tool
from gbnf.calls.validation import validate_call
from gbnf.compiler.pool import MAX_DEPTH
from gbnf.dialects import schema_violation
from gbnf.prompts.messages import Message
from gbnf.protocols.readers import PlainText, TextCalls
from gbnf.requests.evidence import Evidence, EvidenceUse, gather_evidence
from gbnf.requests.pool_filter import best_first
from gbnf.requests.ranking import is_about
from gbnf.requests.values import LONGEST_REQUEST
from gbnf.strict_json import InvalidJsonError, parse_json
from gbnf.tool_formats import CallStarted, Delta, ReasoningDelta, TextDelta
from gbnf_server.backends.answer import (
    Answered,
    AnswerEvent,
    AnswerSource,
    Asked,
    ReadCall,
    answer,
    collect_answer,
)
from gbnf_server.backends.base import Backend, Request, Usage
from gbnf_server.backends.call_odds import call_odds, means_text, odds_request
from gbnf_server.gateway.answers import GRAMMAR_IGNORED, Finished, ReplyEvent, Started
from gbnf_server.gateway.chat import (
    ChatRequest,
    GbnfText,
    ToolChoice,
    call_key,
    excluded_calls,
    failed_calls,
    succeeded_calls,
)
from gbnf_server.gateway.compiler import Compiler
from gbnf_server.gateway.compiling import Compiled, GatewayCallFormat, Target
from gbnf_server.gateway.corrections import AskAgain, again, answer_corrected, deltas_of, is_said
from gbnf_server.gateway.gateway import Answers
from gbnf_server.gateway.progress import Turn
from gbnf_server.llama.token_values import Truncation
from gbnf_server.planner.answer_checks import proposed_calls, proposes_call
from gbnf_server.system import errors
from gbnf_server.web.errors import HttpError

_LETTERS = string.ascii_letters + string.digits
_ID_LENGTH = 9
"""Ids of nine letters and digits are accepted by every chat template, also by Mistral's."""

DEFAULT_MAX_TOKENS = 4096
"""The limit of an answer's tokens if the client gives none, and the context has twice as many."""

_BEGINNING = 120
"""Characters of a text after which it is known whether it proposes a call."""


_Subject: TypeAlias = Literal["unknown", "tools", "other"]


class Engine(Answers):
    """Answers requests, and caches their grammars. Not for use by several event loops.

    `retries`: how often a backend that ignored the grammar, or that wrote invalid arguments where the grammar
    is not exact, is asked again, as long as nothing of the answer has left. `compile_s`: the time limit of
    one request's grammars. `no_repeat`: after how many failures of a call with the same arguments it is
    excluded, None for never. `evidence`: what of the conversation gets a bonus in the JSON calls of a model
    in this process (`gbnf.requests.evidence`). `call_format`: see `Target.of`. `hints`: help small models to
    choose between a call and an answer, and to end. `max_depth`: see `gbnf.compile_pool`.
    """

    def __init__(
        self,
        *,
        retries: int = 0,
        compile_s: float = 30.0,
        no_repeat: int | None = None,
        evidence: EvidenceUse = "all",
        call_format: GatewayCallFormat | None = None,
        hints: bool = True,
        max_depth: int = MAX_DEPTH,
    ) -> None:
        self._retries, self._no_repeat, self._evidence = retries, no_repeat, evidence
        self._call_format, self._hints, self._max_depth = call_format, hints, max_depth
        self._compiler = Compiler(timeout_s=compile_s)

    def close(self) -> None:
        """Start no further compilations."""
        self._compiler.close()

    async def prepare(self, request: ChatRequest, backend: Backend, owner: str) -> None:
        """Compile the grammar of a request before it has a place.

        `owner`: whose it is; compilations of several take turns. Raises HttpError.
        """
        await self._compiled(request, backend, owner)

    async def answer(self, request: ChatRequest, backend: Backend) -> AsyncGenerator[ReplyEvent, None]:
        """Yield the events of the answers of a request.

        If it is streamed, they come as they are decoded, the first with the first token: an error before it
        has an HTTP status of its own. Otherwise those of an answer come at its end. Closing the iterator ends
        the generation. Raises HttpError.
        """
        # not what `prepare` has found: while the request waited, the server may have got another model
        request, target, default_limit, compiled = await self._compiled(request, backend)
        if target.is_small:
            request = await asyncio.to_thread(_with_best_first, request, compiled.tools)
        try:
            max_tokens = request.sampling.max_tokens
            limit = default_limit if max_tokens is None else max_tokens
            if not request.count:
                tokens = await _prompt_tokens(request, compiled, backend)
                yield Finished("stop", Usage(tokens, 0), compiled.enforcement)
            use = self._evidence if target.uses_evidence else "none"
            evidence = None
            if use != "none":
                evidence = await asyncio.to_thread(_evidence, request.messages, compiled.tools, use)
            source: AnswerSource = partial(answer, backend)
            subject: _Subject = "unknown"
            if request.count and target.is_small:
                compiled, subject = await _with_odds(request, compiled, backend)
                if subject == "other":
                    source = partial(_answer_without, compiled.tools, request.messages, backend)
            ask_again: AskAgain = partial(self._required_calls, request, target, compiled, backend)
            user_text = _user_text(request.messages) if subject == "tools" else ""
            source = partial(answer_corrected, source, compiled.tools, ask_again, user_text)
            turn = None
            if target.is_small and request.sampling.logprobs is None:
                turn = await asyncio.to_thread(Turn.of, request, compiled.tools)
            for choice in range(request.count):
                asked = self._asked(request, compiled, choice, limit, evidence)
                if turn is not None:
                    async for answer_event in _answer_turn(
                        turn, request, compiled, source, ask_again, backend, asked, choice
                    ):
                        yield answer_event
                    continue
                async with aclosing(source(asked)) as events:
                    has_begun = False
                    async for event in events:
                        written = (
                            [_finished(request, compiled, event)]
                            if isinstance(event, Answered)
                            else [_with_id(delta, compiled) for delta in event.deltas]
                        )
                        if written and not has_begun:
                            has_begun = True
                            yield Started(choice, compiled.enforcement)
                        for answer_event in written:
                            yield answer_event
        except errors.BackendError as error:
            raise _gateway_error(error, request) from error

    async def _compiled(
        self, request: ChatRequest, backend: Backend, owner: str = ""
    ) -> tuple[ChatRequest, Target, int, Compiled]:
        """Return the request as the backend can answer it, how it is asked, its limit, and the constraint."""
        if self._no_repeat is not None:
            request = replace(request, excluded=excluded_calls(request.messages, self._no_repeat))
        try:
            info, length = await backend.facts()
            target = Target.of(info, backend.dialect, self._call_format)
            target = replace(target, is_small=target.is_small and self._hints, max_depth=self._max_depth)
        except errors.BackendError as error:
            raise _gateway_error(error, request) from error
        if not info.takes_images and any(message.get("images") for message in request.messages):
            problem = f"{backend.name} takes no images. Leave them out, or serve a model with vision."
            raise HttpError(400, problem, "unsupported_by_backend", "messages")
        limit = DEFAULT_MAX_TOKENS if length is None else max(min(DEFAULT_MAX_TOKENS, length // 2), 1)
        compiled = await self._compiler.compiled(request, target, owner)
        used, variables = info.traits.template_variables, request.template_variables
        if used is not None and (unused := [name for name in variables if name not in used]):
            used_variables = {name: value for name, value in variables.items() if name in used}
            request = replace(request, template_variables=used_variables)
            ignored = tuple(f"chat_template_kwargs.{name}" for name in unused)
            compiled = replace(compiled, enforcement=replace(compiled.enforcement, ignored=ignored))
        return request, target, limit, compiled

    async def _required_calls(
        self,
        request: ChatRequest,
        target: Target,
        compiled: Compiled,
        backend: Backend,
        asked: Asked,
        calls: Sequence[ReadCall],
    ) -> Answered | None:
        """Return an answer that has to call the tools of these calls; None if no grammar makes it valid."""
        if compiled.grammar is None or not compiled.enforcement.exact:
            return None
        choice = ToolChoice("required", tuple(dict.fromkeys(call.name for call in calls)))
        required = await self._compiler.compiled(replace(request, tool_choice=choice, output=None), target)
        constrained = replace(asked.request, grammar=required.constraint)
        return await collect_answer(backend, replace(asked, request=constrained, reader=required.reader))

    def _asked(
        self, request: ChatRequest, compiled: Compiled, choice: int, limit: int, evidence: Evidence | None
    ) -> Asked:
        """Return what the backend is asked for one of the answers of a request."""
        first = secrets.randbelow(1 << 31) if request.sampling.seed is None else request.sampling.seed
        # a stop string inside of a call would truncate it, so it is looked for in the text alone
        in_text = compiled.constraint is not None or bool(compiled.tools)
        stop = () if in_text else request.stop
        # a call that is read inside of a text is not held by the grammar
        is_exact = compiled.enforcement.exact and not (compiled.tools and request.tool_choice.mode == "auto")
        return Asked(
            backend_request(request, compiled, limit, first + choice * (self._retries + 1), stop, evidence),
            compiled.reader,
            stop=request.stop if in_text else (),
            call_begin=compiled.protocol.call_begin,
            verifies=True,
            retries=self._retries,
            check=None if is_exact else partial(_invalid, compiled),
            streams=request.stream,
            max_calls=request.max_calls if request.several else None,  # the grammar has one
        )


def backend_request(
    request: ChatRequest,
    compiled: Compiled,
    limit: int,
    seed: int,
    stop: tuple[str, ...],
    evidence: Evidence | None = None,
) -> Request:
    """Return the request for the backend, without callbacks. Raises HttpError for a value out of range."""
    sampling = request.sampling
    declared = request.tools if compiled.protocol.declares_tools else ()
    try:
        return Request(
            compiled.protocol.messages(request.messages, compiled.prompt),
            compiled.constraint,
            tools=[tool.declaration() for tool in declared],
            max_tokens=limit,
            temperature=sampling.temperature,
            seed=seed,
            truncation=Truncation(sampling.top_k, sampling.top_p, sampling.min_p),
            stop=stop,
            reasoning=compiled.reasoning,
            logprobs=sampling.logprobs,
            evidence=evidence,
            template_variables=request.template_variables,
        )
    except ValueError as error:
        problem = str(error)
        raise HttpError(400, f"{problem}.", "invalid_request", problem.split(maxsplit=1)[0]) from None


def _evidence(messages: Sequence[Message], tools: Sequence[Tool], use: EvidenceUse) -> Evidence | None:
    """Return what the messages of the user, and the calls that succeeded, say of the next call.

    After an answer, a request may be part of an earlier one, so that its words exclude no argument.
    """
    query = _user_text(messages).strip()
    if any(message["role"] == "assistant" and not message.get("tool_calls") for message in messages):
        use = "values" if use != "arguments" else "none"
    return gather_evidence(query, tools, use, done=succeeded_calls(messages)) if tools and query else None


def _with_best_first(request: ChatRequest, tools: Sequence[Tool]) -> ChatRequest:
    """Return a request with the tools first that fit best: of many, a small model calls the first.

    They fit the conversation's first request, so that the prompt stays the same.
    """
    query = next((message["content"] for message in request.messages if message["role"] == "user"), "")
    ranks = {tool.name: rank for rank, tool in enumerate(best_first(tools, query[:LONGEST_REQUEST]))}
    ordered = sorted(request.tools, key=lambda tool: ranks.get(tool.name, len(ranks)))
    return replace(request, tools=tuple(ordered))


async def _with_odds(request: ChatRequest, compiled: Compiled, backend: Backend) -> tuple[Compiled, _Subject]:
    """Return what constrains the answer of a small model to a new request, and what its text will be about.

    If it means a text, that is none of the tools, or perhaps one.
    """
    prose = compiled.protocol.prose()
    is_new = bool(request.messages) and request.messages[-1]["role"] == "user" and request.output is None
    is_free = compiled.tools and is_new and request.tool_choice.mode == "auto"
    if prose is None or not is_free or compiled.reasoning:  # which comes before a call
        return compiled, "unknown"
    odds_question = odds_request(backend_request(request, compiled, 1, 0, ()))
    completion = (await collect_answer(backend, Asked(odds_question))).completion
    odds = call_odds(completion, compiled.protocol.call_begin)
    if odds is None:
        return compiled, "unknown"
    enforcement = replace(compiled.enforcement, call_odds=round(odds, 2))
    is_related = is_about(_user_text(request.messages), compiled.tools)
    if not means_text(odds, is_related):
        return replace(compiled, enforcement=enforcement), "unknown"
    # a call that the text proposes, also between prose, is made
    reader = partial(TextCalls, compiled.tools, parallel=request.several, optional=True)
    compiled = replace(compiled, constraint=prose, enforcement=enforcement, reader=reader)
    return compiled, "other" if is_related is False else "tools"


def _user_text(messages: Sequence[Message]) -> str:
    """Return what the user has said."""
    return "\n".join(message["content"] for message in messages if message["role"] == "user")


async def _answer_without(
    tools: tuple[Tool, ...], messages: Sequence[Message], backend: Backend, asked: Asked
) -> AsyncGenerator[AnswerEvent, None]:
    """Yield the events of an answer to a request that is about none of the tools that its prompt declares.

    A small model may propose a call all the same. It is made if all its values are the user's: Oslo, for "is
    it warm in Oslo?". A text that begins so otherwise is replaced, before any of it leaves, by the answer to
    the messages alone; later, the call is left out.
    """
    user_text = _user_text(messages)
    text: str | None = ""  # None: it has left
    held: list[AnswerEvent] = []
    async with aclosing(answer(backend, asked)) as events:
        async for event in events:
            held.append(event)
            if isinstance(event, Answered):
                if event.calls and all(is_said(call, user_text) for call in event.calls):
                    text = None
                elif text is not None and proposes_call(event.completion.text, tools):
                    break
                else:
                    held = [_without_calls(piece) for piece in held]
            elif text is not None:
                text += event.text
                if len(text) < _BEGINNING or proposed_calls(text, tools):
                    continue
                if proposes_call(text, tools):
                    break
                text = None
            if any(isinstance(delta, CallStarted) for delta in getattr(event, "deltas", ())):
                continue  # it comes with the end
            for piece in held:
                yield piece
            held.clear()
    if held:
        request = replace(asked.request, messages=messages, tools=())
        asked = replace(asked, request=request, reader=PlainText)
        async with aclosing(answer(backend, asked)) as events:
            async for event in events:
                yield event


def _without_calls(event: AnswerEvent) -> AnswerEvent:
    if isinstance(event, Answered):
        return replace(event, calls=(), invalid=())
    texts = (delta for delta in event.deltas if isinstance(delta, TextDelta | ReasoningDelta))
    return replace(event, deltas=tuple(texts))


async def _answer_turn(
    turn: Turn,
    request: ChatRequest,
    compiled: Compiled,
    source: AnswerSource,
    ask_again: AskAgain,
    backend: Backend,
    asked: Asked,
    choice: int,
) -> AsyncGenerator[ReplyEvent, None]:
    """Yield the answer of a small model after results, whole: its next call, or its text from the results.

    In place of a call that it has made, it is asked for one with the file that the request names, if any.
    """
    deltas: list[Delta] = []
    answered = None
    if not await asyncio.to_thread(turn.is_done):
        async with aclosing(source(asked)) as events:
            async for event in events:
                if isinstance(event, Answered):
                    answered = event
                else:
                    deltas += [_with_id(delta, compiled) for delta in event.deltas]
    if answered is not None and turn.has_ended(answered):
        remaining = [ReadCall(tool.name) for tool in turn.tools_left()] if answered.calls else []
        other = await again(answered, ask_again, asked, remaining) if remaining else answered
        is_new = other is not answered and all(is_said(call, turn.state.query) for call in other.calls)
        deltas = [_with_id(delta, compiled) for delta in deltas_of(other.calls)]
        answered = other if is_new else None
    if answered is None:
        compiled = replace(compiled, enforcement=replace(compiled.enforcement, from_results=True))
        answered = await collect_answer(backend, Asked(turn.request(asked.request), stop=request.stop))
        deltas = [TextDelta(turn.text(answered.completion))]
    yield Started(choice, compiled.enforcement)
    for delta in deltas:
        yield delta
    yield _finished(request, compiled, answered)


async def _prompt_tokens(request: ChatRequest, compiled: Compiled, backend: Backend) -> int:
    """Return the tokens of the prompt. A backend that cannot count evaluates it, and has it in its cache."""
    prompt = backend_request(request, compiled, 1, 0, ())
    try:
        return await backend.count_tokens(prompt)
    except errors.RequestNotSupportedError:
        return (await collect_answer(backend, Asked(prompt))).completion.usage.prompt_tokens


def _invalid(compiled: Compiled, answered: Answered) -> tuple[str, ...]:
    """Return what is wrong with the arguments, or with the text, that the grammar could not enforce."""
    if compiled.schema is not None:
        wrong = schema_violation(compiled.schema, answered.completion.text)
        return () if wrong is None else (wrong,)
    problems: list[str] = []
    for call in answered.calls:
        if call.ended:
            try:
                arguments = parse_json(call.arguments)
            except InvalidJsonError as error:
                problems.append(f"the arguments of '{call.name}' are not valid JSON: {error}")
            else:
                parsed_call = {"name": call.name, "arguments": arguments}
                problems += validate_call(parsed_call, compiled.tools).errors
    return tuple(problems)


def _failed_before(messages: Sequence[Message], calls: Sequence[ReadCall]) -> tuple[str, ...]:
    """Return the tools of the calls that have failed in the conversation with the same arguments."""
    failed = failed_calls(messages) if calls else {}
    read = [(call.name, call.parsed()) for call in calls if failed]
    return tuple(name for name, args in read if isinstance(args, dict) and call_key(name, args) in failed)


def _with_id(delta: Delta, compiled: Compiled) -> Delta:
    """Return a delta with an id that no other call has, if the format of calls has none."""
    if not isinstance(delta, CallStarted) or compiled.protocol.has_ids:
        return delta
    return replace(delta, id="".join(secrets.choice(_LETTERS) for _ in range(_ID_LENGTH)))


def _finished(request: ChatRequest, compiled: Compiled, answered: Answered) -> Finished:
    """Return the end of an answer. Raises HttpError if the backend ignored the grammar."""
    completion = answered.completion
    if completion.grammar_violation is not None:
        problem = f"the backend ignored the grammar: {completion.grammar_violation}."
        raise HttpError(502, problem, GRAMMAR_IGNORED)
    tokens, forced = completion.usage.completion_tokens, completion.usage.forced_tokens
    enforcement = replace(
        compiled.enforcement,
        exact=compiled.enforcement.exact and not completion.unmatched,
        verified=answered.verified and not answered.invalid,
        invalid=answered.invalid,
        forced_tokens=forced,
        sampled_tokens=tokens - forced,
        retries=answered.retries,
        shortened_at=completion.shortened_at,
        repeated=completion.repeated,
        failed_before=_failed_before(request.messages, answered.calls),
    )
    reason, reasoning = _reason(compiled, answered), min(answered.reasoning_pieces, tokens)
    ending = (completion.stop_string, completion.logprobs)
    return Finished(reason, completion.usage, enforcement, *ending, reasoning_tokens=reasoning)


def _reason(compiled: Compiled, answered: Answered) -> Literal["stop", "length", "tool_calls"]:
    """Return why the answer ended; "length" for calls and texts that were shortened."""
    completion = answered.completion
    truncated = completion.finish_reason == "length" and not answered.is_complete
    shortened = completion.shortened_at is not None and compiled.schema is None
    if truncated or shortened or any(not call.ended for call in answered.calls):
        return "length"
    return "tool_calls" if answered.calls else "stop"


def _gateway_error(error: errors.BackendError, request: ChatRequest) -> HttpError:
    """Return the error of a request whose backend has failed."""
    text = str(error)
    match error:
        case errors.ContextOverflowError():
            return HttpError(400, text, "context_length_exceeded", "messages")
        case errors.ConversationRefusedError():
            return HttpError(400, text, "invalid_request", "messages")
        case errors.RequestNotSupportedError():
            return HttpError(400, text, "unsupported_by_backend", error.field)
        case errors.GrammarRefusedError() if isinstance(request.output, GbnfText):
            return HttpError(400, text, "invalid_grammar", "grammar")
        case errors.AnswerTimeoutError():
            return HttpError(504, text, "upstream_timeout")
        case errors.BackendUnreachableError():
            return HttpError(503, text, "upstream_unreachable", retry_after=5)
        case errors.ServerResponseError(status=429):
            return HttpError(429, text, "upstream_busy", retry_after=5)
        case _:
            return HttpError(502, text, "upstream_error")
