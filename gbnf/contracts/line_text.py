"""Lines of text: those of the grammar, and the markup that the parser strips.

Invariant: the parser reads the grammar's lines unchanged. They begin with a character that cannot open a
heading, a list, a quotation, a fence or a tag, and contain neither a closing tag nor a placeholder: `>` is
allowed only after a space, `=` or `-`, as in an arrow or a comparison. A line may end in `<`, since the
parser strips the space after it, and its result must be a line of the grammar too.
"""

from __future__ import annotations

import re
from functools import lru_cache

from gbnf.compiler.grammar import Grammar
from gbnf.compiler.rules import RuleTable, Scope
from gbnf.grammar.ir import Literal, Ref, Rules, alt, char_class, optional, repeat, seq

_BREAKS = ((0x00, 0x1F), (0x7F, 0x9F), (0x2028, 0x2029))
_SPACES = ((0x20, 0x20), (0xA0, 0xA0), (0x1680, 0x1680), (0x2000, 0x200B), (0x202F, 0x202F), (0x205F, 0x2060),
           (0x3000, 0x3000), (0xFEFF, 0xFEFF))  # fmt: skip
_OPENERS = "<`>#*_-+=|~•·–—"

_BEFORE_MORE = " =-"

_PLAIN = char_class(*_BREAKS, "<>", negated=True)
_AFTER_LESS = char_class(*_BREAKS, "</>", negated=True)
_FIRST = char_class(*_BREAKS, *_SPACES, _OPENERS, negated=True)


def line_rule(limit: int, scope: Scope) -> Ref:
    """Return the rule of a line of 1 to `limit` characters; ` >`, and `<` with the next, count as one."""
    more = seq(char_class(_BEFORE_MORE), Literal(">"))
    char = scope.table.add(("char",), alt(_PLAIN, seq(Literal("<"), _AFTER_LESS), more))
    return scope.table.add(
        ("line", str(limit)), seq(_FIRST, repeat(char, 0, limit - 1), optional(Literal("<")))
    )


@lru_cache(maxsize=64)
def _line_grammar(limit: int) -> Grammar:
    table = RuleTable(frozenset())
    root = line_rule(limit, Scope(table, ())).name
    return Grammar(Rules(table.productions, root))


def is_line(line: str, limit: int) -> bool:
    """Return whether the line is in the grammar."""
    return _line_grammar(limit).match(line).complete


_REASONING = re.compile(r"\s*<(think|thinking|thought|reasoning)>.*?(?:</\1>|\Z)", re.DOTALL)
_REASONING_END = re.compile(r".*</(?:think|thinking|thought|reasoning)>", re.DOTALL)
_FENCE = re.compile(r"\s*`{3,}[^\n`]*\n(.*?)\n?[ \t]*`{3,}[ \t]*(?:\n|\Z)", re.DOTALL)
_LEADING = re.compile(r"(?:[>#*•·+-]+[ \t]+)+")
_BOLD = re.compile(r"(\*\*|\*|`)(?=\S)(?P<inner>.+?)(?<=\S)\1(?P<after>.*)", re.DOTALL)
_UNDERSCORED = re.compile(r"(__?)(?=[^\W_])(?P<inner>.+?)(?<=\S)(?<!_)\1(?!\w)(?P<after>.*)", re.DOTALL)
_EDGE = re.compile(r"(?<!\w)_|_(?!\w)")


def unwrap_answer(text: str, notes: list[str]) -> str:
    """Return the answer without reasoning, and without a code block around all of it."""
    answer = _REASONING.sub("", text, count=1) if _REASONING.match(text) else text
    if ending := _REASONING_END.match(answer):
        answer = answer[ending.end() :]
    if answer != text:
        notes.append("left out the reasoning")
    fence = _FENCE.fullmatch(answer.rstrip() + "\n") if "```" in answer else None
    if fence is not None:
        notes.append("took the answer out of a code block")
        return fence[1]
    return answer


def strip_markup(line: str) -> str:
    """Return a line without the markup of a list, a heading, a quotation or bold type."""
    plain = line.strip()
    plain = plain[leading.end() :] if (leading := _LEADING.match(plain)) else plain
    bold = _BOLD.fullmatch(plain)
    if bold is None and (found := _UNDERSCORED.fullmatch(plain)):
        inner = found["inner"]  # emphasis has words, unlike a name such as `__init__`
        bold = found if re.search(r"[\s:]", inner) and not _EDGE.search(inner) else None
    return (bold["inner"] + bold["after"]).strip() if bold else plain
