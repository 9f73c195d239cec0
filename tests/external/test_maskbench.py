"""Real schemas: whatever the compiler makes of them, the engine lives with it and the report is true."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from corpus import DataMissingError, shared_path

_BENCH = Path(__file__).resolve().parents[2] / "bench" / "maskbench.py"


@pytest.fixture(scope="module")
def summary(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """Every 40th case, judged as the benchmark does: each in a process of its own."""
    try:
        shared_path("maskbench", "dev.jsonl.xz")
        shared_path("vocabs")
    except DataMissingError as error:
        pytest.skip(str(error))
    out = tmp_path_factory.mktemp("maskbench") / "outcomes.json"
    # a limit far above what any case takes, even beside other work: what it stops is a hang
    options = ["--every", "40", "--limit", "60", "--json", str(out)]
    subprocess.run([sys.executable, str(_BENCH), *options], check=True)
    found: dict[str, Any] = json.loads(out.read_text())["engines"]["gbnf"]
    return found


def test_no_case_harms_the_engine_and_no_report_is_false(summary: dict[str, Any]) -> None:
    harmful = ("engine refused", "crashed", "timed out")
    assert [found for found in summary["results"] if found["outcome"] in harmful] == []
    assert summary["exact_but_accepts_invalid"] == []
    assert summary["accepts_invalid_unexplained"] == []
    assert summary["cases"] > 100
    assert summary["classes"]["pass"] > 0.9 * summary["cases"]
