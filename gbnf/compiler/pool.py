"""A pool of tools, linked from tools that are each compiled once.

The root is a discriminated union: each branch binds one tool's name to that tool's arguments, so a call
that mixes two tools can't be derived.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

from gbnf.compiler.grammar import CompiledRules, Grammar, link
from gbnf.compiler.layout import LAYOUTS, Layout, Whitespace
from gbnf.compiler.literals import factor_prefixes, json_string
from gbnf.compiler.lowering import CompileOptions, Lowering, PropertyOrder
from gbnf.compiler.primitives import RESERVED
from gbnf.compiler.report import Finding
from gbnf.compiler.rules import RuleTable, Scope
from gbnf.compiler.schema import check_whitespace, compilation
from gbnf.errors import PoolError, SchemaError
from gbnf.grammar.ir import EMPTY_LANGUAGE, Expr, Literal, Ref, Rules, literal, seq
from gbnf.grammar.passes import run_passes
from gbnf.schema.applicators import ADDITIONAL_PROPERTY_KEYWORDS, declares_elsewhere
from gbnf.schema.document import Document
from gbnf.tools import ASK_USER, FINAL_ANSWER, Tool
from gbnf.tools.step_references import offered_args

_FROM_STEP = Ref("fromStep")
_MAX_DEPTH = 4


@dataclass(frozen=True, slots=True)
class CompiledTool:
    """One tool's arguments as rules, the first of which is `arguments`."""

    name: str
    arguments: Ref
    part: CompiledRules
    findings: tuple[Finding, ...]


def compile_pool(
    tools: Sequence[Tool],
    *,
    final_answer: bool = False,
    ask_user: bool = False,
    steps: Sequence[int] = (),
    whitespace: Whitespace = "default",
    max_depth: int = _MAX_DEPTH,
    closed: bool = True,
    property_order: PropertyOrder = "declared",
    bounded_digits: bool = True,
    union: bool = True,
) -> Grammar:
    """The grammar of `{"name": …, "arguments": {…}}` for calls of these tools.

    `final_answer` and `ask_user` add the built-in tools of these names. `steps` are the numbers of earlier
    steps that arguments may refer to; with none, step references aren't offered, nor are tools that need
    one. `closed` gives objects that declare properties and say nothing of additional ones none. For
    `property_order`, `bounded_digits` and `whitespace` see `compile_schema`. With `union=False` any name
    goes with any arguments: a baseline to compare with, nothing to run.

    Tools are compiled once and kept; linking a new pool from compiled tools costs microseconds.

    Raises PoolError where no tool is left or two share a name, SchemaError where a tool's arguments are
    malformed or can't be satisfied.
    """
    check_whitespace(whitespace)
    tools = (*tools, *((ASK_USER,) if ask_user else ()), *((FINAL_ANSWER,) if final_answer else ()))
    options = CompileOptions(whitespace, max_depth, closed, property_order, bounded_digits)
    return _link_pool(tools, tuple(steps), options, union)


@lru_cache(maxsize=512)
def _link_pool(
    tools: tuple[Tool, ...], steps: tuple[int, ...], options: CompileOptions, union: bool
) -> Grammar:
    if not tools:
        raise PoolError("the pool is empty: give at least one executor, or ask for final_answer")
    names = [tool.name for tool in tools]
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise PoolError(f"the pool holds two tools of the name {twice[0]!r}: rename one")
    compiled: list[CompiledTool] = []
    taken = set(RESERVED)
    for tool in tools:
        compiled_tool = compile_tool(tool, options, bool(steps))
        count = 1
        while compiled_tool is not None and not taken.isdisjoint(compiled_tool.part.names):
            count += 1  # two tools whose names are one in camelCase
            compiled_tool = compile_tool(tool, options, bool(steps), f"{tool.name} {count}")
        if compiled_tool is not None:
            taken |= compiled_tool.part.names
            compiled.append(compiled_tool)
    if not compiled:
        raise PoolError(f"none of {', '.join(names)} can be called before an earlier step has entries")
    layout = LAYOUTS[options.whitespace]
    head = {"root": (_union if union else _product)(compiled, layout)}
    if steps and any(_FROM_STEP.name in compiled_tool.part.needs for compiled_tool in compiled):
        head[_FROM_STEP.name] = factor_prefixes([literal(str(step)) for step in steps])
    findings = [finding for compiled_tool in compiled for finding in compiled_tool.findings]
    parts = [CompiledRules(Rules(head)), *(compiled_tool.part for compiled_tool in compiled)]
    return link(parts, findings, options.whitespace, options.digits)


def _union(tools: Sequence[CompiledTool], layout: Layout) -> Expr:
    opening = seq(layout.begin_object, Literal('"name"'), layout.colon)
    middle = seq(layout.comma, Literal('"arguments"'), layout.colon)
    branches = [seq(literal(json_string(tool.name)), middle, tool.arguments) for tool in tools]
    return seq(opening, factor_prefixes(branches), layout.end_object)


def _product(tools: Sequence[CompiledTool], layout: Layout) -> Expr:
    opening = seq(layout.begin_object, Literal('"name"'), layout.colon)
    middle = seq(layout.comma, Literal('"arguments"'), layout.colon)
    names = factor_prefixes([literal(json_string(tool.name)) for tool in tools])
    return seq(opening, names, middle, factor_prefixes([tool.arguments for tool in tools]), layout.end_object)


@lru_cache(maxsize=4096)
def compile_tool(
    tool: Tool, options: CompileOptions, has_steps: bool, prefix: str | None = None
) -> CompiledTool | None:
    """One tool's arguments; None where it can't be called without earlier steps.

    `prefix` stands for the tool's name in the names of its rules. Raises SchemaError.
    """
    args = offered_args(tool, (1,) if has_steps else ())
    if args is None:
        return None
    with compilation(args):
        return _compile_arguments(tool, args, options, has_steps, prefix or tool.name)


def _compile_arguments(
    tool: Tool, args: Mapping[str, Any], options: CompileOptions, has_steps: bool, name: str
) -> CompiledTool:
    table = RuleTable(RESERVED)
    references = dict.fromkeys(tool.step_references, _FROM_STEP) if has_steps else {}
    ref = table.reserve("args", name)
    document = Document(_arguments_schema(args, tool, closed=options.closed))
    lowering = Lowering(document, options, table, tool.name, references)
    lowering.root(ref, Scope(table, (name,)))
    rules = run_passes(Rules(table.productions, ref.name))
    if rules.productions[ref.name] == EMPTY_LANGUAGE:
        reason = lowering.reason or "they ask for themselves without end"
        where = "" if tool.path is None else f" in {tool.path}"
        raise SchemaError(
            "",
            f"no arguments satisfy the schema of {tool.name!r}{where}: {reason}",
            "Loosen what contradicts itself, or leave the tool out.",
        )
    return CompiledTool(tool.name, ref, CompiledRules(rules), tuple(lowering.report))


def _arguments_schema(args: Mapping[str, Any], tool: Tool, *, closed: bool) -> Mapping[str, Any]:
    """A tool that declares no arguments takes none; what is not offered is no additional one either."""
    args = {keyword: value for keyword, value in args.items() if keyword != "$schema"}  # always 2020-12
    if closed and ADDITIONAL_PROPERTY_KEYWORDS.isdisjoint(args) and not declares_elsewhere(args):
        return {**args, "additionalProperties": False}
    properties = args.get("properties", {})
    hidden = (tool.runtime_resolved | tool.step_references.keys()) - properties.keys()
    return {**args, "properties": {**properties, **dict.fromkeys(hidden, False)}} if hidden else args
