"""Which parts of a schema the rules of a grammar come from.

A rule comes from a keyword, a property or a branch if it is another rule, or none, in the grammar of the
schema without it. So this is found by compiling again, once for each part; a compilation keeps nothing for
it. It works for whatever makes a grammar of a schema: calls in any format, and with any options.

Invariants: a part is either without effect, and then the grammars with and without it are equal up to the
names of rules, or it is the origin of at least one rule that the grammar without it does not have.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, TypeAlias

from gbnf.compiler.grammar import Grammar
from gbnf.compiler.primitives import RESERVED
from gbnf.errors import GbnfError
from gbnf.grammar.ir import Alt, Expr, Ref, Repeat, Rules, Seq, references
from gbnf.grammar.passes import substitute
from gbnf.schema.keywords import (
    APPLICATORS,
    DEFINITIONS,
    KEYWORDS,
    SchemaPath,
    child_pointer,
    path_pointer,
    resolve_pointer,
    subschemas,
)
from gbnf.schema_caches import caches_in_use

_MOST_CHARACTERS = 3_000_000
"""Of all grammars that are compiled for one schema: about a second. The first parts are examined anyway."""
_LEAST_PARTS = 8
#: How many rules of another grammar are compared with one, of those that look the same.
_MOST_SIMILAR = 20
_EXAMINED = KEYWORDS | (APPLICATORS.keys() - DEFINITIONS.keys()) | {"requires_one_of"}
_NAME_LISTS = {"required", "requires_one_of"}
_Removal: TypeAlias = Literal["removed", "emptied"]


@dataclass(frozen=True, slots=True)
class Origins:
    """The origins of the rules of a grammar.

    `of_rules`: for each rule the JSON Pointers of the parts of the schema that it comes from, in document
    order. `without_effect`: those of the parts that change nothing. Parts that are in neither were not
    examined, since the schema is large, or since it cannot be compiled without them: what is said of the part
    around them holds for them. `without`: for a rule and a part the production of the rule without the part,
    if it still has one.
    """

    of_rules: Mapping[str, tuple[str, ...]]
    without_effect: frozenset[str] = frozenset()
    without: Mapping[tuple[str, str], Expr] = field(default_factory=dict)


def find_origins(schema: Any, compile_grammar: Callable[[Any], Grammar]) -> Origins:
    """Return the origins of the rules of the grammar that `compile_grammar` returns for `schema`.

    Raises what `compile_grammar` raises for the whole schema.
    """
    with replace(caches_in_use(), parts=None).use():  # nobody will ask for these variants again
        rules = compile_grammar(schema).rules
        origins: dict[str, list[str]] = {name: [] for name in rules.productions}
        without_effect: list[str] = []
        without: dict[tuple[str, str], Expr] = {}
        work = 0
        for number, (path, removal) in enumerate(_parts(schema)):
            if number >= _LEAST_PARTS and work > _MOST_CHARACTERS:
                break
            try:
                reduced = compile_grammar(_without(schema, path, removal))
            except GbnfError:
                continue
            work += len(str(reduced))
            pointer = path_pointer(path)
            changed = changed_rules(rules, reduced.rules)
            for name, other in changed.items():
                origins[name].append(pointer)
                if other is not None:
                    without[name, pointer] = reduced.rules.productions[other]
            if not changed:
                without_effect.append(pointer)
    order = {pointer: number for number, pointer in enumerate(_pointers(schema))}
    return Origins(
        {name: tuple(sorted(pointers, key=order.__getitem__)) for name, pointers in origins.items()},
        frozenset(without_effect),
        without,
    )


def changed_rules(rules: Rules, others: Rules) -> dict[str, str | None]:
    """Return the rules of a grammar that another one does not have, with its rules in their places, if any.

    Rules are compared one by one, from the two roots on: with equal productions they are the same, whatever
    the rules that they refer to derive. References are equal if their names are, or if each name is in one
    of the grammars only: then the rules that they refer to are compared. So are auxiliary rules whose names
    differ in their numbers only; those of a changed rule are searched for.
    """
    mine, theirs = rules.productions, others.productions
    changed: dict[str, str | None] = {}
    alike: dict[Expr, list[str]] = {}
    for name in theirs:
        if _is_auxiliary(name):
            alike.setdefault(_unnumbered(name, theirs), []).append(name)

    def counterpart(name: str) -> str | None:
        if not _is_auxiliary(name):
            return name if name in theirs else None
        similar = alike.get(_unnumbered(name, mine), ())[:_MOST_SIMILAR] if name in mine else ()
        return next((other for other in similar if _is_same(name, other, mine, theirs)), None)

    seen: set[tuple[str, str | None]] = set()
    pending: deque[tuple[str, str | None]] = deque([(rules.root, others.root)])
    while pending:
        pair = pending.popleft()
        name, other = pair
        if pair in seen or name not in mine:
            continue
        seen.add(pair)
        production = mine[name]
        references = None if other is None else _paired(production, theirs[other], mine, theirs)
        if references is None:
            changed[name] = other
            references = [(below, counterpart(below)) for below in rules.references[name]]
        pending += references
    return changed


def _stem(name: str) -> str:
    return name.rstrip("0123456789")


def _is_auxiliary(name: str) -> bool:
    return name[-1].isdigit() and name not in RESERVED


def _unnumbered(name: str, productions: Mapping[str, Expr]) -> Expr:
    """Return the production of an auxiliary rule after its name, without the numbers of auxiliary rules."""
    production = productions[name]
    stems: dict[str, Expr] = {
        below: Ref(_stem(below)) for below in references(production) if _is_auxiliary(below)
    }
    return Seq((Ref(_stem(name)), substitute(production, stems)))


def _is_same(name: str, other: str, mine: Mapping[str, Expr], theirs: Mapping[str, Expr]) -> bool:
    """Return whether two auxiliary rules, and those that they refer to, differ in their numbers only."""
    seen: set[tuple[str, str | None]] = set()
    pending: list[tuple[str, str | None]] = [(name, other)]
    while pending:
        pair = pending.pop()
        name, below = pair
        if below is None or pair in seen or not _is_auxiliary(name):
            continue
        seen.add(pair)
        pairs = _paired(mine[name], theirs[below], mine, theirs)
        if pairs is None:
            return False
        pending += pairs
    return True


def _paired(
    expr: Expr, other: Expr, mine: Mapping[str, Expr], theirs: Mapping[str, Expr]
) -> list[tuple[str, str | None]] | None:
    """Return the references of two expressions in pairs; None if the expressions differ otherwise."""
    pairs: list[tuple[str, str | None]] = []
    pending = [(expr, other)]
    while pending:
        left, right = pending.pop()
        match left, right:
            case Ref(name), Ref(renamed):
                is_same = _is_auxiliary(name) and _stem(name) == _stem(renamed) != renamed
                if not is_same and name != renamed and (name in theirs or renamed in mine):
                    return None
                if renamed in theirs:
                    pairs.append((name, renamed))
            case (Seq(lefts), Seq(rights)) | (Alt(lefts), Alt(rights)):
                if len(lefts) != len(rights):
                    return None
                pending += zip(lefts, rights, strict=True)
            case Repeat(item, minimum, maximum), Repeat(item_, minimum_, maximum_):
                if (minimum, maximum) != (minimum_, maximum_):
                    return None
                pending.append((item, item_))
            case _:
                if left != right:
                    return None
    return pairs


def _parts(schema: Any) -> Iterator[tuple[SchemaPath, _Removal]]:
    """Yield the paths of keywords, properties and branches, the outermost first; follows local references."""
    pending: deque[tuple[SchemaPath, Any]] = deque([((), schema)])
    seen = {id(schema)}
    while pending:
        path, here = pending.popleft()
        if not isinstance(here, Mapping):
            continue
        below = list(subschemas(here))
        for keyword, value in here.items():
            if keyword not in _EXAMINED:
                continue
            yield (*path, keyword), "removed"
            target = resolve_pointer(value, schema) if keyword == "$ref" else None
            if target is not None and id(target[1]) not in seen:
                seen.add(id(target[1]))
                pending.append(target)
        for inner, member in below:
            if len(inner) > 1:
                yield (*path, *inner), "emptied" if inner[0] in (*DEFINITIONS, "prefixItems") else "removed"
            if id(member) not in seen or isinstance(member, bool):
                seen.add(id(member))
                pending.append(((*path, *inner), member))


def _without(schema: Any, path: SchemaPath, removal: _Removal) -> Any:
    """Return a copy of a schema without the part at a path; what is emptied becomes a schema of any value."""
    step: Any
    step, *inner = path
    copy: Any = list(schema) if isinstance(schema, list) else dict(schema)
    if inner:
        copy[step] = _without(schema[step], tuple(inner), removal)
        gone = inner if step == "properties" and len(inner) == 1 else ()
    elif removal == "emptied":
        copy[step] = {}
        return copy
    else:
        del copy[step]
        gone = schema[step] if step == "properties" and isinstance(schema[step], Mapping) else ()
    if gone:  # they are no longer required, either
        for keyword in _NAME_LISTS & copy.keys():
            copy[keyword] = _without_names(copy[keyword], gone)
    return copy


def _without_names(names: Any, gone: Collection[Any]) -> Any:
    """Return a list without some names, also in the lists inside, of which empty ones are left out."""
    if not isinstance(names, list):
        return names
    remaining = [_without_names(name, gone) for name in names if isinstance(name, list) or name not in gone]
    return [name for name in remaining if name != []]


def _pointers(schema: Any) -> Iterator[str]:
    """Yield the pointers of a schema and of all in it, in document order."""
    pending = [("", schema)]
    while pending:
        pointer, here = pending.pop()
        yield pointer
        if isinstance(here, Mapping | list):
            items = here.items() if isinstance(here, Mapping) else enumerate(here)
            pending += reversed([(child_pointer(pointer, key), member) for key, member in items])
