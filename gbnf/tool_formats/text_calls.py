"""Calls as JSON in an answer's text, which models write in spite of their template: grammar and patterns.

    {"name": "tool", "arguments": {…}}                                also {{…}}, [{…}, {…}], "parameters"
    {"type": "function", "function": {"name": "tool", "parameters": {…}}}
    ```json …```                                                      one of these in a code block

An answer that begins like that, up to the name of an offered tool, is a call, held to the tool's schema; with
any other name it is a text.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from gbnf.compiler.automaton_rules import words_expr
from gbnf.compiler.grammar import CompiledRules
from gbnf.compiler.literals import factor_prefixes, json_string
from gbnf.compiler.pool import CompiledTool
from gbnf.compiler.rules import RuleTable, Scope
from gbnf.grammar.ir import (
    EPSILON,
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
)
from gbnf.grammar.passes import run_passes
from gbnf.regular.automaton import Dfa
from gbnf.regular.ecma262 import search
from gbnf.schema_caches import schema_cache
from gbnf.tool_formats.cursor import SPACE, Delimiters

TEXT_CALLS, OTHER_OBJECT = "textCalls", "otherObject"
"""The rules of calls in a text, and of how an object begins that names no offered tool."""

_NAME_KEYS = ("name", "function", "tool")
_ARGUMENT_KEYS = ("arguments", "parameters", "args", "input")
_MOST_SPACES = 24
NOTE = "the call is in the text, rather than in the format of the chat template"


def _brackets(space: str) -> str:
    return rf"(?:```[a-z_]*[ \t]*\n{space})?(?:\[{space})?\{{{space}"


def _beginning(space: str, name: str) -> str:
    """Return the pattern of how such a text begins, up to a tool's name; `space` is that of whitespace."""
    typed = rf'"type"{space}:{space}"function"{space},{space}'
    nested = rf'"function"{space}:{space}\{{{space}'
    brackets = rf"{_brackets(space)}(?:\{{{space})?"
    keys = "|".join(_NAME_KEYS)
    return rf'{brackets}(?:{typed})?(?:{nested})?"(?:{keys})"{space}:{space}"{name}'


BEGINNING = _beginning(r"[ \t\r\n]*", "")
"""An ECMA-262 pattern of how calls in a text begin, up to a tool's name, without whitespace before it."""
OBJECT = re.compile(r"\s*" + _brackets(r"\s*"))
"""How a text begins that may be such calls, or other JSON."""

HEAD = Delimiters(
    [
        SPACE
        + _beginning(SPACE, r'(?P<name>(?:[^"\\]|\\.)*)"')
        + rf'{SPACE},{SPACE}"(?:{"|".join(_ARGUMENT_KEYS)})"{SPACE}:{SPACE}(?=\{{)'
    ]
)
CLOSING = Delimiters([rf"{SPACE}\}}"])
FURTHER = (CLOSING, CLOSING, Delimiters([rf"{SPACE}[,\]]"]), Delimiters([rf"{SPACE}```"]))
"""What may follow the bracket that closes a call, in order."""


_SPACE = Ref("textSpace")
_CALL, _NAMED, _BLOCK, _LIST = Ref("textCall"), Ref("textNamed"), Ref("textBlock"), Ref("textList")
_NAMES = {TEXT_CALLS, OTHER_OBJECT, *(rule.name for rule in (_SPACE, _CALL, _NAMED, _BLOCK, _LIST))}
RULES = frozenset(_NAMES) | {f"{OTHER_OBJECT}{number}" for number in range(2, 1000)}
"""The names of the rules."""


def text_call_rules(tools: Sequence[CompiledTool], *, parallel: bool, bare: bool) -> CompiledRules:
    """Return the rules of calls in a text, of which `TEXT_CALLS` is the first.

    `tools`: with their arguments as JSON. `bare`: unless calls of the format begin like a bare object.
    """
    colon = seq(_SPACE, Literal(":"), _SPACE)
    comma = seq(_SPACE, Literal(","), _SPACE)
    begin, end = seq(Literal("{"), _SPACE), seq(_SPACE, Literal("}"))
    arguments = seq(comma, _key(_ARGUMENT_KEYS), colon)
    branches = [seq(literal(json_string(tool.name)), arguments, tool.arguments) for tool in tools]
    typed = seq(Literal('"type"'), colon, Literal('"function"'), comma)
    nested = seq(Literal('"function"'), colon, begin, _NAMED, end)
    doubled = seq(begin, _NAMED, end)
    unusual = alt(seq(typed, alt(_NAMED, nested)), nested, doubled)
    next_call = seq(_SPACE, optional(seq(Literal(","), _SPACE)), _CALL)
    objects = seq(_CALL, repeat(next_call)) if parallel else _CALL
    first = objects if bare else seq(begin, unusual, end, repeat(next_call) if parallel else EPSILON)
    items = seq(_CALL, repeat(seq(comma, _CALL))) if parallel else _CALL
    language = seq(repeat(char_class("_", (0x61, 0x7A)), 0, 16), repeat(char_class(" \t"), 0, 4))
    block = seq(Literal("```"), language, Literal("\n"), _SPACE, alt(_LIST, objects), _SPACE, Literal("```"))
    blocks = seq(_BLOCK, repeat(seq(_SPACE, _BLOCK))) if parallel else _BLOCK
    return CompiledRules.of(
        Rules(
            {
                TEXT_CALLS: alt(blocks, _LIST, first),
                _BLOCK.name: block,
                _LIST.name: seq(Literal("["), _SPACE, items, _SPACE, Literal("]")),
                _CALL.name: seq(begin, alt(_NAMED, unusual), end),
                _NAMED.name: seq(_key(_NAME_KEYS), colon, factor_prefixes(branches)),
                _SPACE.name: repeat(char_class(" \t\r\n"), 0, _MOST_SPACES),
            }
        )
    )


def _key(names: Iterable[str]) -> Expr:
    return factor_prefixes([literal(json_string(name)) for name in names])


@schema_cache(maxsize=256)
def other_object_rules(names: tuple[str, ...], excluded: tuple[str, ...]) -> CompiledRules:
    """Return the rules of the beginning of an object up to a name that is none of these.

    `excluded`: texts that the name does not contain.
    """
    table = RuleTable(frozenset())
    root = table.reserve(OTHER_OBJECT)
    scope = Scope(table, (OTHER_OBJECT,))
    marks = f"(?!{'|'.join(map(re.escape, excluded))})" if excluded else ""
    others = search(rf'^(?:{marks}[^"\\\0-\x1f])*$')
    words = [name for name in names if others.accepts(name)]
    if words:
        others -= Dfa.of_words(words)
    table.define(
        root, seq(words_expr(search(f"^{BEGINNING}$"), scope), words_expr(others, scope), Literal('"'))
    )
    return CompiledRules.of(run_passes(Rules(table.productions, root.name)))
