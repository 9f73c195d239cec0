"""Compile what constrains the answers of a request, tool by tool, so that the work can be dropped in between.

A step of a compilation takes as long as one tool, or as linking all of them, which is quick.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeAlias, TypeVar

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
from gbnf.compiler.pool import CompiledTool, compile_tool, left_out_finding
from gbnf.prompts.descriptions import PromptStyle
from gbnf.protocols.call_protocols import CallsInText, JsonCalls, NativeCalls, SchemaCalls
from gbnf.protocols.conversations import tools_prompt
from gbnf.protocols.protocol import CallProtocol, Offered
from gbnf.protocols.readers import AnswerReader, EitherReader, PlainText, union
from gbnf.tool_formats import ToolFormat
from gbnf.tool_formats.grammar import part_options
from gbnf.tools.exclusion import excluding
from gbnf_server.backends.base import MOST_RULES, AnswerFormat, Backend, Dialect
from gbnf_server.gateway.answers import Receipt
from gbnf_server.gateway.chat import (
    ChatRequest,
    FreeText,
    FunctionTool,
    GbnfText,
    JsonObject,
    JsonSchema,
    OutputFormat,
)
from gbnf_server.gateway.client_tools import NOT_ENFORCED, client_tool, opened, strict_error, strict_problem
from gbnf_server.web.errors import HttpError

_Result = TypeVar("_Result")
Steps: TypeAlias = Generator[int, None, _Result]
"""A compilation: `next` does a step, and returns the characters that it compiled; the last has the result."""


_TEXT = CallsInText()


@dataclass(frozen=True, slots=True)
class Target:
    """What of a backend decides how it is asked."""

    dialect: Dialect
    prompt_style: PromptStyle
    tool_format: ToolFormat | None
    takes_images: bool

    @property
    def native(self) -> NativeCalls | None:
        """The protocol of the chat template, None if it has none."""
        return None if self.tool_format is None else NativeCalls(self.tool_format)

    @property
    def written(self) -> CallProtocol:
        """How earlier calls of a conversation are written."""
        return self.native or _TEXT

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

    `tools`: those that the answer may call. `protocol`: how calls are written; where it does not declare the
    tools, `prompt` describes them. `reasoning`: the model may reason before the answer. `schema`: what the
    text has to satisfy, where the grammar is not exact.
    """

    constraint: AnswerFormat | None
    tools: tuple[Tool, ...]
    stream: Callable[[], AnswerReader]
    receipt: Receipt
    protocol: CallProtocol = _TEXT
    prompt: str = ""
    reasoning: bool = False
    schema: Mapping[str, Any] | None = None

    @property
    def grammar(self) -> Grammar | None:
        """The grammar that the answer is matched against."""
        return self.constraint if isinstance(self.constraint, Grammar) else None


def compile_request(request: ChatRequest, target: Target) -> Compiled:
    """Compile what constrains the answers of a request, in one go. Raises HttpError."""
    steps = compile_steps(request, target)
    while True:
        try:
            next(steps)
        except StopIteration as done:
            compiled: Compiled = done.value
            return compiled


def compile_steps(request: ChatRequest, target: Target) -> Steps[Compiled]:
    """Compile what constrains the answers of a request. Raises HttpError.

    Calls are excluded only if that loosens nothing else: the format and the findings stay the same.
    """
    tools = yield from _client_tools(request.callable_tools, target)
    compiled = yield from _compile_request(request, target, tools)
    if not request.excluded or target.dialect != "gbnf":
        return compiled
    tools = tuple(
        excluding(tool, [json.loads(arguments) for name, arguments in request.excluded if name == tool.name])
        for tool in tools
    )
    without = yield from _compile_parts(tools, target.tool_format)  # they have no other calls
    tools = tuple(tool for tool in tools if tool.name not in without)
    if not tools:
        return compiled
    found = yield from _compile_request(request, target, tools)
    if found.protocol != compiled.protocol or found.receipt.findings != compiled.receipt.findings:
        return compiled
    return replace(found, prompt=compiled.prompt)


