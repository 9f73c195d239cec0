"""What the page shows of one grammar: its rules, the schema, and which keyword became which rule."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from gbnf import Grammar, SchemaError
from gbnf.compiler.origins import Origins, schema_origins, tool_origins
from gbnf.compiler.pool import left_out_finding
from gbnf.compiler.primitives import RESERVED
from gbnf.errors import GrammarError, PoolError
from gbnf.findings import Finding
from gbnf.grammar.emit import emit_rule
from gbnf.grammar.ir import Expr
from gbnf.tools import Tool
from gbnf_server.inspect.inspected_grammar import PLAIN, GrammarChoice
from gbnf_server.inspect.schema_lines import SchemaLine, schema_lines

_TEXTS = ("title", "description")


@dataclass(frozen=True, slots=True)
class RuleView:
    """A rule. `origins`: JSON Pointers into the schema; none for the root of a call and for shared rules.

    `is_recursive`: it reaches itself. `is_shared`: every grammar has it in the same form.
    """

    name: str
    production: Expr
    text: str
    origins: tuple[str, ...]
    is_recursive: bool
    is_shared: bool
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GrammarView:
    """A tool or a schema with its grammar. `grammar` is None if it cannot be compiled; `findings` say why.

    `has_origins`: whether it is known which keywords the rules come from.
    """

    name: str
    description: str
    schema: Any
    tool: Tool | None
    grammar: Grammar | None
    rules: tuple[RuleView, ...] = ()
    lines: tuple[SchemaLine, ...] = ()
    findings: tuple[Finding, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    has_origins: bool = True

    @property
    def origins(self) -> tuple[str, ...]:
        """The pointers that rules come from, each once."""
        return tuple(dict.fromkeys(pointer for rule in self.rules for pointer in rule.origins))


def view_tool(tool: Tool, choice: GrammarChoice = PLAIN) -> GrammarView:
    """Return the view of a tool's calls."""
    description = tool.description()
    try:
        grammar = choice.of_tools((tool,))
        options = choice.tool_options
        origins = None if options is None else tool_origins(tool, options, has_steps=True)
    except (SchemaError, PoolError, GrammarError) as error:
        findings = tool.findings
        if isinstance(error, SchemaError):
            findings = (*findings, left_out_finding(tool, error))
        lines = schema_lines(tool.args, (), findings)
        return GrammarView(tool.name, description, tool.args, tool, None, (), lines, findings)
    view = _view(tool.name, description, tool.args, tool, grammar, origins or {})
    return view if choice.tool_format is None else _in_format(view, choice, has_origins=options is not None)


def view_schema(
    name: str,
    schema: Mapping[str, Any] | bool,
    findings: Iterable[Finding] = (),
    choice: GrammarChoice = PLAIN,
) -> GrammarView:
    """Return the view of a JSON Schema. `findings`: more than the compiler's. Raises SchemaError."""
    grammar = choice.of_schema(schema)
    texts = schema if isinstance(schema, Mapping) else {}
    title, description = (text if isinstance(text, str) else "" for text in map(texts.get, _TEXTS))
    origins = schema_origins(schema, choice.schema_options)
    return _view(title or name, description, schema, None, grammar, origins, tuple(findings))


def _view(
    name: str,
    description: str,
    schema: Any,
    tool: Tool | None,
    grammar: Grammar,
    origins: Origins,
    more: tuple[Finding, ...] = (),
) -> GrammarView:
    productions = grammar.rules.productions
    recursive = _recursive(grammar.rules.references)
    rules = [
        RuleView(
            rule,
            production,
            emit_rule(rule, production).rstrip("\n"),
            origins.get(rule, ()),
            rule in recursive,
            rule not in origins and rule != "root",
            grammar.rules.references[rule],
        )
        for rule, production in productions.items()
    ]
    findings = (*more, *grammar.report)
    pointers = {pointer for pointers in origins.values() for pointer in pointers}
    own = [rule for rule in rules if not rule.is_shared]
    sizes = {
        "bytes": len(str(grammar).encode()),
        "rules": len(rules),
        "own_bytes": sum(len(rule.text.encode()) + 1 for rule in own),
        "own_rules": len(own),
    }
    lines = schema_lines(schema, pointers, findings)
    return GrammarView(
        name, description, schema, tool, grammar, tuple(rules), lines, tuple(sorted(findings)), sizes
    )


def _in_format(view: GrammarView, choice: GrammarChoice, *, has_origins: bool) -> GrammarView:
    """Return a view whose shared rules are those that every grammar in the call format has."""
    shared = choice.shared_rules
    rules = tuple(
        replace(
            rule,
            is_shared=not rule.origins
            and (shared.get(rule.name) == rule.production or rule.name in RESERVED - {"root"}),
        )
        for rule in view.rules
    )
    own = [rule for rule in rules if not rule.is_shared]
    sizes = {
        **view.sizes,
        "own_bytes": sum(len(rule.text.encode()) + 1 for rule in own),
        "own_rules": len(own),
    }
    return replace(view, rules=rules, sizes=sizes, has_origins=has_origins)


def _recursive(references: Mapping[str, tuple[str, ...]]) -> frozenset[str]:
    """Return the rules that reach themselves: those in a cycle (Tarjan's strongly connected components)."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    on_stack: set[str] = set()
    found: set[str] = set()
    for start in references:
        if start in index:
            continue
        work = [(start, iter(references[start]))]
        index[start] = low[start] = len(index)
        stack.append(start)
        on_stack.add(start)
        while work:
            name, below = work[-1]
            for other in below:
                if other not in references:
                    continue
                if other not in index:
                    index[other] = low[other] = len(index)
                    stack.append(other)
                    on_stack.add(other)
                    work.append((other, iter(references[other])))
                    break
                if other in on_stack:
                    low[name] = min(low[name], index[other])
            else:
                work.pop()
                if work:
                    low[work[-1][0]] = min(low[work[-1][0]], low[name])
                if low[name] == index[name]:
                    component: list[str] = []
                    while not component or component[-1] != name:
                        component.append(stack.pop())
                        on_stack.discard(component[-1])
                    if len(component) > 1 or name in references[name]:
                        found.update(component)
    return frozenset(found)
