"""What the page shows of one grammar: its rules, the schema, and which keyword became which rule."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import SequenceMatcher
from typing import Any

from gbnf import Grammar, SchemaError
from gbnf.compiler.origins import Origins, find_origins
from gbnf.compiler.pool import uncompilable_finding
from gbnf.compiler.primitives import RESERVED
from gbnf.errors import GrammarError, PoolError
from gbnf.findings import Finding
from gbnf.grammar.analysis import in_cycles
from gbnf.grammar.emit import emit_rule
from gbnf.grammar.ir import Expr
from gbnf.tools import Tool
from gbnf_server.inspect.grammar_choice import PLAIN, GrammarChoice
from gbnf_server.inspect.pages.rendering import tokens
from gbnf_server.inspect.schema_lines import SchemaLine, schema_lines

STEPS = (1,)
"""The earlier steps that arguments may refer to, so that all arguments are shown."""
_TEXTS = ("title", "description")
_MOST_WORDS = 300
"""Of a rule in which single words are marked."""
_MOST_MARKED = 0.6
"""Of the words of a rule: if more are others, the whole rule is."""


@dataclass(frozen=True, slots=True)
class RuleView:
    """A rule. `origins`: the parts of the schema that it comes from, those of the fewest rules first.

    Shared rules have no origins. `marks`: for words of the text, by their index in `tokens`, the parts
    without which they are others. `is_recursive`: it reaches itself. `is_shared`: every grammar has it in the
    same form.
    """

    name: str
    production: Expr
    text: str
    origins: tuple[str, ...]
    marks: Mapping[int, tuple[str, ...]]
    is_recursive: bool
    is_shared: bool
    references: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class GrammarView:
    """A tool or a schema with its grammar. `grammar` is None if it cannot be compiled; `findings` say why.

    `main_rules`: for each part of the schema that rules come from the one that is most its own.
    """

    name: str
    description: str
    grammar: Grammar | None
    rules: tuple[RuleView, ...] = ()
    lines: tuple[SchemaLine, ...] = ()
    findings: tuple[Finding, ...] = ()
    sizes: Mapping[str, int] = field(default_factory=dict)
    main_rules: Mapping[str, str] = field(default_factory=dict)


def view_tool(tool: Tool, choice: GrammarChoice = PLAIN) -> GrammarView:
    """Return the view of a tool's calls."""
    description = tool.description()
    try:
        grammar = _of_tool(tool, choice)
        origins = find_origins(tool.args, lambda args: _of_tool(replace(tool, args=args), choice))
    except (SchemaError, PoolError, GrammarError) as error:
        findings = tool.findings
        if isinstance(error, SchemaError):
            findings = (*findings, uncompilable_finding(tool, error))
        lines = schema_lines(tool.args, (), findings)
        return GrammarView(tool.name, description, None, (), lines, findings)
    is_json = choice.tool_format is None
    # the rules that any tool has, besides `RESERVED`: those of the text and of what surrounds a call
    shared = {} if is_json else _of_tool(Tool(name="x"), choice).rules.productions
    return _view(tool.name, description, tool.args, grammar, origins, shared=shared)


def _of_tool(tool: Tool, choice: GrammarChoice) -> Grammar:
    return choice.of_tools((tool,), steps=STEPS)


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
    origins = find_origins(schema, choice.of_schema)
    return _view(title or name, description, schema, grammar, origins, tuple(findings))


def _view(
    name: str,
    description: str,
    schema: Any,
    grammar: Grammar,
    origins: Origins,
    more: tuple[Finding, ...] = (),
    shared: Mapping[str, Expr] | None = None,
) -> GrammarView:
    """Return what a page shows of a grammar; a rule that is equal in `shared` is not its own."""
    productions = grammar.rules.productions
    others = shared or {}
    own = [
        name
        for name, rule in productions.items()
        if name == "root" or (name not in RESERVED and others.get(name) != rule)
    ]
    effects = Counter(pointer for name in own for pointer in origins.of_rules[name])
    recursive = frozenset(in_cycles(grammar.rules.references))
    rules = [
        RuleView(
            rule,
            production,
            emit_rule(rule, production).rstrip("\n"),
            tuple(sorted(origins.of_rules[rule], key=effects.__getitem__)) if rule in own else (),
            _marks(rule, production, origins) if rule in own else {},
            rule in recursive,
            rule not in own,
            grammar.rules.references[rule],
        )
        for rule, production in productions.items()
    ]
    findings = (*more, *grammar.report)
    own_rules = [rule for rule in rules if not rule.is_shared]
    sizes = {
        "bytes": len(str(grammar).encode()),
        "rules": len(rules),
        "own_bytes": sum(len(rule.text.encode()) + 1 for rule in own_rules),
        "own_rules": len(own_rules),
    }
    lines = schema_lines(schema, effects, findings, origins.without_effect)
    main_rules, findings = _main_rules(rules, lines), tuple(sorted(findings))
    return GrammarView(name, description, grammar, tuple(rules), lines, findings, sizes, main_rules)


def _marks(rule: str, production: Expr, origins: Origins) -> dict[int, tuple[str, ...]]:
    """Return for words of a rule the parts of the schema without which only few words are others."""
    marks: dict[int, list[str]] = {}
    words = _words(rule, production)
    for pointer in origins.of_rules[rule] if len(words) <= _MOST_WORDS else ():
        without = origins.without.get((rule, pointer))
        others = [] if without is None else _words(rule, without)
        if not others or len(others) > _MOST_WORDS:
            continue
        matcher = SequenceMatcher(None, [word for _, word in words], [word for _, word in others], False)
        gone = [
            words[place][0]
            for kind, start, end, _, _ in matcher.get_opcodes()
            for place in range(start, end)
            if kind != "equal"
        ]
        if len(gone) <= _MOST_MARKED * len(words):
            for index in gone:
                marks.setdefault(index, []).append(pointer)
    return {index: tuple(pointers) for index, pointers in marks.items()}


def _words(rule: str, production: Expr) -> list[tuple[int, str]]:
    """Return the words of a rule that are no space, each with its index."""
    numbered = enumerate(tokens(emit_rule(rule, production).rstrip("\n")))
    return [(index, token.text) for index, token in numbered if token.kind != "space"]


def _main_rules(rules: Iterable[RuleView], lines: Iterable[SchemaLine]) -> dict[str, str]:
    """Return for each line with rules the one that comes from the least outside of the line's subschema."""
    affected: dict[str, list[RuleView]] = {}
    for rule in rules:
        for pointer in rule.origins:
            affected.setdefault(pointer, []).append(rule)

    def outside(rule: RuleView, subschema: str) -> int:
        return sum(not (_is_in(origin, subschema) or _is_in(subschema, origin)) for origin in rule.origins)

    main: dict[str, str] = {}
    for line in lines:
        if line.pointer in affected and line.kind:
            subschema = line.pointer.rpartition("/")[0] if line.kind == "keyword" else line.pointer
            main_rule = min(affected[line.pointer], key=lambda rule: outside(rule, subschema))
            main[line.pointer] = main_rule.name
    return main


def _is_in(pointer: str, other: str) -> bool:
    return f"{pointer}/".startswith(f"{other}/")
