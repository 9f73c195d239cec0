"""The program that compares strategies, on the bundled model; it resumes."""

from __future__ import annotations

from pathlib import Path

import pytest

import strategies

SUITE = """
name = "short"
[[cases]]
query = "what time is it?"
calls = [{ name = "get_now", optional_arguments = { timezone = {} } }]
"""


@pytest.mark.slow
def test_it_prints_a_row_for_each_strategy(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite, out = tmp_path / "short.toml", tmp_path / "runs.jsonl"
    suite.write_text(SUITE)
    for _ in range(2):
        strategies.main([str(suite)], None, None, ["grammar", "text"], 64, out)
        said = capsys.readouterr().out
    assert "| strategy | converged | valid | first tool | arguments | wrong but valid |" in said
    assert [line.split(" | ")[0] for line in said.splitlines()[5:7]] == ["| text", "| grammar"]
    assert said.splitlines()[-1].startswith("best: ")
    assert "answered" not in said  # the second time nothing was left to do
