"""Results of the leaderboard: write and read them as JSON, tabulate and compare them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any, Self

from gbnf_bench.bfcl.ast_checker import has_right_names
from gbnf_bench.bfcl.files import CATEGORIES
from gbnf_bench.bfcl.runner import GradedAnswer, Question
from gbnf_bench.metrics import BY_KEY, format_value
from gbnf_bench.result_files import load_stored, replace_file
from gbnf_bench.statistics import Estimate, share, share_difference
from gbnf_bench.tables import TextTable, distinct_labels, gain, verdict

FORMAT = "bfcl 1"
_HEADS = (
    "category",
    "configuration",
    "calls",
    "valid",
    "right names",
    "right [95 %]",
    "truncated",
    "tokens",
    "s",
)
_SHARE = BY_KEY["converged"]
"""Correct answers are formatted like this metric: a share, more is better."""


@dataclass(frozen=True, slots=True)
class Grades:
    """Whether each answer is correct, by configuration, category and entry, for one label."""

    label: str
    correct: Mapping[str, Mapping[tuple[str, str], bool]]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Self:
        """Raise KeyError, TypeError or ValueError if the value was not written by `write_answers`."""
        if value["format"] != FORMAT:
            raise ValueError(f"its format is {value['format']!r}, and this version reads {FORMAT!r}")
        correct: dict[str, dict[tuple[str, str], bool]] = {}
        for answer in value["answers"]:
            key = (str(answer["category"]), str(answer["id"]))
            correct.setdefault(answer["configuration"], {})[key] = bool(answer["right"])
        return cls(str(value["label"]), correct)

    @classmethod
    def load(cls, path: Path) -> Self:
        """Read a file written by `write_answers`. Raises ResultsFileError."""
        return load_stored(path, cls.from_json, "gbnf bench --bfcl")


def write_answers(about: Mapping[str, Any], answers: Mapping[Question, GradedAnswer], path: Path) -> None:
    """Write all answers as JSON. Raises SetupError."""
    value = {
        "format": FORMAT,
        **about,
        "answers": [
            {
                "id": job.entry.id,
                "category": job.entry.category,
                "configuration": job.configuration.name,
                "right": answer.fault is None,
                "fault": answer.fault,
                "valid": answer.valid,
                "truncated": answer.truncated,
                "tokens": answer.tokens,
                "seconds": answer.seconds,
                "calls": [{"name": name, "arguments": arguments} for name, arguments in answer.calls],
            }
            for job, answer in answers.items()
        ],
    }
    replace_file(path, json.dumps(value, ensure_ascii=False, indent=1) + "\n")


def table(answers: Mapping[Question, GradedAnswer]) -> TextTable:
    """Return a row for each category and configuration. Counts are of questions, tokens and s are means."""
    rows = []
    for (category, name), group in _groups(answers).items():
        graded = [answer for _, answer in group]
        right = share([grade.fault is None for grade in graded])
        named = [
            has_right_names(question.entry, answer.calls)
            for question, answer in group
            if len(question.entry.functions) > 1
        ]
        rows.append(
            (
                f"{category} ({len(group)})",
                _label(name),
                str(sum(bool(grade.calls) for grade in graded)),
                str(sum(grade.valid for grade in graded)),
                str(sum(named)) if named and group[0][0].entry.expected else "–",
                f"{sum(grade.fault is None for grade in graded)} = {_with_interval(right)}",
                str(sum(grade.truncated for grade in graded)),
                f"{fmean(grade.tokens for grade in graded):.0f}",
                f"{fmean(grade.seconds for grade in graded):.1f}",
            )
        )
    return TextTable("the calls of each configuration", _HEADS, tuple(rows))


def gain_table(answers: Mapping[Question, GradedAnswer]) -> TextTable:
    """Return the differences in right answers from the first configuration, paired by question."""
    first, *others = dict.fromkeys(job.configuration.name for job in answers)
    hits = {key: [grade.fault is None for _, grade in group] for key, group in _groups(answers).items()}
    rows = [
        (
            f"{category} ({len(before)})",
            *(gain(_SHARE, share_difference(before, hits[category, name])) for name in others),
        )
        for (category, name), before in hits.items()
        if name == first
    ]
    title = f"right: difference from {_label(first)} [95 %], paired by question"
    return TextTable(title, ("category", *map(_label, others)), tuple(rows))


def _groups(
    answers: Mapping[Question, GradedAnswer],
) -> dict[tuple[str, str], list[tuple[Question, GradedAnswer]]]:
    """Return the answers by category and configuration."""
    groups: dict[tuple[str, str], list[tuple[Question, GradedAnswer]]] = {}
    for question, answer in answers.items():
        key = question.entry.category, question.configuration.name
        groups.setdefault(key, []).append((question, answer))
    return dict(sorted(groups.items(), key=lambda item: CATEGORIES.index(item[0][0])))


def _label(configuration: str) -> str:
    return "free text" if configuration == "none" else configuration


def _with_interval(rate: Estimate) -> str:
    interval = "" if rate.low is None else f" [{rate.low:.0%}–{rate.high:.0%}]"
    return "–" if rate.value is None else f"{rate.value:.0%}{interval}"


def compare(first: Grades, second: Grades) -> tuple[TextTable, ...]:
    """Return the differences by category, over the configurations and questions that both have."""
    tables = []
    for name, old in first.correct.items():
        new = second.correct.get(name, {})
        common = [key for key in old if key in new]
        rows = []
        for category in [*dict.fromkeys(category for category, _ in common), None]:
            keys = [key for key in common if category in {None, key[0]}]
            before, after = [old[key] for key in keys], [new[key] for key in keys]
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
