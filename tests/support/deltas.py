"""The text and the calls that the deltas of an answer join to."""

from __future__ import annotations

from collections.abc import Sequence

from gbnf.tool_formats import ArgumentsDelta, CallStarted, TextDelta


def text(events: Sequence[object]) -> str:
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def calls(events: Sequence[object]) -> list[tuple[str, str]]:
    """The names and arguments of the calls, truncated ones too."""
    names = [event.name for event in events if isinstance(event, CallStarted)]
    pieces: list[list[str]] = [[] for _ in names]
    for event in events:
        if isinstance(event, ArgumentsDelta):
            pieces[event.index].append(event.json_text)
    return list(zip(names, map("".join, pieces), strict=True))
