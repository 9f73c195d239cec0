"""The ladder's program, on the embedded model and one rung; it goes on where it stopped."""

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


def test_it_prints_a_line_for_each_rung(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    suite, out = tmp_path / "short.toml", tmp_path / "runs.jsonl"
    suite.write_text(SUITE)
    for _ in range(2):
        strategies.main([str(suite)], None, None, ["grammar", "soft"], 64, out)
        said = capsys.readouterr().out
    assert "| rung | converged | valid | first tool | arguments | wrong but valid |" in said
    assert [line.split(" | ")[0] for line in said.splitlines()[5:7]] == ["| soft", "| grammar"]
    assert said.splitlines()[-1].startswith("best: ")
    assert "answered" not in said  # the second time nothing was left to do
