"""Compile what constrains the answers of a request, tool by tool, so that the work can be dropped in between.

A step of a compilation takes as long as one tool, or as linking all of them, which is quick.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Literal, TypeAlias, TypeVar

from gbnf import Finding, GbnfError, Grammar, GrammarError, SchemaError, Tool, compile_schema
from gbnf.compiler.layout import PropertyOrder
from gbnf.compiler.pool import MAX_DEPTH, CompiledTool, compile_tool, uncompilable_finding
from gbnf.errors import clip
from gbnf.prompts.descriptions import plain_schema
from gbnf.protocols.call_protocols import CallsInText, JsonCalls, NativeCalls, SchemaCalls
from gbnf.protocols.protocol import AnswerFormat, CallProtocol, Offered, tools_prompt
from gbnf.protocols.readers import AnswerReader, EitherReader, PlainText, either_grammar
from gbnf.schema.metaschema import MetaschemaChecker
from gbnf.strict_json import nests_deeper
from gbnf.tool_formats import JsonArguments, ToolFormat
from gbnf.tool_formats.tool_format import part_options
from gbnf.tools.loosening import loosened_argument_schema
from gbnf.tools.tool import excluding
from gbnf_server.backends.base import Dialect, ModelInfo
from gbnf_server.backends.model_traits import ModelTraits
from gbnf_server.gateway.answers import Enforcement, is_not_enforced
from gbnf_server.gateway.chat import ChatRequest, FunctionTool, GbnfText, JsonObject, JsonSchema, OutputFormat
from gbnf_server.llama.grammar_limits import MOST_RULES
from gbnf_server.system.errors import RequestNotSupportedError
from gbnf_server.web.errors import HttpError

_Result = TypeVar("_Result")
GatewayCallFormat: TypeAlias = Literal["native", "json", "text"]
CompileSteps: TypeAlias = Generator[int, None, _Result]
"""A compilation: `next` does a step, and returns the characters that it compiled; the last has the result."""


@dataclass(frozen=True, slots=True)
class Target:
    """What of a backend decides how it is asked.

    `tool_format`: of calls, for a backend that takes grammars. `is_small`: whether the model is asked first
    whether it means to call (`gbnf_server.backends.call_odds`), and is made to end
    (`gbnf_server.gateway.progress`). `in_text`: whether calls are only requested, and read in any syntax.
    `max_depth`: see `gbnf.compile_pool`.
    """

    dialect: Dialect
    model: ModelTraits
    tool_format: ToolFormat | None = None
    is_small: bool = False
    in_text: bool = False
    max_depth: int = MAX_DEPTH

    @property
    def uses_evidence(self) -> bool:
        """Whether the calls may have evidence, and it helps the model."""
        return self.model.takes_evidence and self.dialect == "gbnf" and not self.in_text

    def protocols(self, request: ChatRequest) -> tuple[CallProtocol, ...]:
        """Return how calls may be written: the first that can express the tools of a request."""
        if self.in_text:
            return (CallsInText(),)
        match self.dialect:
            case "json_schema":
                return (SchemaCalls(),)
            case "none":
                return (CallsInText(),)
        written = JsonCalls(answers_by_call=False, also_final_answer=self.model.answers_by_call_only)
        if self.tool_format is None:
            return (written,)
        return (NativeCalls(self.tool_format, reasoning=request.reasoning is not False), written)

    @classmethod
    def of(cls, info: ModelInfo, dialect: Dialect, call_format: GatewayCallFormat | None = None) -> Target:
        """Return that of a backend. `call_format`: how calls are written, if not as the template does.

        Raises RequestNotSupportedError for "native" if the model has no such format.
        """
        model = info.traits
        # a model that is trained on the planner's prompts answers with a call, which only our format reads
        has_format = not model.answers_by_call_only and dialect == "gbnf"
        native = model.tool_format if has_format and call_format != "json" else None
        if call_format == "native" and native is None:
            hint = "The chat template has no tools, or the server takes no grammar. Use json or text."
            raise RequestNotSupportedError(info.name or "the model", "the call format native", hint)
        in_text = call_format == "text"
        is_small = model.is_small(native=native is not None) and (native is None or model.gives_logprobs)
        is_small = is_small and not in_text
        return cls(dialect, model, native, is_small, in_text)


@dataclass(frozen=True, slots=True)
class Compiled:
    """What constrains an answer, and how to read it.

    `tools`: those that the answer may call. `protocol`: how calls are written; where it does not declare the
    tools, `prompt` describes them. `reasoning`: the model may reason before the answer. `schema`: what the
    text has to satisfy, where the grammar is not exact.
    """

    constraint: AnswerFormat | None
    tools: tuple[Tool, ...]
    reader: Callable[[], AnswerReader]
    enforcement: Enforcement
    protocol: CallProtocol
    prompt: str = ""
    reasoning: bool = False
    schema: Mapping[str, Any] | None = None

    @property
    def grammar(self) -> Grammar | None:
        """The grammar that the answer is matched against."""
        return self.constraint if isinstance(self.constraint, Grammar) else None


def compile_steps(request: ChatRequest, target: Target) -> CompileSteps[Compiled]:
    """Compile what constrains the answers of a request. Raises HttpError.

    Calls are excluded only if that loosens nothing else: the format and the findings stay the same.
    """
    client_tools: list[Tool] = []
    for function in request.callable_tools:
        client_tools.append(client_tool(function))
        yield 0
    errors = yield from _compile_parts(client_tools, target, target.tool_format)
    # one that cannot be compiled accepts any arguments, as a finding says
    tools = opened(
        client_tools,
        [uncompilable_finding(tool, errors[tool.name]) for tool in client_tools if tool.name in errors],
    )
    compiled = yield from _compile_request(request, target, tools)
    if not request.excluded or target.dialect != "gbnf":
        return compiled
    tools = tuple(
        excluding(tool, [json.loads(arguments) for name, arguments in request.excluded if name == tool.name])
        for tool in tools
    )
    without = yield from _compile_parts(tools, target, target.tool_format)  # they have no other calls
    tools = tuple(tool for tool in tools if tool.name not in without)
    if not tools:
        return compiled
    final = yield from _compile_request(request, target, tools)
    if final.protocol != compiled.protocol or final.enforcement.findings != compiled.enforcement.findings:
        return compiled
    return replace(final, prompt=compiled.prompt)


def _compile_parts(
    tools: Sequence[Tool], target: Target, native: ToolFormat | None, order: PropertyOrder = "any"
) -> CompileSteps[dict[str, SchemaError]]:
    """Compile the parts that a grammar of these tools links; return the errors by the name of their tool.

    `native`: the format in which the calls are written. Raises HttpError if the target takes a grammar, and
    there are more rules than an engine takes.
    """
    options, notation = part_options(native, order, target.max_depth)
    errors: dict[str, SchemaError] = {}
    rules = 0
    for tool in tools:
        size = 0
        # with the arguments of linking: the same key
        part = compile_tool(tool, options, False, None, notation)
        if isinstance(part, SchemaError):
            errors[tool.name] = part
        elif isinstance(part, CompiledTool):
            rules, size = rules + len(part.part.names), len(part.part.text)
        if target.dialect == "gbnf" and rules > MOST_RULES:
            problem = f"the schemas of the tools have more than {MOST_RULES} rules, which no engine takes."
            hint = "Offer fewer tools, or simplify their schemas."
            raise HttpError(400, f"{problem} {hint}", "schemas_too_large", "tools")
        yield size
    return errors


def _compile_request(request: ChatRequest, target: Target, tools: tuple[Tool, ...]) -> CompileSteps[Compiled]:
    _check_supported(request, target, tools)
    if not tools:
        return _compile_output(request, target)
    compiled = yield from _compile_calls(request, target, tools, "any")
    if strict_problem(request.tools, compiled.enforcement.findings):  # many are exact in their order only
        compiled = yield from _compile_calls(request, target, tools, "declared")
    if request.output is not None and request.tool_choice.mode == "auto" and compiled.grammar is not None:
        text, text_reader = _text(request.output, target.tool_format if compiled.reasoning else None)
        ways = ((compiled.grammar, compiled.reader), (text, text_reader))
        constraint = either_grammar(compiled.grammar, text)
        enforcement = _enforcement(constraint, compiled.protocol)
        compiled = replace(
            compiled, constraint=constraint, reader=partial(EitherReader, ways), enforcement=enforcement
        )
    if error := strict_problem(request.tools, compiled.enforcement.findings):
        raise error
    return compiled


def _check_supported(request: ChatRequest, target: Target, tools: Sequence[Tool]) -> None:
    """Raise HttpError (400) for what a backend that takes JSON Schemas, or nothing at all, cannot enforce."""
    if target.dialect == "gbnf":
        return
    output, is_free = request.output, request.output is None
    if not is_free and (target.dialect == "none" or isinstance(output, GbnfText)):
        param = "grammar" if isinstance(output, GbnfText) else "response_format"
        problem = f"the backend takes no grammar, so '{param}' cannot be enforced."
        hint = "Use a llama-server or vLLM."
        raise HttpError(400, f"{problem} {hint}", "unsupported_by_backend", param)
    if tools and not is_free:
        problem = "the backend takes either tools or response_format. Send one of the two."
        raise HttpError(400, problem, "unsupported_by_backend", "response_format")
    strict = next((tool for tool in request.tools if tool.strict), None)
    if tools and target.dialect == "none" and strict is not None:
        problem = f"strict: the backend takes no grammar, so the schema of {strict.name!r} is not enforced."
        hint = "Do not ask for strict."
        raise HttpError(400, f"{problem} {hint}", "unsupported_by_backend", strict.param)


def _compile_calls(
    request: ChatRequest, target: Target, tools: tuple[Tool, ...], order: PropertyOrder
) -> CompileSteps[Compiled]:
    """Compile an answer with calls, or a text without a format if the choice is automatic."""
    choice = request.tool_choice
    is_named = choice.mode == "required" and len(choice.names or ()) == 1
    # with an output format, the text is that format's
    is_answer = choice.mode == "auto" and request.output is None
    parallel = request.several and not is_named
    # a small model writes anything as the name of a call
    other_calls = not target.is_small or request.asks_for_json
    offered = Offered(tools, is_answer, parallel=parallel, property_order=order, other_calls=other_calls)
    offered = replace(offered, max_depth=target.max_depth)
    for protocol in target.protocols(request):
        native = protocol.tool_format if isinstance(protocol, NativeCalls) else None
        yield from _compile_parts(offered.tools, target, native, order)
        if is_answer and native is not None and not isinstance(native.arguments, JsonArguments):
            yield from _compile_parts(offered.tools, target, None, order)  # of calls as JSON in the text
        try:
            constraint = protocol.constraint(offered)
            if isinstance(constraint, Grammar) and any(loss.kind == "left_out" for loss in constraint.report):
                offered = replace(offered, tools=opened(tools, constraint.report))
                constraint = protocol.constraint(offered)
        except GbnfError as error:
            problem = str(error)  # the format cannot express these tools: the next can
            continue
        prompt = ""
        if not protocol.declares_tools:
            is_demanded = not is_answer and not protocol.is_constrained
            prompt = tools_prompt(offered.tools, target.model.prompt_style, required=is_demanded)
        return Compiled(
            constraint,
            offered.tools,
            partial(protocol.reader, offered),
            _enforcement(constraint, protocol),
            protocol,
            prompt,
            protocol.reasons_first,
        )
    raise HttpError(400, problem, "invalid_schema", "tools")


def _text(output: OutputFormat, native: ToolFormat | None) -> tuple[Grammar, Callable[[], AnswerReader]]:
    """Return the grammar of an answer in an output format, and how to read it.

    `native`: the format in which the model reasons before it, None if it does not. Raises HttpError (400).
    """
    grammar = _output_grammar(output)
    return (grammar, PlainText) if native is None else (native.text_grammar(grammar), native.stream_text)


def _compile_output(request: ChatRequest, target: Target) -> Compiled:
    """Compile the format of an answer without calls. The template declares the tools all the same."""
    output, protocol = request.output, target.protocols(request)[0]
    constraint: AnswerFormat | None = None
    reader: Callable[[], AnswerReader] = PlainText
    reasoning, schema = protocol.reasons_first, None
    if output is None and request.tools and protocol.declares_tools:
        offered = Offered(())
        constraint, reader = protocol.constraint(offered), partial(protocol.reader, offered)
    elif output is None:
        # the backend separates it. Ollama refuses to have a model reason that does not
        reasoning = request.reasoning is not False if target.dialect == "gbnf" else request.reasoning is True
    elif target.dialect == "json_schema":
        declared = output.schema if isinstance(output, JsonSchema) else {"type": "object"}
        constraint = declared if isinstance(declared, Mapping) else {}
    else:
        reasoning = reasoning and not isinstance(output, GbnfText)  # which covers the whole answer
        constraint, reader = _text(output, target.tool_format if reasoning else None)
        if isinstance(output, JsonSchema) and isinstance(output.schema, Mapping):
            schema = output.schema
    return Compiled(constraint, (), reader, _enforcement(constraint), protocol, "", reasoning, schema)


def _output_grammar(output: OutputFormat) -> Grammar:
    """Compile the grammar of an output format. Raises HttpError (400)."""
    match output:
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
                if finding.loosens:
                    raise strict_error(finding, param)
            return grammar
        case GbnfText(text):
            try:
                grammar = Grammar.parse(text)
                grammar.check_stacks()
            except GrammarError as error:
                raise HttpError(400, f"the grammar: {error}", "invalid_grammar", "grammar") from None
            return grammar


def _enforcement(constraint: AnswerFormat | None, protocol: CallProtocol | None = None) -> Enforcement:
    """Return the enforcement of an answer. `protocol`: how its calls are written, None if it has none."""
    if isinstance(constraint, Grammar):
        exact = not any(map(is_not_enforced, constraint.report))
        name = None if protocol is None else protocol.name
        return Enforcement(_hash(str(constraint)), exact, constraint.report, name)
    if constraint is not None:
        return Enforcement(_hash(json.dumps(constraint, sort_keys=True)), exact=False, format="json")
    return Enforcement() if protocol is None else Enforcement(exact=False, format="json")


def _hash(text: str) -> str:
    return f"sha256:{hashlib.sha256(text.encode()).hexdigest()}"


_MAX_DEPTH = 60
"""How deeply a schema may be nested: it is rewritten and checked recursively."""


def opened(tools: Iterable[Tool], findings: Iterable[Finding]) -> tuple[Tool, ...]:
    """Return the tools, those that a finding says are left out of a grammar with any arguments."""
    errors = {finding.tool: finding for finding in findings if finding.kind == "left_out"}
    return tuple(_open_tool(tool, errors[tool.name]) if tool.name in errors else tool for tool in tools)


def client_tool(function: FunctionTool) -> Tool:
    """Return the tool. What of its schema cannot be used is left out, with a finding.

    This project's own keywords mean nothing in the schemas of clients. Raises HttpError for a schema that is
    invalid in every draft.
    """
    # too deep: None is no schema, so any arguments are accepted
    schema = None if nests_deeper(function.parameters, _MAX_DEPTH) else function.parameters
    try:
        MetaschemaChecker("", frozenset()).check(function.parameters, "")
    except SchemaError as error:
        problem = f"{function.param}: the schema of {function.name!r} is invalid: {error}"
        raise HttpError(400, problem, "invalid_schema", f"{function.param}{error.pointer}") from None
    if (kind := function.parameters.get("type", "object")) not in ("object", ["object"]):
        problem = f"{function.param}: the type of the arguments must be 'object', not {clip(repr(kind))}."
        raise HttpError(400, problem, "invalid_schema", f"{function.param}/type")
    if function.pattern and schema is not None:
        properties = schema["properties"].items()
        patterned = {name: {**value, "pattern": function.pattern} for name, value in properties}
        schema = {**schema, "properties": patterned}
    args, findings = loosened_argument_schema(function.name, schema)
    return Tool(
        function.name,
        descriptions={"en": function.description},
        args=_without_own_keywords(args),
        findings=findings,
    )


def _open_tool(tool: Tool, error: Finding) -> Tool:
    reason = f"the schema cannot be compiled, so any arguments are accepted: {error.reason}"
    finding = Finding(tool.name, error.pointer, error.keyword, "loosened", reason)
    args = {"type": "object", "additionalProperties": True}
    return Tool(tool.name, descriptions=tool.descriptions, args=args, findings=(*tool.findings, finding))


def _without_own_keywords(args: Mapping[str, Any]) -> dict[str, Any]:
    """Return the schema without the keywords of manifests, and without step references."""
    plain = plain_schema(args, "en")
    properties = {
        # the integer `from_step` refers to a step, unless its type is written as a list
        name: {**schema, "type": ["integer"]}
        if isinstance(schema, Mapping) and schema.get("type") == "integer"
        else schema
        for name, schema in plain.get("properties", {}).items()
    }
    return {**plain, "properties": properties} if properties else plain


def strict_problem(functions: Iterable[FunctionTool], findings: Iterable[Finding]) -> HttpError | None:
    """Return the error for the first finding about a tool that is strict, None if there is none."""
    params = {tool.name: tool.param for tool in functions if tool.strict}
    for finding in findings:
        if finding.tool in params and is_not_enforced(finding):
            return strict_error(finding, params[finding.tool])
    return None


def strict_error(finding: Finding, param: str) -> HttpError:
    """Return the error of a strict schema with a keyword that is not enforced."""
    problem = f"strict: {finding.keyword!r} at {finding.location} cannot be enforced: {finding.reason}."
    hint = "Remove the keyword, or do not ask for strict."
    return HttpError(400, f"{problem} {hint}", "unenforceable_schema", f"{param}{finding.pointer}")
