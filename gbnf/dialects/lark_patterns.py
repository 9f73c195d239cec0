r"""Translate a Lark grammar without recursion to a pattern of ECMA-262, for a string in a JSON Schema.

    start: "+" /.*/ LF          ^(?:(?:\+)(?:[^\n]*)(?:\n))$
    %import common.LF

The language is that of the rules and terminals, whatever a lexer prefers. Source: Lark's grammar reference.
"""

from __future__ import annotations

import json
import re

from gbnf.errors import GrammarError

_TOKEN = re.compile(
    r"""(?://[^\n]*|\#[^\n]*|\s)+
      | [!?]*(?P<defined>_?[a-zA-Z]\w*)(?:\.-?\d+)?\s*:
      | (?P<name>_?[a-zA-Z]\w*)
      | (?P<first>"(?:[^"\\\n]|\\.)")\s*\.\.\s*(?P<last>"(?:[^"\\\n]|\\.)")
      | (?P<text>"(?:[^"\\\n]|\\.)*")(?P<ignores_case>i?)
      | /(?P<pattern>(?:[^/\\\n]|\\.)+)/(?P<flags>[a-z]*)
      | %import\s+common\.(?P<imported>\w+)(?:\s*->\s*(?P<alias>\w+))?
      | ->\s*\w+
      | ~\s*(?P<least>\d+)(?:\s*\.\.\s*(?P<most>\d+))?
      | (?P<mark>[()\[\]|?*+])""",
    re.VERBOSE,
)
_COMMON = {
    "CR": r"\r", "LF": r"\n", "NEWLINE": r"(?:\r?\n)+", "WS": r"[ \t\f\r\n]+", "WS_INLINE": r"[ \t]+",
    "DIGIT": "[0-9]", "INT": "[0-9]+", "SIGNED_INT": "[+-]?[0-9]+", "HEXDIGIT": "[a-fA-F0-9]",
    "LCASE_LETTER": "[a-z]", "UCASE_LETTER": "[A-Z]", "LETTER": "[a-zA-Z]", "WORD": "[a-zA-Z]+",
    "CNAME": "[_a-zA-Z][_a-zA-Z0-9]*", "ESCAPED_STRING": r'"(?:[^"\\\n]|\\.)*"',
}  # fmt: skip
_MARKS = {"[": "(?:", "(": "(?:", "]": ")?"}
_LONGEST = 20_000  # characters of a pattern: references multiply
_DEEPEST = 100  # rules inside rules
_DOT = re.compile(r"\\.|\[(?:[^\]\\]|\\.)*+(?:\]|\Z)|[.()]", re.DOTALL)
_DOT_ALL = re.compile(r"\(\?[a-z]*s")


class _Reference(str):
    """The name of a rule or terminal, whose pattern takes its place."""

    __slots__ = ()


def lark_pattern(grammar: str) -> str:
    """Return the pattern of the texts of a grammar. Raises GrammarError for one that it cannot express."""
    rules: dict[str, list[str]] = {}
    rule: list[str] = []
    position = 0
    while position < len(grammar):
        token = _TOKEN.match(grammar, position)
        if token is None:
            line = grammar.count("\n", 0, position) + 1
            raise GrammarError(
                f"line {line} of the Lark grammar, {grammar[position : position + 20]!r}, is not supported"
            )
        position = token.end()
        if token["defined"]:
            rule = rules[token["defined"]] = []
        elif token["imported"]:
            if token["imported"] not in _COMMON:
                raise GrammarError(f"Lark's terminal common.{token['imported']} is not supported")
            rules[token["alias"] or token["imported"]] = [_COMMON[token["imported"]]]
        else:
            rule.append(_piece(token))
    return f"^{_expanded('start', rules, {})}$"


def whole_pattern(expression: str) -> str:
    """Return the pattern of the texts that a regular expression matches as a whole, as Lark means it.

    Raises GrammarError for one that is invalid or too large.
    """
    if len(expression) > _LONGEST:
        raise GrammarError(f"the regular expression is larger than {_LONGEST} characters")
    return f"^{_group(expression)}$"


def _piece(token: re.Match[str]) -> str:
    """Return the pattern of a token. The order of tokens is the same in a pattern."""
    if token["name"]:
        return _Reference(token["name"])
    if token["first"]:
        return f"[{_escaped(token['first'])}-{_escaped(token['last'])}]"
    if token["text"]:
        return f"(?{token['ignores_case']}:{_escaped(token['text'])})"
    if token["pattern"]:
        return _group(token["pattern"], token["flags"])
    if token["least"]:
        return f"{{{token['least']},{token['most'] or token['least']}}}"
    mark = token["mark"] or ""
    return _MARKS.get(mark, mark)


def _escaped(quoted: str) -> str:
    try:
        text: str = json.loads(quoted)
    except ValueError:
        raise GrammarError(f"the text {quoted} of the Lark grammar is not supported") from None
    return re.sub(r"[\\^$.*+?()\[\]{}|/-]", r"\\\g<0>", text)


def _group(expression: str, flags: str = "") -> str:
    """Return a regular expression as a group, in which only a line feed is no `.`."""
    depth = 0
    for token in _DOT.finditer(expression):
        depth += {"(": 1, ")": -1}.get(token[0], 0)
        if depth < 0 or (token[0][0] == "[" and (len(token[0]) == 1 or token[0][-1] != "]")):
            depth = -1
            break
    if depth:  # "a)|(b" would be no group
        raise GrammarError(f"the brackets of {expression[:40]!r} do not match")
    if "s" not in flags and not _DOT_ALL.search(expression):
        expression = _DOT.sub(lambda match: r"[^\n]" if match[0] == "." else match[0], expression)
    return f"(?{flags}:{expression})"


def _expanded(name: str, rules: dict[str, list[str]], pattern_of: dict[str, str | None]) -> str:
    """Return the pattern of a rule. `pattern_of`: those of rules, None while they are expanded."""
    if name not in rules:
        raise GrammarError(f"the Lark grammar has no rule {name!r}")
    if name not in pattern_of:
        if sum(pattern is None for pattern in pattern_of.values()) == _DEEPEST:
            raise GrammarError(f"the Lark grammar has more than {_DEEPEST} rules inside each other")
        pattern_of[name] = None
        joined = ""
        for piece in rules[name]:
            joined += _expanded(piece, rules, pattern_of) if isinstance(piece, _Reference) else piece
            if len(joined) > _LONGEST:
                raise GrammarError(f"the Lark grammar is larger than {_LONGEST} characters of a pattern")
        pattern_of[name] = f"(?:{joined})"
    pattern = pattern_of[name]
    if pattern is None:
        raise GrammarError(f"the rule {name!r} of the Lark grammar is recursive")
    return pattern
