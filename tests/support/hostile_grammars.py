"""GBNF that asks too much: a table of texts that grow with a size, and a generator of texts from a `Random`.

`HOSTILE` holds what once recursed, hung, or took memory without bound. `hostile_grammar` gives one text for
each state of a `Random`, so that a fuzzing program and a law draw from the same distribution. `walk` calls
everything that reads a grammar's rules.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable
from contextlib import suppress
from random import Random

from gbnf import Grammar
from gbnf.dialects.lark import lark_text
from gbnf.errors import AmbiguousGrammarError
from gbnf.grammar.analysis import cheapest_costs, find_left_recursion, nullable
from gbnf.grammar.emit import emit
from gbnf.grammar.ir import Rules
from gbnf.grammar.match import Matcher
from gbnf.grammar.parse import parse_gbnf
from gbnf.grammar.passes import run_passes
from support.random_texts import generate, shortest_text


def _nested(opening: str, closing: str, inner: str = '"a"') -> Callable[[int], str]:
    return lambda size: f"root ::= {opening * size}{inner}{closing * size}\n"


def _chain(rule: str, last: str = '"x"') -> Callable[[int], str]:
    """`size` rules, each of which says `rule` with the names of itself, the next, and one far away."""

    def text(size: int) -> str:
        rules = [
            f"r{i} ::= {rule.format(me=f'r{i}', next=f'r{i + 1}', other=f'r{i * 7 % size}')}\n"
            for i in range(size)
        ]
        return f"root ::= r0\n{''.join(rules)}r{size} ::= {last}\n"

    return text


HOSTILE: dict[str, Callable[[int], str]] = {
    "stars": _nested("", "*"),
    "pluses": _nested("", "+"),
    "question marks": _nested("", "?"),
    "single repetitions": _nested("", "{1}"),
    "optional repetitions": _nested("", "{0,1}"),
    "parentheses": _nested("(", ")"),
    "open parentheses": _nested("(", ""),
    "closing parentheses": _nested("", ")"),
    "repeated groups": _nested("(", ")+"),
    "optional groups": _nested("(", ")?"),
    "left-nested alternations": _nested("(", ' | "b")'),
    "right-nested alternations": _nested('"b" | (', ")"),
    "left-nested sequences": _nested("(", ' "b")'),
    "right-nested sequences": _nested('"b" (', ")"),
    "groups of both": _nested('("b" | "c" (', ")+)+"),
    "sequences in repetitions": _nested('("b" ', ' "c")?'),
    "flat alternation": lambda size: "root ::= " + " | ".join(f'"{i}"' for i in range(size)),
    "flat sequence": lambda size: "root ::= " + "[a-c] " * size,
    "literals": lambda size: "root ::= " + '"a" ' * size,
    "empty alternatives": lambda size: "root ::= " + "|" * size,
    "optional terminals": lambda size: "root ::= " + '"a"? ' * size,
    "a long name": lambda size: "root ::= " + "n" * size,
    "a long literal": lambda size: f'root ::= "{"x" * size}"',
    "a long class": lambda size: f"root ::= [{'a-c' * size}]",
    "a large bound": lambda size: 'root ::= "a"{' + "9" * size + "}",
    "a large upper bound": lambda size: 'root ::= "a"{1,' + "9" * size + "}",
    "zeros before a bound": lambda size: 'root ::= "a"{' + "0" * size + "1}",
    "open literals": lambda size: "root ::= " + '"\\"' * size,
    "open classes": lambda size: "root ::= " + "[" * size,
    "open repetitions": lambda size: "root ::= " + '"a"{' * size,
    "newlines": lambda size: "root ::=" + "\n" * size + '"a"' + "\n" * size,
    "comments": lambda size: 'root ::= "a"' + "#\n" * size,
    "aliases": _chain("{next}"),
    "optional aliases": _chain('{next} | ""'),
    "nested rules": _chain('"a" {next} "b"'),
    "right recursion": _chain('"a" {next} | "b" {other}'),
    "left recursion": _chain("{next}", "r0"),
    "rules without an end": _chain('"a" {next}', '"x" r0'),
    "doubling": _chain('{next} "" {next}'),
    "doubling of nothing": _chain("{next} {next}", '""'),
    "doubling by repetition": _chain("{next}{{2}}"),
    "optional doubling": _chain('"b" | {next} {next}'),
    "equal rules": lambda size: "root ::= r0\n" + "".join(f'r{i} ::= "x" r{i + 1}?\n' for i in range(size))
    + f'r{size} ::= "x"\n',
}  # fmt: skip

_TOKENS = [
    *"?*+()|.[]{},\"'\\^-#_<!:=\n\r\t ",
    "::=", "root ::= ", "\nroot ::= ", "\na ::= ", "root", "a", "b", "missing", "()", '""', '"a"', '"\\x00"',
    '"\\n"', "[a-z]", "[^a]", "[]", "[z-a]", "[\\]]", "[\\x00-\\U0010FFFF]", "{2}", "{0,}", "{,3}",
    "{0,2000}", "{2001}", "{3,2}", "{0}", "{99999999999999999999}", "# note\n", "é", "日", "𝄞", "\ud800",
    "\0", "\x1b", "\u2028", "<|im_end|>", "<[7]>",
]  # fmt: skip


def hostile_grammar(random: Random, largest: int = 700) -> str:
    """A text that may or may not be a grammar: one of the table, random tokens, or either one damaged."""
    match random.randrange(4):
        case 0:
            return _of_the_table(random, largest)
        case 1:
            return "".join(_tokens(random))
        case 2:
            rules = [f"{name} ::= {''.join(_tokens(random))}\n" for name in ("root", "a", "b")]
            return "".join(rules[: random.randint(1, 3)])
        case _:
            return _damaged(random, _of_the_table(random, min(largest, 40)))


def _of_the_table(random: Random, largest: int) -> str:
    name = random.choice(sorted(HOSTILE))
    return HOSTILE[name](random.choice([1, 2, 3, random.randint(1, largest), largest]))


def _tokens(random: Random) -> list[str]:
    return [random.choice(_TOKENS) for _ in range(random.randint(0, 12))]


def _damaged(random: Random, text: str) -> str:
    for _ in range(random.randint(1, 3)):
        at, end = sorted(random.randint(0, len(text)) for _ in range(2))
        piece = random.choice(["", random.choice(_TOKENS), text[at:end] * random.randint(2, 4)])
        text = text[:at] + piece + text[random.choice([at, at + 1, end]) :]
    return text


def walk(text: str, rules: Rules) -> None:
    """Call all that walks the rules of a text, which `parse_gbnf` took. Raises what any of it should not."""
    assert parse_gbnf(emit(rules)) == rules
    assert find_left_recursion(rules) is None
    hash(tuple(rules.productions.values()))
    repr(rules)
    assert pickle.loads(pickle.dumps(rules)) == rules
    run_passes(rules)
    nullable(rules)
    cheapest_costs(rules)
    lark_text(Grammar(rules))
    with suppress(AmbiguousGrammarError):
        state = Matcher(rules).start()
        state.forced(200)
        state.allowed()
        state.expected()
        with suppress(ValueError):  # no text is short enough
            for derived in (shortest_text(rules), generate(rules, Random(0), budget=50)):
                if len(derived) < 100 and len(text) < 2_000:  # the cost is their product, if ambiguous
                    assert Matcher(rules).match(derived).complete


__all__ = ["HOSTILE", "hostile_grammar", "walk"]
