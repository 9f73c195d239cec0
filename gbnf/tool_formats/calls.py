"""One call of a tool-call format as an expression: names, ids and numbers between the format's literals."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Literal as OneOf

from gbnf.compiler.automaton_rules import words_expr
from gbnf.compiler.grammar import CompiledRules
from gbnf.compiler.literals import factor_prefixes, json_string
from gbnf.compiler.pool import CompiledTool
from gbnf.compiler.primitives import RESERVED
from gbnf.compiler.rules import RuleTable, Scope
from gbnf.grammar.ir import Expr, Literal, Ref, Rules, char_class, literal, repeat, seq
from gbnf.regular.ecma262 import search
from gbnf.tool_formats.format import FormatFields, JsonArguments, Part

#: The first calls of an answer, whose numbers are fixed; further ones have any greater one.
NUMBERED_CALLS = 4
_GREATER_NUMBER = seq(char_class((0x31, 0x39)), repeat(char_class((0x30, 0x39)), 0, 3))
#: What comes before a slot inside a JSON string, in which the slot's text is escaped.
_JSON_QUOTE = re.compile(r'[:,{\[]\s*"\Z')
_QUOTE = Literal('"')


@dataclass(frozen=True, slots=True)
class Blank:
    """What is filled in between the literals of a call, with the literal that follows it.

    `base` is that of an index. `in_json`: it stands in a JSON string.
    """

    kind: OneOf["name", "id", "index", "arguments"]
    after: str = ""
    base: int = 0
    in_json: bool = False

    def spell(self, name: str) -> str:
        """Return a tool's name as it is written here."""
        return json_string(name)[1:-1] if self.in_json else name

    def can_be(self, name: str) -> bool:
        """Return whether a tool's name, written here, can be read back: where the literal after it begins."""
        return not self.after or (self.spell(name) + self.after).find(self.after) == len(self.spell(name))


@dataclass(frozen=True, slots=True)
class CallShape:
    """A way to write a call: a literal, parts that depend on the tool, and parts that do not.

    `bound`: the alternatives of the parts that depend on the tool.
    """

    start: str
    bound: tuple[tuple[str | Blank, ...], ...]
    tail: tuple[str | Blank, ...]

    @property
    def parts(self) -> tuple[str | Blank, ...]:
        """The parts after the start, in all alternatives."""
        return (*(part for parts in self.bound for part in parts), *self.tail)

    @property
    def is_numbered(self) -> bool:
        """Whether the number of a call is part of it."""
        return any(isinstance(part, Blank) and part.kind == "index" for part in self.parts)

    def can_name(self, name: str) -> bool:
        """Return whether calls of a tool with this name can be read back."""
        return all(
            part.can_be(name) for part in self.parts if isinstance(part, Blank) and part.kind == "name"
        )


@lru_cache(maxsize=64)
def call_shapes(form: FormatFields) -> tuple[CallShape, ...]:
    """Return the shapes of the format's heads: its own, then the others that models write."""
    found: dict[tuple[str, tuple[str | Blank, ...]], list[tuple[str | Blank, ...]]] = {}
    for head in (form.head, *form.other_heads):
        start, bound, tail = _call_shape(head, form)
        found.setdefault((start, tail), []).append(bound)
    return tuple(CallShape(start, tuple(bound), tail) for (start, tail), bound in found.items())


def _call_shape(
    head: tuple[Part, ...], form: FormatFields
) -> tuple[str, tuple[str | Blank, ...], tuple[str | Blank, ...]]:
    arguments = form.arguments
    opening = ('"' if arguments.quoted else "{") if isinstance(arguments, JsonArguments) else arguments.begin
    parts = [*_blanks(head, opening), Blank("arguments"), *_blanks(form.tail, "")]
    first = next(index for index, part in enumerate(parts) if isinstance(part, Blank))
    last = max(
        index
        for index, part in enumerate(parts)
        if isinstance(part, Blank) and part.kind in ("name", "arguments")
    )
    start = "".join(part for part in parts[:first] if isinstance(part, str))
    return start, tuple(parts[first : last + 1]), tuple(parts[last + 1 :])


def _blanks(parts: Sequence[Part], after: str) -> Iterator[str | Blank]:
    """Yield the parts with slots as blanks; `after` is the literal that follows the last of them."""
    before = ""
    for index, part in enumerate(parts):
        if isinstance(part, str):
            before = part
            yield part
        else:
            following = parts[index + 1] if index + 1 < len(parts) else after
            assert part.kind != "key", "keys stand inside arguments"
            in_json = _JSON_QUOTE.search(before) is not None
            yield Blank(part.kind, following if isinstance(following, str) else "", part.base, in_json)
            before = ""


@dataclass(frozen=True, slots=True)
class IdRules:
    """The rules of ids, and the rule for each blank of this kind."""

    part: CompiledRules
    rules: dict[Blank, Ref]


@lru_cache(maxsize=64)
def id_rules(form: FormatFields) -> IdRules:
    """Return the rules of the ids of a format: its pattern, without the character that ends an id."""
    table = RuleTable(RESERVED)
    rules: dict[Blank, Ref] = {}
    for shape in call_shapes(form):
        for blank in shape.parts:
            if isinstance(blank, Blank) and blank.kind == "id" and blank not in rules:
                excluded = re.escape('"\\' + blank.after[:1])
                ids = search(f"^(?:{form.id_pattern})$") & search(rf"^[^\0-\x1f{excluded}]+$")
                rules[blank] = table.add(("callId",), words_expr(ids, Scope(table, ("callId",))))
    return IdRules(CompiledRules.of(Rules(table.productions)), rules)


def call_expr(
    shape: CallShape, tools: Sequence[CompiledTool], ids: IdRules, quoted: bool, number: int | None
) -> Expr:
    """Return a call of one of the tools, from behind the shape's start.

    `number` is the call's number, counted from 0; None for any from `NUMBERED_CALLS` on.
    """

    def written(part: str | Blank, tool: CompiledTool | None) -> Expr:
        if isinstance(part, str):
            return literal(part)
        match part.kind:
            case "id":
                return ids.rules[part]
            case "index":
                return _GREATER_NUMBER if number is None else Literal(str(part.base + number))
        assert tool is not None, "the tail depends on no tool"
        if part.kind == "name":
            return literal(part.spell(tool.name))
        return seq(_QUOTE, tool.arguments, _QUOTE) if quoted else tool.arguments

    branches = [seq(*[written(part, tool) for part in bound]) for bound in shape.bound for tool in tools]
    return seq(factor_prefixes(branches), *[written(part, None) for part in shape.tail])
