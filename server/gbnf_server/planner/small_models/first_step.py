"""What a small model may call first, before it answers, by the words of a request."""

from __future__ import annotations

import re
from typing import TypeAlias

from gbnf.requests.pool_filter import best_first
from gbnf.requests.ranking import file_readers, file_tools, has_content_of, names_file
from gbnf.requests.texts import appends, sources
from gbnf.requests.values import names_kind_of_file
from gbnf.tools import Tool
from gbnf_server.planner.run_state import RunState
from gbnf_server.planner.small_models.requested_tools import answers_alone, due_tools, takes_found

Choices: TypeAlias = tuple[tuple[Tool, ...], bool]
"""Tools that may be called, and whether the model may answer instead."""


def first_choices(ready: tuple[Tool, ...], state: RunState) -> Choices | None:
    """Return those of the tools `ready` that a small model may call first; None if no rule applies."""
    rules = _RULES if state.options.guidance.finds_first else (_calls_alone,)
    return next((choices for rule in rules if (choices := rule(ready, state))), None)


def _reads_what_it_copies(ready: tuple[Tool, ...], state: RunState) -> Choices | None:
    """Offer to read what is sent or copied: it would make it up, or lose what is in the file."""
    readers, reads = file_readers(ready), due_tools(ready, state, "read")
    appended = appends(state.query)
    is_copied = not set(readers).isdisjoint(reads) and bool(sources(state.query))
    if not (is_copied or (readers and appended) or (has_content_of(state.query) and due_tools(ready, state))):
        return None
    # a file that is added to is named, and need not be found
    reads = best_first(readers, "read a file")[:1] if appended else tuple(dict.fromkeys((*reads, *readers)))
    return reads or ready, not reads


def _calls_alone(ready: tuple[Tool, ...], state: RunState) -> Choices | None:
    """Offer the only call that answers the request, such as the time, which it would make up."""
    alone = answers_alone(ready, state)
    return (alone, False) if alone else None


def _finds_what_it_changes(ready: tuple[Tool, ...], state: RunState) -> Choices | None:
    """Offer to find files that are named by their kind and changed; it would make their names up."""
    readers, changing = file_readers(ready), takes_found(ready, state)
    if not readers or changing is None:
        return None
    state.lead.entries_for = changing.name
    return best_first(readers, "find files by pattern")[:1], False


def _finds_before_it_reads(ready: tuple[Tool, ...], state: RunState) -> Choices | None:
    """Offer no reader of files that are named by their kind; it would guess their names."""
    query, readers = state.query, file_readers(ready)
    is_kind = len(readers) > 1 and names_kind_of_file(query) and not _BARE_FILE.search(query)
    if not is_kind or due_tools(ready, state):
        return None
    reader, finder = (best_first(readers, use)[0] for use in ("read a file", "find files by pattern"))
    if reader is finder:
        return ready, True
    chosen = max(state.lead.preference, key=state.lead.preference.__getitem__, default="")
    return tuple(tool for tool in ready if tool is not reader), all(tool.name != chosen for tool in readers)


def _reads_a_named_file(ready: tuple[Tool, ...], state: RunState) -> Choices | None:
    """Offer what is for the named file, and no answer: it would tell what may be in it."""
    readers = file_readers(ready)
    if not readers or not names_file(state.query):
        return None
    ready = tuple(tool for tool in ready if tool in readers or tool.run.effect == "write")
    if state.lead.preference:  # of what changes something, what is for files, or asked for
        for_files = {*file_tools(ready), *due_tools(ready, state)}
        ready = tuple(tool for tool in ready if tool in for_files)
    return ready, False


_RULES = (
    _reads_what_it_copies,
    _calls_alone,
    _finds_what_it_changes,
    _finds_before_it_reads,
    _reads_a_named_file,
)
"""The first that applies decides."""

_BARE_FILE = re.compile(r"\b(?:(?!(?:JSON|HTML|YAML)\b)[A-Z]{4,}|(?:Make|Docker)file)\b")
"""A file without a suffix: README, Makefile."""
