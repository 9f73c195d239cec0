"""Emit expressions and rules as GBNF text.

Invariants:

- llama.cpp's parser reads the text as exactly the expression that was emitted (`llama-grammar.cpp`,
  `parse_sequence` and `parse_char`): its few escapes, its precedence, and none of the forms that it silently
  reads as another expression.
- The same rules give the same text, byte for byte.
"""

from __future__ import annotations

from json.encoder import encode_basestring

from gbnf.errors import GrammarError
from gbnf.grammar.code_points import matchable
from gbnf.grammar.ir import Alt, CharClass, Expr, Literal, Ref, Repeat, Rules, Seq, TokenTerminal, references
from gbnf.surrogates import has_surrogate

_SHARED_ESCAPES = {"\n": "\\n", "\r": "\\r", "\t": "\\t", "\\": "\\\\"}
_LITERAL_ESCAPES = _SHARED_ESCAPES | {'"': '\\"'}
_LAST_ASCII = 0x7F
#: By the bounds of a repetition.
SHORT_SUFFIXES: dict[tuple[int, int | None], str] = {(0, 1): "?", (0, None): "*", (1, None): "+"}
# A caret negates after the bracket, and GBNF has no escape of its own for it.
_CLASS_ESCAPES = _SHARED_ESCAPES | {"[": "\\[", "]": "\\]", "-": "\\-", "^": "\\x5E"}


def emit(rules: Rules) -> str:
    """Return the grammar as GBNF: one rule a line, the start symbol first, then in the mapping's order.

    Raises GrammarError for an expression without a text that llama.cpp could match: an alternation without
    alternatives (`EMPTY_LANGUAGE`), an empty class, NUL or a surrogate in a literal.
    """
    names = dict.fromkeys([rules.root, *rules.productions])
    return "".join([emit_rule(name, rules.productions[name]) for name in names])


def emit_rule(name: str, expr: Expr) -> str:
    """Return one rule as a line of GBNF. Raises GrammarError as `emit` does, naming the rule."""
    if (type(expr) is Seq or type(expr) is Alt) and expr.emitted is not None:  # as of most
        return f"{name} ::= {expr.emitted}\n"
    try:
        return f"{name} ::= {emit_expr(expr)}\n"
    except GrammarError as error:
        raise GrammarError(f"rule {name}: {error}") from None


def emit_expr(expr: Expr) -> str:
    """Return one expression as GBNF, without parentheses around it. Raises GrammarError as `emit` does."""
    return _emit(expr, [])


def identity(production: Expr) -> str | Expr:
    """Return what productions of the same text have in common: the text, or the production if it has none.

    A placeholder, which is replaced before the grammar is written, has no text, and equals only its like.
    A sequence or alternation keeps the text, and the names that it refers to: both are needed later.
    """
    names: list[str] = []
    try:
        if type(production) is not Seq and type(production) is not Alt:
            return _emit(production, names)
        if production.emitted is None:
            production.emitted = _emit(production, names)
            production.references = tuple(dict.fromkeys(names))
    except GrammarError:
        return production
    return production.emitted


def _emit(expr: Expr, names: list[str]) -> str:
    """Return the text of an expression, and add the names that it refers to."""
    if type(expr) is Seq:
        return _emit_seq(expr, names)
    if type(expr) is Alt:
        return _emit_alt(expr, names)
    if type(expr) is Ref:
        names.append(expr.name)
        return expr.name
    if type(expr) is Literal:
        return emit_literal(expr.text)
    if type(expr) is CharClass:
        if expr.emitted is None:
            expr.emitted = _emit_class(expr)
        return expr.emitted
    if type(expr) is TokenTerminal:
        token = expr.token if isinstance(expr.token, str) else f"<[{expr.token}]>"
        return f"{'!' * expr.negated}{token}"
    assert type(expr) is Repeat
    item = expr.item
    atom = f"({_emit(item, names)})" if isinstance(item, Seq | Alt | Repeat) else _emit(item, names)
    return atom + repetition_suffix(expr.minimum, expr.maximum)


def _emit_seq(expr: Seq, names: list[str]) -> str:
    parts = []
    for item in expr.items:  # without a call for names, and without a second one for most others
        if type(item) is Ref:
            names.append(item.name)
            parts.append(item.name)
        elif type(item) is Literal:
            parts.append(emit_literal(item.text))
        else:
            parts.append(f"({_emit_alt(item, names)})" if type(item) is Alt else _emit(item, names))
    return " ".join(parts) or '""'


def _emit_alt(expr: Alt, names: list[str]) -> str:
    if expr.emitted is not None:
        names += references(expr)
        return expr.emitted
    if not expr.items:
        raise GrammarError(
            "an alternation without alternatives matches nothing, and GBNF has no text for it: "
            "remove what refers to it"
        )
    parts = []
    for item in expr.items:  # as above; most are two names
        if type(item) is not Seq:
            parts.append(_emit(item, names))
            continue
        if len(item.items) == 2:
            first, second = item.items
            if type(first) is Ref and type(second) is Ref:
                names += (first.name, second.name)
                parts.append(f"{first.name} {second.name}")
                continue
        parts.append(_emit_seq(item, names))
    return " | ".join(parts)


def emit_literal(text: str) -> str:
    """Return the text in quotes. Raises GrammarError for NUL and surrogates, which no text can contain."""
    if text.isprintable():  # most are printable, and then no other character needs an escape
        return encode_basestring(text)  # in JSON as here: quotes and backslashes
    if "\0" in text:
        raise GrammarError(f"llama.cpp cannot match NUL: remove it from the literal {text!r}")
    if has_surrogate(text):
        raise GrammarError(f"a surrogate is not a character: remove it from the literal {text!r}")
    return '"' + "".join([_escape(char, _LITERAL_ESCAPES) for char in text]) + '"'


def _emit_class(char_class: CharClass) -> str:
    if not char_class.ranges:
        if char_class.negated:
            return "."
        raise GrammarError("llama.cpp reads the empty class [] as the empty string: leave it out")
    if char_class.negated and char_class.ranges[-1][1] > _LAST_ASCII:
        # llama.cpp refuses too much of a negated class with such members when a token ends inside a character
        char_class = CharClass(matchable(char_class))
    parts = [
        _class_char(low) if low == high else f"{_class_char(low)}{'-' * (high > low + 1)}{_class_char(high)}"
        for low, high in char_class.ranges
    ]
    return f"[{'^' * char_class.negated}{''.join(parts)}]"


def _class_char(code_point: int) -> str:
    return _escape(chr(code_point), _CLASS_ESCAPES)


def _escape(char: str, escapes: dict[str, str]) -> str:
    if char in escapes:
        return escapes[char]
    if char.isprintable():
        return char
    code_point = ord(char)
    if code_point <= 0xFF:
        return f"\\x{code_point:02X}"
    return f"\\u{code_point:04X}" if code_point <= 0xFFFF else f"\\U{code_point:08X}"


def repetition_suffix(minimum: int, maximum: int | None) -> str:
    """Return what follows a repeated item."""
    if (minimum, maximum) in SHORT_SUFFIXES:
        return SHORT_SUFFIXES[minimum, maximum]
    if minimum == maximum:
        return f"{{{minimum}}}"
    return f"{{{minimum},{'' if maximum is None else maximum}}}"
