"""Results of the leaderboard: write and read them as JSON, tabulate and compare them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from gbnf_server.evaluation.bfcl.runner import GradedAnswer, Question
from gbnf_server.evaluation.metrics import BY_KEY, format_value
from gbnf_server.evaluation.result_files import load_stored, replace_file
from gbnf_server.evaluation.statistics import share, share_difference
from gbnf_server.evaluation.tables import TextTable, distinct_labels, gain, verdict

FORMAT = "bfcl 1"
_SHARE = BY_KEY["converged"]
"""Correct answers are formatted like this metric: a share, more is better."""


@dataclass(frozen=True, slots=True)
class Grades:
    """Whether each answer is correct, by configuration, category and entry, for one label."""

    label: str
    correct: Mapping[str, Mapping[tuple[str, str], bool]]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Raise KeyError, TypeError or ValueError if the value was not written by `write`."""
        if value["format"] != FORMAT:
            raise ValueError(f"its format is {value['format']!r}, and this version reads {FORMAT!r}")
        correct: dict[str, dict[tuple[str, str], bool]] = {}
        for each in value["answers"]:
            key = (str(each["category"]), str(each["id"]))
            correct.setdefault(each["configuration"], {})[key] = bool(each["right"])
        return cls(str(value["label"]), correct)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file written by `write`. Raises ResultsFileError."""
        return load_stored(path, cls.from_json, "gbnf bench --bfcl")


def write(about: Mapping[str, Any], answers: Mapping[Question, GradedAnswer], path: Path) -> None:
    """Write all answers as JSON. Raises OSError."""
    value = {
        "format": FORMAT,
        **about,
        "answers": [
            {
                "id": each.entry.id,
                "category": each.entry.category,
                "configuration": each.configuration.name,
                "right": answer.fault is None,
                "fault": answer.fault,
                "calls": [{"name": name, "arguments": arguments} for name, arguments in answer.calls],
            }
            for each, answer in answers.items()
        ],
    }
    replace_file(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def table(answers: Mapping[Question, GradedAnswer]) -> TextTable:
    """Return the correct answers: a row for each category, a column for each configuration."""
    names = list(dict.fromkeys(each.configuration.name for each in answers))
    rows = []
    for category in [*dict.fromkeys(each.entry.category for each in answers), None]:
        cells = []
        count = 0
        for name in names:
            hits = [
                answer.fault is None
                for each, answer in answers.items()
                if each.configuration.name == name and category in {None, each.entry.category}
            ]
            found = share(hits)
            interval = "" if found.low is None else f" [{found.low:.0%}–{found.high:.0%}]"
            cells.append(f"{found.value:.1%}{interval}" if found.value is not None else "–")
            count = len(hits)
        rows.append((f"{category or 'all'} ({count})", *cells))
    return TextTable("right by the AST rules", ("category", *names), tuple(rows))


def compare(first: Grades, second: Grades) -> tuple[TextTable, ...]:
    """Return the differences by category, over the configurations and questions that both have."""
    tables = []
    for name, one in first.correct.items():
        other = second.correct.get(name, {})
        common = [key for key in one if key in other]
        rows = []
        for category in [*dict.fromkeys(category for category, _ in common), None]:
            keys = [key for key in common if category in {None, key[0]}]
            before, after = [one[key] for key in keys], [other[key] for key in keys]
            change = share_difference(before, after)
            rows.append(
                (
                    f"{category or 'all'} ({len(keys)})",
                    *(format_value(_SHARE, share(hits).value) for hits in (before, after)),
                    gain(_SHARE, change),
                    verdict(_SHARE, change),
                )
            )
        if common:
            heads = (name, *distinct_labels(first.label, second.label), "difference [95 %]", "")
            tables.append(TextTable(f"{name}, {len(common)} questions that both have", heads, tuple(rows)))
    return tuple(tables)
