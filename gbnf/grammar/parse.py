"""Parse GBNF text: the language of llama.cpp's parser, without what it silently misreads.

Newlines, escapes and the count of repeated symbols follow `llama-grammar.cpp` (`parse_space`, `parse_char`,
`parse_sequence`, `handle_repetitions`). Errors, with location and hint, are: what llama.cpp refuses, what
hangs or crashes it (inverted bounds, left recursion, deep nesting), and what it silently loosens (`[]`, a
bound above 2,000, a second rule of the same name, a class with a reversed range). Whether a vocabulary has
the tokens of token terminals (`<think>`, `!<[42]>`) is checked where one is loaded.

Invariants: no step recurses over the nesting of the text, and a parse has no state outside itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NoReturn

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedCharacters, UnexpectedInput, UnexpectedToken

from gbnf.errors import GrammarSyntaxError
from gbnf.grammar.analysis import find_left_recursion
from gbnf.grammar.code_points import EscapeError, parse_class, parse_literal
from gbnf.grammar.ir import CharClass, Expr, Ref, Rules, TokenTerminal, alt, literal, repeat, seq
from gbnf.surrogates import has_surrogate

MAX_REPETITION = 2000  # MAX_REPETITION_THRESHOLD in llama-grammar.cpp
_LAST_TOKEN = 2**31 - 1
MAX_NESTING = 200  # llama.cpp recurses, and crashes at some tens of thousands
#: Nested expressions: code that walks them recurses, up to three frames a level; Python allows 1,000.
MAX_DEPTH = 200

_SYNTAX = r"""
start: _NEWLINE? (rule (_NEWLINE rule)* _NEWLINE?)?
rule: NAME _DEFINES alternation
alternation: sequence (_PIPE sequence)*
sequence: item*
item: (NAME | LITERAL | CLASS | ANY | TOKEN | group) SUFFIX*
group: LPAR alternation _RPAR

