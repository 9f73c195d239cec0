"""Calls with a name before their arguments, as chat templates write them: `<function=name>…`, `name[ARGS]…`.

Arguments are one JSON object, or elements: `<parameter=key>…</parameter>`, `<arg_key>key</arg_key>` with
`<arg_value>…</arg_value>`, and others. An element's text ends at the first end tag with what may follow it
there; a whole call inside the text, such as an example, belongs to it.
"""

from __future__ import annotations

import re
from dataclasses import replace
from typing import Any

from gbnf.calls.parsing.readers import (
    NAME,
    ParsedSpan,
    ReaderContext,
    call_span,
    json_of_raw,
    location_of,
    named_json,
    pattern,
    skip_space,
)
from gbnf.calls.parsing.results import CallSyntaxName, Repair
from gbnf.schema.locations import Location
from gbnf.strict_json import InvalidJsonError, parse_json

_MARK = r"\]<\]\w+\[>\["
NAMESPACE = r"(?:[a-z]+:|｜\w+｜)?"
"""What may stand before the name of a tag: `minimax:`, `｜DSML｜`."""
BEFORE_TAG = rf"(?:{_MARK})?"

FUNCTION = pattern(
    rf"(?:{BEFORE_TAG}<{NAMESPACE}(?:function|invoke)(?:\s+name)?[=: ]\s*+|<\|open\|>call tool=)[\"']?"
    r"(?P<name>[^<>\n\"'{]{1,200}?)(?:[\"']?(?<!\s)\s*+>|\"[^<>\n]*<\|sep\|>)\s*"
)
_HEAD = re.compile(
    r"(?:[\w-]+<[|｜]tool(?:▁sep|_call:name)[|｜]>)?(?:call:|functions\.)?"
    rf"(?P<name>{NAME}?)(?::\d+)?(?P<signs>\s*(?:(?:<(?:[|｜]|tool_sep)[^<>\n]{{0,60}}>|\[CALL_ID\]\s*\w+"
    rf"|\[ARGS\]|json\b|commentary\b)\s*)*?(?:```json\s*)?)(?=\{{|(?P<element><arg_key)|(?P<end></tool))"
)
_ELEMENT = (
    rf"(?:<{NAMESPACE}param(?:eter)?(?:(?P<lines>[=: ])(?!name=)\s*+|\s+name=)|<arg_key(?::\w+)?>\s*+"
    r"|<\|open\|>argument key=)"
    r"[\"']?(?P<key>[^<>\n\"']{1,200}?)[\"']?(?<!\s)(?:\s++\w+=\"\w*\")*+\s*+"
    r"(?:>|<\|sep\|>|</arg_key(?::\w+)?>\s*<arg_value(?::\w+)?>)"
)
_BEGIN = re.compile(r"\s*" + _ELEMENT)
_END = rf"(?:</{NAMESPACE}param(?:eter)?>|</arg_value(?::\w+)?>|<\|close\|>argument(?:<\|sep\|>)?)"
_NAMED_END = rf"(?:{BEFORE_TAG}</{NAMESPACE}(?:function|invoke)>|<\|close\|>call<\|sep\|>)"
_TAGGED_END = r"</tool_call(?::\w+)?>"
_FUNCTION_END = rf"(?:{_NAMED_END}|(?={_TAGGED_END}))"
_UNNAMED_FUNCTION = FUNCTION.pattern.replace("?P<name>", "")
_UNNAMED = _ELEMENT.replace("?P<lines>", "").replace("?P<key>", "")
_AFTER_END = rf"\s*(?:(?P<twice>{_END})|{_UNNAMED}|{_FUNCTION_END}|\Z)"
_IN_ELEMENT = pattern(
    rf"(?P<end>{_END}(?={_AFTER_END}))|(?P<function>{_FUNCTION_END})"
    rf"|(?P<call>(?:\n[ \t]*)?(?:{_UNNAMED_FUNCTION}|<tool_call>\s*[^\s<>]+\s*)(?={_UNNAMED}))"
    rf"|(?:(?P<line>^|\n)[ \t]*)?(?:{_ELEMENT}|<function[=: ][^<>\n]*>)"
)
_TAG = pattern(
    rf"(?P<begin>{_UNNAMED})|(?P<bare><{NAMESPACE}param(?:eter)?>)|(?P<end>{_END})"
    rf"|(?P<function>{_NAMED_END}(?:\s*{_TAGGED_END})?|{_TAGGED_END})|(?P<call>{_UNNAMED_FUNCTION}"
    r"|<tool_call(?::\w+)?>\s*[^\s<>]+\s*(?:<tool_sep[^<>]*>\s*)?(?=<arg_key))"
)
_TAG_END = re.compile(_END)
_FOLLOWS = re.compile(_AFTER_END)
_GOES_ON = re.compile(r"[ \t]+[^\s<]")
_AGAIN = re.compile(r"\s*\"(?:\s+\w+=\"\w*\")*\s*(?:>|<\|sep\|>)")
_KEY_AGAIN = re.compile(r".*</arg_key\b(?!.*<arg_key\b)", re.DOTALL)
_ODD_KEY = re.compile(r"[\s|(){}\[\]]")
_NESTED_ELEMENTS = 8
_ENDED = re.compile(rf"(?:\s*{_END})?\s*{_FUNCTION_END}")
_DANGLING = re.compile(rf"{_MARK}<(?!/?[^<>\n]{{1,200}}>)")
_CDATA = "<![CDATA["
_NESTED = re.compile(rf"\s*{_MARK}<(?P<key>[^<>/\n][^<>\n]{{0,200}})>")


