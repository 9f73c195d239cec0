"""Text tool calls from a stream: prose is emitted at once, and text that may become a call is buffered.

    stream = CallStream(tools)
    for chunk in chunks:
        print(stream.feed(chunk), end="")
    result = stream.close()

Invariants, for any division into chunks: the result is that of the whole text; the emitted text is a prefix
of its `content`, so that the rest of a final answer is `content[len(stream.shown):]`; the work is linear in
the length of the text. So text with a final classification is dropped, except for what patterns look back at,
and the rest is scanned again only when it has grown by a fraction of its length.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import regex

from gbnf.calls.parsing.parser import (
    FENCE,
    REASONING_END,
    REASONING_START,
    TEXT_LIMIT,
    Scanner,
    joined,
    parse_tool_calls,
)
from gbnf.calls.parsing.readers import LINE
from gbnf.calls.parsing.results import ParseResult
from gbnf.calls.parsing.syntaxes import CALL_SYNTAXES
from gbnf.calls.parsing.tool_names import ToolNames
from gbnf.tools import Tool

_PATIENCE = 8  # the buffer grows by an eighth before it is scanned again
_LOOK_BACK = 16
"""Characters before a position that decide what starts there: the longest is the end tag of reasoning."""

_OPENERS = regex.compile(
    joined([REASONING_START, REASONING_END, FENCE, *(syntax.opener for syntax in CALL_SYNTAXES)]).pattern,
    regex.MULTILINE,
)
"""What more text may make a call or reasoning: openers, of which the end of a text may be the beginning."""
_CODE = re.compile(rf"{LINE}`{{1,3}}[^`\n]*`{{0,3}}\Z", re.MULTILINE)


class CallStream:
    """Parses a text chunk by chunk. `reasoning_opened`: the chat template ends with a reasoning start tag."""

    def __init__(self, tools: Iterable[Tool], *, reasoning_opened: bool = False) -> None:
        self._tools = tuple(tools)
        self._scanner = Scanner(ToolNames(self._tools))
        self._chunks: list[str] = []  # the whole text
        self._length = 0
        self._window = ""  # the end of the text that was scanned
        self._waiting: list[str] = []  # the chunks after it
        self._position = 0  # where the scan of the window continues: text before it is classified
        self._passed = 0  # how far the window, and the waiting chunks, are emitted or ignored
        self._reasoning_opened = reasoning_opened
        self._had_reasoning = False
        self._holding = False
        self._in_code = False  # all text is prose until backticks come
        self._blank: list[str] = []  # spaces before the first prose, ignored if reasoning follows
        self._due = 0  # the buffer is scanned again when the text has this length
        self._shown: list[str] = []

    @property
    def shown(self) -> str:
        """The text that `feed` has returned so far."""
        self._shown = ["".join(self._shown)]
        return self._shown[0]

    def feed(self, chunk: str) -> str:
        """Take the next characters, and return those that are prose whatever follows."""
        self._chunks.append(chunk)
        self._length += len(chunk)
        if self._holding or not chunk:
            return ""
        if self._length > TEXT_LIMIT:
            self._holding = True
            return ""
        self._waiting.append(chunk)
        self._in_code = self._in_code and "`" not in chunk
        if self._in_code:
            self._passed += len(chunk)
            return self._give(chunk)
        if self._length < self._due:
            return ""
        self._window += "".join(self._waiting)
        self._waiting.clear()
        if self._reasoning_opened:
            end = REASONING_END.search(self._window)
            if end is None:
                self._window = self._window[-_LOOK_BACK:]
                return ""
            self._reasoning_opened, self._had_reasoning = False, True
            self._position = self._passed = end.end()
        prose = ""
        for start, stop in self._stretches():
            if max(start, self._passed) < stop:
                prose += self._window[max(start, self._passed) : stop]
                self._passed = stop
        self._due = self._length + (len(self._window) - self._position) // _PATIENCE
        # drop classified text except for what patterns look back at, and one character for the rest
        count = self._position - _LOOK_BACK
        if count > 1:
            sign = "." if self._window[:count].strip() else " "
            self._window = sign + self._window[count:]
            self._position -= count - 1
            self._passed -= count - 1
        return self._give(prose)

    def close(self) -> ParseResult:
        """Return the result of `parse_tool_calls` for the whole text."""
        return parse_tool_calls("".join(self._chunks), self._tools)

    def _give(self, prose: str) -> str:
        if not any(self._shown):
            if not prose.strip():
                self._blank.append(prose)
                return ""
            prose = "".join([*self._blank, prose])
            prose = prose.lstrip() if self._had_reasoning else prose
        if prose:
            self._shown.append(prose)
        return prose

    def _stretches(self) -> Iterator[tuple[int, int]]:
        """Yield the spans of prose that are classified and not yet emitted; advances the scan."""
        text = self._window
        has_prose = False
        starts: list[int] = []  # of adjacent spans of prose: one may start what another ends
        segments = list(self._scanner.segments(text, self._position, ends=False))
        for index, segment in enumerate(segments):
            if segment.kind == "open" or (segment.kind == "calls" and segment.end == len(text)):
                break
            if segment.kind == "calls":
                self._holding = segment.closed
                break
            if segment.kind == "reasoning":
                if not segment.closed:
                    break
                # spaces around reasoning are dropped if there was no prose before
                self._had_reasoning = self._had_reasoning or not has_prose
                self._position = self._passed = segment.end
                continue
            starts.append(segment.start)
            end = segment.end
            after = segments[index + 1] if end < len(text) else None
            if segment.closed and after is not None and after.kind == "text" and after.closed:
                continue
            # the text that follows may end what starts here, as a backtick ends inline code
            unsettled = after is None or after.kind == "open"
            if segment.closed and unsettled:
                end = self._begun(starts[0], end)
            has_prose = has_prose or bool(text[starts[0] : end].strip())
            yield starts[0], end
            self._in_code = not segment.closed and "`" not in text[text.rfind("\n", segment.start) + 1 :]
            if segment.closed:
                self._position = self._settled(starts, end) if unsettled else segment.end
            starts.clear()

    def _settled(self, starts: list[int], end: int) -> int:
        """Return where the scan continues after prose: its end, or a line whose start determines its kind.

        If that line starts inside a value, it is the start of the value's span.
        """
        line = max(self._window.rfind("\n", starts[0], end) + 1, starts[0])
        shown = self._window[line:end]
        position = line if "`" in shown or shown.lstrip(" \t").startswith(">") else end
        return position if position >= starts[-1] else max(start for start in starts if start <= position)

    def _begun(self, start: int, end: int) -> int:
        """Return where something that may become a call starts at the end of prose; otherwise `end`."""
        position = start
        while (opener := _OPENERS.search(self._window, position, end, partial=True)) and not opener.partial:
            position = opener.start() + 1
        code = _CODE.search(self._window, start, end)
        return min([end, *(match.start() for match in (opener, code) if match is not None)])
