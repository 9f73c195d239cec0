"""The literals of a format as patterns, read leniently: what a parser of its answers looks for."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final

from gbnf.compiler.notations import ElementArguments, Part, Placeholder
from gbnf.schema_caches import schema_cache
from gbnf.tool_formats.cursor import Delimiters, lenient
from gbnf.tool_formats.format import FormatFields, JsonArguments
from gbnf.tool_formats.pieces import join_pieces

_NAME = r"""[^\s"'`<>{}()\[\]|]"""
_SLOTS: Final = {
    "name": rf"(?P<name>{_NAME}{{1,200}})",
    "id": rf"(?P<id>{_NAME}{{1,200}})",
    "index": r"(?P<index>[0-9]{1,9})",
}
_TAG_BEGINS = "<"
LEAST_MARK = 3  # characters of a delimiter that no text has by chance
_JSON = re.compile(r'[{\[]\s*"')


def words(literals: Iterable[Part]) -> list[str]:
    """Return patterns of the words of literals: the tags of `</function>\\n</tool_call>` are two."""
    return [lenient(word) for literal in literals if isinstance(literal, str) for word in literal.split()]


def joined(parts: Iterable[Part], *, json: bool = False, key: str | None = None) -> str:
    """Return the pattern of literals and slots, without whitespace at either end.

    `key`: the text of the slot for the key.
    """
    parts = [key or "" if isinstance(part, Placeholder) and part.kind == "key" else part for part in parts]
    merged = list(join_pieces(parts))
    if merged and isinstance(merged[0], str):
        merged[0] = merged[0].lstrip()
    if merged and isinstance(merged[-1], str):
        merged[-1] = merged[-1].rstrip()
    merged = [part for part in merged if part]
    seen: set[str] = set()
    patterns = []
    for part in merged:
        if isinstance(part, str):
            patterns.append(lenient(part, json=json))
        else:
            patterns.append(f"(?P={part.kind})" if part.kind in seen else _SLOTS[part.kind])
            seen.add(part.kind)
    if merged and isinstance(merged[-1], Placeholder):
        patterns.append(f"(?={_NAME.replace('[^', '[', 1)})")  # the slot's text is complete
    return "".join(patterns)


class FormatDelimiters:
    """The delimiters of a format.

    calls: the beginning of the first call, with its name; bare_calls: without what begins the calls;
    next_calls: of another. tail, end: after a call, after the last. soft: texts that are no part of the
    answer's text if nothing follows them but calls. begins_alike: calls may begin like a text, or like calls
    as JSON in one. value_ends: what ends a text in an element.
    """

    def __init__(self, form: FormatFields) -> None:
        heads = (form.head, *form.other_heads)
        self.json = json = isinstance(form.arguments, JsonArguments) and any(
            isinstance(part, str) and _JSON.search(part) for part in form.head
        )
        unmarked = not _first_literal((form.begin, *form.head)).strip()
        self.begins_alike = unmarked or form.marker.startswith("{")
        self.late_id = any(isinstance(part, Placeholder) and part.kind == "id" for part in form.tail)
        begins, unannounced = [form.begin], []
        if unmarked:  # calls are told from text by what is between them
            unannounced = [lenient(" ") + joined((form.begin, *head)) for head in heads]
            begins = [between + form.begin for between in (form.text.before_calls, form.separator) if between]
        self.calls = Delimiters(joined((begin, *head), json=json) for begin in begins for head in heads)
        separators = [form.separator] if form.separator is not None and form.separator.strip() else []
        befores: list[tuple[Part, ...]] = [(), *((separator,) for separator in separators)]
        self.next_calls = Delimiters(
            joined((*before, *head), json=json) for before in befores for head in heads
        )
        bare = [bare for head in heads for bare in _without_begin(form.begin, head)]
        self.bare_calls = Delimiters([*(joined(head, json=json) for head in bare), *unannounced])
        tails = [
            joined(form.tail, json=json),
            *(lenient(part, json=json) for part in _parts_of_tail(form.tail)),
        ]
        self.tail, self.end = Delimiters(tails), Delimiters([lenient(form.end.strip(), json=json)])
        reasoning = [] if form.reasoning is None else [form.reasoning]
        self.reasoning_begin = Delimiters(lenient(tags.begin.strip()) for tags in reasoning)
        self.reasoning_end = Delimiters(lenient(tags.end.strip()) for tags in reasoning)
        self.omitted = Delimiters(lenient(tags.omitted) for tags in reasoning)
        between = [] if form.separator is None or json else [form.separator]
        ends = [*form.end_of_turn, form.text.end, form.text.before_calls or "", *between]
        ends += [tags.end for tags in reasoning]
        self.soft = Delimiters(lenient(literal.strip()) for literal in ends if len(literal.strip()) > 1)
        text_begins = (form.text.begin, *form.text.other_begins)
        self.text_begin = Delimiters(lenient(f" {begin.strip()}") for begin in text_begins if begin.strip())
        values = form.arguments.forms.string if isinstance(form.arguments, ElementArguments) else ()
        value_ends = (joined(value.after, key="") for value in values)
        self.value_ends = Delimiters(pattern for pattern in value_ends if len(pattern) >= LEAST_MARK)
        openings = [form.marker, *(_first_literal((form.begin, *head)) for head in heads)]
        openings += [_first_literal(head) for head in bare]
        opening = [lenient(literal.strip(), json=json) for literal in openings]
        others = (self.reasoning_begin, self.soft, self.value_ends)
        self.in_text = Delimiters(
            [*opening, *(pattern for delimiters in others for pattern in delimiters.patterns)]
        )
        self.in_reasoning = Delimiters([*self.reasoning_end.patterns, *opening])


format_delimiters = schema_cache(maxsize=64)(FormatDelimiters)


def _without_begin(begin: str, head: tuple[Part, ...]) -> list[tuple[Part, ...]]:
    """Return the heads that remain without the first tags, which models leave out: `<function=name>`."""
    first = head[0] if isinstance(head[0], str) else ""
    tags = (begin + first).split()
    rest = [" ".join(tags[count:]) for count in range(1, len(tags))]
    rest += [first.strip()] if begin.strip() and first.strip() else []
    return [(literal, *head[1:]) for literal in dict.fromkeys(rest) if literal[0] in _TAG_BEGINS]


def _parts_of_tail(tail: Sequence[Part]) -> list[str]:
    """Return what is read as the end of a call, too: the first or the last of its words."""
    if len(tail) != 1 or not isinstance(tail[0], str):
        return []
    tags = tail[0].split()
    counts = range(1, len(tags))
    return [" ".join(tags[:count]) for count in counts] + [" ".join(tags[count:]) for count in counts]


def _first_literal(parts: Sequence[Part]) -> str:
    """Return the text up to the first slot."""
    literal = ""
    for part in parts:
        if isinstance(part, Placeholder):
            break
        literal += part
    return literal
