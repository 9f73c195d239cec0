"""Reading of the calls of an answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

import regex

from gbnf.calls.parsing.results import RawCall, Repair, ToolCall
from gbnf.calls.parsing.tool_names import ToolNames
from gbnf.compiler.notations import ElementArguments
from gbnf.schema.locations import Location
from gbnf.strict_json import InvalidJsonError, json_of, parse_json
from gbnf.tool_formats import text_calls
from gbnf.tool_formats.cursor import AnswerCursor, Delimiters, Steps, Take
from gbnf.tool_formats.delimiters import format_delimiters
from gbnf.tool_formats.deltas import ArgumentsDelta, CallEnded, CallStarted, Delta, call_deltas
from gbnf.tool_formats.elements import ElementReader
from gbnf.tool_formats.format import FormatFields
from gbnf.tool_formats.value_reading import EndOfTextError, UnreadableError, read_json, read_string
from gbnf.tools import Tool

_SCALAR_END = Delimiters([r"[\s,}\]<\[|]"])


@dataclass(slots=True)
class WrittenCall:
    """A call as it was read.

    `ended`: it is complete. `problem`: why it cannot be read. `note`: what was overlooked.
    """

    id: str
    name: str
    ended: bool = False
    problem: str = ""
    note: str = ""

    def raw(self, arguments: str) -> RawCall:
        """Return the call with the text of its arguments, for `resolve_calls`."""
        notes = (Repair("wrapper", self.note),) if self.note else ()
        return RawCall(
            self.name,
            arguments,
            "native",
            notes,
            truncated=not self.ended,
            id=self.id,
            text_arguments=True,
            error=self.problem,
        )


class TextCallReader:
    """Reads calls as JSON with which a text begins, and emits their deltas.

    `calls`: those that have begun. Only those of offered tools, by their exact names: others are a text.
    """

    def __init__(self, cursor: AnswerCursor, tools: Iterable[Tool], emit: Callable[[Delta], None]) -> None:
        self.calls: list[WrittenCall] = []
        self._cursor = cursor
        self._emit = emit
        self._offered = frozenset(tool.name for tool in tools)

    def read_in_text(self) -> Steps[bool]:
        """Read the calls that begin here; return whether there are any."""
        cursor, is_call = self._cursor, False
        while (head := (yield from cursor.match(text_calls.HEAD, read=False))) is not None:
            try:
                name = parse_json(f'"{head["name"]}"')
            except InvalidJsonError:
                break
            if name not in self._offered:
                break
            is_call, cursor.position, index = True, head.end(), len(self.calls)
            call = WrittenCall(f"call_{index + 1}", name, note=text_calls.NOTE)
            self.calls.append(call)
            self._emit(CallStarted(index, call.id, name))
            try:
                yield from read_json(cursor, partial(self._take, index))
            except EndOfTextError:
                break
            call.ended = (yield from cursor.match(text_calls.CLOSING)) is not None
            if not call.ended:
                break
            self._emit(CallEnded(index))
            for closing in text_calls.FURTHER:
                yield from cursor.match(closing)
        return is_call

    def add(self, call: ToolCall) -> list[Delta]:
        """Add a call that is read already; return its deltas."""
        index = len(self.calls)
        self.calls.append(WrittenCall(call.id, call.name, not call.truncated, note=text_calls.NOTE))
        arguments = json_of(call.arguments)
        return call_deltas(index, call.id, call.name, arguments, ended=not call.truncated)

    def _take(self, index: int, piece: str) -> None:
        self._emit(ArgumentsDelta(index, piece))


class CallReader(TextCallReader):
    """Reads calls, and emits their deltas."""

    def __init__(
        self,
        cursor: AnswerCursor,
        format: FormatFields,  # noqa: A002  # the word of the formats
        tools: Iterable[Tool],
        emit: Callable[[Delta], None],
    ) -> None:
        tools = tuple(tools)
        super().__init__(cursor, tools, emit)
        self._names = ToolNames(tools)
        self._delimiters = delimiters = format_delimiters(format)
        ends = (delimiters.tail, delimiters.next_calls, delimiters.end, delimiters.soft)
        after = [pattern for end in ends for pattern in end.patterns]
        self._follows = Delimiters([*after, *([","] if delimiters.json else [])])
        arguments = format.arguments
        elements = isinstance(arguments, ElementArguments)
        self._elements = ElementReader(cursor, format, arguments) if elements else None  # type: ignore[arg-type]  # by `elements`

    def read(self) -> Steps[bool]:
        """Read the calls that begin here, and what ends them; return whether there are any."""
        head = yield from self._head()
        if head is None:
            return self._cursor.ended and self._begun()
        self._cursor.position = head.end()
        while head is not None:
            yield from self._call(head)
            yield from self._cursor.skip_space()
            head = yield from self._cursor.match(self._delimiters.next_calls)
        yield from self._cursor.match(self._delimiters.end)
        return True

    def begin(self) -> Steps[bool]:
        """Return whether calls begin here."""
        return (yield from self._head()) is not None

    def _head(self) -> Steps[regex.Match[str] | None]:
        """Return the head of the first call: of any, with what begins the calls; of a known tool, without."""
        head = yield from self._cursor.match(self._delimiters.calls, read=False)
        if head is None:
            head = yield from self._cursor.match(self._delimiters.bare_calls, read=False)
            if head is not None and self._names.find(head["name"]) is None:
                return None
        return head

    def _begun(self) -> bool:
        """Take a head that the end of the text interrupts after its name, and return whether there is one."""
        rest = self._cursor.text[self._cursor.position :]
        head = self._delimiters.calls.any.fullmatch(rest, partial=True)
        if head is None or not head.groupdict().get("name"):
            return False
        call, _ = self._start(head)
        self._emit(CallStarted(len(self.calls) - 1, call.id, call.name))
        self._cursor.position = len(self._cursor.text)
        return True

    def _call(self, head: regex.Match[str]) -> Steps[None]:
        """Read a call after its head. If its id comes last, its deltas do, too."""
        index = len(self.calls)
        call, schema = self._start(head)
        late: list[str] = []

        take = partial(self._take, index)
        if not self._delimiters.late_id:
            self._emit(CallStarted(index, call.id, call.name))
        try:
            yield from self._arguments(schema, late.append if self._delimiters.late_id else take)
            yield from self._tail(call)
        except EndOfTextError:
            pass
        except UnreadableError as error:
            call.problem = str(error)
        if self._delimiters.late_id:
            self._emit(CallStarted(index, call.id, call.name))
            take("".join(late))
        if call.ended:
            self._emit(CallEnded(index))

    def _start(self, head: regex.Match[str]) -> tuple[WrittenCall, object]:
        """Return a new call, and the schema of its arguments."""
        groups = head.groupdict()
        tool = self._names.find(groups["name"])
        name = groups["name"] if tool is None else tool.name
        call = WrittenCall(groups.get("id") or f"call_{len(self.calls) + 1}", name)
        self.calls.append(call)
        return call, {} if tool is None else tool.model_args()

    def _arguments(self, schema: object, take: Take) -> Steps[None]:
        if self._elements is not None:
            yield from self._elements.read(Location.of(schema), take)
            self.calls[-1].problem = self._elements.problem
            return
        yield from self._cursor.skip_space()
        sign = yield from self._cursor.peek()
        if sign == "{":
            yield from read_json(self._cursor, take)
        elif sign == '"':
            yield from self._quoted(take)
        else:
            yield from self._no_object(take)

    def _quoted(self, take: Take) -> Steps[None]:
        """Read the arguments as a JSON string that contains their text."""
        self._cursor.position += 1
        text = ['"']
        yield from read_string(self._cursor, text.append)
        try:
            take(parse_json("".join(text)) or "{}")
        except InvalidJsonError as error:
            raise UnreadableError(str(error)) from None

    def _no_object(self, take: Take) -> Steps[None]:
        """Read arguments that are missing, or null."""
        text: list[str] = []
        end = yield from self._cursor.until(_SCALAR_END, text.append)
        scalar = "".join(text)
        if end is None and (scalar or self._cursor.truncated):
            raise EndOfTextError
        yield from self._cursor.skip_space()
        following = yield from self._cursor.peek()
        if scalar not in ("", "null") or (
            following and (yield from self._cursor.match(self._follows, read=False)) is None
        ):
            raise UnreadableError(f"the arguments must be an object, not {scalar or following!r:.40}")
        take("{}")

    def _tail(self, call: WrittenCall) -> Steps[None]:
        """Read what follows the arguments.

        JSON says itself where it ends, so that a call without its end is complete unless the text is
        truncated; elements do not.
        """
        yield from self._cursor.skip_space()
        if (yield from self._tail_literal(call)):
            return
        following = yield from self._cursor.peek()
        if self._elements is not None:
            if following:
                raise UnreadableError("there is neither another parameter nor the end of the call")
            return
        if following == "," and self._delimiters.json:
            rest: list[str] = []
            yield from read_json(self._cursor, rest.append, "{")
            yield from self._cursor.skip_space()
            yield from self._tail_literal(call)
        call.ended = bool(following) or not self._cursor.truncated
        call.note = "the end of the call is missing"

    def _tail_literal(self, call: WrittenCall) -> Steps[bool]:
        if not self._delimiters.tail.patterns:
            call.ended = True
            return True
        tail = yield from self._cursor.match(self._delimiters.tail)
        if tail is not None:
            call.ended = True
            call.id = tail.groupdict().get("id") or call.id
        return call.ended
