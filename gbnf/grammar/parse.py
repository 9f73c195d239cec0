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
from typing import Any

from lark import Lark, Token, Tree
from lark.exceptions import UnexpectedInput, UnexpectedToken

from gbnf.errors import GbnfError, GrammarSyntaxError, line_and_column, suggestion
from gbnf.grammar.analysis import find_left_recursion
from gbnf.grammar.code_points import EscapeError, parse_class, parse_literal
from gbnf.grammar.emit import SHORT_SUFFIXES
from gbnf.grammar.ir import CharClass, Expr, Ref, Rules, TokenTerminal, alt, literal, repeat, seq
from gbnf.surrogates import has_surrogate

MAX_REPETITION = 2000  # MAX_REPETITION_THRESHOLD in llama-grammar.cpp
_LAST_TOKEN = 2**31 - 1
MAX_NESTING = 200  # llama.cpp recurses, and crashes at some tens of thousands
#: Nested expressions: code that walks them recurses, up to three frames a level; Python allows 1,000.
MAX_DEPTH = 200
_ANY = CharClass((), negated=True)

_SYNTAX = r"""
start: _NEWLINE? (rule (_NEWLINE rule)* _NEWLINE?)?
rule: NAME _DEFINES alternation
alternation: sequence (_PIPE sequence)*
sequence: item*
item: (NAME | LITERAL | CLASS | ANY | TOKEN | group) SUFFIX*
group: LPAR alternation _RPAR

NAME: /[\w-]+/
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
_BOUNDS_OF = {suffix: bounds for bounds, suffix in SHORT_SUFFIXES.items()}
_BOUNDS = re.compile(r"\{[ \t\r\n]*([0-9]+)[ \t\r\n]*(?:(,)[ \t\r\n]*([0-9]*)[ \t\r\n]*)?\}")
_SHOWN = 400  # characters of a message
_MOST_ERRORS = 50  # of one text
_MOST_CYCLES = 5
_MOST_COMPARED = 1000  # names, for a similar one
#: What begins a rule, rightly or wrongly written: where reading goes on after a syntax error.
_HEADER = re.compile(r"(?:^|(?<=\r))[ \t]*([\w-]+)[ \t]*(?:::?=?|=|->)", re.MULTILINE)
MISSPELT = re.compile(r"(?!::=):{1,2}=?|=+>?|->")
_OPAQUE = re.compile(r'"(?:\\.|[^"\\])*"|\[(?:\\.|[^\]\\])*\]|#[^\r\n]*|[()]', re.DOTALL)


def parse_gbnf(text: str, root: str = "root") -> Rules:
    """Parse a grammar, its rules in the order of the text.

    Raises GrammarSyntaxError if llama.cpp would refuse it, hang on it, or silently read another grammar.
    """
    return read_gbnf(text, root, strict=True).rules


def read_gbnf(text: str, root: str = "root", *, strict: bool = False) -> GbnfReader:
    """Read a text as far as it is a grammar: errors are in `GbnfReader.errors`, or raised if `strict`."""
    reader = GbnfReader(text, strict)
    reader.read(root)
    return reader


def tokens_of(text: str) -> list[Token]:
    """Return the tokens; a `_NEWLINE` ends a rule. Raises GrammarSyntaxError if there is a syntax error."""
    GbnfReader(text, strict=True).tree()
    return list(_parser().lex(text))


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
                    raise _DeepParenthesesError(token)
            elif kind == "_RPAR" and depth:
                depth -= 1
            continues = kind in {"_DEFINES", "_PIPE"}
            yield token


class _DeepParenthesesError(GbnfError):
    """Parentheses that are nested too deep. Its argument is the first that is."""


@cache
def _parser() -> Lark:
    return Lark(
        _SYNTAX,
        parser="lalr",
        lexer="basic",
        postlex=_Newlines(),
        maybe_placeholders=False,
        propagate_positions=True,
    )


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
class GbnfReader:
    """Reads one text, in whose order the engine numbers its symbols, and keeps what `lint` looks at.

    `rules`: the productions; what cannot be read is any character in them. `definitions` and `uses`: the
    names. `broken`: the names of the rules that have a syntax error and are left out. `terminals`: literals
    and classes. `repetitions`: suffix, item and result of each. `joined`: sequences and alternations, with
    what they are composed of.
    """

    text: str
    strict: bool = False
    errors: list[GrammarSyntaxError] = field(default_factory=list)
    rules: Rules = field(default_factory=lambda: Rules({}))
    broken: set[str] = field(default_factory=set)
    definitions: list[Token] = field(default_factory=list)
    uses: list[Token] = field(default_factory=list)
    terminals: list[Token] = field(default_factory=list)
    repetitions: list[tuple[Token, Expr, Expr]] = field(default_factory=list)
    joined: list[tuple[Tree[Token], list[Expr]]] = field(default_factory=list)
    _symbols: int = 0
    _seen: set[str] = field(default_factory=set)
    _empty: set[str] = field(default_factory=set)
    _loops: list[tuple[Token, frozenset[str]]] = field(default_factory=list)

    def read(self, root: str) -> None:
        """Read the text."""
        productions: dict[str, Expr] = {}
        first: dict[str, int | None] = {}
        for rule in self.tree().children:
            assert isinstance(rule, Tree)
            name, body = rule.children
            assert isinstance(name, Token)
            assert isinstance(body, Tree)
            self._check_name(name)
            if name in productions:
                problem = (
                    f"a second rule {name} (the first is on line {first[name]}): llama.cpp keeps the last"
                )
                self._fail(name, "G103", problem, "Rename one, or join both with |.")
            first.setdefault(name, name.line)
            self.definitions.append(name)
            self._see(name)
            part = self._alternation(body)
            productions[str(name)] = part.expr
            if not part.elements:
                self._empty.add(str(name))
        self.rules = Rules(productions, root)
        self._check_names(root)
        self._check_recursion()

    def tree(self) -> Tree[Token]:
        """Return the tree of the rules without a syntax error."""
        if "\0" in self.text:
            position = self.text.index("\0")
            self._report("G014", position, "NUL ends the grammar for llama.cpp", "Remove the character.")
        text = self.text.replace("\0", " ")
        while text.strip(" \t\r\n") and len(self.errors) < _MOST_ERRORS:
            try:
                return _parser().parse(text)
            except UnexpectedInput as error:
                fault = _syntax_error(text, error)
            except _DeepParenthesesError as error:
                problem = f"parentheses nested deeper than {MAX_NESTING}"
                fault = "G009", error.args[0].start_pos, problem, "Make rules of the inner groups.", 1
            self._report(*fault)
            code, position = fault[:2]
            headers = list(_HEADER.finditer(text))
            start = max((header.start() for header in headers if header.start() <= position), default=0)
            if code == "G002":  # the rule before is complete
                start = max(start, text.rfind("\n", 0, position) + 1)
            end = min((header.start() for header in headers if header.start() > position), default=len(text))
            self.broken.update(header[1] for header in headers if start <= header.start() < end)
            text = text[:start] + re.sub(r"[^\r\n]", " ", text[start:end]) + text[end:]
        return Tree("start", [])

    def _report(self, code: str, position: int, problem: str, hint: str, length: int = 1) -> None:
        """Keep an error, or raise it."""
        place, span = line_and_column(self.text, position), (position, position + length)
        error = GrammarSyntaxError(*place, _short(problem), _short(hint), code, span)
        if self.strict:
            raise error from None
        if len(self.errors) < _MOST_ERRORS:
            self.errors.append(error)

    def _fail(self, token: Token, code: str, problem: str, hint: str) -> None:
        self._report(code, token.start_pos or 0, problem, hint, len(token))

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
                    todo.append(("close", (self._symbols, node.children[0])))
                    self._symbols += 1
                    todo.append(("read", node.children[1]))
                else:
                    if node.data != "item":
                        todo.append((node.data, node))
                    todo.extend(("read", child) for child in reversed(node.children))
            elif action == "close":
                depth -= 1
                symbols, parenthesis = node
                inner = self._limited(parts.pop(), parenthesis)
                opening = None if inner.elements else frozenset[str]()
                cost = max(1, self._symbols - symbols)
                parts.append(_ParsedExpr(inner.expr, opening=opening, cost=cost, depth=inner.depth))
            else:
                count = len(node.children)
                read = parts[len(parts) - count :]
                del parts[len(parts) - count :]
                self.joined.append((node, [part.expr for part in read]))
                parts.append(_joined(read, is_sequence=action == "sequence"))
        return parts[0]

    def _terminal(self, token: Token) -> _ParsedExpr:
        try:
            match token.type:
                case "NAME":
                    name = str(token)
                    self._check_name(token)
                    self._see(token)
                    self.uses.append(token)
                    return _ParsedExpr(Ref(name), opening=frozenset({name}))
                case "LITERAL":
                    self.terminals.append(token)
                    text = parse_literal(token)
                    self._check_text(token, text)
                    return _ParsedExpr(literal(text), elements=bool(text))
                case "TOKEN":
                    self._check_text(token, token)
                    return _ParsedExpr(TokenTerminal(self._token(token), token.startswith("!")))
                case "CLASS":
                    self.terminals.append(token)
                    return _ParsedExpr(parse_class(token))
        except EscapeError as error:
            position = (token.start_pos or 0) + error.offset
            self._report(error.code, position, error.problem, error.hint, error.end - error.offset)
        return _ParsedExpr(_ANY)

    def _check_text(self, token: Token, text: str) -> None:
        if has_surrogate(text):
            self._fail(token, "G014", "a surrogate is not a character", "Write the character itself.")

    def _token(self, token: Token) -> str | int:
        name = token.removeprefix("!")
        if not name.startswith("<["):
            return name
        number = _number(name[2:-2], _LAST_TOKEN)
        if number > _LAST_TOKEN:
            problem = f"{token} is beyond the last token id, {_LAST_TOKEN}"
            self._fail(token, "G015", problem, "Write the token's id.")
        return number

    def _repeat(self, part: _ParsedExpr, suffix: Token, depth: int) -> _ParsedExpr:
        """Read a repetition like `handle_repetitions`: S{m,n} is m copies and n-m symbols, S{m,} a loop."""
        part = self._limited(part, suffix, 1)
        if not part.elements:
            problem = f"{suffix} has nothing to repeat"
            self._fail(suffix, "G005", problem, 'Put an item before it; "" is none.')
            return part
        minimum, maximum = self._bounds(suffix, nested=depth > 0)
        times = maximum or minimum or 1
        if part.cost * times > MAX_REPETITION:
            product = f"{part.cost} × {times} exceeds llama.cpp's {MAX_REPETITION}"
            hint = "Make a rule of the group and define it above this one: it then counts as one symbol."
            self._fail(suffix, "G011", f"{suffix} repeats a group of {part.cost} symbols: {product}", hint)
        self._symbols += 1 if maximum is None else maximum - minimum
        if maximum is None and part.opening is not None:
            self._loops.append((suffix, part.opening))
        expr = repeat(part.expr, minimum, maximum)
        self.repetitions.append((suffix, part.expr, expr))
        opening = part.opening if minimum else frozenset[str]()
        cost = part.cost * times
        return _ParsedExpr(expr, elements=maximum != 0, opening=opening, cost=cost, depth=part.depth + 1)

    def _limited(self, part: _ParsedExpr, token: Token, around: int = 0) -> _ParsedExpr:
        """Return the part, unless it is nested too deep with `around` more levels around it."""
        if part.depth + around <= MAX_DEPTH:
            return part
        problem = f"repetitions, sequences and alternatives nested deeper than {MAX_DEPTH}"
        hint = "Make rules of the inner groups, and write one repetition for several."
        self._fail(token, "G009", problem, hint)
        return _ParsedExpr(_ANY)

    def _bounds(self, suffix: Token, *, nested: bool) -> tuple[int, int | None]:
        """Return the bounds of a repetition; of one that is an error, those of the item alone."""
        if suffix in _BOUNDS_OF:
            return _BOUNDS_OF[suffix]
        match = read_bounds(suffix, nested=nested)
        if match is None:
            hint = "It is {n}, {n,} or {m,n}, on one line outside parentheses."
            self._fail(suffix, "G005", f"{suffix!s} is not a repetition", hint)
            return 1, 1
        low, comma, high = match.groups()
        minimum = _number(low, MAX_REPETITION)
        maximum = None if comma and not high else _number(high or low, MAX_REPETITION)
        if max(minimum, maximum or 0) > MAX_REPETITION:
            loosened = "refuses" if minimum > MAX_REPETITION else "silently drops"
            hint = "Leave the upper bound out, as in {2,}, or nest two repetitions in named rules."
            self._fail(suffix, "G011", f"llama.cpp {loosened} a bound above {MAX_REPETITION}", hint)
            return 1, 1
        if maximum is not None and maximum < minimum:
            problem = f"{suffix!s} ends before it begins: llama.cpp hangs on it"
            self._fail(suffix, "G010", problem, "Swap the bounds.")
            return 1, 1
        return minimum, maximum

    def _see(self, name: Token) -> None:
        if name not in self._seen:
            self._seen.add(str(name))
            self._symbols += 1

    def _check_name(self, name: Token) -> None:
        index = next((index for index, char in enumerate(name) if not (char.isascii() and char != "_")), None)
        if index is not None:
            shown = "an underscore" if name[index] == "_" else repr(name[index])
            problem = f"{shown} in the rule name {name}, which llama.cpp refuses"
            hint = "Names have ASCII letters, digits and hyphens only: write camelCase."
            self._report("G006", (name.start_pos or 0) + index, problem, hint)

    def _check_names(self, root: str) -> None:
        defined = self.rules.productions.keys() | self.broken
        candidates = sorted(defined)[:_MOST_COMPARED]
        similar: dict[str, str] = {}
        for name in self.uses:
            if name in defined:
                continue
            if name not in similar and len(similar) < _MOST_ERRORS:
                similar[name] = suggestion(name, candidates)
            hint = similar.get(name, "").strip() or f"Define it: {name} ::= …"
            self._fail(name, "G102", f"the rule {name} is not defined", hint)
        if root not in defined:
            hint = suggestion(root, candidates)
            self._report("G101", 0, f"there is no rule {root}, the start symbol", f"Add {root} ::= ….{hint}")

    def _check_recursion(self) -> None:
        for suffix, names in self._loops:
            if names <= self._empty:
                problem = "an unbounded repetition of what can be empty is left recursion for llama.cpp"
                self._fail(suffix, "G105", problem, "Take the empty alternative out of what is repeated.")
        productions = dict(self.rules.productions)
        defined = {str(name): name for name in self.definitions}
        for _ in range(_MOST_CYCLES):
            cycle = find_left_recursion(Rules(productions, self.rules.root))
            if cycle is None:
                break
            name = defined[cycle[0]]
            productions[name] = _ANY
            problem = f"left recursion: {' → '.join([*cycle, name])} without a character between"
            hint = f'Turn it round, as in {name} ::= item {name} | "", or write a repetition: item*.'
            self._fail(name, "G104", problem, hint)


def read_bounds(suffix: str, *, nested: bool) -> re.Match[str] | None:
    """Return the lower bound, the comma and the upper bound of a repetition in braces, None if malformed."""
    plain = re.sub(r"#[^\r\n]*", "", suffix) if nested else str(suffix)
    return None if not nested and re.search(r"[\r\n]", plain) else _BOUNDS.fullmatch(plain)


def _number(digits: str, most: int) -> int:
    """Return the number; for one above `most`, which may have any number of digits, `most + 1`."""
    digits = digits.lstrip("0") or "0"
    return min(int(digits), most + 1) if len(digits) <= len(str(most)) else most + 1


def _joined(parts: list[_ParsedExpr], *, is_sequence: bool) -> _ParsedExpr:
    """Return the parts one after the other, or as alternatives."""
    elements = (any if is_sequence else all)(part.elements for part in parts)
    expr = (seq if is_sequence else alt)(*(part.expr for part in parts))
    depth = max((part.depth for part in parts), default=0) + (len(parts) > 1)
    return _ParsedExpr(expr, elements=elements, depth=depth)


def _short(sentence: str) -> str:
    """Shorten the middle of a sentence, which may quote a name or a cycle of any length."""
    return sentence if len(sentence) <= _SHOWN else f"{sentence[: _SHOWN // 2]}…{sentence[-_SHOWN // 4 :]}"


_TERMINAL_HINT = "It is <text>, <[id]> or ! and one of them. Put other text in quotes."
_UNREADABLE = {
    '"': ("G003", "a literal that is never closed", r'Close it with "; escape a quote inside it as \".'),
    "[": ("G003", "a class that is never closed", r"Close it with ]; escape a bracket inside it as \]."),
    "{": ("G003", "a repetition that is never closed", "It is {n}, {n,} or {m,n}."),
    "<": ("G015", "not a token terminal", _TERMINAL_HINT),
    "!": ("G015", "not a token terminal", _TERMINAL_HINT),
}
_PIPE_HINT = "End the line before with the pipe, or put the alternatives in parentheses."
_MISPLACED = {
    "_PIPE": ("G007", "a line that begins with a pipe, which llama.cpp refuses", _PIPE_HINT),
    "_DEFINES": ("G001", "::= in the middle of a rule", "Begin each rule on a line of its own."),
    "_RPAR": ("G004", ") without its (", "Remove it, or open the group."),
    "$END": ("G002", "the grammar ends too early", "Finish the rule with ::= and its body."),
    "_NEWLINE": ("G002", "the line ends too early", "Break it after ::= or | only."),
    "SUFFIX": ("G005", "it has nothing to repeat", "Put an item before it."),
}


def _syntax_error(text: str, error: UnexpectedInput) -> tuple[str, int, str, str, int]:
    """Return code, position, problem, hint and length."""
    position = error.pos_in_stream or 0
    token = error.token if isinstance(error, UnexpectedToken) else Token("CHARACTER", text[position])
    position = len(text) if token.type == "$END" else position
    misspelt = MISSPELT.match(text, position)
    header = _HEADER.match(text, text.rfind("\n", 0, position) + 1)
    if misspelt and header and header.end(1) <= position < header.end():
        problem = f"{misspelt[0]} after the rule name {header[1]}"
        return "G002", position, problem, "Write ::=.", len(misspelt[0])
    if not isinstance(error, UnexpectedToken):  # a character that begins no token
        if token.value == '"':  # one before may be the one that is not closed
            lines = (match for match in _OPAQUE.finditer(text, 0, position) if "\n" in match[0])
            position = next((match.start() for match in lines if "::=" in match[0]), position)
        default = ("G001", f"{str(token)!r} means nothing here", "Put text to match in quotes.")
        code, problem, hint = _UNREADABLE.get(token, default)
        return code, position, problem, hint, 1
    if token.type in {"_DEFINES", "$END"}:
        opened: list[int] = []
        for match in _OPAQUE.finditer(text, 0, position):
            if match[0] == "(":
                opened.append(match.start())
            elif match[0] == ")" and opened:
                opened.pop()
        if opened:
            return "G004", opened[-1], "( is never closed", "Close it before the next rule begins.", 1
    if "_DEFINES" in error.expected and token.type not in {"_NEWLINE", "$END"}:
        return "G002", position, f"no ::= before {token!s}", "A rule is name ::= body.", len(token)
    default = ("G001", f"{token!s} where a rule should begin", "A rule is name ::= body.")
    code, problem, hint = _MISPLACED.get(token.type, default)
    return code, position, problem, hint, len(token)
