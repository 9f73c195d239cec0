"""The grammar of a whole answer in a tool-call format: reasoning, text, and calls that satisfy the schemas.

Invariants: every text has one derivation; the calls of every complete derivation are valid, as far as the
report says so. Each call binds one tool's name to that tool's arguments, as in `gbnf.compiler.pool`.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from gbnf.compiler.grammar import CompiledRules, Grammar, link
from gbnf.compiler.layout import CompileOptions, PropertyOrder, Whitespace
from gbnf.compiler.literals import factor_prefixes, json_char, json_string
from gbnf.compiler.notations import JSON, Notation
from gbnf.compiler.pool import MAX_DEPTH, CompiledTool, compile_tools, left_out_finding
from gbnf.compiler.primitives import RESERVED
from gbnf.compiler.rules import prefixed
from gbnf.errors import PoolError, SchemaError
from gbnf.findings import Finding
from gbnf.grammar.code_points import matchable
from gbnf.grammar.ir import CharClass, Expr, Literal, Ref, Rules, literal, optional, repeat, seq, with_parts
from gbnf.regular.charset import CharSet
from gbnf.tool_formats.answers import (
    CALLS,
    NUMBERED_CALLS,
    Content,
    answer_rules,
    call_expr,
    call_shapes,
    calls_rule,
    id_rules,
    openings,
)
from gbnf.tool_formats.format import FormatFields, JsonArguments
from gbnf.tools import Tool


@lru_cache(maxsize=256)
def no_calls_grammar(form: FormatFields, reasoning: bool) -> Grammar:
    """Compile the grammar of an answer without calls."""
    return link([answer_rules(form, "none", reasoning)], (), "default")


def reasoned_text_grammar(form: FormatFields, text: Grammar) -> Grammar:
    """Compile the grammar of an answer with a text of another grammar; see `ToolFormat.text_grammar`."""
    answer = answer_rules(form, "given", reasoning=True).productions
    given = prefixed("given", text.rules, {*answer, CALLS})
    whole = seq(Ref(given.root), literal(form.text.end.strip()))
    return Grammar(Rules({**answer, CALLS: whole, **given.productions}), text.report, text.is_parsed)


@lru_cache(maxsize=512)
def calls_grammar(
    form: FormatFields,
    tools: tuple[Tool, ...],
    content: Content,
    parallel: bool,
    reasoning: bool,
    steps: tuple[int, ...],
    property_order: PropertyOrder,
    strict: bool,
) -> Grammar:
    """Compile the grammar of an answer with calls; see `ToolFormat.grammar`."""
    options, notation = part_options(form, property_order)
    answer, ids = answer_rules(form, content, reasoning), id_rules(form).part
    writable, left_out = _writable(form, tools, strict)
    taken = RESERVED | answer.names | ids.names | _CALL_NAMES
    pool = compile_tools(writable, options, bool(steps), strict=strict, taken=taken, notation=notation)
    head = (answer, CompiledRules.of(Rules(_calls(form, pool.tools, parallel))), ids)
    grammar = pool.link(head, steps, options)
    if left_out:
        grammar = Grammar(grammar.rules, tuple(sorted([*grammar.report, *left_out])))
    if _is_quoted(form):
        outside = frozenset().union(*(part.names for part in head))
        productions = grammar.rules.productions.items()
        inside = {name: expr if name in outside else quoted(expr) for name, expr in productions}
        grammar = Grammar(Rules(inside), grammar.report)
    return grammar


def part_options(
    form: FormatFields | None, property_order: PropertyOrder = "any"
) -> tuple[CompileOptions, Notation]:
    """Return how `calls_grammar` compiles each tool; for None, how `compile_pool` does."""
    whitespace: Whitespace = "default"
    notation: Notation = JSON
    arguments = None if form is None else form.arguments
    if isinstance(arguments, JsonArguments):
        whitespace = arguments.whitespace
    elif arguments is not None:
        notation = arguments
    options = CompileOptions(whitespace, MAX_DEPTH, closed=True, property_order=property_order)
    return options, notation


def _is_quoted(form: FormatFields) -> bool:
    return isinstance(form.arguments, JsonArguments) and form.arguments.quoted


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
    findings = [left_out_finding(tool, SchemaError("/name", problem)) for tool in unwritable]
    return tuple(tool for tool in tools if tool not in unwritable), tuple(findings)


_CALL = "call"
_CALL_NAMES = frozenset(f"{name}{number}" for name in (_CALL, CALLS) for number in ("", *range(2, 100)))


def _calls(form: FormatFields, tools: Sequence[CompiledTool], parallel: bool) -> dict[str, Expr]:
    """Return the rules for the calls behind each opening, from the marker on."""
    shapes = call_shapes(form)
    ids = id_rules(form)
    rules: dict[str, Expr] = {}
    known: dict[tuple[int, int | None], Ref] = {}

    def call(index: int, number: int | None) -> Ref:
        """Return the rule of a call with a number, in one of the shapes."""
        key = (index, number if shapes[index].is_numbered else 0)
        if key not in known:
            known[key] = Ref(f"{_CALL}{len(known) + 1}" if known else _CALL)
            rules[known[key].name] = call_expr(shapes[index], tools, ids, _is_quoted(form), key[1])
        return known[key]

    def further(number: int | None) -> Expr:
        """Return one more call, with what separates it from those before."""
        heads = [seq(literal(shape.start), call(index, number)) for index, shape in enumerate(shapes)]
        return seq(literal(form.separator or ""), factor_prefixes(heads))

    more: Expr = seq()
    if parallel and form.separator is not None:
        is_numbered = any(shape.is_numbered for shape in shapes)
        more = repeat(further(None))
        for number in reversed(range(1, NUMBERED_CALLS if is_numbered else 1)):
            more = optional(seq(further(number), more))
    for number, opening in enumerate(openings(form)):
        first = factor_prefixes([seq(literal(rest), call(index, 0)) for index, rest in opening.heads])
        rules[calls_rule(number)] = seq(first, more, literal(form.end))
    return rules


@lru_cache(maxsize=8192)
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