NAME: /[A-Za-z0-9-]+/
LITERAL: /"(\\.|[^"\\])*"/s
CLASS: /\[(\\.|[^\]\\])*\]/s
ANY: "."
TOKEN: /!?<(\[[0-9]+\]|(?!\[)[^>]*)>/
SUFFIX: /[?*+]|\{[^{}]*\}/
LPAR: "("
_RPAR: ")"
_PIPE: "|"
_DEFINES: "::="
_NEWLINE: /[\r\n]([ \t\r\n]|#[^\r\n]*)*/
%ignore /([ \t]|#[^\r\n]*)+/
"""
_BOUNDS = re.compile(r"\{\s*([0-9]+)\s*(?:(,)\s*([0-9]*)\s*)?\}")
_SHOWN = 400  # characters of a message
_NAMES = "Names have ASCII letters, digits and hyphens only: write camelCase."


def parse_gbnf(text: str, root: str = "root") -> Rules:
    """Parse a grammar, its rules in the order of the text.

    Raises GrammarSyntaxError if llama.cpp would refuse it, hang on it, or silently read another grammar.
    """
    if "\0" in text:
        _fail(text, text.index("\0"), "NUL ends the grammar for llama.cpp", "Remove the character.")
    try:
        tree = _parser().parse(text)
    except UnexpectedInput as error:
        _fail_syntax(text, error)
    return _GbnfReader(text).read(tree, root)


class _Newlines:
    """A filter between lexer and parser: drops the newlines that `parse_space` skips with `newline_ok`."""

    always_accept = ("_NEWLINE",)

    def process(self, stream: Iterator[Token]) -> Iterator[Token]:
        depth, continues = 0, False
        for token in stream:
            kind = token.type
            if kind == "_NEWLINE" and (continues or depth):
                continue
            if kind == "LPAR":
                depth += 1
                if depth > MAX_NESTING:
                    raise GrammarSyntaxError(
                        token.line or 1,
                        token.column or 1,
                        f"parentheses nested deeper than {MAX_NESTING}",
                        "Make rules of the inner groups.",
                    )
            elif kind == "_RPAR" and depth:
                depth -= 1
            continues = kind in {"_DEFINES", "_PIPE"}
            yield token


@cache
def _parser() -> Lark:
    return Lark(_SYNTAX, parser="lalr", lexer="basic", postlex=_Newlines(), maybe_placeholders=False)


@dataclass(slots=True)
class _ParsedExpr:
    """An expression, with what llama.cpp's expansion of repetitions depends on.

    `elements` is False if the engine sees no element at all (`""`, `x{0}`). `opening` are the names of the
    rules that must all have an empty alternative for the engine to treat the part as empty (no names:
    always), None if it never does. `cost` counts the symbols of the last item. `depth` is the largest number
    of nested expressions.
    """

    expr: Expr
    elements: bool = True
    opening: frozenset[str] | None = None
    cost: int = 1
    depth: int = 0


@dataclass(slots=True)
class _GbnfReader:
    """Reads one syntax tree in the order of the text, in which the engine numbers its symbols."""

    text: str
    symbols: int = 0
    seen: set[str] = field(default_factory=set)
    positions: dict[str, int] = field(default_factory=dict)
    uses: dict[str, int] = field(default_factory=dict)
    empty: set[str] = field(default_factory=set)
    loops: list[tuple[int, frozenset[str]]] = field(default_factory=list)

    def read(self, tree: Tree[Token], root: str) -> Rules:
        productions: dict[str, Expr] = {}
        for rule in tree.children:
            assert isinstance(rule, Tree)
            name, body = rule.children
            assert isinstance(name, Token)
            assert isinstance(body, Tree)
            if name in productions:
                first, _ = _line_and_column(self.text, self.positions[name])
                self._fail(
                    name,
                    f"a second rule {name} (the first is on line {first}): llama.cpp silently keeps the last",
                    "Rename one, or join both with |.",
                )
            self.positions[str(name)] = name.start_pos or 0
            self._see(name)
            part = self._alternation(body)
            productions[str(name)] = part.expr
            if not part.elements:
                self.empty.add(str(name))
        self._check_names(root)
        rules = Rules(productions, root)
        self._check_recursion(rules)
        return rules

    def _alternation(self, tree: Tree[Token]) -> _ParsedExpr:
        """Read an alternation without recursion: `todo` is what is left, `parts` what has been read."""
        parts: list[_ParsedExpr] = []
        todo: list[tuple[str, Any]] = [("read", tree)]
        depth = 0
        while todo:
            action, node = todo.pop()
            if action == "read":
                if isinstance(node, Token):
                    if node.type == "SUFFIX":
                        parts.append(self._repeat(parts.pop(), node, depth))
                    else:
                        parts.append(self._terminal(node))
                elif node.data == "group":
                    depth += 1
                    todo.append(("close", (self.symbols, node.children[0])))
                    self.symbols += 1
                    todo.append(("read", node.children[1]))
                else:
                    if node.data != "item":
                        todo.append((node.data, len(node.children)))
                    todo.extend(("read", child) for child in reversed(node.children))
            elif action == "close":
                depth -= 1
                symbols, parenthesis = node
                inner = parts.pop()
                self._check_depth(parenthesis, inner.depth)
                opening = None if inner.elements else frozenset[str]()
                cost = max(1, self.symbols - symbols)
                parts.append(_ParsedExpr(inner.expr, opening=opening, cost=cost, depth=inner.depth))
            else:
                read = parts[len(parts) - node :]
                del parts[len(parts) - node :]
                parts.append(_joined(read, is_sequence=action == "sequence"))
        return parts[0]

    def _terminal(self, token: Token) -> _ParsedExpr:
        try:
            match token.type:
                case "NAME":
                    name = str(token)
                    self._see(token)
                    self.uses.setdefault(name, token.start_pos or 0)
                    return _ParsedExpr(Ref(name), opening=frozenset({name}))
                case "LITERAL":
                    text = parse_literal(token)
                    self._check_text(token, text)
                    return _ParsedExpr(literal(text), elements=bool(text))
                case "TOKEN":
                    self._check_text(token, token)
                    return _ParsedExpr(TokenTerminal(self._token(token), token.startswith("!")))
                case "CLASS":
                    return _ParsedExpr(parse_class(token))
                case _:
                    return _ParsedExpr(CharClass((), negated=True))
        except EscapeError as error:
            _fail(self.text, (token.start_pos or 0) + error.offset, error.problem, error.hint)

    def _check_text(self, token: Token, text: str) -> None:
        if has_surrogate(text):
            self._fail(token, "a surrogate is not a character", "Write the character itself.")

    def _token(self, token: Token) -> str | int:
        name = token.removeprefix("!")
        if not name.startswith("<["):
            return name
        digits = name[2:-2].lstrip("0") or "0"
        if len(digits) > len(str(_LAST_TOKEN)) or int(digits) > _LAST_TOKEN:
            self._fail(token, f"{token} is beyond the last token id, {_LAST_TOKEN}", "Write the token's id.")
        return int(digits)

    def _repeat(self, part: _ParsedExpr, suffix: Token, depth: int) -> _ParsedExpr:
        """Read a repetition like `handle_repetitions`: S{m,n} is m copies and n-m symbols, S{m,} a loop."""
        self._check_depth(suffix, part.depth + 1)
        if not part.elements:
            self._fail(suffix, f"{suffix} has nothing to repeat", 'Put an item before it; "" is none.')
        minimum, maximum = self._bounds(suffix, nested=depth > 0)
        times = maximum or minimum or 1
        if part.cost * times > MAX_REPETITION:
            self._fail(
                suffix,
                f"{suffix} repeats a group of {part.cost} symbols: {part.cost} × {times} exceeds "
                f"llama.cpp's {MAX_REPETITION}",
                "Make a rule of the group and define it above this one: it then counts as one symbol.",
            )
        self.symbols += 1 if maximum is None else maximum - minimum
        if maximum is None and part.opening is not None:
            self.loops.append((suffix.start_pos or 0, part.opening))
        expr = repeat(part.expr, minimum, maximum)
        opening = part.opening if minimum else frozenset[str]()
        cost = part.cost * times
        return _ParsedExpr(expr, elements=maximum != 0, opening=opening, cost=cost, depth=part.depth + 1)

    def _check_depth(self, token: Token, depth: int) -> None:
        if depth > MAX_DEPTH:
            self._fail(
                token,
                f"repetitions, sequences and alternatives nested deeper than {MAX_DEPTH}",
                "Make rules of the inner groups, and write one repetition for several.",
            )

    def _bounds(self, suffix: Token, *, nested: bool) -> tuple[int, int | None]:
        match str(suffix):
            case "?":
                return 0, 1
            case "*":
                return 0, None
            case "+":
                return 1, None
        plain = re.sub(r"#[^\r\n]*", "", suffix) if nested else str(suffix)
        found = _BOUNDS.fullmatch(plain)
        if not found or (not nested and ("\n" in plain or "\r" in plain)):
            self._fail(
                suffix,
                f"{suffix!s} is not a repetition",
                "It is {n}, {n,} or {m,n}, on one line outside parentheses.",
            )
        low, comma, high = found.groups()
        minimum = _count(low)
        maximum = None if comma and not high else _count(high or low)
        if minimum > MAX_REPETITION or (maximum or 0) > MAX_REPETITION:
            loosened = "refuses" if minimum > MAX_REPETITION else "silently drops"
            self._fail(
                suffix,
                f"llama.cpp {loosened} a bound above {MAX_REPETITION}",
                "Leave the upper bound out, as in {2,}, or nest two repetitions in named rules.",
            )
        if maximum is not None and maximum < minimum:
            self._fail(suffix, f"{suffix!s} ends before it begins: llama.cpp hangs on it", "Swap the bounds.")
        return minimum, maximum

    def _see(self, name: Token) -> None:
        if name not in self.seen:
            self.seen.add(str(name))
            self.symbols += 1

    def _check_names(self, root: str) -> None:
        for name, position in self.uses.items():
            if name not in self.positions:
                hint = f"Define it: {name} ::= …"
                _fail(self.text, position, f"the rule {name} is not defined", hint)
        if root not in self.positions:
            _fail(self.text, 0, f"there is no rule {root}, the start symbol", f"Add {root} ::= …")

    def _check_recursion(self, rules: Rules) -> None:
        for position, names in self.loops:
            if names <= self.empty:
                _fail(
                    self.text,
                    position,
                    "an unbounded repetition of something that can be empty is left recursion for llama.cpp",
                    "Take the empty alternative out of what is repeated.",
                )
        cycle = find_left_recursion(rules)
        if cycle:
            _fail(
                self.text,
                self.positions[cycle[0]],
                f"left recursion: {' → '.join([*cycle, cycle[0]])} without a character between",
                f'Turn it round, as in {cycle[0]} ::= item {cycle[0]} | "", or write a repetition: item*.',
            )

    def _fail(self, token: Token, problem: str, hint: str) -> NoReturn:
        _fail(self.text, token.start_pos or 0, problem, hint)


def _count(digits: str) -> int:
    """Return the number; one above every bound if it has too many digits."""
    digits = digits.lstrip("0") or "0"
    return int(digits) if len(digits) < 10 else MAX_REPETITION + 1


def _joined(parts: list[_ParsedExpr], *, is_sequence: bool) -> _ParsedExpr:
    """Return the parts one after the other, or as alternatives."""
    elements = (any if is_sequence else all)(part.elements for part in parts)
    expr = (seq if is_sequence else alt)(*(part.expr for part in parts))
    depth = max((part.depth for part in parts), default=0) + (len(parts) > 1)
    return _ParsedExpr(expr, elements=elements, depth=depth)


def _line_and_column(text: str, position: int) -> tuple[int, int]:
    """Line and column, from 1, of a position in the text."""
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


def _fail(text: str, position: int, problem: str, hint: str) -> NoReturn:
    raise GrammarSyntaxError(*_line_and_column(text, position), _short(problem), _short(hint)) from None


def _short(sentence: str) -> str:
    """Shorten the middle of a sentence, which may quote a name or a cycle of any length."""
    return sentence if len(sentence) <= _SHOWN else f"{sentence[: _SHOWN // 2]}…{sentence[-_SHOWN // 4 :]}"


_OPEN_TOKEN = ("not a token terminal", "It is <text>, <[id]> or ! and one of them. Put other text in quotes.")
_UNREADABLE = {
    "_": ("an underscore in a rule name, which llama.cpp refuses", _NAMES),
    '"': ("a literal that is never closed", r'Close it with "; escape a quote inside it as \".'),
    "[": ("a class that is never closed", r"Close it with ]; escape a bracket inside it as \]."),
    "{": ("a repetition that is never closed", "It is {n}, {n,} or {m,n}."),
    "<": _OPEN_TOKEN,
    "!": _OPEN_TOKEN,
}


_MISPLACED = {
    "_PIPE": (
        "a line that begins with a pipe, which llama.cpp refuses",
        "End the line before with the pipe, or put the alternatives in parentheses.",
    ),
    "_DEFINES": ("::= in the middle of a rule", 'Begin each rule on a line of its own; an empty one is "".'),
    "_RPAR": (") without its (", "Remove it, or open the group."),
    "$END": (
        "the grammar ends too early",
        "Close the parenthesis, or finish the rule with ::= and its body.",
    ),
    "_NEWLINE": (
        "the line ends too early",
        "Write name ::= body on one line, or break it after ::= or |.",
    ),
}


def _fail_syntax(text: str, error: UnexpectedInput) -> NoReturn:
    if isinstance(error, UnexpectedCharacters):  # a character that begins no token
        position = error.pos_in_stream or 0
        char = text[position]
        found = (f"{char!r} means nothing here", "Put text to match in quotes.")
        if char.isalpha():
            found = (f"{char!r} in a rule name, which llama.cpp refuses", _NAMES)
        _fail(text, position, *_UNREADABLE.get(char, found))
    assert isinstance(error, UnexpectedToken)
    token = error.token
    found = (f"{token!s} where a rule should begin", "A rule is name ::= body.")
    if token.type == "SUFFIX":
        found = (f"{token} has nothing to repeat", "Put an item before it.")
    position = len(text) if token.type == "$END" else token.start_pos or 0
    _fail(text, position, *_MISPLACED.get(token.type, found))
