"""llama.cpp's engine follows a bounded number of derivations, and refuses no grammar for fewer."""

from __future__ import annotations

import json
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gbnf import Grammar, compile_schema
from gbnf.errors import AmbiguousGrammarError
from gbnf.grammar.stacks import MAX_STACKS, takes_many_stacks
from gbnf.protocols.readers import either_grammar
from gbnf_server.llama.grammar_limits import guard_grammar
from gbnf_server.system.errors import GrammarRefusedError
from support.effort import scaled
from support.engine_stacks import engine_stacks
from support.oracle import engine
from support.unions_alike import late_union, unions_alike, value_of

ORDERS = st.sampled_from(["any", "declared"])
PALINDROMES = 'root ::= s "c" s\ns ::= "a" s "a" s | "b" s "b" s | "a" | "b"\n'
_REST = {"additionalProperties": False}
RECURSIVE = {
    "anyOf": [
        {"const": 0},
        {"type": "object", "properties": {"a": {"$ref": "#"}}, "required": ["a"], **_REST},
        {
            "type": "object",
            "properties": {"a": {"$ref": "#"}, "b": {"const": 1}},
            "required": ["a", "b"],
            **_REST,
        },
    ]
}


def text_of(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"))


@settings(max_examples=scaled(50))
@given(schema=unions_alike(), order=ORDERS, seed=st.integers(0, 2**16))
def test_stacks_are_bounded_and_valid_values_accepted(schema: Any, order: Any, seed: int) -> None:
    grammar = compile_schema(schema, property_order=order)
    random = Random(seed)
    for depth in (2, 5, 9):
        value = value_of(schema, random, depth)
        text = text_of(value)
        if len(text) > 4_000:
            continue
        if order == "any" or _has_no_objects(value):
            assert engine().match(grammar, text).complete, text
        if engine().match(grammar, text).complete:
            assert max(engine_stacks(grammar, text)) <= MAX_STACKS


@settings(max_examples=scaled(50))
@given(schema=unions_alike(), seed=st.integers(0, 2**16))
def test_the_matcher_counts_no_fewer_stacks_than_the_engine(schema: Any, seed: int) -> None:
    grammar = compile_schema(schema)
    text = text_of(value_of(schema, Random(seed), 5))[:300]
    states = [grammar.matcher.start()]
    for char in text:
        following = states[-1].advance(char)
        assert following is not None
        states.append(following)
    for state, stacks in zip(states, engine_stacks(grammar, text), strict=True):
        assert stacks <= state.stacks + state.can_end


@pytest.mark.parametrize("levels", [6, 12, 24, 60])
def test_tuples_that_only_their_ends_tell_apart(levels: int) -> None:
    grammar = compile_schema(late_union(levels))
    text = text_of(value_of(late_union(levels), Random(1), 100))
    assert engine().match(grammar, text).complete
    assert max(engine_stacks(grammar, text)) <= MAX_STACKS
    assert grammar.exact == (levels < 10)
    if not grammar.exact:
        assert {finding.keyword for finding in grammar.report} == {"anyOf"}


def test_many_stacks_are_what_the_engine_would_keep() -> None:
    text = 'root ::= "[" root "]" | "[" root "}" | "x"'
    assert max(engine_stacks(text, "[" * 10)) > MAX_STACKS
    assert takes_many_stacks(Grammar.parse(text).rules, {"root": 2})
    assert not takes_many_stacks(Grammar.parse('root ::= "[" root ("]" | "}") | "x"').rules, {"root": 2})


def test_a_recursive_union_of_objects_stays_exact() -> None:
    grammar = compile_schema(RECURSIVE)
    nested = '{"a":' * 40 + "0" + "}" * 40
    assert max(engine_stacks(grammar, nested)) < 20
    assert grammar.exact
    capped = compile_schema(RECURSIVE, max_depth=6)
    assert engine().match(capped, nested).complete
    assert [finding.reason for finding in capped.report] == ["nested deeper than max_depth=6"]


#: Grammars as clients write them, after llama.cpp's examples; none multiplies.
JSON_BY_HAND = r"""
root ::= object
value ::= object | array | string | number | ("true" | "false" | "null") ws
object ::= "{" ws ( string ":" ws value ("," ws string ":" ws value)* )? "}" ws
array ::= "[" ws ( value ("," ws value)* )? "]" ws
string ::= "\"" ( [^"\\\x7F\x00-\x1F] | "\\" (["\\bfnrt] | "u" [0-9a-fA-F]{4}) )* "\"" ws
number ::= ("-"? ([0-9] | [1-9] [0-9]{0,15})) ("." [0-9]+)? ([eE] [-+]? [0-9] [1-9]{0,15})? ws
ws ::= ([ \t\n] ws)?
"""
STATEMENTS = r"""
root ::= statement*
statement ::= name ws ("=" ws expression | "(" list? ")") ";" | "if (" condition ") {" statement* "}"
condition ::= expression ("<=" | "<" | "==") expression
expression ::= term (("+" | "-") term)*
term ::= factor (("*" | "/") factor)*
factor ::= name | [0-9]+ | "-" factor | name "(" list? ")" | "(" ws expression ws ")"
list ::= expression ("," ws expression)*
name ::= [a-z] [a-z0-9]*
ws ::= [ \t\n]+
"""
ENUMERATION = "root ::= " + " | ".join(f'"name {number}"' for number in range(2_000))


@pytest.mark.parametrize("text", [JSON_BY_HAND, STATEMENTS, ENUMERATION, 'root ::= "a" root "b" | "c"'])
def test_usual_grammars_of_clients_are_accepted(text: str) -> None:
    grammar = Grammar.parse(text)
    assert guard_grammar(grammar) is grammar


@pytest.mark.parametrize(
    ("text", "witness"),
    [
        (PALINDROMES, "ab" * 10),
        ('root ::= "[" root "]" | "[" root "}" | "x"', "[" * 10),
        ('root ::= t | t "+" root\nt ::= f | f "*" t\nf ::= "(" root ")" | [a-z]', "(" * 5),
    ],
)
def test_a_grammar_whose_derivations_multiply_is_refused(text: str, witness: str) -> None:
    assert max(engine_stacks(text, witness)) > MAX_STACKS
    grammar = Grammar.parse(text)
    with pytest.raises(AmbiguousGrammarError, match="more than 1,024 derivations"):
        grammar.check_stacks()
    with pytest.raises(GrammarRefusedError, match="more than 1,024 derivations"):
        guard_grammar(with_text(grammar))


def with_text(grammar: Grammar) -> Grammar:
    """Return the grammar of a text of either of two grammars, as the gateway makes it."""
    return either_grammar(Grammar.parse('root ::= "-"'), grammar)


def _has_no_objects(value: Any) -> bool:
    match value:
        case dict():
            return False
        case list():
            return all(map(_has_no_objects, value))
    return True
