"""Compile what constrains the answers of a request: off the event loop, with a deadline, cached."""

from __future__ import annotations

import asyncio
import contextvars
import hashlib
import json
from collections import OrderedDict
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal

from gbnf import (
    GbnfError,
    Grammar,
    GrammarError,
    PoolError,
    SchemaError,
    Tool,
    compile_schema,
)
from gbnf.compiler.options import PropertyOrder
from gbnf.compiler.pool import left_out
from gbnf.dialects import call_schema
from gbnf.prompts.descriptions import PromptStyle
from gbnf.tool_formats import ToolFormat
from gbnf.tools.exclusion import excluding
from gbnf_server.backends.base import AnswerFormat, Backend, Dialect
from gbnf_server.gateway.answers import Receipt
from gbnf_server.gateway.chat import ChatRequest, FreeText, GbnfText, JsonObject, JsonSchema, OutputFormat
from gbnf_server.gateway.client_tools import NOT_ENFORCED, client_tools, opened, strict_error, strict_problem
from gbnf_server.gateway.json_format import JsonCallStream, json_grammar
from gbnf_server.gateway.process_caches import clear_process_caches
from gbnf_server.gateway.prompting import tools_prompt
from gbnf_server.gateway.streams import (
    DeltaStream,
    EitherStream,
    PlainText,
    TextCalls,
    WholeJsonCall,
    union,
)
from gbnf_server.web.errors import HttpError

_WORKERS = 2
_KEPT = 256
"""Compiled formats of answers that are cached: clients repeat their tools in each request."""
_MOST_CHARACTERS = 8 * 1024 * 1024
"""Of the schemas and grammars of those, and of what is compiled between two times that all caches of the
process are cleared. A character takes about 25 bytes in memory."""


@dataclass(frozen=True, slots=True)
class Target:
    """What of a backend decides how it is asked."""

    dialect: Dialect
    prompt_style: PromptStyle
    tool_format: ToolFormat | None
    takes_images: bool

    def reasons(self, request: ChatRequest) -> bool:
        """Return whether the model may reason before an answer that a grammar covers."""
        has_tags = self.tool_format is not None and self.tool_format.reasoning is not None
        return has_tags and request.reasoning is not False

    @classmethod
    def of(cls, backend: Backend) -> Target:
        """Return that of a backend. May send a request."""
        capabilities, style = backend.capabilities, backend.prompt_style
        # a model that is trained on the planner's prompts answers with a call, which only our format reads
        native = None if style == "minimal" else capabilities.tool_format
        return cls(backend.dialect, style, native, capabilities.takes_images)


@dataclass(frozen=True, slots=True)
class Compiled:
    """What constrains an answer, and how to read it.

    `tools`: those that the answer may call. `native`: the template declares the tools, else `prompt` does.
    `reasoning`: the model may reason before the answer. `schema`: what the text has to satisfy, where the
    grammar is not exact.
    """

    constraint: AnswerFormat | None
    tools: tuple[Tool, ...]
    stream: Callable[[], DeltaStream]
    receipt: Receipt
    native: ToolFormat | None = None
    prompt: str = ""
    reasoning: bool = False
    schema: Mapping[str, Any] | None = None

    @property
    def grammar(self) -> Grammar | None:
        """The grammar that the answer is matched against."""
        return self.constraint if isinstance(self.constraint, Grammar) else None


