"""Compile a pool of tools: each tool once, then linked into one grammar.

Invariant: the root is a discriminated union. Each branch binds one tool's name to that tool's arguments, so
the grammar derives no call that mixes two tools.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from typing import Any

from gbnf.compiler.grammar import CompiledRules, Grammar, link
from gbnf.compiler.layout import LAYOUTS, CompileOptions, Layout, PropertyOrder, Whitespace
from gbnf.compiler.literals import factor_prefixes, json_string
from gbnf.compiler.notations import JSON, Notation
from gbnf.compiler.primitives import RESERVED
from gbnf.compiler.rules import camel
from gbnf.compiler.schema import check_options, compilation, compile_document
from gbnf.compiler.stored_parts import decode_part, encode_part
from gbnf.errors import PoolError, SchemaError
from gbnf.findings import Finding
from gbnf.grammar.ir import EMPTY_LANGUAGE, Literal, Ref, Rules, literal, seq
from gbnf.schema.closing import close_arguments
from gbnf.schema.document import Document
from gbnf.schema_caches import caches_in_use, schema_cache
from gbnf.tools import ASK_USER, FINAL_ANSWER, Tool
from gbnf.tools.tool import offered_args

_FROM_STEP = Ref("fromStep")
#: Objects and arrays with more than this many others around them, of which the arguments of a call are the
#: first, may be any JSON; a finding says where.
MAX_DEPTH = 4


@dataclass(frozen=True, slots=True)
class CompiledTool:
    """The arguments of one tool as rules, of which `arguments` is the first."""

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
    max_depth: int = MAX_DEPTH,
    closed: bool = True,
    property_order: PropertyOrder = "any",
    bounded_digits: bool = True,
    strict: bool = False,
) -> Grammar:
    """Compile the grammar of a call of one of these tools: `{"name": …, "arguments": {…}}`.

    `final_answer` and `ask_user` add the built-in tools with these names. `steps` are the numbers of earlier
    steps that arguments may refer to; without any, step references and tools that require one are left out.
    If `closed`, an object that declares properties but not `additionalProperties` allows no others. For
    `max_depth`, `property_order`, `bounded_digits` and `whitespace` see `compile_schema`. `compile_pool`
    closes objects and bounds nesting by default, since tool calls should be finite and contain declared
    arguments only; `compile_schema` follows the standard.

    A tool whose arguments are malformed or unsatisfiable is left out and reported; if no tool is left, that
    is an error. If `strict`, so is each finding that is a mistake (`Finding.is_mistake`). Tools are compiled
    once and cached; linking a new pool of compiled tools takes microseconds.

    Raises PoolError if no tool is left, if two have the same name and for mistakes, SchemaError if a tool
    cannot be compiled.
    """
    options = CompileOptions(whitespace, max_depth, closed, property_order, bounded_digits)
    check_options(options)
    return _link_pool(pool_tools(tools, final_answer, ask_user), tuple(steps), options, strict)


def uncompilable_findings(
    tools: Iterable[Tool], *, steps: Sequence[int] = (), max_depth: int = MAX_DEPTH
) -> tuple[Finding, ...]:
    """Return a finding for each tool that `compile_pool` leaves out because it cannot be compiled."""
    options = CompileOptions("default", max_depth, closed=True)
    compiled = ((tool, compile_tool(tool, options, bool(steps))) for tool in tools)
    return tuple(
        uncompilable_finding(tool, error) for tool, error in compiled if isinstance(error, SchemaError)
    )


def uncompilable_finding(tool: Tool, error: SchemaError) -> Finding:
    """Return the finding for a tool that is left out because of an error."""
    pointer, _, keyword = error.pointer.rpartition("/")
    return Finding(tool.name, pointer, keyword or "args", "left_out", error.problem)


def pool_tools(tools: Sequence[Tool], final_answer: bool, ask_user: bool) -> tuple[Tool, ...]:
    """Return the tools and the built-in ones. Raises PoolError if there is none, or two share a name."""
    tools = (*tools, *((ASK_USER,) if ask_user else ()), *((FINAL_ANSWER,) if final_answer else ()))
    if not tools:
        raise PoolError("the pool is empty: give at least one tool, or final_answer=True")
    names = sorted(tool.name for tool in tools)
    if twice := [name for name, following in itertools.pairwise(names) if name == following]:
        raise PoolError(f"two tools of the pool have the name {twice[0]!r}: rename one")
    return tools


@dataclass(frozen=True, slots=True)
class CompiledPool:
    """The tools of a pool that can be called, and the findings on all of its tools."""

    tools: tuple[CompiledTool, ...]
    findings: tuple[Finding, ...]

    def link(self, head: Iterable[CompiledRules], steps: Sequence[int], options: CompileOptions) -> Grammar:
        """Link the tools behind the rules of `head`, of which the very first is `root`."""
        parts = list(head)
        if steps and any(_FROM_STEP.name in tool.part.needs for tool in self.tools):
            production = factor_prefixes([literal(str(step)) for step in steps])
            parts.append(CompiledRules.of(Rules({_FROM_STEP.name: production})))
        parts += [tool.part for tool in self.tools]
        return link(parts, self.findings, options.whitespace, options.digits)


@schema_cache(maxsize=512)
def _link_pool(
    tools: tuple[Tool, ...], steps: tuple[int, ...], options: CompileOptions, strict: bool
) -> Grammar:
    pool = compile_tools(tools, options, bool(steps), strict=strict)
    return pool.link([_any_call(pool.tools, LAYOUTS[options.whitespace])], steps, options)


def compile_tools(
    tools: Sequence[Tool],
    options: CompileOptions,
    has_steps: bool,
    *,
    strict: bool,
    taken: AbstractSet[str] = RESERVED,
    notation: Notation = JSON,
) -> CompiledPool:
    """Compile each tool, with names of rules that differ from each other and from those in `taken`.

    Raises PoolError and SchemaError as `compile_pool` does.
    """
    compiled: list[CompiledTool] = []
    errors: dict[Tool, SchemaError] = {}
    taken = set(taken)
    counts: dict[str, int] = {}  # how many names are the same in camelCase
    for tool in tools:
        same = camel(tool.name)
        count = counts.get(same, 0)
        while True:
            count += 1
            name = f"{tool.name} {count}" if count > 1 else None
            compiled_tool = compile_tool(tool, options, has_steps, name, notation)
            if not isinstance(compiled_tool, CompiledTool) or taken.isdisjoint(compiled_tool.part.names):
                break
        if isinstance(compiled_tool, SchemaError):
            errors[tool] = compiled_tool
        if isinstance(compiled_tool, CompiledTool):
            counts[same] = count
            taken.update(compiled_tool.part.names)
            compiled.append(compiled_tool)
    if errors and (strict or not compiled):
        raise next(iter(errors.values())).with_traceback(None)
    if not compiled:
        raise no_callable_tool(tools)
    findings = [finding for tool in tools for finding in tool.findings]
    if strict and any(finding.is_mistake for finding in findings):
        raise PoolError("\n".join(str(finding) for finding in findings if finding.is_mistake))
    findings += [finding for compiled_tool in compiled for finding in compiled_tool.findings]
    findings += [uncompilable_finding(tool, error) for tool, error in errors.items()]
    return CompiledPool(tuple(compiled), tuple(findings))


def no_callable_tool(tools: Iterable[Tool]) -> PoolError:
    """Return the error for a pool whose tools all require an earlier step."""
    names = ", ".join(tool.name for tool in tools)
    return PoolError(f"none of {names} can be called before an earlier step has entries")


def _any_call(tools: Sequence[CompiledTool], layout: Layout) -> CompiledRules:
    """Return the root: a name, and the arguments of the tool with this name."""
    opening = seq(layout.begin_object, Literal('"name"'), layout.colon)
    middle = seq(layout.comma, Literal('"arguments"'), layout.colon)
    branches = [seq(literal(json_string(tool.name)), middle, tool.arguments) for tool in tools]
    return CompiledRules.of(Rules({"root": seq(opening, factor_prefixes(branches), layout.end_object)}))


@schema_cache(maxsize=4096)
def compile_tool(
    tool: Tool,
    options: CompileOptions,
    has_steps: bool,
    prefix: str | None = None,
    notation: Notation = JSON,
) -> CompiledTool | SchemaError | None:
    """Compile the arguments of one tool; None if it cannot be called without earlier steps.

    The names of its rules begin with `prefix`, by default the tool's name. `notation` says how the arguments
    are written, from the beginning of the first to the end of the last. Returns the error of a tool that
    cannot be compiled, so that it is cached.
    """
    args = offered_args(tool, (1,) if has_steps else ())
    if args is None:
        return None
    name = prefix or tool.name
    cache = caches_in_use().parts
    key = f"{tool.fingerprint} {name!a} {_variant(options, has_steps, notation)}"
    if cache is not None and (entry := cache.get(key)) is not None and (stored := decode_part(key, entry)):
        part, findings = stored
        return CompiledTool(tool.name, Ref(next(iter(part.names))), part, findings)
    try:
        with compilation(args):
            compiled = _compile_arguments(tool, args, options, has_steps, name, notation)
    except SchemaError as error:  # which may depend on the size of Python's stack, so it is not stored
        return error.with_traceback(None)
    if cache is not None and (entry := encode_part(key, compiled.part, compiled.findings)) is not None:
        cache.put(key, entry)
    return compiled


@schema_cache(maxsize=64)
def _variant(options: CompileOptions, has_steps: bool, notation: Notation) -> str:
    """Return what else than a tool decides about its rules, as text."""
    return f"{options!r} {has_steps} {notation!r}"


def _compile_arguments(
    tool: Tool,
    args: Mapping[str, Any],
    options: CompileOptions,
    has_steps: bool,
    name: str,
    notation: Notation,
) -> CompiledTool:
    references = dict.fromkeys(tool.step_references, _FROM_STEP) if has_steps else {}
    document = Document(_arguments_schema(args, tool, closed=options.closed))
    rules, lowering = compile_document(
        document, options, name, tool=tool.name, overrides=references, notation=notation
    )
    if rules.productions[rules.root] == EMPTY_LANGUAGE:
        reason = lowering.reason or "they require themselves without end"
        where = "" if tool.path is None else f" in {tool.path}"
        raise SchemaError(
            "",
            f"no arguments satisfy the schema of {tool.name!r}{where}: {reason}",
            "Remove the contradiction, or leave the tool out.",
        )
    return CompiledTool(tool.name, Ref(rules.root), CompiledRules.of(rules), tuple(lowering.report))


def _arguments_schema(args: Mapping[str, Any], tool: Tool, *, closed: bool) -> Mapping[str, Any]:
    """Return the schema, closed if `closed`; properties that are not offered are not additional ones."""
    args = {keyword: value for keyword, value in args.items() if keyword != "$schema"}  # always 2020-12
    args = close_arguments(args) if closed else args
    properties = args.get("properties", {})
    hidden = sorted((tool.runtime_resolved | tool.step_references.keys()) - properties.keys())
    return {**args, "properties": {**properties, **dict.fromkeys(hidden, False)}} if hidden else args
