"""Reading of arguments that are written as one element per parameter, as JSON text that grows with them.

How a raw text ends: at the first occurrence of what follows a value (`ValueForm.after`) with what may follow
it there: the next element, or the end of the elements, of the call or of the text. Whitespace around these
does not count, except for that of `before` and `after` next to the text, which is no part of it. Elements and
whole calls inside the text belong to it. A text whose end is not certain is a `problem`: where `after` comes
twice, the text may end with its own tag.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

import regex

from gbnf.calls.parsing.readers import json_of_raw
from gbnf.compiler.notations import ElementArguments, NestedElements, Part, ValueForm, ValueForms
from gbnf.schema.keywords import JsonType
from gbnf.schema.locations import Location
from gbnf.schema_caches import schema_cache
from gbnf.strict_json import json_of
from gbnf.tool_formats.cursor import SPACE, AnswerCursor, Delimiters, Steps, Stripped, Take, lenient
from gbnf.tool_formats.delimiters import format_delimiters, joined, words
from gbnf.tool_formats.format import FormatFields
from gbnf.tool_formats.value_reading import EndOfTextError, UnreadableError, read_literal

_TYPES: Final[tuple[JsonType, ...]] = ("string", "number", "boolean", "null", "array", "object")
_EMPTY: Final[tuple[tuple[JsonType, str], ...]] = (("array", "[]"), ("object", "{}"))
_DEPTH = 32
_KEY_LENGTH = 1024
_REWINDS = 32  # in an answer
_END_TAG = re.compile(r"</([\w:.-]+)>")
_CODE = re.compile(r"[A-Za-z]{0,2}[\"']|[^)]*\([^)]*\Z")
"""What is no literal, but begins as one or ends inside parentheses: `"a" + b`, `f"a"`, `"a".upper(`."""
_ODD_KEY = re.compile(r"[\s<>\"'|(){}]")


@dataclass(frozen=True)
class FormGroup:
    """The forms that begin with the same literals. `space` ends them, next to the value; `again`: them."""

    space: str
    forms: tuple[tuple[JsonType, ValueForm], ...]
    again: Delimiters

    def of(self, types: frozenset[str]) -> Mapping[JsonType, ValueForm]:
        """Return the forms of the types that a schema allows, by type; all forms if there are none."""
        allowed = types | {"number"} if "integer" in types else types
        return {kind: form for kind, form in self.forms if kind in allowed} or dict(self.forms)


class Members:
    """The delimiters of elements, or of the items of an array.

    brackets: those of the JSON text. heads: what comes before each value. groups: the forms of the values, by
    the pattern in `heads`; of items with nothing before them by "". follow: patterns of what may follow a
    value.
    """

    def __init__(
        self, brackets: str, around: Iterable[str], groups: Mapping[str, FormGroup], *follow: str
    ) -> None:
        """Take `around` as literals: what begins members, separates and ends them; `follow` as patterns."""
        begin, separator, end = (lenient(literal.strip()) for literal in around)
        self.brackets, self.groups, self.heads = brackets, groups, Delimiters(groups)
        self.begin, self.separator, self.end = (Delimiters([pattern]) for pattern in (begin, separator, end))
        self.follow = tuple(filter(None, (separator, end, *follow)))


@dataclass(frozen=True, slots=True)
class _ValueContext:
    """Where a value is read: its key ("" of an item), what is allowed there, patterns of what may follow."""

    key: str
    location: Location
    follow: tuple[str, ...]
    depth: int


class ElementReader:
    """Reads the arguments of calls. `problem`: why those that were read last have more than one reading."""

    def __init__(self, cursor: AnswerCursor, format: FormatFields, arguments: ElementArguments) -> None:  # noqa: A002  # the word of the formats
        self.problem = ""
        self._declared: frozenset[str] | None = None
        self._rewinds = _REWINDS
        self._cursor = cursor
        self._nested = arguments.nested
        self._arguments = arguments
        ends = words([arguments.end, *format.tail, format.end, *format.end_of_turn])
        self._members = _members(arguments, arguments.begin, arguments.separator, arguments.end, tuple(ends))
        first = f"{SPACE}(?={lenient(arguments.before_key.strip())})"
        delimiters = format_delimiters(format)
        self._tail = delimiters.tail
        is_marked = isinstance(format.head[0], str) and format.head[0].strip()
        heads = delimiters.next_calls if is_marked else delimiters.calls  # a name alone begins no call
        self._heads = Delimiters([head + first for head in heads.patterns])
        call_ends = () if is_marked else delimiters.end.patterns
        close = [lenient(arguments.end.strip()), joined(format.tail), *call_ends]
        self._call_end = Delimiters([SPACE.join(filter(None, close))])
        self._marks = Delimiters(
            filter(None, (joined(form.after, key="") for form in arguments.forms.string))
        )
        self._empty = Delimiters([lenient(arguments.empty.strip())] if arguments.empty else [])

    def read(self, location: Location, take: Take) -> Steps[None]:
        """Read the elements as a JSON object. Raises EndOfTextError and UnreadableError."""
        self.problem = ""
        yield from self._cursor.skip_space()
        if (yield from self._cursor.match(self._empty)) is not None:
            take("{}")
            return
        yield from self._cursor.match(self._members.begin)
        yield from self._structure(self._members, self._tail, location, take, 0)

    def _structure(
        self, members: Members, after: Delimiters, location: Location, take: Take, depth: int
    ) -> Steps[None]:
        """Read elements, or the items of an array, up to their end. `after` follows it, and is not read."""
        count = 0
        follow = (*members.follow, *after.patterns)
        while not (yield from self._ends(members, after)):
            if count:
                yield from self._cursor.match(members.separator)
                yield from self._cursor.skip_space()
            head = yield from self._cursor.match(members.heads)
            group = members.groups.get("" if head is None else head.re.pattern)
            key = None if head is None else head.groupdict().get("key")  # items have none
            if group is None or (key is None and not (yield from self._cursor.peek())):
                if members.end.patterns:
                    if not (yield from self._cursor.peek()):
                        raise EndOfTextError
                    raise UnreadableError("there is neither another value nor the end of the values")
                break
            if key is not None and key not in location.names and _ODD_KEY.search(key):
                self.problem = f"the name {key[:80]!r} may be part of a value"
            begin = ", " if count else members.brackets[0]
            take(begin if key is None else f"{begin}{json_of(key)}: ")
            inner = location.item(count) if key is None else location.property(key)
            self._declared = None if depth else frozenset(location.names)
            yield from self._value(group, _ValueContext(key or "", inner, follow, depth), take)
            count += 1
        take(members.brackets[1] if count else members.brackets)

    def _ends(self, members: Members, after: Delimiters) -> Steps[bool]:
        """Read the end of members, and return whether it comes here. An empty end is followed by `after`."""
        yield from self._cursor.skip_space()
        if members.end.patterns:
            return (yield from self._cursor.match(members.end)) is not None
        return (yield from self._cursor.match(after, read=False)) is not None

    def _value(self, group: FormGroup, place: _ValueContext, take: Take) -> Steps[None]:
        """Read a value, and what comes after it."""
        if place.depth > _DEPTH:
            raise UnreadableError("the arguments are nested too deeply")
        if (yield from self._cursor.match(group.again, read=False)) is not None:
            self.problem = f"what begins the value of {place.key[:80]!r} comes twice"
        forms = group.of(place.location.types)
        raw = next((form for form in forms.values() if form.encoding == "raw"), None)
        if raw is None or raw.trimmed:
            yield from self._cursor.skip_space()
        else:
            yield from self._cursor.skip_exactly(group.space)
        nested = {kind for kind, form in forms.items() if form.encoding == "nested"}
        after = _literals(frozenset(form.after for kind, form in forms.items() if kind in nested), place.key)
        if nested and (yield from self._nested_value(nested, after, place, take)):
            yield from self._cursor.skip_space()
            yield from self._cursor.match(after)
            return
        yield from self._plain_value(forms, raw, place, take)

    def _plain_value(
        self, forms: Mapping[JsonType, ValueForm], raw: ValueForm | None, place: _ValueContext, take: Take
    ) -> Steps[None]:
        key, types = place.key, place.location.types
        afters = frozenset(form.after for form in forms.values())
        ends = _literals(afters, key)
        end = _value_end(afters, place.follow, key)
        problem = self.problem
        if raw is not None and (types == {"string"} or set(forms) == {"string"}):
            take('"')

            texts: list[str] = []

            def take_text(piece: str) -> None:
                texts.append(piece)
                take(json_of(piece)[1:-1])

            sink = Stripped(take_text) if raw is not None and raw.trimmed else take_text
            yield from self._text(end, raw, key, sink)
            take('"')
            content = "".join(texts)
            if raw.after == ("'",) and len(content) > 3 and content[:2] == content[-2:] == "''":
                self.problem = f"the value of {key[:80]!r} has three quotes: write one"
        else:
            text: list[str] = []
            if raw is not None:
                yield from self._text(end, raw, key, text.append)
            else:
                yield from read_literal(
                    self._cursor, text.append, end, inside=any(joined(a, key=key) for a in afters)
                )
            content = "".join(text)
            content = content.strip() if raw is not None and raw.trimmed else content
            without_items = [
                empty for kind, empty in _EMPTY if kind in forms and forms[kind].encoding == "nested"
            ]
            written = json_of_raw(content, types, quoted=raw is None)
            take(without_items[0] if not content and without_items else written)
            if written[0] != '"':
                self.problem = problem
            elif raw is None and content[:1] != '"' and self._marks.any.search(content):
                self.problem = f"the text of {key[:80]!r} has an end, but no beginning"
            elif raw is None and written == json_of(content) and _CODE.match(content):
                self.problem = f"the value of {key[:80]!r} is code: write a text in quotes"
        are_tags = all(pattern.startswith("<") for pattern in ends.patterns)
        # models also write the tag at the end twice
        for _ in range(2 if are_tags and not set(ends.patterns) & set(place.follow) else 1):
            yield from self._cursor.skip_space()
            yield from self._cursor.match(ends)

    def _inner(self, raw: ValueForm, key: str) -> tuple[Delimiters, Delimiters]:
        """Return what begins and what ends a part of a raw text that may contain the end of a text."""
        before_key = lenient(self._arguments.before_key.strip())
        if not before_key or not joined(raw.after, key=""):
            return self._heads, self._call_end
        closes = _literals(frozenset([raw.after]), key)
        if not key:  # an item
            return Delimiters([joined(raw.before)]), closes
        is_fixed = all(isinstance(part, str) for part in raw.after)
        name = r"(?!/)[^<>\n\"']{1,200}?" if is_fixed else regex.escape(key)
        forms = (form for kind in _TYPES for form in self._arguments.forms.of(kind))
        opens = [before_key + name + joined(form.before, key=key) for form in forms]
        tag = _END_TAG.fullmatch("".join(part for part in raw.after if isinstance(part, str)).strip())
        opens += [rf"<{regex.escape(tag[1])}(?:[=:\s][^<>\n]{{0,200}})?+(?<!/)>"] if tag else []
        return Delimiters(opens), closes

    def _early_ends(self, raw: ValueForm, key: str) -> tuple[tuple[str, ...], ...]:
        """Return patterns of the ends that count inside elements of a text.

        These are ends before the end of the call, before another parameter of the tool, before any parameter.
        """
        before_key, call_end = lenient(self._arguments.before_key.strip()), self._call_end.patterns
        if not (key and before_key and call_end and joined(raw.after, key="") and self._declared is not None):
            return (), (), ()
        names = "|".join(map(regex.escape, sorted(self._declared - {key})))
        follow = (
            call_end,
            (rf"{before_key}(?:{names})(?![\w.-])",) if names else (),
            (f"{before_key}(?!/)",),
        )
        ends = [
            _value_end(frozenset([raw.after]), after, key) if after else Delimiters([]) for after in follow
        ]
        return tuple(tuple(text for text in end.patterns if "?P<twice>" not in text) for end in ends)

    def _text(self, end: Delimiters, raw: ValueForm, key: str, take: Take) -> Steps[None]:
        """Read a text up to its end. Elements and whole calls inside it are part of it, as an example.

        If one of these has no end, the text ends where it does without them: what follows that place is
        `held` until this is known.
        """
        opens, closes = self._inner(raw, key)
        stray: list[str] = []
        if not all(isinstance(part, str) for part in raw.after):  # what is around every tag is not in a text
            exact = "".join(part if isinstance(part, str) else key for part in raw.after)
            stray = [regex.escape(exact), lenient(self._arguments.before_key.strip())]
        last, another, other = self._early_ends(raw, key)
        heads, call_end = (self._heads, self._call_end) if last else (Delimiters([]), Delimiters([]))
        inner = [*opens.patterns, *heads.patterns]
        inside = Delimiters([*inner, *closes.patterns, *call_end.patterns, *last, *another, *other])
        outside = Delimiters([*end.patterns, *stray, *inner], end.final.patterns)
        closing = Delimiters(SPACE + end_pattern for end_pattern in closes.patterns)
        depth = calls = 0
        doubt = in_call = False
        held: list[str] | None = None
        problem = ""
        cursor = self._cursor

        def give(piece: str) -> None:
            (take if held is None else held.append)(piece)

        while (match := (yield from cursor.until(inside if depth or calls else outside, give))) is not None:
            pattern = match.re.pattern
            if depth or calls:
                ends = pattern in last and not calls
                if held is None:
                    doubt = doubt or pattern in other
                    if pattern in (*last, *another) and (ends or self._rewinds):
                        held, in_call, problem = [], calls > 0, self.problem
                if ends:
                    break
            if (head := (yield from cursor.match(heads))) is not None:
                calls += 1
            elif (head := (yield from cursor.match(opens))) is not None:
                depth += 1
            elif depth or calls:
                if (head := (yield from cursor.match(call_end))) is not None:
                    calls = max(calls - 1, 0)
                else:
                    head = yield from cursor.match(closing)
                    depth = max(depth - 1, 0)
            elif pattern in stray:
                cursor.position = match.end()
                self.problem = f"what ends the text of {key[:80]!r} is inside it"
            else:
                if match.groupdict().get("twice"):
                    self.problem = f"what ends the text of {key[:80]!r} comes twice"
                take("".join(held or ()))
                return
            give((head or match).group())
        text = "".join(held or ())
        if held is None or (match is None and cursor.truncated):
            take(text)
            raise EndOfTextError
        if text and (match is None or not in_call):
            cursor.text, cursor.position = text + cursor.text[cursor.position :], 0
            self.problem = problem
            self._rewinds -= 1
        else:
            take(text)
        if doubt or in_call:
            self.problem = f"the text of {key[:80]!r} has more than one reading"

    def _nested_value(
        self, kinds: set[JsonType], after: Delimiters, place: _ValueContext, take: Take
    ) -> Steps[bool]:
        """Read an array or object if one begins here."""
        assert self._nested is not None
        array = _array_members(self._nested)
        nested = self._nested
        fields = _members(self._arguments, nested.object_begin, nested.object_separator, nested.object_end)
        for kind, members in (("array", array), ("object", fields)):
            if kind in kinds and (yield from self._begins(members)):
                yield from self._structure(members, after, place.location, take, place.depth + 1)
                return True
        return False

    def _begins(self, members: Members) -> Steps[bool]:
        """Read what begins an array or object, and return whether it does; without such, a member must."""
        if members.begin.patterns:
            return (yield from self._cursor.match(members.begin)) is not None
        return (yield from self._cursor.match(members.heads, read=False)) is not None


@schema_cache(maxsize=256)
def _groups(forms: ValueForms) -> dict[str, FormGroup]:
    """Return the forms by the pattern of what comes before their values, except for whitespace at its end."""
    groups: dict[str, FormGroup] = {}
    for kind in _TYPES:
        for form in getattr(forms, kind):
            pattern = joined(form.before, key="")
            last = form.before[-1] if form.before and isinstance(form.before[-1], str) else ""
            again = Delimiters([SPACE + pattern] if len(pattern) > 1 and form.before != form.after else [])
            group = groups.get(pattern, FormGroup(last[len(last.rstrip()) :], (), again))
            groups[pattern] = FormGroup(group.space, (*group.forms, (kind, form)), again)
    return groups


@schema_cache(maxsize=64)
def _array_members(nested: NestedElements) -> Members:
    groups, around = _groups(nested.items), (nested.array_begin, nested.array_separator, nested.array_end)
    return Members("[]", around, groups, *(() if any(map(str.strip, around[1:])) else groups))


@schema_cache(maxsize=64)
def _members(
    arguments: ElementArguments, begin: str, separator: str, end: str, ends: tuple[str, ...] = ()
) -> Members:
    """Return the delimiters of the arguments, or of an object inside them. `ends`: what else may follow."""
    groups = _groups(arguments.forms)
    no_end = "(?!/)" if arguments.before_key.endswith("<") else ""
    firsts = {before.replace("\\", "")[:1] for before in groups}
    in_class = "".join(f"\\{character}" if character in r"\]^-[&~|" else character for character in firsts)
    key = rf"{no_end}(?P<key>[^{in_class}]{{0,{_KEY_LENGTH}}})"
    before_key = lenient(arguments.before_key.strip())
    heads = {f"{before_key}{key}{before}": group for before, group in groups.items()}
    return Members("{}", (begin, separator, end), heads, before_key, *ends)


@schema_cache(maxsize=1024)
def _literals(alternatives: frozenset[tuple[Part, ...]], key: str) -> Delimiters:
    return Delimiters(sorted(joined(parts, key=key) for parts in alternatives))


@schema_cache(maxsize=1024)
def _value_end(afters: frozenset[tuple[Part, ...]], follow: tuple[str, ...], key: str) -> Delimiters:
    """Return the patterns of what ends a value, with the whitespace of `after` before it."""
    following = "|".join(follow)
    patterns, final = [], []
    for after in sorted(afters, key=str):
        literal = joined(after, key=key)
        first = after[0] if after and isinstance(after[0], str) else ""
        space = first[: len(first) - len(first.lstrip())]
        twice = f"{space}(?P<twice>{literal}){SPACE}"
        space = f"(?:{space})?" if space else ""  # this whitespace, or none
        if literal:
            follows = f"{SPACE}(?:{following})" if following else ""
            patterns.append(f"{space}{literal}{follows}")
            if follow and literal not in follow and literal.startswith("<"):
                patterns.append(f"{twice}{literal}{follows}")
            final.append(rf"{space}{literal}{SPACE}\Z")
        else:
            patterns.append(f"{SPACE}(?:{following})")
    return Delimiters(patterns, final)