class Compiler:
    """Compiles requests in threads, each content once. Not for use by several event loops."""

    def __init__(self, *, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._pool = ThreadPoolExecutor(_WORKERS, thread_name_prefix="gbnf-compile")
        self._cache: OrderedDict[Any, asyncio.Future[Compiled]] = OrderedDict()
        self._sizes: dict[Any, int] = {}  # in characters
        self._compiled = 0  # characters since the caches were cleared

    async def compiled(self, request: ChatRequest, target: Target) -> Compiled:
        """Return what constrains a request's answers on a backend.

        Raises HttpError: 400 for what the client has to correct, 503 when the time is up. The compilation
        then goes on, so that the same request may succeed later.
        """
        content, size = _content(request)
        key = (content, target)
        found = self._cache.get(key)
        if found is None or (found.done() and (found.cancelled() or found.exception() is not None)):
            loop = asyncio.get_running_loop()
            work = partial(contextvars.copy_context().run, compile_request, request, target)
            found = self._cache[key] = loop.run_in_executor(self._pool, work)
            self._grow(key, size)
            found.add_done_callback(partial(self._done, key))
        if key in self._cache:  # it may be too large to be kept
            self._cache.move_to_end(key)
        try:
            async with asyncio.timeout(self._timeout_s):
                return await asyncio.shield(found)
        except TimeoutError:
            problem = (
                f"the schemas take more than {self._timeout_s:g} s to compile. Simplify them, offer fewer "
                "tools, or try again later."
            )
            raise HttpError(503, problem, "compilation_timeout", retry_after=30) from None

    def close(self) -> None:
        """Start no further compilations."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _done(self, key: Any, found: asyncio.Future[Compiled]) -> None:
        """Add the size of a grammar. Perhaps nobody waits for it, or for its error, any more."""
        if not found.cancelled() and found.exception() is None and (grammar := found.result().grammar):
            self._grow(key, len(str(grammar)))

    def _grow(self, key: Any, size: int) -> None:
        """Count characters that were compiled, and forget the oldest formats if there are too many."""
        if key in self._cache:
            self._sizes[key] = self._sizes.get(key, 0) + size
        while self._cache and (len(self._cache) > _KEPT or sum(self._sizes.values()) > _MOST_CHARACTERS):
            oldest, _ = self._cache.popitem(last=False)
            del self._sizes[oldest]
        self._compiled += size
        if self._compiled > _MOST_CHARACTERS:
            self._compiled = 0
            clear_process_caches()


def _content(request: ChatRequest) -> tuple[tuple[Any, ...], int]:
    """Return what of a request decides its grammar, as a hashable value, and its size in characters."""
    tools = [[tool.name, tool.description, tool.parameters, tool.strict] for tool in request.tools]
    output = request.output
    schema = output.schema if isinstance(output, JsonSchema) else None
    if isinstance(output, JsonSchema):
        output = replace(output, schema=True)
    text = json.dumps([tools, schema, output.grammar if isinstance(output, GbnfText) else None])
    digest = hashlib.sha256(text.encode()).digest()
    if isinstance(output, GbnfText):
        output = replace(output, grammar="")
    chosen = (request.tool_choice, request.parallel, request.reasoning, output, request.excluded)
    return (digest, *chosen), len(text)


def compile_request(request: ChatRequest, target: Target) -> Compiled:
    """Compile what constrains the answers of a request. Raises HttpError.

    Calls are excluded only if that loosens nothing else: the format and the findings stay the same.
    """
    tools = client_tools(request.callable_tools)
    compiled = _compile_request(request, target, tools)
    if not request.excluded or target.dialect != "gbnf":
        return compiled
    tools = tuple(
        excluding(tool, [json.loads(arguments) for name, arguments in request.excluded if name == tool.name])
        for tool in tools
    )
    without = {finding.tool for finding in left_out(tools)}  # they have no other calls
    tools = tuple(tool for tool in tools if tool.name not in without)
    if not tools:
        return compiled
    found = _compile_request(request, target, tools)
    if found.native != compiled.native or found.receipt.findings != compiled.receipt.findings:
        return compiled
    return replace(found, prompt=compiled.prompt)


def _compile_request(request: ChatRequest, target: Target, tools: tuple[Tool, ...]) -> Compiled:
    if target.dialect != "gbnf":
        return _compile_schema_only(request, target, tools)
    if not tools:
        return _compile_output(request, target)
    reasoning = target.reasons(request)
    compiled = _compile_calls(request, target, tools, "any", reasoning=reasoning)
    if strict_problem(request.tools, compiled[1].report):  # many properties are exact in their order only
        compiled = _compile_calls(request, target, tools, "declared", reasoning=reasoning)
    tools, constraint, stream, native = compiled
    reasoning = reasoning and native is not None
    text = _output_grammar(request.output) if request.tool_choice.mode == "auto" else None
    if text is not None:
        text, stream_text = _text(text, native if reasoning else None)
        calls, constraint = constraint, union(constraint, text)
        stream = partial(EitherStream, ((calls, stream), (text, stream_text)))
    if error := strict_problem(request.tools, constraint.report):
        raise error
    receipt = _receipt(constraint, "native" if native else "json")
    prompt = "" if native else tools_prompt(tools, target.prompt_style)
    return Compiled(constraint, tools, stream, receipt, native, prompt, reasoning)


def _text(grammar: Grammar, native: ToolFormat | None) -> tuple[Grammar, Callable[[], DeltaStream]]:
    """Return the grammar of an answer that is a text of `grammar`, and how to read it.

    `native`: the format in which the model reasons before it, None if it does not.
    """
    return (grammar, PlainText) if native is None else (native.text_grammar(grammar), native.stream_text)


def _compile_calls(
    request: ChatRequest, target: Target, tools: tuple[Tool, ...], order: PropertyOrder, *, reasoning: bool
) -> tuple[tuple[Tool, ...], Grammar, Callable[[], DeltaStream], ToolFormat | None]:
    """Compile the grammar of calls, and of text if the choice is automatic.

    Return the tools as they were compiled, the grammar, how to read an answer, and the model's own format if
    it is that.
    """
    # with an output format, the text is that format's
    is_free = request.tool_choice.mode == "auto" and isinstance(request.output, FreeText)
    mode: Literal["auto", "required"] = "auto" if is_free else "required"
    parallel = request.parallel and not _is_named(request)
    native = target.tool_format
    if native is not None:
        compiled = partial(
            native.grammar, tool_choice=mode, parallel=parallel, reasoning=reasoning, property_order=order
        )
        try:
            grammar = compiled(tools)
            if any(finding.kind == "left_out" for finding in grammar.report):
                tools = opened(tools, grammar.report)
                grammar = compiled(tools)
            return tools, grammar, partial(native.stream, tools, reasoning=reasoning), native
        except (GrammarError, PoolError, SchemaError):
            pass  # the format cannot express these tools: ours can
    answers = target.prompt_style == "minimal"
    grammar = json_grammar(
        tools, tool_choice=mode, parallel=parallel, final_answer=answers, property_order=order
    )
    return tools, grammar, partial(JsonCallStream, final_answer=answers), None


def _is_named(request: ChatRequest) -> bool:
    return request.tool_choice.mode == "required" and len(request.tool_choice.names or ()) == 1


def _compile_output(request: ChatRequest, target: Target) -> Compiled:
    """Compile the format of an answer without calls."""
    grammar = _output_grammar(request.output)
    native = target.tool_format
    reasoning = target.reasons(request)
    stream: Callable[[], DeltaStream] = PlainText
    if grammar is None and request.tools and native is not None:
        tools = client_tools(request.tools)
        grammar = native.grammar(tools, tool_choice="none", reasoning=reasoning)
        stream = partial(native.stream, tools, reasoning=reasoning)
        return Compiled(grammar, (), stream, _receipt(grammar), native, reasoning=reasoning)
    if grammar is None:
        reasoning = request.reasoning is not False  # the backend separates it, also without a format
    elif isinstance(request.output, GbnfText):
        reasoning = False  # a client's own grammar covers the whole answer
    elif reasoning:
        grammar, stream = _text(grammar, native)
    given = request.output.schema if isinstance(request.output, JsonSchema) else None
    schema = given if isinstance(given, Mapping) else None
    # the template writes the earlier calls, whether or not there are tools now
    return Compiled(grammar, (), stream, _receipt(grammar), native, "", reasoning, schema)


def _output_grammar(output: OutputFormat) -> Grammar | None:
    """Compile the grammar of an output format. Raises HttpError (400)."""
    match output:
        case FreeText():
            return None
        case JsonObject():
            return compile_schema({"type": "object"})
        case JsonSchema(schema, strict, param):
            try:
                # OpenAI writes the properties in the schema's order, which prompts build on
                grammar = compile_schema(schema, closed=True, property_order="declared")
            except SchemaError as error:
                where = f"{param}{error.pointer}"
                raise HttpError(400, str(error), "invalid_schema", where) from None
            for finding in grammar.report if strict else ():
                if finding.kind == "unenforced":
                    raise strict_error(finding, param)
            return grammar
        case GbnfText(text, param):
            try:
                return Grammar.parse(text)
            except GrammarError as error:
                raise HttpError(400, f"the grammar: {error}", "invalid_grammar", param) from None


def _compile_schema_only(request: ChatRequest, target: Target, tools: tuple[Tool, ...]) -> Compiled:
    """Compile for a backend that takes JSON Schemas, or nothing at all. Raises HttpError (400)."""
    output = request.output
    if not tools and isinstance(output, FreeText):
        # Ollama refuses to have a model reason that does not
        return Compiled(None, (), PlainText, Receipt(), reasoning=request.reasoning is True)
    if not isinstance(output, FreeText) and (target.dialect == "none" or isinstance(output, GbnfText)):
        param = "grammar" if isinstance(output, GbnfText) else "response_format"
        problem = (
            f"the backend takes no grammar, so '{param}' cannot be enforced. Use a llama-server or vLLM."
        )
        raise HttpError(400, problem, "unsupported_by_backend", param)
    if target.dialect == "none":
        return _read_only(request, target, tools)
    schema: Mapping[str, Any]
    if not tools:
        given = output.schema if isinstance(output, JsonSchema) else {"type": "object"}
        schema = given if isinstance(given, Mapping) else {}
        return Compiled(schema, (), PlainText, _schema_receipt(schema))
    if not isinstance(output, FreeText):
        problem = "the backend takes either tools or response_format. Send one of the two."
        raise HttpError(400, problem, "unsupported_by_backend", "response_format")
    answers = request.tool_choice.mode == "auto"
    try:
        schema = call_schema(tools, final_answer=answers)
    except GbnfError as error:
        raise HttpError(400, str(error), "invalid_schema", "tools") from None
    prompt = tools_prompt(tools, target.prompt_style)
    return Compiled(schema, tools, WholeJsonCall, _schema_receipt(schema), prompt=prompt)


def _read_only(request: ChatRequest, target: Target, tools: tuple[Tool, ...]) -> Compiled:
    """Return how to read the calls of a backend that nothing constrains. Raises HttpError (400)."""
    strict = next((tool for tool in request.tools if tool.strict), None)
    if strict is not None:
        problem = (
            f"strict: the backend takes no grammar, so that the schema of {strict.name!r} is not enforced."
        )
        raise HttpError(400, f"{problem} Do not ask for strict.", "unsupported_by_backend", strict.param)
    required = request.tool_choice.mode == "required"
    stream = partial(TextCalls, tools, required=required, parallel=request.parallel)
    prompt = tools_prompt(tools, target.prompt_style, required=required)
    return Compiled(None, tools, stream, Receipt(exact=False, format="json"), prompt=prompt)


def _receipt(grammar: Grammar | None, written: Literal["native", "json"] | None = None) -> Receipt:
    if grammar is None:
        return Receipt()
    exact = all(finding.kind not in NOT_ENFORCED for finding in grammar.report)
    return Receipt(_hash(str(grammar)), exact, grammar.report, written)


def _schema_receipt(schema: Mapping[str, Any]) -> Receipt:
    return Receipt(_hash(json.dumps(schema, sort_keys=True)), exact=False, format="json")


def _hash(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
