"""The parser: from a model's text to the calls in its first syntax, or to a final answer.

The text is scanned from left to right: the syntax whose opener comes first is parsed, and the scan continues
after its end. So nothing inside a call, a JSON value, a code block or inline code is a call of its own.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Any

from gbnf.calls.parsing.lenient_json import extent, load
from gbnf.calls.parsing.line_syntaxes import enclosed
from gbnf.calls.parsing.readers import (
    LINE,
    REASONING_TAGS,
    ParsedSpan,
    Reader,
    ReaderContext,
    pattern,
    skip_space,
)
from gbnf.calls.parsing.results import (
    CallSyntaxName,
    FinalAnswer,
    InvalidToolCall,
    ParseResult,
    RawCall,
    Repair,
    ToolCall,
    ToolCalls,
)
from gbnf.calls.parsing.syntaxes import CALL_SYNTAXES
from gbnf.calls.parsing.tool_names import ToolNames
from gbnf.schema_caches import schema_cache
from gbnf.strict_json import InvalidJsonError
from gbnf.tools import Tool

CALL_LANGUAGES = frozenset(
    {"", "json", "jsonc", "json5", "javascript", "js", "python", "py", "yaml", "yml", "xml", "text", "txt"}
    | {"edn", "clojure", "clj"}
)
"""Languages of code blocks whose whole content may be a call."""
_DEPTH = 2  # of nested blocks
_MOST_OPEN = (1, 2, 8)  # by depth: unclosed openers after which calls are searched

REASONING_START = pattern(rf"<(?:{'|'.join(REASONING_TAGS)})>")
REASONING_END = pattern(rf"</(?:{'|'.join(REASONING_TAGS)})>")
FENCE = pattern(rf"{LINE}(?P<fence>`{{3,}})[ \t]*(?P<info>[^\s`]*)[^\n`]*$")
_INLINE = pattern(r"(?<!`)(?P<ticks>`{1,2})(?!`)")
_QUOTATION = pattern(r"^[ \t]*>[^\n]*$")


class Scanner:
    """Scans texts for calls of a pool's tools. It is the context of the readers."""

    def __init__(self, names: ToolNames, depth: int = _DEPTH) -> None:
        self.names, self._depth = names, depth

    def segments(self, text: str, position: int = 0, *, ends: bool = True) -> Iterator[ParsedSpan]:
        """Yield the parts of `text` from `position`, in order, without gaps.

        `ends` False: more text may follow, and what it could make a call is one last part, "open".
        """
        plain = position
        open_left = _MOST_OPEN[self._depth]
        while (opener := _OPENERS.search(text, position)) is not None:
            start = opener.start()
            span = self._read(text, start)
            if span is None:
                position = start + 1
                continue
            position = span.end
            if span.written or span.kind == "reasoning":
                yield from _text(plain, start)
                plain = position
                yield replace(span, start=start, kind="calls" if span.written else "reasoning")
            elif ends and not (span.closed or span.kind == "code"):  # the opener is part of prose
                open_left -= 1
                position = start + 1 if open_left >= 0 else len(text)
            elif not ends and position == len(text):  # more text may extend it
                yield from _text(plain, start)
                yield replace(span, start=start, kind="text" if span.kind == "code" else "open", closed=False)
                return
            else:
                yield from _text(plain, position)
                plain = position
        yield from _text(plain, len(text))

    def _read(self, text: str, position: int) -> ParsedSpan | None:
        for opener, read in _READERS.items():
            match = opener.match(text, position)
            if match is not None and (span := read(text, match, self)) is not None:
                return span
        return None

    def only_calls(self, text: str) -> tuple[RawCall, ...] | None:
        """Return the calls of a text that consists of calls only, None for any other."""
        if not self._depth or not text.strip():
            return None
        calls: list[RawCall] = []
        for segment in Scanner(self.names, self._depth - 1).segments(text):
            if segment.kind != "calls" and text[segment.start : segment.end].strip(" \t\r\n,;"):
                return None
            calls += segment.written
        return tuple(calls) or None


def _read_reasoning(text: str, match: re.Match[str], _context: ReaderContext) -> ParsedSpan:
    end = REASONING_END.search(text, match.start())
    return ParsedSpan(len(text) if end is None else end.end(), (), end is not None, "reasoning")


