"""The bench of styles: what counts as right, and a cell on the embedded model."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from gbnf.tools import FINAL_ANSWER
from gbnf_server.backends.base import Completion, Usage
from gbnf_server.backends.in_process import InProcess
from gbnf_server.llama.demo_model import model_path
from styles import Cell, cases_of, compare, main, offered, table, verdict
from support.pools import BUNDLED as POOL
from support.server import Reply, scripted

pytestmark = pytest.mark.slow  # the suite is large
CASES = {case.id: case for case in cases_of("representative", POOL)}


@pytest.mark.parametrize(
    ("text", "failure"),
    [
        ('{"name": "create_dirs", "arguments": {"paths": ["tmp/x"]}}', ""),
        ('Sure: CREATE\nCALL create_dirs {"paths": "tmp/x"}', ""),
        ('{"name": "create_dirs", "arguments": {"paths": ["tmp/y"]}}', "wrong arguments"),
        ('{"name": "create_dirs", "arguments": {}}', "invalid"),
        ('{"name": "read_files", "arguments": {"paths": ["tmp/x"]}}', "wrong tool"),
        ('{"name": "make_folder", "arguments": {}}', "no tool"),
        ("I created it.", "no call"),
        ('{"name": "create_dirs", "arguments": {"paths": ["tm', "truncated"),
    ],
)
def test_what_counts(text: str, failure: str) -> None:
    completion = Completion(text, "stop", Usage(1, 1))
    assert verdict(completion, CASES["create-folder"], (*POOL, FINAL_ANSWER), "text") == failure


def test_a_grammar_leaves_nothing_to_repair() -> None:
    wrapped = Completion('{"name": "create_dirs", "arguments": {"paths": "tmp/x"}}', "stop", Usage(1, 1))
    assert verdict(wrapped, CASES["create-folder"], POOL, "grammar") == "invalid"


def test_the_tools_that_a_request_needs_are_always_offered() -> None:
    for case in CASES.values():
        names = [tool.name for tool in offered(case, POOL, 3)]
        assert len(names) == 3
        assert case.first <= set(names)


def test_a_cell_of_the_embedded_model() -> None:
    with InProcess(model_path()) as backend:
        cells = list(
            compare(backend, [CASES["time"]], POOL, trials=2, styles=["minimal", "verbose"], tools=2)
        )
    assert [(cell.style, cell.call_format, cell.trials) for cell in cells] == [
        ("minimal", "grammar", 2),
        ("minimal", "text", 2),
        ("verbose", "grammar", 2),
        ("verbose", "text", 2),
    ]
    assert cells[0].ok
    assert table(cells, "a bench").row_count == 4
    failed = Cell("minimal", "text")
    failed.failures.update({"truncated": 2, "invalid": 1})
    assert (failed.dominant, failed.trials) == ("truncated (2)", 3)


def test_a_server_without_grammars_is_asked_for_calls_in_text(tmp_path: Path) -> None:
    written = {"role": "assistant", "content": '{"name": "get_now", "arguments": {}}'}
    answers: dict[str, Any] = {"api/chat": [Reply(200, {"message": written, "done": True})] * len(CASES)}
    cells = tmp_path / "cells.json"
    with scripted(**answers) as script:
        url = script.url
        main(trials=1, style=["minimal"], model="m", server=url, backend="ollama", json_out=cells)
    [cell] = json.loads(cells.read_text())
    assert (cell["call_format"], cell["ok"], sum(cell["failures"].values())) == ("text", 3, len(CASES) - 3)
    assert cell["dominant"] == f"wrong tool ({len(CASES) - 3})"
