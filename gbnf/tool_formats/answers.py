"""One call as an expression, and what may stand around calls: reasoning and text, as one regular language.

The words of the language are whole answers in which one character stands for all from behind the marker on:
`NUL`, which no answer contains. So text, calls and text before calls share one deterministic automaton: text
never contains the marker, and whoever reads an answer finds where its calls begin.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal as OneOf
from typing import TypeAlias

from gbnf.compiler.automaton_rules import words_expr
from gbnf.compiler.grammar import CompiledRules
from gbnf.compiler.literals import factor_prefixes, json_string
from gbnf.compiler.notations import Part
from gbnf.compiler.pool import CompiledTool
from gbnf.compiler.primitives import RESERVED
from gbnf.compiler.rules import RuleTable, Scope
from gbnf.errors import GrammarError
from gbnf.grammar.ir import (
    EPSILON,
    CharClass,
    Expr,
    Literal,
    Ref,
    Rules,
    alt,
    char_class,
    literal,
    optional,
    repeat,
    seq,
    with_parts,
)
from gbnf.grammar.passes import run_passes
from gbnf.regular.automaton import Dfa
from gbnf.regular.charset import CharSet
from gbnf.regular.ecma262 import search
from gbnf.schema_caches import schema_cache
from gbnf.tool_formats.cursor import SPACE
from gbnf.tool_formats.delimiters import format_delimiters
from gbnf.tool_formats.format import FormatFields, JsonArguments, Reasoning
from gbnf.tool_formats.text_calls import BEGINNING, OTHER_OBJECT, RULES, TEXT_CALLS

NUMBERED_CALLS = 4
"""The first calls of an answer, whose numbers are fixed; further ones have any greater one."""
_GREATER_NUMBER = seq(char_class((0x31, 0x39)), repeat(char_class((0x30, 0x39)), 0, 3))
_JSON_QUOTE = re.compile(r'[:,{\[]\s*"\Z')
"""What comes before a slot inside a JSON string, in which the slot's text is escaped."""
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
        """Return whether a tool's name in a call can be read back: up to the literal after it."""
        names = [
            (part.spell(name), part.after)
            for part in self.parts
            if isinstance(part, Blank) and part.kind == "name" and part.after
        ]
        return all((spelled + after).find(after) == len(spelled) for spelled, after in names)


@schema_cache(maxsize=64)
def call_shapes(form: FormatFields) -> tuple[CallShape, ...]:
    """Return the shapes of the format's heads: its own, then the others that models write."""
    shapes: dict[tuple[str, tuple[str | Blank, ...]], list[tuple[str | Blank, ...]]] = {}
    arguments = form.arguments
    opening = ('"' if arguments.quoted else "{") if isinstance(arguments, JsonArguments) else arguments.begin
    for head in (form.head, *form.other_heads):
        parts = [*_blanks(head, opening), Blank("arguments"), *_blanks(form.tail, "")]
        first = next(index for index, part in enumerate(parts) if isinstance(part, Blank))
        last = max(
            index
            for index, part in enumerate(parts)
            if isinstance(part, Blank) and part.kind in ("name", "arguments")
        )
        start = "".join(part for part in parts[:first] if isinstance(part, str))
        shapes.setdefault((start, tuple(parts[last + 1 :])), []).append(tuple(parts[first : last + 1]))
    return tuple(CallShape(start, tuple(bound), tail) for (start, tail), bound in shapes.items())


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


class IdRules:
    """The rules of the ids of a format: its pattern, without the character that ends an id.

    `rules`: the rule for each blank of this kind.
    """

    def __init__(self, form: FormatFields) -> None:
        table = RuleTable(RESERVED)
        self.rules: dict[Blank, Ref] = {}
        for blank in (part for shape in call_shapes(form) for part in shape.parts):
            if isinstance(blank, Blank) and blank.kind == "id" and blank not in self.rules:
                excluded = re.escape('"\\' + blank.after[:1])
                ids = search(f"^(?:{form.id_pattern})$") & search(rf"^[^\0-\x1f{excluded}]+$")
                self.rules[blank] = table.add(("callId",), words_expr(ids, Scope(table, ("callId",))))
        self.part = CompiledRules.of(Rules(table.productions))


id_rules = schema_cache(maxsize=64)(IdRules)


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


Content: TypeAlias = OneOf["auto", "offered", "required", "none", "prose", "given"]
"""What an answer consists of: text or calls or both ("offered": and the text does not look like a call of
another tool), calls only, any text only ("prose": that does not begin like a call), or text of another
grammar."""

