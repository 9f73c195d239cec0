"""Soft calls while they are written: prose is passed on at once, what might become a call is held back.

    stream = CallStream(executors)
    for chunk in chunks:
        print(stream.feed(chunk), end="")
    step = stream.close()

Invariants, however the text is cut into chunks: the step is that of the whole text; what was shown is a
beginning of its `content`, so that a final answer's rest is `content[len(stream.shown):]`; the work is linear
in the text's length. So settled text is dropped but for what patterns look back at, and text that is not
settled is scanned again only when it has grown by a part of itself.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

from gbnf.calls.parsing.parser import TEXT_LIMIT, parse_tool_calls
from gbnf.calls.parsing.readers import LINE
from gbnf.calls.parsing.results import ParseResult
from gbnf.calls.parsing.scanner import REASONING_END, Scanner
from gbnf.calls.parsing.tool_names import ToolNames
from gbnf.tools import Tool

_PATIENCE = 8  # what is held back grows by an eighth before it is looked at again
_LOOK_BACK = 16
"""Characters before a place that decide what begins there: the longest is the end tag of thoughts."""

_NAME_KEYS = r"tool|tool_name|function|name|action"
_BEGUN = re.compile(
    "|".join(
        [
            r"<[^<>\n]{0,240}\Z",  # a tag
            r"\[[ \t]*[\w.:/-]*\Z",  # [TOOL_CALLS], or a list
            rf"{LINE}`{{1,3}}[^`\n]*`{{0,3}}\Z",  # a fence, or inline code
            rf"{LINE}(?:print\(|(?:return|await)[ ]|\w++[ \t]*+(?:=[ \t]*+)?)[ \t]*+[\w.:/-]*\Z",
            rf"{LINE}(?:CALL|Call|call|TOOL_CALL)\b[^\n{{(]*\Z",
            rf"(?i:{LINE}[\"'*]*(?:{_NAME_KEYS})[\"'*]*[ \t]*:[^\n]*(?:\r?\n[ \t\r]*\n?[^\n:]{{0,24}})?\Z)",
            rf"{LINE}[\[\"'*]*\Z",
        ]
    ),
    re.MULTILINE,
)
_WORD = re.compile(rf"{LINE}[\[\"'*]*(?P<word>[A-Za-z_][\w.:/-]*)\Z", re.MULTILINE)
_KEYWORDS = ("call", "tool_call", "tool_name", "function", "name", "action", "print", "return", "await")


class CallStream:
    """Reads a text chunk by chunk. `thinking`: the chat template has opened the thoughts already."""

    def __init__(self, tools: Iterable[Tool], *, reasoning_opened: bool = False) -> None:
        self._tools = tuple(tools)
        self._names = ToolNames(self._tools)
        self._scanner = Scanner(self._names)
        self._chunks: list[str] = []  # the whole text
        self._length = 0
        self._window = ""  # the end of the text that was looked at
        self._waiting: list[str] = []  # the chunks behind it
        self._at = 0  # where the scan of the window goes on: what stands before is settled
        self._passed = 0  # how far the window, and what waits, has been given or left out
        self._reasoning_opened = reasoning_opened
        self._had_reasoning = False
        self._holding = False
        self._in_code = False  # all is prose until backticks come
        self._blank: list[str] = []  # spaces before the first prose: thoughts may follow, and then they go
        self._due = 0  # what is held back is looked at again when the text is so long
        self._shown: list[str] = []

    @property
    def shown(self) -> str:
        """All that `feed` has given."""
        self._shown = ["".join(self._shown)]
        return self._shown[0]

    def feed(self, chunk: str) -> str:
        """Take the next characters; give those that are prose whatever comes."""
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
            self._at = self._passed = end.end()
        given = "".join([self._free(stretch) for stretch in self._stretches()])
        self._due = self._length + (len(self._window) - self._at) // _PATIENCE
        self._drop_settled()
        return self._give(given)

    def close(self) -> ParseResult:
        """The step that the whole text amounts to, as `parse_tool_calls` reads it."""
        return parse_tool_calls("".join(self._chunks), self._tools)

    def _give(self, prose: str) -> str:
        if not self._shown:
            if not prose.strip():
                self._blank.append(prose)
                return ""
            prose = "".join([*self._blank, prose])
            prose = prose.lstrip() if self._had_reasoning else prose
        if prose:
            self._shown.append(prose)
        return prose

    def _drop_settled(self) -> None:
        """Keep of the settled text what is looked back at, and a sign that there was more than spaces."""
        count = self._at - _LOOK_BACK
        if count > 1:
            sign = "." if self._window[:count].strip() else " "
            self._window = sign + self._window[count:]
            self._at -= count - 1
            self._passed -= count - 1

    def _stretches(self) -> Iterator[tuple[int, int]]:
        """The stretches of prose that are settled, and not yet given; moves the scan on."""
        text = self._window
        said = False
        starts: list[int] = []  # of adjacent stretches of prose: one may begin what another ends
        segments = list(self._scanner.segments(text, self._at, ends=False))
        for place, segment in enumerate(segments):
            if segment.kind == "open" or (segment.kind == "calls" and segment.end == len(text)):
                break
            if segment.kind == "calls":
                self._holding = segment.closed
                break
            if segment.kind == "thoughts":
                if not segment.closed:
                    break
                # spaces around thoughts go where no prose has come before
                self._had_reasoning = self._had_reasoning or not said
                self._at = self._passed = segment.end
                continue
            starts.append(segment.start)
            end = segment.end
            after = segments[place + 1] if end < len(text) else None
            if segment.closed and after is not None and after.kind == "text" and after.closed:
                continue
            # what follows may end what begins here, as a backtick ends inline code
            unsettled = after is None or after.kind == "open"
            if segment.closed and unsettled:
                end = self._begun(starts[0], end)
            said = said or bool(text[starts[0] : end].strip())
            yield starts[0], end
            self._in_code = not segment.closed and "`" not in text[text.rfind("\n", segment.start) + 1 :]
            if segment.closed:
                self._at = self._settled(starts, end) if unsettled else segment.end
            starts.clear()

    def _settled(self, starts: list[int], end: int) -> int:
        """Where the scan goes on behind prose: after it, or at a line whose beginning says what it is.

        A line that begins inside a value is no such place: then it is where that stretch starts.
        """
        line = max(self._window.rfind("\n", starts[0], end) + 1, starts[0])
        shown = self._window[line:end]
        at = line if "`" in shown or shown.lstrip(" \t").startswith(">") else end
        return at if at >= starts[-1] else max(start for start in starts if start <= at)

    def _begun(self, start: int, end: int) -> int:
        """Where at the end of prose something begins that might become a call; `end` where nothing does."""
        text = self._window
        begun = _BEGUN.search(text, start, end)
        if begun is not None:
            end = begun.start()
        word = _WORD.search(text, start, len(text))
        if word is not None and word.start() < end:
            written = word["word"].casefold()
            if self._names.may_become(written) or any(keyword.startswith(written) for keyword in _KEYWORDS):
                end = word.start()
        return end

    def _free(self, stretch: tuple[int, int]) -> str:
        start, end = max(stretch[0], self._passed), stretch[1]
        if start >= end:
            return ""
        self._passed = end
        return self._window[start:end]


__all__ = ["CallStream"]