def _read_block(text: str, match: re.Match[str], context: ReaderContext) -> ParsedSpan:
    """Parse a code block: its content is a call if it is nothing else, and the language allows it."""
    body, end, closed = enclosed(text, match)
    calls = context.only_calls(body) if match["info"].lower() in CALL_LANGUAGES else None
    note = Repair("wrapper", f"took the call from a code block ({match['info'] or 'no language'})")
    written = tuple(call.noted(note) for call in calls or ())
    is_code = match["info"].lower() not in CALL_LANGUAGES and match.end() < len(text)
    return ParsedSpan(end, written, closed, "code" if is_code else "text")


def _read_inline(text: str, match: re.Match[str], context: ReaderContext) -> ParsedSpan | None:
    """Parse inline code: a call only if it is the whole text, otherwise an example."""
    end = text.find(match["ticks"], match.end())
    line_end = text.find("\n", match.end())
    if end < 0 or 0 <= line_end < end:
        return None
    after = end + len(match["ticks"])
    if skip_space(text, 0) < match.start() or skip_space(text, after) < len(text):
        return ParsedSpan(after)
    calls = context.only_calls(text[match.end() : end]) or ()
    note = Repair("wrapper", "took the call from inline code")
    return ParsedSpan(after, tuple(call.noted(note) for call in calls))


def _text(start: int, end: int) -> Iterator[ParsedSpan]:
    if start < end:
        yield ParsedSpan(end, start=start)


def joined(patterns: list[re.Pattern[str]]) -> re.Pattern[str]:
    """Return one pattern that matches where any of them does; their groups lose their names."""
    parts = []
    for opener in patterns:
        text = re.sub(r"\(\?P<\w+>", "(?:", opener.pattern)
        parts.append(f"(?i:{text})" if opener.flags & re.IGNORECASE else f"(?:{text})")
    return pattern("|".join(parts))


_READERS: dict[re.Pattern[str], Reader] = {
    REASONING_START: _read_reasoning,
    REASONING_END: _read_reasoning,
    **{syntax.opener: syntax.read for syntax in CALL_SYNTAXES},
    _INLINE: _read_inline,
    _QUOTATION: lambda _text, match, _context: ParsedSpan(match.end()),
    FENCE: _read_block,  # after the fences of calls
}
"""What reads the text from each opener on: the first that takes it counts."""
_OPENERS = joined(list(_READERS))


TEXT_LIMIT = 100_000
"""Characters of a text that is searched for calls; a longer one is an answer."""

_PRIORITY = {syntax.name: index for index, syntax in enumerate(CALL_SYNTAXES)}


def parse_tool_calls(text: str, tools: Iterable[Tool]) -> ParseResult:
    """Parse the tool calls in a model's text. Never raises, whatever the text.

    A text without a call is a `FinalAnswer`: the text unchanged, except for reasoning in tags. Otherwise the
    result has the calls in the first syntax that names a tool of the pool; calls of unknown tools are in
    `invalid`, with the nearest name. The arguments are not validated (see `gbnf.validate_call`), and a
    `truncated` call must not be executed.
    """
    names = _names(tuple(tools))
    if len(text) > TEXT_LIMIT:
        note = f"a text of {len(text)} characters is not searched for calls; the limit is {TEXT_LIMIT}"
        return FinalAnswer(text, repairs=(Repair("text", note),))
    try:
        segments = list(Scanner(names).segments(text))
    except RecursionError:
        return FinalAnswer(text, repairs=(Repair("text", "it is nested too deeply to be parsed"),))
    begin = 0  # text before it is reasoning that the chat template has opened
    for index, segment in enumerate(segments, 1):
        if segment.kind == "reasoning" and text.startswith("</", segment.start):
            begin = index
    spoken = segments[begin:]
    reasoning = _text_of(text, segments[:begin]) + _text_of(text, spoken, "reasoning")
    notes = [Repair("reasoning", f"ignored {len(reasoning)} characters of reasoning")] if reasoning else []
    prose = _text_of(text, spoken, "text")
    written = [call for segment in spoken for call in segment.written]
    resolvable = [call for call in written if names.find(call.name) is not None]
    chosen = min(resolvable or written, key=lambda call: _PRIORITY[call.syntax], default=None)
    first = next((segment for segment in segments if text[segment.start : segment.end].strip()), None)
    if first is not None and (begin or first.kind == "reasoning"):
        prose = prose.lstrip()
    if chosen is None:
        return FinalAnswer(prose, reasoning, tuple(notes))
    calls, invalid = resolve_calls(written, chosen.syntax, names, notes)
    if prose.strip():
        notes.append(Repair("prose", f"ignored {len(prose.strip())} characters around the call"))
    index = next(index for index, segment in enumerate(spoken) if chosen in segment.written)
    preface, after = (_text_of(text, part, "text").strip() for part in (spoken[:index], spoken[index:]))
    around = bool(preface and after), preface
    return ToolCalls(calls, chosen.syntax, invalid, prose.rstrip(), reasoning, tuple(notes), *around)


