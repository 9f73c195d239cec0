"""Random grammars for the laws: small, tangled, and free of what llama.cpp does not take.

Left recursion is kept out by shape: a rule refers to later rules anywhere, to itself and earlier ones only
after a character.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable

from hypothesis import assume
from hypothesis import strategies as st

from gbnf.grammar.emit import emit
from gbnf.grammar.ir import (
    EPSILON,
    Alt,
    CharClass,
    Expr,
    Literal,
    Ref,
    Repeat,
    Rules,
    Seq,
    alt,
    char_class,
    optional,
    repeat,
    seq,
)
from gbnf.grammar.parse import parse_gbnf

LETTERS = 'ab01"\\[]^-\n\té日𝄞'

literals = st.text(LETTERS, min_size=1, max_size=4).map(Literal)


@st.composite
def classes(draw: st.DrawFn) -> CharClass:
    pairs = draw(st.lists(st.tuples(st.sampled_from(LETTERS), st.integers(0, 3)), min_size=1, max_size=3))
    ranges = [(ord(char), ord(char) + width) for char, width in pairs]
    if draw(st.integers(0, 5)) == 0:
        return CharClass((), negated=True)
    # Outside ASCII, llama.cpp refuses too much of a negated class: half a character, as in one-byte tokens,
    # counts as excluded as soon as it could become an excluded one (`llama_grammar_match_partial_char`).
    negated = draw(st.booleans()) and all(high < 0x80 for _, high in ranges)
    return char_class(*ranges, negated=negated)


@st.composite
def expressions(draw: st.DrawFn, later: list[str], anywhere: list[str], depth: int = 3) -> Expr:
    """An expression that begins with rules of `later` only; those of `anywhere` stand behind a character."""
    kinds = ["literal", "class"] + ["later"] * bool(later) + ["empty"] * (depth < 3)
    if depth:
        kinds += ["seq", "guarded", "alt", "alt", "repeat", "optional"]
    inner = expressions(later, anywhere, depth - 1)
    match draw(st.sampled_from(kinds)):
        case "literal":
            return draw(literals)
        case "class":
            return draw(classes())
        case "later":
            return Ref(draw(st.sampled_from(later)))
        case "empty":
            return EPSILON
        case "seq":
            return seq(*draw(st.lists(inner, min_size=2, max_size=3)))
        case "guarded":
            return seq(draw(st.one_of(literals, classes())), optional(Ref(draw(st.sampled_from(anywhere)))))
        case "alt":
            return alt(*draw(st.lists(inner, min_size=2, max_size=3)))
        case "optional":
            return optional(draw(inner))
    low = draw(st.integers(0, 3))
    # What may be unbounded begins with a character: llama.cpp refuses to repeat the empty string.
    if draw(st.booleans()):
        return repeat(seq(draw(literals), draw(inner)), low, None)
    return repeat(draw(inner), low, draw(st.integers(max(low, 1), 4)))


@st.composite
def grammars(draw: st.DrawFn) -> Rules:
    names = ["root", *draw(st.lists(st.sampled_from(["a", "B-2", "3", "ws"]), unique=True, max_size=4))]
    rules = Rules({name: draw(expressions(names[at + 1 :], names)) for at, name in enumerate(names)})
    parse_gbnf(emit(rules))
    assume(quick(rules))
    return rules


#: The most ways into an expression that the engine is asked to look through.
_MOST_WAYS = 60


def quick(rules: Rules) -> bool:
    """Whether llama.cpp's engine is done with the grammar soon: its time grows with the ways through what may
    be empty, which multiply in a chain such as `x? x? x?` (`llama_grammar_advance_stack`)."""
    known: dict[str, tuple[int, int]] = {}

    def ways(expr: Expr) -> tuple[int, int]:
        """How many ways lead to a first character, and how many to nothing at all. Capped."""
        first, empty = _ways(expr, known, rules, ways)
        return min(first, 10**6), min(empty, 10**6)

    return all(sum(ways(expr)) <= _MOST_WAYS for expr in rules.productions.values()) and not _branches(rules)


def _branches(rules: Rules) -> bool:
    """Return whether recursion may return to several positions, whose sequences are all stacks of the engine.

    Their number then grows exponentially with the text: `a ::= ("x" a?){0,3}`.
    """
    reached = {name: set(names) for name, names in rules.references.items()}
    for middle in rules.productions:
        for names in reached.values():
            if middle in names:
                names.update(reached[middle])
    cycles = {
        name: frozenset({name} | {one for one in names if name in reached[one]})
        for name, names in reached.items()
    }
    returns = Counter[frozenset[str]]()
    for name, expr in rules.productions.items():
        returns[cycles[name]] += _count_references(expr, cycles[name])
    return max(returns.values()) > 2


def _count_references(expr: Expr, names: frozenset[str]) -> int:
    match expr:
        case Ref(name):
            return int(name in names)
        case Seq(items) | Alt(items):
            return sum(_count_references(item, names) for item in items)
        case Repeat(item, _, maximum):
            return _count_references(item, names) * (2 if maximum is None else maximum)
        case _:
            return 0


def _ways(
    expr: Expr,
    known: dict[str, tuple[int, int]],
    rules: Rules,
    ways: Callable[[Expr], tuple[int, int]],
) -> tuple[int, int]:
    match expr:
        case Ref(name):
            if name not in known:
                known[name] = (1, 0)  # one that comes back to itself has read a character
                known[name] = ways(rules.productions[name])
            return known[name]
        case Seq(items):
            first, empty = 0, 1
            for item in items:
                item_first, item_empty = ways(item)
                first, empty = first + empty * item_first, empty * item_empty
            return first, empty
        case Alt(items):
            each = [ways(item) for item in items]
            return sum(one for one, _ in each), sum(one for _, one in each)
        case Repeat(item, minimum, maximum):
            item_first, item_empty = ways(item)
            rounds = min(minimum + 2 if maximum is None else maximum, 40)
            total = sum(item_empty**done * item_first for done in range(rounds))
            return total, sum(item_empty**done for done in range(minimum, rounds + 1))
        case _:
            return 1, 0


@st.composite
def mutations(draw: st.DrawFn, text: str) -> str:
    """The text with one or two characters removed, inserted or replaced."""
    for _ in range(draw(st.integers(1, 2))):
        at = draw(st.integers(0, len(text)))
        text = text[:at] + draw(st.sampled_from(["", *LETTERS])) + text[at + draw(st.integers(0, 1)) :]
    return text


__all__ = ["LETTERS", "classes", "expressions", "grammars", "literals", "mutations"]


def unreachable_rules(text: str) -> set[str]:
    """The rules of a GBNF text that its root does not reach, by the names outside its strings and classes."""
    plain = re.sub(r'"(?:[^"\\]|\\.)*"|\[(?:[^\]\\]|\\.)*\]', " ", text)
    rules = {
        line.split(" ::= ")[0]: set(re.findall(r"[A-Za-z][A-Za-z0-9]*", line)) for line in plain.splitlines()
    }
    reached, pending = set[str](), {"root"}
    while pending:
        reached |= pending
        pending = set[str]().union(*(rules[name] for name in pending)) - reached
    return rules.keys() - reached