def _client_tools(given: Iterable[FunctionTool], target: Target) -> Steps[tuple[Tool, ...]]:
    """Return the tools of a client. One that cannot be compiled accepts any arguments, as a finding says."""
    tools: list[Tool] = []
    for each in given:
        tools.append(client_tool(each))
        yield 0
    errors = yield from _compile_parts(tools, target.tool_format, limited=target.dialect == "gbnf")
    return opened(tools, [left_out_finding(tool, errors[tool.name]) for tool in tools if tool.name in errors])


def _compile_parts(
    tools: Sequence[Tool], native: ToolFormat | None, order: PropertyOrder = "any", *, limited: bool = True
) -> Steps[dict[str, SchemaError]]:
    """Compile the parts that a grammar of these tools links; return the errors by the name of their tool.

    `native`: the format in which the calls are written. Raises HttpError if `limited` and there are more
    rules than an engine takes.
    """
    options, notation = part_options(native, order)
    errors: dict[str, SchemaError] = {}
    rules = 0
    for tool in tools:
        size = 0
        part = compile_tool(
            tool, options, False, None, notation
        )  # with the arguments of linking: the same key
        if isinstance(part, SchemaError):
            errors[tool.name] = part
        elif isinstance(part, CompiledTool):
            rules, size = rules + len(part.part.names), len(part.part.text)
        if limited and rules > MOST_RULES:
            problem = f"the schemas of the tools have more than {MOST_RULES} rules, which no engine takes."
            hint = "Offer fewer tools, or simplify their schemas."
            raise HttpError(400, f"{problem} {hint}", "schemas_too_large", "tools")
        yield size
    return errors


def _compile_request(request: ChatRequest, target: Target, tools: tuple[Tool, ...]) -> Steps[Compiled]:
    if target.dialect != "gbnf":
        return _compile_schema_only(request, target, tools)
    if not tools:
        return (yield from _compile_output(request, target))
    reasoning = target.reasons(request)
    compiled = yield from _compile_calls(request, target, tools, "any", reasoning=reasoning)
    if strict_problem(request.tools, compiled[1].report):  # many properties are exact in their order only
        compiled = yield from _compile_calls(request, target, tools, "declared", reasoning=reasoning)
    tools, constraint, stream, protocol = compiled
    reasoning = reasoning and protocol.reasons_first
    text = _output_grammar(request.output) if request.tool_choice.mode == "auto" else None
    if text is not None:
        text, stream_text = _text(text, target.tool_format if reasoning else None)
        calls, constraint = constraint, union(constraint, text)
        stream = partial(EitherReader, ((calls, stream), (text, stream_text)))
    if error := strict_problem(request.tools, constraint.report):
        raise error
    receipt = _receipt(constraint, protocol)
    prompt = "" if protocol.declares_tools else tools_prompt(tools, target.prompt_style)
    return Compiled(constraint, tools, stream, receipt, protocol, prompt, reasoning)


def _text(grammar: Grammar, native: ToolFormat | None) -> tuple[Grammar, Callable[[], AnswerReader]]:
    """Return the grammar of an answer that is a text of `grammar`, and how to read it.

    `native`: the format in which the model reasons before it, None if it does not.
    """
    return (grammar, PlainText) if native is None else (native.text_grammar(grammar), native.stream_text)


def _compile_calls(
    request: ChatRequest, target: Target, tools: tuple[Tool, ...], order: PropertyOrder, *, reasoning: bool
) -> Steps[tuple[tuple[Tool, ...], Grammar, Callable[[], AnswerReader], CallProtocol]]:
    """Compile the grammar of calls, and of text if the choice is automatic.

    Return the tools as they were compiled, the grammar, how to read an answer, and how calls are written.
    """
    # with an output format, the text is that format's
    is_free = request.tool_choice.mode == "auto" and isinstance(request.output, FreeText)
    offered = Offered(
        tools,
        is_free,
        parallel=request.parallel and not _is_named(request),
        reasoning=reasoning,
        property_order=order,
    )
    grammar: Grammar
    if target.native is not None:
        yield from _compile_parts(tools, target.tool_format, order)
        try:
            grammar = target.native.constraint(offered)
            if any(finding.kind == "left_out" for finding in grammar.report):
                offered = replace(offered, tools=opened(tools, grammar.report))
                grammar = target.native.constraint(offered)
            return offered.tools, grammar, partial(target.native.reader, offered), target.native
        except (GrammarError, PoolError, SchemaError):
            pass  # the format cannot express these tools: ours can
    yield from _compile_parts(offered.tools, None, order)
    written = JsonCalls(answers_by_call=False, also_final_answer=target.prompt_style == "minimal")
    constraint = written.constraint(offered)
    assert constraint is not None
    return offered.tools, constraint, partial(written.reader, offered), written


