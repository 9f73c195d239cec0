"""A request that asks for a change, answered without any: the tool that would have made it, by its words."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

import pytest

from gbnf import Tool
from gbnf_bench.dsl import load_suites
from gbnf_bench.suite_files import bundled_suites
from gbnf_server.cli.run_progress import left_undone
from gbnf_server.planner import Run
from support.pools import BUNDLED

_WRITING = {tool.name for tool in BUNDLED if tool.run.effect == "write"}


def _answered(query: str) -> Run:
    return Run("answered", "Done.", None, query, "1", (), (), datetime.now(UTC), 1.0)


def _file_tool(name: str, description: str, effect: str = "read") -> Tool:
    args: Mapping[str, Any] = {"type": "object", "properties": {"path": {"type": "string"}}}
    return Tool.from_mapping({
        "name": name, "description": description, "args": args, "run": {"effect": effect}
    })  # fmt: skip


FILE_SERVER = (
    _file_tool("read_text_file", "Read the complete contents of a file from the file system as text."),
    _file_tool("read_multiple_files", "Read the contents of multiple files simultaneously."),
    _file_tool("write_file", "Create a new file or completely overwrite an existing file.", "write"),
    _file_tool("edit_file", "Make line-based edits to a text file.", "write"),
    _file_tool("create_directory", "Create a new directory or ensure a directory exists.", "write"),
    _file_tool("list_directory", "Get a detailed listing of all files and directories in a path."),
    _file_tool("move_file", "Move or rename files and directories.", "write"),
    _file_tool("get_file_info", "Retrieve detailed metadata about a file or directory."),
)
"""Tools as of an MCP server: without words for how they are asked for."""


@pytest.mark.parametrize(
    ("pool", "query", "undone"),
    [
        (FILE_SERVER, "write the text 'call mom' into the file mom.txt", "write_file"),
        (FILE_SERVER, "put the text 'call mom' into mom.txt", "write_file"),
        (FILE_SERVER, "put call mom into mom.txt", "write_file"),
        (FILE_SERVER, "save 'buy oats' to list.txt", "write_file"),
        (FILE_SERVER, "create a folder called trips", "create_directory"),
        (FILE_SERVER, "rename a.txt to b.txt", "move_file"),
        (FILE_SERVER, "read the file a.txt and tell me what it says", ""),
        (FILE_SERVER, "find all text files", ""),
        (FILE_SERVER, "explain how to move a.txt to b.txt", ""),
        (BUNDLED, "create a folder called trips", "create_dirs"),
        (BUNDLED, "remind me to call mom at noon", "create_events"),
        (BUNDLED, "undo the last change", "undo_last_turn"),
        (BUNDLED, "delete all log files", "delete_files"),
        (BUNDLED, "could you write a poem about the sea?", ""),  # into no file
        *((pool, query, "") for pool in (FILE_SERVER, BUNDLED) for query in (
            "which files are in the folder notes?", "what does a.txt say?", "how do I create a folder?",
            "tell me how to create a folder", "is there a file called a.txt?", "should I delete a.txt?",
            "did I write anything to a.txt?", "how can I edit 'a.txt'?", "show me a.txt",
        )),
    ],
)  # fmt: skip
def test_the_tool_that_a_request_asks_for(pool: tuple[Tool, ...], query: str, undone: str) -> None:
    assert left_undone(pool, _answered(query)) == undone


def test_most_requests_for_a_change_have_one_and_hardly_any_other() -> None:
    hints: dict[bool, list[bool]] = {True: [], False: []}
    for case in (case for suite in load_suites(bundled_suites(), BUNDLED) for case in suite.cases):
        if calls := {call.name for plan in case.plans for call in plan}:
            hints[calls.isdisjoint(_WRITING)].append(bool(left_undone(BUNDLED, _answered(case.query))))
    changing, reading = hints[False], hints[True]
    assert sum(changing) > 0.9 * len(changing) > 200
    assert sum(reading) < 0.03 * len(reading) > 2