def read_named(
    text: str, position: int, context: ReaderContext, syntax: CallSyntaxName = "function"
) -> ParsedSpan | None:
    """Parse the calls at `position`, one directly after the other; None if there is none.

    A name without any sign after it must be a tool's.
    """
    joined: ParsedSpan | None = None
    while joined is None or joined.closed:
        head = FUNCTION.match(text, position)
        if head is None and (head := _HEAD.match(text, position)) is not None:
            is_tool = context.names.find(head["name"]) is not None
            head = head if is_tool or head["element"] or (head["signs"].strip() and not head["end"]) else None
        span = None if head is None else read_function(text, head, context, syntax)
        if span is None or not span.written:
            return joined or span
        joined = span if joined is None else replace(span, written=joined.written + span.written)
        position = skip_space(text, span.end)
    return joined


def read_function(
    text: str, match: re.Match[str], context: ReaderContext, syntax: CallSyntaxName = "function"
) -> ParsedSpan:
    """Parse the arguments after a name: JSON, or an element for each."""
    start, name = match.end(), match["name"]
    if text[start : start + 1] == "{":
        span = named_json(text, start, name, syntax)
        closed = _ENDED.match(text, span.end)
        return span if closed is None else replace(span, end=closed.end())
    location = location_of(name, context)
    if _NESTED.match(text, start):
        end = _end_tag(r"invoke\b[^<>]*", text, start)
        if end is None:
            return call_span(len(text), name, {}, syntax, closed=False)
        try:
            arguments, error = _nested(text[start : end.start()], location), ""
        except InvalidJsonError as problem:
            arguments, error = None, str(problem)
        return call_span(end.end(), name, arguments, syntax, closed=True, error=error)
    return _elements(text, start, name, location, syntax)


def _elements(text: str, position: int, name: str, location: Location, syntax: CallSyntaxName) -> ParsedSpan:
    """Read parameters in tags up to the call's end; one with several readings makes the call an error."""
    arguments: dict[str, Any] = {}
    repairs: list[Repair] = []
    error = kind = ""
    while element := _BEGIN.match(text, position):
        key, kind = element["key"], _kind(element[0])
        value = _element_end(text, element.end(), location, kind)
        if value is None:
            break
        stop, position, ended, certain = value
        content = text[element.end() : stop]
        content = content.removeprefix("\n").removesuffix("\n") if element["lines"] else content
        is_cdata = content.startswith(_CDATA) and "<param " in element[0]  # MiniCPM5 writes texts so
        if is_cdata and content.find("]]>") == len(content) - 3:
            content, is_cdata = content[len(_CDATA) : -3], False
        argument = parse_json(json_of_raw(content, location.property(key).types))
        if key in arguments and arguments[key] != argument:
            error = f"the parameter {key[:80]!r} occurs twice, with two values"
        elif isinstance(argument, str) and (
            not certain or (_KEY_AGAIN if kind == "arg_" else _AGAIN).match(content) or is_cdata
        ):
            error = f"the text of the parameter {key[:80]!r} has more than one reading"
        elif key not in location.names and _ODD_KEY.search(key):
            error = f"the name {key[:80]!r} may be part of a value"
        arguments[key] = argument
        if not ended:
            repairs.append(Repair("wrapper", f"the parameter {key[:80]!r} has no end tag"))
    closed = _ENDED.match(text, position)
    if not arguments and closed is None:
        return ParsedSpan(len(text), closed=False)
    end = closed.end() if closed else len(text)
    tags = (tag for tag in _TAG.finditer(text, end) if tag["function"] is None and tag["bare"] is None)
    after = next((tag for tag in tags if tag["call"] or not kind or _kind(tag[0]) == kind), None)
    if after is not None and after["call"] is None:
        error = error or "a parameter's end comes after the end of the call"
    return call_span(end, name, arguments, syntax, repairs, closed=closed is not None, error=error)


