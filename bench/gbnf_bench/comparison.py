"""Compare two stored benches, of suites or of the leaderboard."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from gbnf_bench.bfcl import results as leaderboard
from gbnf_bench.errors import ResultsFileError
from gbnf_bench.results import Results
from gbnf_bench.tables import TextTable, compare_tables, different_cases


def compare_files(first: Path, second: Path) -> tuple[TextTable, ...]:
    """Return the differences, a table for each configuration that both have. Raises ResultsFileError."""
    kinds = [_is_leaderboard(path) for path in (first, second)]
    if all(kinds):
        grades = [leaderboard.Grades.load(path) for path in (first, second)]
        return leaderboard.compare(*grades)
    if any(kinds):
        graded, other = (first, second) if kinds[0] else (second, first)
        raise ResultsFileError(
            f"{graded} contains results of the leaderboard and {other} does not: give two of one kind"
        )
    benches = Results.load(first), Results.load(second)
    tables = compare_tables(*benches)
    if not tables and (differing := different_cases(*benches)):
        raise ResultsFileError(
            f"{first} and {second} have cases of the same id ({len(differing)}), and each differs: "
            "run one suite for both"
        )
    return tables


def _is_leaderboard(path: Path) -> bool:
    try:
        value: Any = json.loads(path.read_text("utf-8"))
    except (OSError, ValueError):
        return False  # reading it as a bench of suites raises the error
    return isinstance(value, dict) and value.get("format") == leaderboard.FORMAT