def _is_named(request: ChatRequest) -> bool:
    return request.tool_choice.mode == "required" and len(request.tool_choice.names or ()) == 1


def _compile_output(request: ChatRequest, target: Target) -> Steps[Compiled]:
    """Compile the format of an answer without calls."""
    grammar = _output_grammar(request.output)
    native = target.tool_format
    reasoning = target.reasons(request)
    stream: Callable[[], AnswerReader] = PlainText
    if grammar is None and request.tools and native is not None:
        tools = yield from _client_tools(request.tools, target)
        grammar = native.grammar(tools, tool_choice="none", reasoning=reasoning)
        stream = partial(native.stream, tools, reasoning=reasoning)
        return Compiled(grammar, (), stream, _receipt(grammar), target.written, reasoning=reasoning)
    if grammar is None:
        reasoning = request.reasoning is not False  # the backend separates it, also without a format
    elif isinstance(request.output, GbnfText):
        reasoning = False  # a client's own grammar covers the whole answer
    elif reasoning:
        grammar, stream = _text(grammar, native)
    given = request.output.schema if isinstance(request.output, JsonSchema) else None
    schema = given if isinstance(given, Mapping) else None
    # the template writes the earlier calls, whether or not there are tools now
    return Compiled(grammar, (), stream, _receipt(grammar), target.written, "", reasoning, schema)


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
                grammar = Grammar.parse(text)
                grammar.check_stacks()
            except GrammarError as error:
                raise HttpError(400, f"the grammar: {error}", "invalid_grammar", param) from None
            return grammar


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
    written = SchemaCalls()
    offered = Offered(tools, request.tool_choice.mode == "auto")
    try:
        schema = written.constraint(offered)
    except GbnfError as error:
        raise HttpError(400, str(error), "invalid_schema", "tools") from None
    prompt = tools_prompt(tools, target.prompt_style)
    receipt = _schema_receipt(schema)
    return Compiled(schema, tools, partial(written.reader, offered), receipt, written, prompt)


def _read_only(request: ChatRequest, target: Target, tools: tuple[Tool, ...]) -> Compiled:
    """Return how to read the calls of a backend that nothing constrains. Raises HttpError (400)."""
    strict = next((tool for tool in request.tools if tool.strict), None)
    if strict is not None:
        problem = (
            f"strict: the backend takes no grammar, so that the schema of {strict.name!r} is not enforced."
        )
        raise HttpError(400, f"{problem} Do not ask for strict.", "unsupported_by_backend", strict.param)
    required = request.tool_choice.mode == "required"
    offered = Offered(tools, not required, parallel=request.parallel)
    prompt = tools_prompt(tools, target.prompt_style, required=required)
    receipt = Receipt(exact=False, format="json")
    return Compiled(None, tools, partial(_TEXT.reader, offered), receipt, _TEXT, prompt)


def _receipt(grammar: Grammar | None, protocol: CallProtocol | None = None) -> Receipt:
    if grammar is None:
        return Receipt()
    exact = all(finding.kind not in NOT_ENFORCED for finding in grammar.report)
    return Receipt(_hash(str(grammar)), exact, grammar.report, None if protocol is None else protocol.name)


def _schema_receipt(schema: Mapping[str, Any]) -> Receipt:
    return Receipt(_hash(json.dumps(schema, sort_keys=True)), exact=False, format="json")


def _hash(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"
