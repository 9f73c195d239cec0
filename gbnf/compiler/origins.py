"""Which subschemas the rules of a grammar come from.

A rule belongs to the conjunction that it is the production of. A helper rule belongs to those of the rules
that refer to it, and a value without a rule to the rules that write its key. A compilation keeps none of
this: the origins are found by compiling again, the same way, for those who look at a grammar.

Invariants: the names are those of the compiled rules; each rule has an origin, the root's at least; each
origin is the JSON Pointer of a subschema of the author's schema.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from gbnf.compiler.literals import json_string
from gbnf.compiler.lowering import Lowering
from gbnf.compiler.options import CompileOptions
from gbnf.compiler.pool import lower_arguments
from gbnf.compiler.schema import compilation, lower_schema
from gbnf.effort import EffortSpent
from gbnf.errors import SchemaError
from gbnf.grammar.ir import Alt, Expr, Literal, Ref, Repeat, Rules, Seq
from gbnf.grammar.passes import PASSES, substitute
from gbnf.schema.applicators import IN_PLACE_APPLICATORS, resolve_pointer, subschemas
from gbnf.schema.document import Document, Subschema
from gbnf.schema.keywords import REFERENCES
from gbnf.schema.metaschema import child_pointer
from gbnf.schema.value_sets import Array, Conjunction, Object
from gbnf.tools import Tool
from gbnf.tools.step_references import offered_args

Origins: TypeAlias = Mapping[str, tuple[str, ...]]
"""For each rule the JSON Pointers of the subschemas that it comes from, in the order of the schema."""

_MOST_IN_PLACE = 500
"""Subschemas of one value that count as its origins."""
_KEY = re.compile(r'("(?:[^"\\]|\\.)*")(:|$)')
_BUFFER = 2000
"""Characters of a key that are known while a trie of keys is walked."""


def schema_origins(schema: Mapping[str, Any] | bool, options: CompileOptions) -> Origins:
    """Return the origins of the rules of `compile_schema`. Raises SchemaError as it does."""
    with compilation(schema):
        root, lowering = lower_schema(schema, options)
    return _Tracing(lowering, schema).origins(root)


def tool_origins(
    tool: Tool, options: CompileOptions, has_steps: bool, prefix: str | None = None
) -> Origins | None:
    """Return the origins of the rules of `compile_tool`, in the tool's `args`; None where it returns None.

    Raises SchemaError for a tool that cannot be compiled.
    """
    args = offered_args(tool, (1,) if has_steps else ())
    if args is None:
        return None
    with compilation(args):
        ref, lowering = lower_arguments(tool, args, options, has_steps, prefix or tool.name)
    return _Tracing(lowering, tool.args).origins(ref)


class _Tracing:
    """The rules of one compilation by origin. `schema` is the author's; the compiled one may be closed."""

    def __init__(self, lowering: Lowering, schema: Any) -> None:
        self._lowering = lowering
        self._document = lowering.document
        self._schema = schema
        self._productions = lowering.table.productions
        self._found: dict[str, dict[str, None]] = {}
        self._pointers: dict[Conjunction, tuple[str, ...]] = {}
        self._resolved: dict[str, str] = {}

    def origins(self, root: Ref) -> Origins:
        """Return the origins of the rules that the passes keep."""
        self._add([root.name], [""])
        inline: dict[Conjunction, Expr] = {}
        for (conjunction, _, _), expr in self._lowering.compiled.items():
            if isinstance(expr, Ref):
                self._add([expr.name], self.pointers(conjunction))
            else:
                inline[conjunction] = expr
        owned = frozenset(self._found)
        for conjunction, expr in inline.items():
            for name in expr.references or ():
                if name not in owned:
                    self._add([name], self.pointers(conjunction))
        families = {name: self._family(name) for name in list(self._found)}
        for name, pointers in [(name, tuple(self._found[name])) for name in families]:
            self._add(families[name], pointers)
        self._add_parts(root, inline, families)
        return self._kept(root)

    def _add(self, names: Iterable[str], pointers: Iterable[str]) -> None:
        pointers = tuple(pointers)
        for name in names:
            if name in self._productions:
                self._found.setdefault(name, {}).update(dict.fromkeys(pointers))

    def _family(self, name: str) -> list[str]:
        """Return a rule, and the rules without an origin of their own that it refers to."""
        family, pending = {name: None}, [name]
        while pending:
            for below in _references(self._productions.get(pending.pop())):
                if below not in self._found and below not in family and below in self._productions:
                    family[below] = None
                    pending.append(below)
        return list(family)

    def _add_parts(
        self, root: Ref, inline: Mapping[Conjunction, Expr], families: Mapping[str, list[str]]
    ) -> None:
        """Add the origins of properties and items to the rules that contain them."""
        roots = {(self._document.root,): root.name}
        compiled = {
            conjunction: expr.name
            for (conjunction, _, _), expr in self._lowering.compiled.items()
            if isinstance(expr, Ref)
        }
        for conjunction, name in (roots | compiled).items():
            family = families.get(name, [name])
            keys: dict[str, tuple[str, ...]] = {}
            for key, part in self._parts(conjunction):
                target = self._lowering.target(part)
                places = [*self.pointers(part), *(self.pointers(target) if target in inline else ())]
                if key is None:
                    self._add(family, places)
                else:
                    keys[json_string(key)] = tuple(places)
            written = self._writers(family, keys.keys()) if keys else {}
            for key, pointers in keys.items():
                self._add(written.get(key, [name]), pointers)

    def _parts(self, conjunction: Conjunction) -> Iterator[tuple[str | None, Conjunction]]:
        """Yield the conjunctions of the properties, with their names, and of the items."""
        try:
            shapes = self._lowering.shapes(conjunction)
        except (SchemaError, EffortSpent):
            return
        for shape in shapes:
            if isinstance(shape, Object):
                yield from shape.properties.items()
                yield from ((None, other.value) for other in shape.others)
            elif isinstance(shape, Array):
                yield from ((None, part) for part in (*shape.prefix, shape.items, *shape.contains))

    def _writers(self, family: Iterable[str], keys: Iterable[str]) -> dict[str, list[str]]:
        """Return which rules write a key, or what follows it."""
        wanted = frozenset(keys)
        found: dict[str, list[str]] = {}
        for name in family:
            for key, entry in _keys(self._productions.get(name, Seq(())), "", None):
                if key in wanted:
                    found.setdefault(key, []).append(name)
                    if entry is not None and entry in self._productions:
                        found[key].append(entry)
        return found

    def pointers(self, conjunction: Conjunction) -> tuple[str, ...]:
        """Return the pointers of the subschemas that judge the same value as a conjunction."""
        known = self._pointers.get(conjunction)
        if known is None:
            found: dict[str, None] = {}
            for subschema in _in_place(self._document, conjunction):
                found[self._resolve(self._lowering.pointer(subschema))] = None
            known = self._pointers[conjunction] = tuple(found)
        return known

    def _resolve(self, pointer: str) -> str:
        """Return a pointer, shortened until it is one into the author's schema."""
        known = self._resolved.get(pointer)
        if known is None:
            known = pointer
            while known and not self._is_schema(known):
                known = known.rpartition("/")[0]
            self._resolved[pointer] = known
        return known

    def _is_schema(self, pointer: str) -> bool:
        found = resolve_pointer(f"#{pointer.replace('%', '%25')}", self._schema)
        return found is not None and isinstance(found[1], Mapping | bool)

    def _kept(self, root: Ref) -> Origins:
        """Return the origins of the rules after the passes, which merge some and remove others."""
        rules = Rules(self._productions, root.name)
        for apply in PASSES:
            after = apply(rules)
            if after is not rules:
                for gone, kept in _merged(rules, after).items():
                    self._found.setdefault(kept, {}).update(self._found.get(gone, {}))
                rules = after
        order = {pointer: number for number, pointer in enumerate(_pointers_of(self._schema))}
        last = len(order)
        return {
            name: tuple(
                sorted(self._found.get(name) or {"": None}, key=lambda one: (order.get(one, last), one))
            )
            for name in rules.productions
        }


