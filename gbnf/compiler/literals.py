"""Sets of characters, literals in tries, and everything but a set of keys, as expressions.

Strings are written in their canonical spelling, `json.dumps` with `ensure_ascii=False`: only characters that
JSON requires to be escaped are escaped. So a key that is declared can't be an additional one by another
spelling.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from json.encoder import encode_basestring
from typing import Any

from gbnf.compiler.rules import Scope
from gbnf.grammar.emit import identity
from gbnf.grammar.ir import (
    EMPTY_LANGUAGE,
    EPSILON,
    Alt,
    CharClass,
    Expr,
    Literal,
    Ref,
    Seq,
    alt,
    char_class,
    seq,
)
from gbnf.regular.charset import ANY_CHAR, CharSet
from gbnf.schema_caches import schema_cache

#: One unescaped character of a JSON string.
PLAIN_CHAR = char_class('"\\', (0x00, 0x1F), negated=True)

_FORCED = CharSet.of((0x00, 0x1F), '"\\')
_LETTERS = {'"': '"', "\\": "\\", "\b": "b", "\f": "f", "\n": "n", "\r": "r", "\t": "t"}


@schema_cache(maxsize=1024)
def raw_char(chars: CharSet) -> Expr:
    """Return one character of a non-empty set, raw."""
    if len(chars) == 1:
        return Literal(chr(chars.ranges[0][0]))
    others = ~chars
    if len(others.ranges) < len(chars.ranges):
        return CharClass(others.ranges, negated=True)
    return CharClass(chars.ranges)


@schema_cache(maxsize=1024)
def json_char(chars: CharSet) -> Expr:
    """Return one character of a non-empty set, as spelled in a JSON string."""
    if chars == ANY_CHAR:
        return Ref("keyChar")
    plain, forced = chars - _FORCED, chars & _FORCED
    spelled = [raw_char(plain)] if plain else []
    if forced == _FORCED:
        spelled.append(Ref("keyEscape"))
    elif forced:
        spelled.append(seq(Literal("\\"), alt(*forced_escapes(forced))))
    return alt(*spelled)


def forced_escapes(forced: CharSet = _FORCED) -> list[Expr]:
    """Return the escapes of characters that JSON requires to be escaped, without their backslash."""
    letters = "".join(letter for char, letter in _LETTERS.items() if char in forced)
    spelled = [raw_char(CharSet.of(letters))] if letters else []
    codes = [f"{ord(char):02x}" for char in forced if char not in _LETTERS]
    for high in "01":
        digits = [code[1] for code in codes if code[0] == high]
        if digits:
            spelled.append(seq(Literal(f"u00{high}"), raw_char(CharSet.of(*digits))))
    return spelled


#: The rule of what may follow in a key instead of a character, of those that most keys consist of.
_INSTEAD = {
    char: Ref(f"keyNot{char if char.isalnum() else f'U{ord(char):x}'}")
    for char in map(chr, range(0x20, 0x7F))
    if char not in '"\\'
}
_KEY_REST = Ref("keyRest")
_KEY_MORE = Ref("keyMore")
_KEY_END = Ref("keyEnd")
_ESCAPED = seq(Ref("keyEscape"), _KEY_REST)
_ESCAPED_CHARS = frozenset(_FORCED)


def json_string(text: str) -> str:
    """Return the canonical JSON spelling of a string, quotes included."""
    return encode_basestring(text)


def join_expressions(items: Sequence[Expr], comma: Expr) -> Expr:
    """Return the items with commas between them."""
    parts: list[Expr] = []
    for item in items:
        parts += [comma, item] if parts else [item]
    return seq(*parts)


def factor_prefixes(alternatives: Sequence[Expr]) -> Expr:
    """Return the alternation of the expressions as a trie, with shared prefixes factored out.

    Those without texts are left out.
    "read_files" | "read_mail" -> "read_" ( "files" | "mail" ). Terminals are compared by their text, all
    others as a whole. This keeps llama.cpp fast: it tries every token against every open branch.
    """
    possible = [expr for expr in alternatives if type(expr) is not Alt or expr.items]
    if len(possible) < 2:
        return possible[0] if possible else EMPTY_LANGUAGE
    return _factor([expr.items if type(expr) is Seq else (expr,) for expr in possible], 0, 0)


#: How deeply a trie nests before the rest is listed as it is.
_TRIE_NESTING = 40


def _factor(sequences: list[tuple[Expr, ...]], start: int, nesting: int) -> Expr:
    """Return the trie of sequences of which those that begin with a literal share its text up to `start`."""
    if nesting == _TRIE_NESTING:
        return alt(*[_from(items, start) for items in sequences])
    groups: dict[Any, list[tuple[Expr, ...]]] = {}
    for items in sequences:
        head = items[0] if items else EPSILON
        groups.setdefault(head.text[start] if type(head) is Literal else head, []).append(items)
    branches: list[Expr] = []
    for group in groups.values():
        if len(group) == 1 or not group[0]:
            branches.append(_from(group[0], start))
            continue
        texts = [items[0].text for items in group if type(items[0]) is Literal]
        if not texts:
            rests = [items[1:] for items in group]
            branches.append(seq(group[0][0], _factor(rests, 0, nesting + 1)))
            continue
        low, high = min(texts), max(texts)
        end = start + 1
        while end < len(low) and low[end] == high[end]:
            end += 1
        rests = [items if len(text) > end else items[1:] for items, text in zip(group, texts, strict=True)]
        branches.append(seq(Literal(low[start:end]), _factor(rests, end, nesting + 1)))
    if len(branches) > 1 and not any(type(branch) is Alt for branch in branches):
        return Alt(tuple(branches))  # they differ, since they begin differently
    return alt(*branches)


def _from(items: tuple[Expr, ...], start: int) -> Expr:
    """Return a sequence without the first `start` characters of the literal that it may begin with."""
    if items and start and type(items[0]) is Literal:
        items = (Literal(items[0].text[start:]), *items[1:])
    return items[0] if len(items) == 1 else Seq(items)


#: How many characters of a key nest in one production before the rest becomes its own.
_KEY_NESTING = 16


def key_except(names: Iterable[str], scope: Scope) -> Expr:
    """Return the keys other than `names` in canonical spelling, quotes included."""
    words = list(dict.fromkeys(names))
    return seq(Literal('"'), _outside(words, 0, scope) if words else _KEY_REST)


def _outside(words: Sequence[str], start: int, scope: Scope) -> Expr:
    """Return what follows `start` common characters and ends the key, and spells none of the words."""
    if len(words) == 1:
        return _other_than(words[0][start:], scope)
    following: dict[str, list[str]] = {}
    for word in words:
        if len(word) > start:
            following.setdefault(word[start], []).append(word)
    rests: list[tuple[str, Expr]] = []
    for char, group in following.items():
        rest = _outside(group, start + 1, scope)
        is_rule = len(group) > 1 and not (start + 1) % _KEY_NESTING
        rests.append((char, scope.add("OtherKey", rest) if is_rule else rest))
    return _unless(rests, ends=any(len(word) == start for word in words))


def _other_than(word: str, scope: Scope) -> Expr:
    """Return the continuations, with the closing quote, that don't spell the word."""
    start = max(len(word) - _KEY_NESTING, 0)
    rest = _ending(word[start:])
    while start:
        end, start = start, max(start - _KEY_NESTING, 0)
        rest = _along(word[start:end], scope.add("OtherKey", rest))
    return rest