_names = schema_cache(maxsize=64)(ToolNames)


def _text_of(text: str, segments: Sequence[ParsedSpan], kind: str | None = None) -> str:
    """Return the text of the segments of a kind, None for all."""
    chosen = (segment for segment in segments if kind in (None, segment.kind))
    return "".join(text[segment.start : segment.end] for segment in chosen)


def resolve_calls(
    written: Iterable[RawCall], syntax: CallSyntaxName, names: ToolNames, notes: list[Repair]
) -> tuple[tuple[ToolCall, ...], tuple[InvalidToolCall, ...]]:
    """Return the calls in a syntax, and those of them that cannot be read; append the repairs to `notes`."""
    calls: list[ToolCall] = []
    invalid: list[InvalidToolCall] = []
    for raw in written:
        if raw.syntax != syntax:
            notes.append(
                Repair("ignored", f"ignored a call of {raw.name[:80]!r} in the syntax {raw.syntax!r}")
            )
            continue
        call = _resolve_call(raw, len(calls) + len(invalid) + 1, names, notes)
        if isinstance(call, ToolCall):
            calls.append(call)
        else:
            invalid.append(call)
    return tuple(calls), tuple(invalid)


def _resolve_call(
    written: RawCall, number: int, names: ToolNames, notes: list[Repair]
) -> ToolCall | InvalidToolCall:
    """Return a call with its tool's name and its arguments as an object."""
    tool = names.find(written.name)
    notes += written.repairs
    if tool is None:
        return InvalidToolCall(written.name, names.unknown(written.name), names.nearest(written.name))
    if written.error:
        return InvalidToolCall(written.name, f"the arguments of '{tool.name}' can't be read: {written.error}")
    if tool.name != written.name:
        notes.append(Repair("name", f"took {written.name[:80]!r} for {tool.name!r}"))
    try:
        arguments, truncated = _arguments(written, tool, notes)
    except InvalidJsonError as error:
        return InvalidToolCall(written.name, str(error))
    identifier = written.id or f"call_{number}"
    return ToolCall(identifier, tool.name, arguments, written.truncated or truncated, written.extra)


def _arguments(written: RawCall, tool: Tool, notes: list[Repair]) -> tuple[dict[str, Any], bool]:
    """Return the arguments as an object, and whether they are truncated. Raises InvalidJsonError."""
    arguments, truncated = written.arguments, False
    if isinstance(arguments, str) and arguments.lstrip()[:1] == "{":
        text = arguments.strip()
        span = extent(text, 0)
        arguments, repairs = load(text, truncated=not span.closed)
        truncated = not span.closed
        notes += repairs
        if truncated:
            notes.append(Repair("truncated", "the text of the arguments ends too early"))
        elif not written.text_arguments:
            notes.append(Repair("arguments", "parsed an object from its text"))
    if isinstance(arguments, dict):
        return arguments, truncated
    if arguments in (None, [], ""):
        notes.append(Repair("arguments", f"there are none for {tool.name!r}; took {{}}"))
        return {}, truncated
    properties = list(tool.model_args().get("properties", {}))
    if len(properties) == 1:
        notes.append(Repair("arguments", f"used the value for {properties[0]!r}"))
        return {properties[0]: arguments}, truncated
    raise InvalidJsonError(
        f"the arguments of '{tool.name}' must be an object, such as {{\"{properties[0]}\": …}}"
        if properties
        else f"'{tool.name}' takes no arguments; give {{}}"
    )