def _in_place(document: Document, conjunction: Conjunction) -> Iterator[Subschema]:
    """Yield the subschemas of a conjunction, and those inside that judge the same value."""
    pending, seen = list(reversed(conjunction)), set[int]()
    while pending and len(seen) < _MOST_IN_PLACE:
        subschema = pending.pop()
        if id(subschema.raw) in seen:
            continue
        if not isinstance(subschema.raw, bool):  # booleans are equal wherever they are
            seen.add(id(subschema.raw))
        yield subschema
        if not isinstance(subschema.raw, Mapping):
            continue
        below = []
        try:
            entered = document.enter(subschema)
            below = [document.follow(entered, keyword) for keyword in REFERENCES if keyword in entered.raw]
        except SchemaError:
            entered = subschema
        for path, member in subschemas(entered.raw):
            if path[0] in IN_PLACE_APPLICATORS and isinstance(member, Mapping):
                below.append(entered.at(*path))
        pending += reversed(below)


def _merged(before: Rules, after: Rules) -> dict[str, str]:
    """Return for each rule that a pass has merged into another the one that is kept."""
    kept = {expr: name for name, expr in after.productions.items()}
    gone = [name for name in before.productions if name not in after.productions]
    merged: dict[str, Expr] = {}
    while True:
        left = []
        for name in gone:
            expr = substitute(before.productions[name], merged)
            if isinstance(expr, Ref) and expr.name in after.productions:
                merged[name] = expr
            elif expr in kept:
                merged[name] = Ref(kept[expr])
            else:
                left.append(name)
        if len(left) == len(gone):
            return {name: expr.name for name, expr in merged.items() if isinstance(expr, Ref)}
        gone = left


def _keys(expr: Expr, text: str, entry: str | None) -> Iterator[tuple[str, str | None]]:
    """Yield the JSON strings before a colon in a production, with the rule that goes on after each.

    `text` is what was written directly before `expr`, `entry` the rule directly after it.
    """
    match expr:
        case Literal(written):
            for found in _KEY.finditer((text + written)[-_BUFFER:]):
                yield found[1], None if found[2] else entry
        case Alt(items):
            for item in items:
                yield from _keys(item, text, entry)
        case Seq(items):
            for item, following in zip(items, (*items[1:], None), strict=False):
                after = following.name if isinstance(following, Ref) else None
                yield from _keys(item, text, after)
                text = text + item.text if isinstance(item, Literal) else ""
        case Repeat(item, _, _):
            yield from _keys(item, "", None)


def _references(expr: Expr | None) -> tuple[str, ...]:
    return () if expr is None else Rules({"": expr}, "").references[""]


def _pointers_of(schema: Any) -> Iterator[str]:
    """Yield the pointers of a schema and all below it, in document order."""
    pending = [("", schema)]
    while pending:
        pointer, here = pending.pop()
        yield pointer
        if isinstance(here, Mapping | list):
            items = here.items() if isinstance(here, Mapping) else enumerate(here)
            below = [(child_pointer(pointer, key), member) for key, member in items]
            pending += reversed([one for one in below if isinstance(one[1], Mapping | list | bool)])