@schema_cache(maxsize=2048)
def _ending(word: str) -> Expr:
    """Return what `_along` returns for the end of a key: the same names occur again and again."""
    expr = _along(word, _KEY_MORE)
    identity(expr)  # keeps its text, which many grammars contain
    return expr


def _along(word: str, rest: Expr) -> Expr:
    """Return the word and then `rest`, or anything that deviates from the word."""
    for char in reversed(word):
        rest = _unless([(char, rest)], ends=False)
    return rest


def _unless(rests: Sequence[tuple[str, Expr]], *, ends: bool) -> Expr:
    """Return one of the characters and its rest, or any other; the closing quote too unless a word `ends`."""
    chars = "".join([char for char, _ in rests])
    if chars in _INSTEAD and not ends:
        return Alt((Seq((Literal(chars), rests[0][1])), _INSTEAD[chars]))
    if _ESCAPED_CHARS.isdisjoint(chars):  # no two begin with the same character
        branches: list[Expr] = [Seq((Literal(char), rest)) for char, rest in rests]
        return Alt((*branches, _other_char(chars), _ESCAPED if ends else _KEY_END))
    escapes = forced_escapes(_FORCED - CharSet.of(chars))
    branches = [seq(Literal(json_string(char)[1:-1]), rest) for char, rest in rests]
    branches.append(_other_char("".join([char for char in chars if char not in _ESCAPED_CHARS])))
    branches.append(seq(Literal("\\"), alt(*escapes), _KEY_REST))
    return factor_prefixes(branches if ends else [*branches, Literal('"')])


@schema_cache(maxsize=1024)
def _other_char(excluded: str) -> Expr:
    """Return an unescaped character other than these, and the rest of a key."""
    return seq(char_class(*PLAIN_CHAR.ranges, excluded, negated=True), _KEY_REST)


#: The productions of `_INSTEAD`.
INSTEAD_RULES: dict[str, Expr] = {
    ref.name: alt(_other_char(char), _KEY_END) for char, ref in _INSTEAD.items()
}