CALLS = "calls"

_WHITESPACE = " \t\r\n"
_SPACES = f"[{_WHITESPACE}]*"
_FEW_SPACES = "[ \\n]{0,2}"
"""The whitespace before required calls, besides the template's own: a model could write it for ever."""
_PLACEHOLDERS = ("\0", "\U0001ffff", "\U0001fffe", "\U0002ffff", "\U0002fffe")
"""The characters that stand for calls: NUL, which the engine cannot match, and noncharacters."""
_TEXT_CALLS, _OTHER_OBJECT = "\U0010ffff", "\U0010fffe"
"""Those that stand for calls in a text, and for the beginning of another object (see `text_calls`)."""


@dataclass(frozen=True, slots=True)
class Opening:
    """The fixed text up to the marker with which calls begin, and the heads that begin so.

    Of each of the `heads`, the index in `call_shapes`, and the fixed text after the marker.
    """

    text: str
    heads: tuple[tuple[int, str], ...]


@schema_cache(maxsize=64)
def openings(form: FormatFields) -> tuple[Opening, ...]:
    """Return the ways in which the calls of an answer begin."""
    heads_of: dict[str, list[tuple[int, str]]] = {}
    for index, shape in enumerate(call_shapes(form)):
        fixed = form.begin + shape.start
        start = fixed.find(form.marker) if form.marker else -1
        length = len(fixed) if start < 0 else start + len(form.marker)
        heads_of.setdefault(fixed[:length], []).append((index, fixed[length:]))
    if len(heads_of) > len(_PLACEHOLDERS):
        raise GrammarError(f"calls begin in {len(heads_of)} ways, more than {len(_PLACEHOLDERS)}")
    return tuple(Opening(text, tuple(heads)) for text, heads in heads_of.items())


def is_quoted(form: FormatFields) -> bool:
    """Return whether arguments are written as a JSON string that contains them."""
    return isinstance(form.arguments, JsonArguments) and form.arguments.quoted


def begins_like_object(form: FormatFields) -> bool:
    """Return whether the calls of the format begin like calls in a text."""
    return form.marker.startswith("{")


def calls_rule(number: int) -> str:
    """Return the name of the rule for what follows the opening with this number."""
    return f"{CALLS}{number + 1}" if number else CALLS


@schema_cache(maxsize=256)
def answer_rules(form: FormatFields, content: Content, reasoning: bool) -> CompiledRules:
    """Return the rules of an answer. The first is `root`; they refer to `calls_rule` of each opening.

    The content "given" refers to `calls_rule(0)`, which is the text with its end there.

    Raises GrammarError for a format in which text and calls cannot be told apart, TooManyStatesError.
    """
    count = 1 if content == "given" else len(openings(form))
    rules = {_PLACEHOLDERS[number]: Ref(calls_rule(number)) for number in range(count)}
    if content in ("auto", "offered"):
        rules |= {_TEXT_CALLS: Ref(TEXT_CALLS), _OTHER_OBJECT: Ref(OTHER_OBJECT)}
    any_char = f"[^{''.join(rules)}]"
    table = RuleTable(RESERVED - {"root"} | {rule.name for rule in rules.values()} | RULES)
    root = table.reserve("root")
    before: Expr = EPSILON
    if reasoning and form.reasoning is not None:
        before = words_expr(_reasoning(form, form.reasoning, any_char), Scope(table, ("reasoning",)))
        if form.reasoning.prompt == "none":
            before = optional(before)
    body = words_expr(_body(form, content, any_char), Scope(table, ("text",)))
    table.define(root, seq(before, body))
    productions = {name: _with_calls(expr, rules) for name, expr in table.productions.items()}
    return CompiledRules.of(run_passes(Rules(productions, root.name)))


def _reasoning(form: FormatFields, reasoning: Reasoning, any_char: str) -> Dfa:
    """Return the reasoning, up to where the text or the calls begin."""
    begin, end = reasoning.begin.strip(), reasoning.end.strip()
    is_open = reasoning.prompt == "open"
    excluded = [end, *form.end_of_turn, *([] if is_open or begin else [form.marker])]
    texts = (re.escape(text.strip()) for text in excluded if text.strip())
    inside = f"(?:{_clear(texts)}{any_char})*{re.escape(end)}"
    further = _SPACES + re.escape(begin) + inside
    if reasoning.repeats:
        return search(f"^{inside}(?:{further})*$" if is_open else f"^(?:{further})+$")
    return search(f"^{inside if is_open else further}$")


