"""What a request names by its kind is found before a small model changes it: delete the log files."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gbnf.requests.values import names_kind_of_file
from gbnf_server.planner.events import CallModel, ExecuteTool, StepStarted
from support.by_hand import Driven
from support.small_models import LARGE, SMALL, drive, written

FOUND = ["build/a.log", "build/deep/b.log"]
FIND = {"name": "find_files", "arguments": {"base_path": "build", "pattern": "*.log"}}
QUERY = "delete the log files in build"


def delete(*paths: str) -> dict[str, Any]:
    return {"name": "delete_files", "arguments": {"paths": list(paths)}}


def run(*texts: str | dict[str, Any], options: dict[str, Any] = SMALL, entries: Any = FOUND) -> Driven:
    replies = [{"entries": entries}, {"entries": entries}]
    said = [text if isinstance(text, str) else written(text) for text in (FIND, *texts, "Both are gone.")]
    return drive(QUERY, *said, options=options, replies=replies)


def accepts(driven: Driven, step: int, call: dict[str, Any]) -> bool:
    grammars = [each.request.grammar for each in driven.of(CallModel) if each.purpose == "call"]
    grammar: Any = grammars[step]
    return bool(grammar.match(f"<tool_call>\n{json.dumps(call)}\n</tool_call>").complete)


@given(st.text("abc/.*-_ ", min_size=1, max_size=12))
def test_only_what_was_found_is_changed(path: str) -> None:
    driven = run(delete(*FOUND))
    assert [each.tools for each in driven.of(StepStarted)][:2] == [("find_files",), ("delete_files",)]
    assert [each.tool.name for each in driven.of(ExecuteTool)] == ["find_files", "delete_files"]
    assert accepts(driven, 1, delete(*FOUND))
    assert accepts(driven, 1, delete(path)) == (path in FOUND)
    assert driven.run.outcome == "answered"


@pytest.mark.parametrize(("folder", "possible"), [("build", True), (".", True), ("workspace", False)])
def test_only_a_folder_that_the_request_names_is_searched(folder: str, possible: bool) -> None:
    call = {"name": "find_files", "arguments": {"base_path": folder, "pattern": "*.log"}}
    assert accepts(run(delete(*FOUND)), 0, call) == possible


def test_files_that_are_named_by_their_kind_are_found_before_they_are_read() -> None:
    find = {"name": "find_files", "arguments": {"base_path": "src", "pattern": "*.py"}}
    replies = [{"entries": ["src/a.py"]}, {"entries": ["x = 1"]}]
    texts = [written(find), written({"name": "read_files", "arguments": {"paths": ["src/a.py"]}}), "One."]
    driven = drive("give me an overview of the python files in src", *texts, options=SMALL, replies=replies)
    tools = driven.of(StepStarted)[0].tools
    assert "find_files" in tools
    assert "read_files" not in tools


@pytest.mark.parametrize(
    "query", ["leggi i file README e LICENSE", "read the Makefile and tell me what files it builds"]
)
def test_files_without_a_suffix_may_be_read_at_once(query: str) -> None:
    assert "read_files" in drive(query, "They are there.", options=SMALL).of(StepStarted)[0].tools


def test_files_that_are_named_by_their_kind_fill_no_times() -> None:
    event = {"title": "Back up", "starts": ["2026-11-22T09:00"]}
    query = "put an hour in my calendar tomorrow at 9 to back up every project file"
    driven = drive(query, written({"name": "create_events", "arguments": event}), "Done.", options=SMALL)
    assert [effect.tool.name for effect in driven.of(ExecuteTool)] == ["create_events"]


def test_nothing_is_changed_where_nothing_is_found() -> None:
    driven = run("There are none.", entries=[])
    assert [each.tool.name for each in driven.of(ExecuteTool)] == ["find_files"]
    assert "delete_files" not in driven.of(StepStarted)[1].tools


def test_a_large_model_decides_itself() -> None:
    assert "delete_files" in run(options=LARGE).of(StepStarted)[0].tools


@pytest.mark.parametrize(
    ("query", "is_kind"),
    [
        (QUERY, True),
        ("delete *.tmp", True),
        ("clean up exports: everything ending in .part has to go", True),
        ("throw away every pdf in scans", True),
        ("gather every text file under drafts", True),
        ("leggi ogni file di testo", True),
        ("read files README and LICENSE", False),
        ("elimina i file .tmp nella cartella cache", True),
        ("cancella tutti i file che finiscono in log", True),
        ("delete the files that end in .bak", True),
        ("delete build/a.log", False),
        ("move all my meetings to Friday", False),
        ("email all the guests", False),
        ("delete the file called notes", False),
        ("delete the files", False),
        ("delete the files a.txt and b.txt", False),
        ("delete the folder old-site", False),
        ("elimina la cartella vecchia", False),
    ],
)
def test_files_are_named_by_their_kind(query: str, is_kind: bool) -> None:
    assert names_kind_of_file(query) == is_kind
