"""A tool-call format with what can be done with it: the public interface of the modules beside this one.

Invariants of its grammars: every text has one derivation; the calls of every complete derivation are valid,
as far as the report says so. Each call binds one tool's name to that tool's arguments, as in
`gbnf.compiler.pool`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from gbnf.calls.parsing.parser import resolve_calls
from gbnf.calls.parsing.results import FinalAnswer, ParseResult, Repair, ToolCall, ToolCalls
from gbnf.calls.parsing.tool_names import ToolNames
from gbnf.compiler.grammar import CompiledRules, Grammar, link
from gbnf.compiler.layout import CompileOptions, PropertyOrder, Whitespace
from gbnf.compiler.literals import factor_prefixes, json_char, json_string
from gbnf.compiler.notations import JSON, Notation, Placeholder
from gbnf.compiler.pool import MAX_DEPTH, CompiledTool, compile_tools, pool_tools, uncompilable_finding
from gbnf.compiler.primitives import RESERVED
from gbnf.compiler.rules import prefixed
from gbnf.errors import PoolError, SchemaError
from gbnf.findings import Finding
from gbnf.grammar.code_points import matchable
from gbnf.grammar.ir import CharClass, Expr, Literal, Ref, Rules, literal, optional, repeat, seq, with_parts
from gbnf.regular.charset import CharSet
from gbnf.schema_caches import schema_cache
from gbnf.tool_formats.answers import (
    CALLS,
    NUMBERED_CALLS,
    Content,
    answer_rules,
    begins_like_object,
    call_expr,
    call_shapes,
    calls_rule,
    excluded_texts,
    id_rules,
    is_quoted,
    openings,
)
from gbnf.tool_formats.call_reading import WrittenCall
from gbnf.tool_formats.deltas import ArgumentsDelta, Delta, ReasoningDelta, TextDelta
from gbnf.tool_formats.format import FormatFields, JsonArguments
from gbnf.tool_formats.probing import Call, switches, without_reasoning
from gbnf.tool_formats.rendering import (
    adapt_conversation,
    close_prompt,
    completed_tools,
    numbered_id,
    prober_of,
    prompted,
)
from gbnf.tool_formats.sandbox import RefusedError
from gbnf.tool_formats.streaming import CallDeltas
from gbnf.tool_formats.text_calls import OTHER_OBJECT, RULES, TEXT_CALLS, other_object_rules, text_call_rules
from gbnf.tools import Tool


@schema_cache(maxsize=256)
def _no_calls_grammar(form: FormatFields, reasoning: bool, content: Content = "none") -> Grammar:
    """Compile the grammar of an answer without calls."""
    return link([answer_rules(form, content, reasoning)], (), "default")


@schema_cache(maxsize=512)
def _calls_grammar(
    form: FormatFields,
    tools: tuple[Tool, ...],
    content: Content,
    parallel: bool,
    reasoning: bool,
    steps: tuple[int, ...],
    property_order: PropertyOrder,
    strict: bool,
    max_depth: int,
) -> Grammar:
    """Compile the grammar of an answer with calls; see `ToolFormat.grammar`."""
    options, notation = part_options(form, property_order, max_depth)
    answer, ids = answer_rules(form, content, reasoning), id_rules(form).part
    writable, left_out = _writable(form, tools, strict)
    taken = RESERVED | answer.names | ids.names | _CALL_NAMES | RULES
    pool = compile_tools(writable, options, bool(steps), strict=strict, taken=taken, notation=notation)
    head = [answer, CompiledRules.of(Rules(_calls(form, pool.tools, parallel))), ids]
    if TEXT_CALLS in answer.needs:
        in_text = pool
        if notation != JSON:
            taken |= frozenset().union(*(tool.part.names for tool in pool.tools))
            in_text = compile_tools(writable, options, bool(steps), strict=strict, taken=taken)
            head += [tool.part for tool in in_text.tools]
        head.append(text_call_rules(in_text.tools, parallel=parallel, bare=not begins_like_object(form)))
    if OTHER_OBJECT in answer.needs:
        names = tuple(tool.name for tool in pool.tools)
        head.append(other_object_rules(names, tuple(excluded_texts(form))))
    grammar = pool.link(head, steps, options)
    if left_out:
        grammar = Grammar(grammar.rules, tuple(sorted([*grammar.report, *left_out])))
    if is_quoted(form):
        outside = frozenset().union(*(part.names for part in head))
        productions = grammar.rules.productions.items()
        inside = {name: expr if name in outside else quoted(expr) for name, expr in productions}
        grammar = Grammar(Rules(inside), grammar.report)
    return grammar


def part_options(
    form: FormatFields | None, property_order: PropertyOrder = "any", max_depth: int = MAX_DEPTH
) -> tuple[CompileOptions, Notation]:
    """Return how `ToolFormat.grammar` compiles each tool; for None, how `compile_pool` does."""
    whitespace: Whitespace = "default"
    notation: Notation = JSON
    arguments = None if form is None else form.arguments
    if isinstance(arguments, JsonArguments):
        whitespace = arguments.whitespace
    elif arguments is not None:
        notation = arguments
    options = CompileOptions(whitespace, max_depth, closed=True, property_order=property_order)
    return options, notation


def _writable(
    form: FormatFields, tools: Sequence[Tool], strict: bool
) -> tuple[tuple[Tool, ...], tuple[Finding, ...]]:
    """Return the tools whose names the format can express, and findings on the others.

    Raises PoolError if there is none; if `strict`, for each that it cannot.
    """
    shapes = call_shapes(form)
    unwritable = [tool for tool in tools if not all(shape.can_name(tool.name) for shape in shapes)]
    if not unwritable:
        return tuple(tools), ()
    problem = "the name contains what ends a name in the model's tool-call format"
    if strict or len(unwritable) == len(tools):
        raise PoolError(f"{unwritable[0].name!r}: {problem}: rename the tool")
    findings = [uncompilable_finding(tool, SchemaError("/name", problem)) for tool in unwritable]
    return tuple(tool for tool in tools if tool not in unwritable), tuple(findings)


_CALL = "call"
_CALL_NAMES = frozenset(f"{name}{number}" for name in (_CALL, CALLS) for number in ("", *range(2, 100)))


def _calls(form: FormatFields, tools: Sequence[CompiledTool], parallel: bool) -> dict[str, Expr]:
    """Return the rules for the calls behind each opening, from the marker on."""
    shapes = call_shapes(form)
    ids = id_rules(form)
    rules: dict[str, Expr] = {}
    call_rules: dict[tuple[int, int | None], Ref] = {}

    def call(index: int, number: int | None) -> Ref:
        """Return the rule of a call with a number, in one of the shapes."""
        key = (index, number if shapes[index].is_numbered else 0)
        if key not in call_rules:
            call_rules[key] = Ref(f"{_CALL}{len(call_rules) + 1}" if call_rules else _CALL)
            rules[call_rules[key].name] = call_expr(shapes[index], tools, ids, is_quoted(form), key[1])
        return call_rules[key]

    def further(number: int | None) -> Expr:
        """Return one more call, with what separates it from those before."""
        heads = [seq(literal(shape.start), call(index, number)) for index, shape in enumerate(shapes)]
        return seq(literal(form.separator or ""), factor_prefixes(heads))

    later_calls: Expr = seq()
    if parallel and form.separator is not None:
        is_numbered = any(shape.is_numbered for shape in shapes)
        later_calls = repeat(further(None))
        for number in reversed(range(1, NUMBERED_CALLS if is_numbered else 1)):
            later_calls = optional(seq(further(number), later_calls))
    for number, opening in enumerate(openings(form)):
        first = factor_prefixes([seq(literal(rest), call(index, 0)) for index, rest in opening.heads])
        rules[calls_rule(number)] = seq(first, later_calls, literal(form.end))
    return rules


@schema_cache(maxsize=8192)
def quoted(expr: Expr) -> Expr:
    """Return the expression of the same texts, each as the content of a JSON string without its quotes.

    Rules that it refers to must be quoted, too. Refers to no primitive.
    """
    match expr:
        case Literal(text):
            return Literal(json_string(text)[1:-1])
        case CharClass():
            return json_char(CharSet(matchable(expr)))
    return with_parts(expr, quoted)


_CHOICES = ("auto", "required", "none")
"""The words of `tool_choice`; all others are names."""


@dataclass(frozen=True, slots=True)
class ToolFormat(FormatFields):
    """The tool-call format of a chat template; the fields are described in `FormatFields`."""

    @property
    def has_ids(self) -> bool:
        """Whether the model writes an id for each call."""
        return any(isinstance(part, Placeholder) and part.kind == "id" for part in self.head)

    def grammar(
        self,
        tools: Sequence[Tool],
        *,
        tool_choice: str = "auto",
        parallel: bool = False,
        final_answer: bool = False,
        reasoning: bool = False,
        steps: Sequence[int] = (),
        property_order: PropertyOrder = "any",
        strict: bool = False,
        other_calls: bool = True,
        max_depth: int = MAX_DEPTH,
    ) -> Grammar:
        """Compile the grammar of an answer: text, calls of these tools, or text and then calls.

        `tool_choice`: "auto" for text, calls or both; "required" for calls only; "none" for text only; or the
        name of a tool, for one call of it. With `parallel`, several calls if the format has them. With
        `reasoning`, the prompt asks for reasoning, which comes first. `other_calls`: a text may be JSON that
        looks like a call of another tool. For `final_answer`, `steps`, `property_order`, `max_depth` and
        `strict` see `gbnf.compile_pool`, which also says which tools are left out.

        Raises PoolError as `compile_pool` does, for a `tool_choice` that is no tool, and for one of the three
        words if a tool has that name; GrammarError for a format in which text and calls cannot be told apart.
        """
        if tool_choice in _CHOICES and any(tool.name == tool_choice for tool in tools):
            raise PoolError(f"tool_choice={tool_choice!r} could mean the tool of this name: rename the tool")
        if tool_choice == "none":
            return _no_calls_grammar(self, reasoning)
        tools = pool_tools(tools, final_answer, ask_user=False)
        auto: Content = "auto" if other_calls else "offered"
        content = auto if tool_choice == "auto" else "required"
        if tool_choice not in _CHOICES:
            names = ", ".join(tool.name for tool in tools)
            tools = tuple(tool for tool in tools if tool.name == tool_choice)
            if not tools:
                raise PoolError(f"tool_choice={tool_choice!r} is none of the tools: {names}")
            parallel = False
        choices = (content, parallel, reasoning, tuple(steps), property_order, strict, max_depth)
        return _calls_grammar(self, tools, *choices)

    def prose_grammar(self) -> Grammar:
        """Return the grammar of a text that does not begin like a call in any syntax."""
        return _no_calls_grammar(self, reasoning=False, content="prose")

    def text_grammar(self, text: Grammar) -> Grammar:
        """Return the grammar of an answer that reasons, and whose text is in the language of `text`.

        No text may begin with whitespace, or the grammar is ambiguous. Read it with `stream_text`.
        """
        answer = answer_rules(self, "given", reasoning=True).productions
        given_text = prefixed("given", text.rules, {*answer, CALLS})
        ended = seq(Ref(given_text.root), literal(self.text.end.strip()))
        return Grammar(Rules({**answer, CALLS: ended, **given_text.productions}), text.report, text.is_parsed)

    def prompt(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] = (),
        *,
        reasoning: bool = False,
        variables: Mapping[str, Any] | None = None,
    ) -> str:
        """Return a conversation through the template, up to where the answer begins.

        `messages` and `tools` are in OpenAI's form, the arguments of calls as objects. With `reasoning`, the
        template is asked for reasoning; otherwise the answer begins with text or calls. `variables`: more of
        the template. Raises ToolFormatError if the template refuses the conversation.
        """
        prober = prober_of(self)
        adapted = adapt_conversation(self, messages)

        def render(declared: Sequence[Mapping[str, Any]]) -> str:
            own = {**prober.extra_variables(declared), **switches(self.template, reasoning=reasoning)}
            return prober.renderer.render(adapted, tools=declared, **{**(variables or {}), **own})

        try:
            prompt = render(tools)
        except RefusedError:
            if not tools:
                raise
            prompt = render(completed_tools(tools))  # some templates read keywords that a schema may lack
        return close_prompt(self, prompt, reasoning=reasoning)

    def render(self, calls: Sequence[ToolCall]) -> str:
        """Return the text of an answer with these calls, at least one, as the template writes it.

        An `id` that the template does not accept is replaced. Raises ToolFormatError if the template refuses
        the calls, such as several where it has one.
        """
        prober = prober_of(self)
        fitting = [
            Call(call.name, call.arguments, numbered_id(self, call.id, index))
            for index, call in enumerate(calls)
        ]
        answer = prober.answer(prober.assistant(fitting), [fitting[0].name])
        return prompted(self) + without_reasoning(answer, self.reasoning).removesuffix(self.turn_end)

    def parse(
        self, text: str, tools: Iterable[Tool], *, truncated: bool = False, reasoning: bool = False
    ) -> ParseResult:
        """Parse an answer. Never raises, whatever the text.

        `truncated`: the token limit ended it. `reasoning`: as for `grammar`. Calls of unknown tools, and
        those that cannot be read, are in `invalid`. The arguments are not validated (see
        `gbnf.validate_call`), and a `truncated` call must not be executed.
        """
        tools = tuple(tools)
        stream = self.stream(tools, reasoning=reasoning)
        return _answer_of([*stream.feed(text), *stream.close(truncated=truncated)], stream.calls, tools)

    def stream_text(self) -> CallDeltas:
        """Return a parser of an answer of `text_grammar`: what looks like a call in its text is text."""
        return CallDeltas(self, (), reasoning=True, text_only=True)

    def stream(self, tools: Iterable[Tool], *, reasoning: bool = False, in_prose: bool = False) -> CallDeltas:
        """Return a parser of an answer that arrives chunk by chunk; `reasoning` as for `grammar`.

        `in_prose`: JSON between prose that looks like a call is one, rather than an example.
        """
        return CallDeltas(self, tools, reasoning=reasoning, in_prose=in_prose)


def _answer_of(deltas: Iterable[Delta], written: Iterable[WrittenCall], tools: Iterable[Tool]) -> ParseResult:
    """Return the answer that the deltas of a stream and its calls amount to."""
    texts: list[str] = []
    reasonings: list[str] = []
    arguments: dict[int, list[str]] = {}
    inside_prose, preface = False, ""
    for delta in deltas:
        match delta:
            case TextDelta(text):
                inside_prose = bool(arguments and any(part.strip() for part in texts))
                texts.append(text)
            case ReasoningDelta(text):
                reasonings.append(text)
            case ArgumentsDelta(index, json_text):
                preface = preface if arguments else "".join(texts).strip()
                arguments.setdefault(index, []).append(json_text)
    content, reasoning = "".join(texts), "".join(reasonings)
    notes: list[Repair] = []
    raw_calls = (call.raw("".join(arguments.get(index, ()))) for index, call in enumerate(written))
    calls, invalid = resolve_calls(raw_calls, "native", ToolNames(tools), notes)
    if not calls and not invalid:
        return FinalAnswer(content, reasoning)
    return ToolCalls(
        calls, "native", invalid, content.strip(), reasoning, tuple(notes), inside_prose, preface
    )