def _body(form: FormatFields, content: Content, any_char: str) -> Dfa:
    """Return an answer after its reasoning."""
    marks = list(zip((opening.text for opening in openings(form)), _PLACEHOLDERS, strict=False))
    before = ("", *((form.reasoning.end, form.reasoning.closing) if form.reasoning else ()))
    if content == "required":
        return _whole(_any(_lead(text, before) + re.escape(text.lstrip()) + char for text, char in marks))
    begin, end = form.text.begin.lstrip(), form.text.end.strip()
    begins = [begin, *form.text.other_begins]
    if content == "given":
        opened = (_lead(form.text.begin, before) + re.escape(opener) for opener in begins)
        return _whole(_any(opened) + _PLACEHOLDERS[0])
    if not (begin or all(text.strip() for text, _ in marks)):
        raise GrammarError("no text begins the calls of this format, so that text could be told from calls")
    opening = _lead(form.text.begin, before) + _any(map(re.escape, begins)) if begin else ""
    between = form.text.before_calls
    closing = re.escape(end)
    if content in ("auto", "offered") and between is not None:
        after = _any(re.escape((between + text).lstrip()) + char for text, char in marks)
        closing = f"(?:{closing}|{_SPACES}{after})"
    char = _clear(_excluded(form)) + any_char
    text = _whole(f"{opening}(?:{char})+{closing}") - _whole(opening + _SPACES + closing)
    if content == "none":
        return text
    if content == "prose":
        return text - search(f"^{opening}{_SPACES}[`{{\\[<]")
    text -= search(f"^{opening}{_SPACES}{BEGINNING}")
    objects = []
    if not is_quoted(form):  # as the rules of the tools are
        objects.append(_TEXT_CALLS + re.escape(end))
    if not (begins_like_object(form) or content == "offered"):  # the calls of the format begin so
        objects.append(f"{_OTHER_OBJECT}(?:{char})*{closing}")
    if objects:
        text |= _whole(f"{opening}{_SPACES}{_any(objects)}")
    return text | _whole(_SPACES + _any(re.escape(text.lstrip()) + char for text, char in marks))


def _whole(pattern: str) -> Dfa:
    """Return the texts that a pattern matches from beginning to end."""
    return search(f"^{pattern}$")


def excluded_texts(form: FormatFields) -> list[str]:
    """Return the texts, without whitespace around them, by which the regions of an answer are told apart."""
    tags = (form.reasoning.begin, form.reasoning.end) if form.reasoning else ()
    before = [opening.text.partition(form.marker)[0] for opening in openings(form) if form.marker]
    texts = [form.marker, *before, *tags, *form.end_of_turn, form.text.before_calls or "", form.text.end]
    return [stripped for text in texts if (stripped := text.strip())]


def _excluded(form: FormatFields) -> list[str]:
    """Return patterns of what the text of an answer does not contain.

    Those are the texts by which its regions are told apart, and all in which its parser looks for a call.
    """
    spaces = r"[\s\x1c-\x1f\x85]*"  # any number of Python's
    delimiters = [pattern.replace(SPACE, spaces) for pattern in format_delimiters(form).in_text.patterns]
    return [*map(re.escape, excluded_texts(form)), *delimiters]


def _clear(patterns: Iterable[str]) -> str:
    """Return the condition that none of the patterns matches here."""
    excluded = "|".join(dict.fromkeys(patterns))
    return f"(?!{excluded})" if excluded else ""


def _lead(text: str, before: Iterable[str]) -> str:
    """Return the whitespace before `text`: a little, or its own after the trailing one of what is before."""
    own = text[: len(text) - len(text.lstrip())]
    return _any([_FEW_SPACES, *(re.escape(other[len(other.rstrip()) :] + own) for other in before)])


def _any(patterns: Iterable[str]) -> str:
    return f"(?:{'|'.join(patterns)})"


def _with_calls(expr: Expr, rules: Mapping[str, Ref]) -> Expr:
    """Return the expression with rules in place of the characters that stand for them."""
    match expr:
        case Literal(text) if not rules.keys().isdisjoint(text):
            parts = re.split(f"([{''.join(rules)}])", text)
            return seq(*[rules[part] if part in rules else literal(part) for part in parts])
        case CharClass(ranges, negated):
            listed = CharSet(ranges)
            standing = [rules[char] for char in rules if (char in listed) != negated]
            others = listed - CharSet.of("".join(rules))  # the engine never matches NUL
            return alt(*standing, *([CharClass(others.ranges, negated)] if negated or others else []))
    return with_parts(expr, lambda item: _with_calls(item, rules))