def _kind(tag: str) -> str:
    """Return how a tag of an element is written: `arg_`, `|` or `param`."""
    name = tag.lstrip().lstrip("</")
    return next((kind for kind in ("arg_", "|") if name.startswith(kind)), "param")


def _element_end(text: str, start: int, location: Location, kind: str) -> tuple[int, int, bool, bool] | None:
    """Return the end of the value at `start`, where to continue, whether it has an end tag, and is certain.

    Elements of the same kind and calls inside the value belong to it if each has its end.
    """
    depth = calls = 0
    certain = True
    for tag in _TAG.finditer(text, start):
        if tag["call"]:
            calls += 1
        elif tag["function"] is not None:
            calls -= 1
        elif _kind(tag[0]) != kind:
            continue
        elif tag["begin"] or tag["bare"]:
            depth += 1
        elif depth:
            depth -= 1
        elif follows := _FOLLOWS.match(text, tag.end()):
            return tag.start(), tag.end(), True, certain and not follows["twice"]
        else:
            certain = certain and _GOES_ON.match(text, tag.end()) is not None
        if depth > _NESTED_ELEMENTS or calls < 0:
            break
    return _unbalanced_end(text, start, location)


def _unbalanced_end(text: str, start: int, location: Location) -> tuple[int, int, bool, bool] | None:
    """Return the end of the value at `start`, where to continue, whether it has an end tag, and is certain.

    Without one it ends at the next element or at the function's end; None if the text ends inside it. The
    tag of an undeclared parameter inside a line belongs to the value.
    """
    stop: int | None = None
    depth = 0  # of calls inside the value
    for tag in _IN_ELEMENT.finditer(text, start):
        if tag["call"]:
            stop = tag.start() if stop is None else stop
            depth += 1
        elif tag["function"] is not None:
            stop = tag.start() if stop is None else stop
            depth = max(depth - 1, 0)
        elif depth:
            continue
        elif tag["end"]:
            certain = tag["twice"] is None and _TAG_END.search(text, start, tag.start()) is None
            return tag.start(), tag.end(), True, certain
        elif tag["line"] is not None or (tag["key"] and tag["key"] in location.names):
            stop = tag.start() if stop is None else stop
            break
    return None if stop is None else (stop, stop, False, _TAG_END.search(text, start, stop) is None)


def _end_tag(name: str, text: str, start: int) -> re.Match[str] | None:
    """Return the end tag of the element whose content begins at `start`. `name`: the pattern of its name."""
    opened = 1
    for tag in re.compile(rf"{_MARK}<(/?){name}>").finditer(text, start):
        opened += -1 if tag[1] else 1
        if not opened:
            return tag
    return None


def _nested(text: str, location: Location, depth: int = 32) -> Any:
    """Return the value of elements that nest: an array if they are items, else an object; or of a text."""
    if location.types == {"string"}:
        if _DANGLING.search(text):
            raise InvalidJsonError(f"the text {text[:80]!r} has a part of a tag")
        return text
    members: list[tuple[str, str]] = []
    position = 0
    while depth and (begin := _NESTED.match(text, position)):
        tag = _end_tag(re.escape(begin["key"]), text, begin.end())
        if tag is None:
            raise InvalidJsonError(f"the element {begin['key'][:80]!r} has no end")
        members.append((begin["key"], text[begin.end() : tag.start()]))
        position = tag.end()
    if members and text[position:].strip():
        raise InvalidJsonError(f"the text {text[position:].strip()[:80]!r} is in no element")
    if not members:
        return parse_json(json_of_raw(text, location.types))
    if "array" in location.types and all(key == "item" for key, _ in members):
        return [_nested(value, location.item(index), depth - 1) for index, (_, value) in enumerate(members)]
    return {key: _nested(value, location.property(key), depth - 1) for key, value in members}
