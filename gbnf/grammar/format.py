"""The canonical layout of GBNF text: one rule a line, or its alternatives and groups on lines of their own.

Invariants: llama.cpp reads the same rules in the same order; all comments are kept; formatting twice is
formatting once. Line breaks are where `parse_space` skips them: after `::=` and `|`, and inside parentheses.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from lark import Token

from gbnf.grammar.parse import read_bounds, tokens_of

WIDTH = 100
_INDENT = 2
_SHORT = {"{0,1}": "?", "{0,}": "*", "{1,}": "+"}


@dataclass(slots=True)
class _Comment:
    """A comment; `is_trailing`: behind something on its line."""

    text: str
    is_trailing: bool


@dataclass(slots=True)
class _Item:
    """A terminal, a name, or alternatives in parentheses. `flat`: its text on one line, if that is short."""

    atom: str = ""
    suffix: str = ""
    alternatives: list[list[_Item | _Comment]] = field(default_factory=lambda: [[]])
    flat: str | None = None

    def flatten(self) -> None:
        """Set `flat` of alternatives, now that all are known."""
        parts: list[str | None] = []
        for index, alternative in enumerate(self.alternatives):
            parts += ["|"] * (index > 0)
            parts += [item.flat if isinstance(item, _Item) else None for item in alternative]
        flat = " ".join(part or "" for part in parts)
        self.flat = flat if None not in parts and len(flat) < WIDTH else None


def format_grammar(text: str) -> str:
    """Return the text in its canonical layout. Raises GrammarSyntaxError if it has a syntax error."""
    writer, end, rule = _Formatter(), 0, list[Token]()
    for token in [*tokens_of(text), Token("_NEWLINE", "")]:
        if token.type != "_NEWLINE":
            rule.append(token)
        elif rule:
            writer.gap(text[end : rule[0].start_pos])
            writer.rule(rule[0], _body(text, rule))
            end = rule[-1].end_pos or 0
            rule = []
    writer.gap(text[end:])
    formatted = "\n".join(writer.lines).rstrip("\n")
    return formatted and f"{formatted}\n"


def _body(text: str, rule: list[Token]) -> _Item:
    """Return what a rule defines, as alternatives."""
    opened, end = [_Item()], rule[1].end_pos or 0
    for token in rule[2:]:
        items = opened[-1].alternatives[-1]
        items += _comments(text[end : token.start_pos])
        end = token.end_pos or 0
        if token.type == "_PIPE":
            opened[-1].alternatives.append([])
        elif token.type == "LPAR":
            opened.append(_Item())
        elif token.type == "_RPAR":
            group = opened.pop()
            group.flatten()
            group.flat = None if group.flat is None else f"({group.flat})"
            opened[-1].alternatives[-1].append(group)
        elif token.type == "SUFFIX":
            item = next(item for item in reversed(items) if isinstance(item, _Item))
            suffix = _suffix(token, nested=len(opened) > 1)
            item.suffix += suffix
            item.flat = None if item.flat is None else item.flat + suffix
            items += _comments(token if suffix != token else "")
        else:
            items.append(_Item(str(token), flat=str(token)))
    opened[0].flatten()
    return opened[0]


def _suffix(token: str, *, nested: bool) -> str:
    """Return a repetition without spaces; one that llama.cpp refuses as it is."""
    match = read_bounds(token, nested=nested)
    if match is None:
        return str(token)
    low, comma, high = match.groups()
    bounds = f"{{{low}{comma or ''}{high or ''}}}"
    return _SHORT.get(bounds, bounds)


def _comments(gap: str) -> Iterator[_Comment]:
    for match in re.finditer(r"#[^\r\n]*", gap):
        yield _Comment(match[0].rstrip(), is_trailing=not re.search(r"[\r\n]", gap[: match.start()]))


class _Formatter:
    """Writes rules from left to right. `lines` are those that are complete."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._line = ""
        self._indent = 0
        self._breaks = False  # whether the next word begins a line

    def gap(self, gap: str) -> None:
        """End a rule, and write what is behind it: comments, and one empty line for several."""
        first, *others = re.split(r"\r\n|\r|\n", gap)
        if first.strip():
            self._comment(_Comment(first.strip(), is_trailing=True))
        self._end_line()
        for line in [*others[:-1], *filter(str.strip, others[-1:])]:
            if line.strip() or (self.lines and self.lines[-1]):
                self.lines.append(line.strip())

    def rule(self, name: str, body: _Item) -> None:
        """Begin a rule."""
        self._line, self._indent = f"{name} ::=", _INDENT
        if body.flat is not None and len(self._line) + 1 + len(body.flat) <= WIDTH:
            self._line += f" {body.flat}" if body.flat else ""
            return
        self._breaks = len(body.alternatives) > 1
        if not self._breaks and isinstance(next(iter(body.alternatives[0]), None), _Item):
            self._indent = 0
        self._alternatives(body, nested=False)

    def _alternatives(self, item: _Item, *, nested: bool) -> None:
        for index, alternative in enumerate(item.alternatives):
            if index:
                is_behind = bool(self._line) and not self._breaks
                self._word("|")
                self._breaks = is_behind
            for part in alternative:
                if isinstance(part, _Comment):
                    self._comment(part)
                else:
                    self._item(part, nested=nested)

    def _item(self, item: _Item, *, nested: bool) -> None:
        start = self._indent if self._breaks or not self._line else len(self._line) + 1
        if nested and item.flat is not None and start + len(item.flat) > WIDTH:
            self._breaks, start = True, self._indent
        if item.atom:
            self._word(item.atom + item.suffix)
        elif item.flat is not None and start + len(item.flat) <= WIDTH:
            self._word(item.flat)
        else:
            self._word("(")
            self._indent += _INDENT
            self._breaks = True
            self._alternatives(item, nested=True)
            self._indent -= _INDENT
            self._breaks = True
            self._word(f"){item.suffix}")

    def _word(self, word: str) -> None:
        if self._breaks:
            self._end_line()
        self._line += f" {word}" if self._line else f"{' ' * self._indent}{word}"

    def _comment(self, comment: _Comment) -> None:
        if not comment.is_trailing:
            self._end_line()
        self._line += f" {comment.text}" if self._line else f"{' ' * self._indent}{comment.text}"
        self._end_line()

    def _end_line(self) -> None:
        if self._line:
            self.lines.append(self._line)
        self._line, self._breaks = "", False
