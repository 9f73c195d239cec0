"""What a request says of a tool's arguments: those that it mentions, its dates and times. Pure."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import date, datetime
from typing import Any

from gbnf.requests import wording
from gbnf.requests.coverage import argument_values
from gbnf.requests.evidence import gather_evidence
from gbnf.requests.ranking import common_words
from gbnf.requests.values import LONGEST_REQUEST, named_dates, names_in, times_in
from gbnf.tools import Tool
from gbnf.tools.tool import with_arguments


def narrowed(tool: Tool, request: str) -> Tool:
    """Return a tool with the arguments that a request mentions, and those that a call needs.

    Of arguments one of which is needed, the first, unless the request mentions others, or names a day whose
    date another one takes; no step references.
    """
    args = tool.args
    if not args.get("properties"):
        return tool
    alone = replace(tool, args={key: value for key, value in args.items() if key != "requires_one_of"})
    evidence = gather_evidence(request, [alone], "arguments")
    assert evidence is not None
    arguments = evidence.arguments[tool.name]
    names = {name for name, said_of_it in arguments.items() if said_of_it.is_supported}
    choices = json.dumps(args["properties"]).casefold()
    is_dated = any(word.casefold() not in choices for word in named_dates(request, _ANY_DAY))
    for group in args.get("requires_one_of", ()):
        if names.isdisjoint(group):
            dated = [name for name in group if is_dated and takes_times(args["properties"].get(name))]
            names.update([name for name in (*dated, *group) if name in arguments][:1])
    texts = [name for name in arguments if takes_any_text(args["properties"][name])]
    if names.isdisjoint(texts) and any(map(_PROPER_NAME.fullmatch, names_in(request))):
        names.update(texts)  # for what the request names: the time in Tokyo
    chosen = [name for name in arguments if name in names and name not in tool.step_references]
    if not set(args.get("required", ())) <= set(chosen):
        return tool
    most = times_in(request) or int(wording.FINDS_ONE.search(request) is not None)
    if not most or wording.RECURRING.search(request):
        return with_arguments(tool, chosen)
    properties = {
        name: {**schema, "maxItems": max(most, schema.get("minItems", 0))}
        if "maxItems" not in schema and schema.get("type") == "array" and takes_times(schema.get("items"))
        else schema
        for name, schema in args["properties"].items()
    }
    return with_arguments(replace(tool, args={**args, "properties": properties}), chosen)


_PROPER_NAME = re.compile(r"[A-Z][^\W\d_]+(?:[ -][A-Z][^\W\d_]+)*")
_ANY_DAY = date(2026, 1, 5)
_SHORTEST_DATE = len("2026-01-05")


def takes_any_text(schema: Any) -> bool:
    """Return whether a value may be any text."""
    is_text = isinstance(schema, Mapping) and schema.get("type") == "string" and "enum" not in schema
    return is_text and not takes_times(schema)


def takes_times(schema: Any) -> bool:
    """Return whether a text is a point in time, by its format or pattern."""
    if not isinstance(schema, Mapping):
        return False
    if schema.get("format") in {"date", "date-time"}:
        return True
    if "pattern" not in schema:
        return False
    from gbnf.schema.validators import violation  # noqa: PLC0415  # few tools have patterns

    samples = "2026-01-05T09:00", "report.txt"
    takes_times, takes_others = (not violation(schema, sample) for sample in samples)
    return takes_times and not takes_others


def dates_to_tell(
    tools: tuple[Tool, ...], request: str, today: date, preferred: tuple[Tool, ...] = ()
) -> dict[str, str]:
    """Return the days and times that a request has in words, if a tool for it takes them: half past nine.

    That is one of those that are `preferred` for the request, or have a word of it.
    """
    named = named_dates(request, today).items()
    dates = {word: str(day) for word, day in named if day != today and str(day) != word}
    if wording.SPOKEN_TIME.search(request):
        from gbnf_server.planner.spans.dates import spoken_times  # noqa: PLC0415  # few requests have them

        spans = spoken_times(request[:LONGEST_REQUEST])
        dates |= {request[span.start : span.end]: span.value for span in spans}
    for tool in tools if dates else ():
        schemas = tool.args.get("properties", {}).values()
        items = [schema.get("items", schema) for schema in schemas if isinstance(schema, Mapping)]
        if any(map(takes_times, items)) and (tool in preferred or common_words(request, tool)):
            return dates
    return {}


def invented_past(arguments: Mapping[str, Any], request: str, today: date) -> tuple[str, ...]:
    """Return the points in time before today in a call's texts whose day the request does not name."""
    days = set(named_dates(request, today).values())
    past = []
    for text in sorted(argument_values(arguments)):
        with suppress(ValueError):
            day = datetime.fromisoformat(text.split("/")[0].strip()).date()
            past += [text] if len(text) >= _SHORTEST_DATE and day < today and day not in days else []
    return tuple(past)
