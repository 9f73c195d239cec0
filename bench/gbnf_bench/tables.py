"""The metrics of a bench as tables: for a terminal, and as Markdown."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from rich import box
from rich.table import Table
from rich.text import Text

from gbnf_bench.cases import COMPLEXITIES
from gbnf_bench.metrics import BY_KEY, METRICS, Metric, format_value
from gbnf_bench.results import Results, ScoredRun, by_case
from gbnf_bench.scoring import RunScore
from gbnf_bench.statistics import Estimate, difference, estimate, paired

_ABSTENTION = ("abstention_precision", "abstention_recall")
QUALITY = (
    "converged",
    "first_tool",
    "arguments",
    "wrong_but_valid",
    "destroyed",
    *_ABSTENTION,
    "blocked",
    "repaired",
    "steps",
)
"""The columns of the first table: quality. Columns without values are omitted."""
COST = (
    "calls_made",
    "prompt_tokens",
    "completion_tokens",
    "run_p50",
    "run_p95",
    "model_p50",
    "model_p95",
    "compile_p50",
    "grammar_p50",
)
"""The columns of the second table: cost."""
WITH_INTERVAL = frozenset({"converged"})


@dataclass(frozen=True, slots=True)
class TextTable:
    """A table in no particular format: a title, column heads, rows of texts, descriptions of the columns."""

    title: str
    heads: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    descriptions: tuple[str, ...] = ()

    def markdown(self) -> str:
        """Return the table in Markdown."""
        lines = [self.heads, tuple("---" for _ in self.heads), *self.rows]
        return "\n".join(
            "| " + " | ".join(cell.replace("|", "\\|") for cell in line) + " |" for line in lines
        )

    def rich(self) -> Table:
        """Return the table for a terminal."""
        table = Table(
            box=box.SIMPLE_HEAD, title=self.title, title_justify="left", title_style="bold", pad_edge=False
        )
        for index, head in enumerate(self.heads):
            table.add_column(head, justify="right" if index else "left", no_wrap=not index)
        for row in self.rows:
            table.add_row(*(Text(cell, style=_STYLES.get(cell, "")) for cell in row))
        return table


_STYLES = {"✓": "green", "✗": "red"}


def quality_table(results: Results) -> TextTable:
    """Return the quality of the runs: one row for each configuration."""
    return metric_table(results, title(results), informative_metrics(results, QUALITY))


def cost_table(results: Results) -> TextTable:
    """Return the cost of the runs: one row for each configuration."""
    return metric_table(results, "what it took", informative_metrics(results, COST))


def metric_table(
    results: Results, name: str, metrics: Sequence[Metric], first_head: str = "configuration"
) -> TextTable:
    """Return a table with a line for each configuration, and a column for each metric."""
    rows = []
    for configuration, runs in by_configuration(results).items():
        groups = list(by_case(runs).values())
        rows.append((configuration, *(cell(metric, estimate(metric, groups)) for metric in metrics)))
    heads = (first_head, *map(heading, metrics))
    return TextTable(name, heads, tuple(rows), tuple(column.about for column in metrics))


STRATEGY_METRICS = (
    "converged",
    "valid",
    "first_tool",
    "arguments",
    "wrong_but_valid",
    "abstention_recall",
    "steps",
    "model_p50",
    "run_p50",
)
_PREFERRED = (
    "native", "grammar", "unaided", "values", "arguments", "whitespace", "field", "free",
    "server", "text", "lines", "none",
)  # fmt: skip
"""Order of preference among equals: a grammar guarantees valid calls, and reasoning costs time."""


def strategy_table(results: Results) -> TextTable:
    """Return a table with a row for each strategy."""
    return metric_table(results, title(results), [BY_KEY[key] for key in STRATEGY_METRICS], "strategy")


def best_strategy(results: Results) -> str:
    """Return the strategy with most converged runs; of equals, with most valid texts, then correct calls.

    If all of these are equal, the first of `_PREFERRED`.
    """
    strategies = by_configuration(results)
    return max(
        strategies, key=lambda strategy: (_standing(strategies[strategy]), -_PREFERRED.index(strategy))
    )


def _standing(runs: Sequence[ScoredRun]) -> tuple[float, ...]:
    groups = list(by_case(runs).values())

    def value(key: str) -> float:
        return estimate(BY_KEY[key], groups).value or 0.0

    return (value("converged"), value("valid"), value("calls"), -value("wrong_but_valid"))


def complexity_table(results: Results) -> TextTable:
    """Return the share of converged runs, by complexity."""
    there = [level for level in COMPLEXITIES if any(run.case.complexity == level for run in results.scored)]
    rows = []
    for name, runs in by_configuration(results).items():
        cells = []
        for complexity in there:
            part = [run for run in runs if run.case.complexity == complexity]
            cells.append(f"{sum(run.score.converged for run in part)}/{len(part)}")
        rows.append((name, *cells))
    return TextTable("converged, by complexity", ("configuration", *there), tuple(rows))


def case_table(results: Results) -> TextTable:
    """Return which cases converged: a row for each case, a column for each configuration."""
    names = list(by_configuration(results))
    cells: dict[str, dict[str, list[ScoredRun]]] = {}
    for run in results.scored:
        cells.setdefault(run.identity, {}).setdefault(run.record.configuration, []).append(run)
    several = len({run.suite for run in results.scored}) > 1
    rows = []
    for identity, columns in cells.items():
        case = next(iter(columns.values()))[0].case
        rows.append(
            (
                identity if several else case.id,
                case.complexity,
                *(_mark(columns.get(name, [])) for name in names),
            )
        )
    return TextTable("converged, by case", ("case", "complexity", *names), tuple(rows))


def below_share(results: Results, least: float) -> str:
    """Return the configurations of which a smaller share of runs converged, and how many did; "" for none."""
    rare = []
    for name, runs in by_configuration(results).items():
        converged = sum(run.score.converged for run in runs)
        if converged / len(runs) < least:
            rare.append(f"{name} {converged} of {len(runs)}")
    return ", ".join(rare)


def gain_table(results: Results) -> TextTable:
    """Return the difference of each configuration from the first, paired by case."""
    groups = _cases_by_configuration(results)
    first, *others = groups
    metrics = [BY_KEY[key] for key in ("converged", "first_tool", "arguments", "blocked", "run_p50")]
    rows = [
        (
            name,
            *(gain(metric, difference(metric, *paired(groups[first], groups[name]))) for metric in metrics),
        )
        for name in others
    ]
    heads = ("configuration", *(heading(metric) for metric in metrics))
    return TextTable(f"difference from {first}, paired by case", heads, tuple(rows))


def compare_tables(first: Results, second: Results) -> tuple[TextTable, ...]:
    """Return the differences between two benches, over the cases and configurations that both have.

    Cases with the same id that differ are omitted, and their number is in the table's title.
    """
    differing = different_cases(first, second)
    groups = [_cases_by_configuration(results) for results in (first, second)]
    labels = distinct_labels(str(first.about["label"]), str(second.about["label"]))
    tables = []
    for name in groups[0]:
        if name not in groups[1]:
            continue
        there = groups[0][name].keys() & groups[1][name].keys()
        left_out = len(there & differing)
        one, other = paired(
            *({key: runs for key, runs in group[name].items() if key not in differing} for group in groups)
        )
        rows = []
        for metric in METRICS:
            before, after = estimate(metric, one), estimate(metric, other)
            if before.value is None and after.value is None:
                continue
            change = difference(metric, one, other)
            rows.append(
                (
                    heading(metric),
                    format_value(metric, before.value),
                    format_value(metric, after.value),
                    gain(metric, change),
                    verdict(metric, change),
                )
            )
        if one:
            heads = (name, *labels, "difference [95 %]", "")
            title = f"{name}, {len(one)} cases that both have"
            if left_out:
                title += f"; {left_out} of the same id differ, and are left out"
            tables.append(TextTable(title, heads, tuple(rows)))
    if tables and (unpaired := _unpaired(first, second, labels)) is not None:
        tables.append(unpaired)
    return tuple(tables)


def distinct_labels(first: str, second: str) -> tuple[str, str]:
    """Return column heads for two benches, which differ even if the labels are equal."""
    return (first, second) if first != second else (f"{first} (1)", f"{second} (2)")


def _unpaired(first: Results, second: Results, labels: tuple[str, str]) -> TextTable | None:
    """Return the configurations and cases that only one has; None if there are none."""
    configurations = [list(by_configuration(results)) for results in (first, second)]
    cases = [{run.identity for run in results.scored} for results in (first, second)]
    rows = []
    only = [
        ", ".join(name for name in mine if name not in others)
        for mine, others in (configurations, configurations[::-1])
    ]
    if any(only):
        rows.append(("configurations", *(names or "–" for names in only)))
    counts = [len(cases[0] - cases[1]), len(cases[1] - cases[0])]
    if any(counts):
        rows.append(("cases", *map(str, counts)))
    return TextTable("left out: only one has them", ("", *labels), tuple(rows)) if rows else None


def different_cases(first: Results, second: Results) -> frozenset[str]:
    """Return the ids of cases that differ between the benches, in query, states or expectations."""
    sources = [
        {
            f"{suite.name}/{case.id}": json.dumps(case.source, sort_keys=True)
            for suite in results.suites
            for case in suite.cases
        }
        for results in (first, second)
    ]
    return frozenset(
        key for key, source in sources[0].items() if key in sources[1] and sources[1][key] != source
    )


def informative_metrics(results: Results, keys: Sequence[str]) -> list[Metric]:
    """Return the columns that have values for the runs."""
    absent = set()
    if not any(run.case.abstain for run in results.scored):
        absent |= {*_ABSTENTION}
    if not any(run.score.repaired for run in results.scored):
        absent.add("repaired")
    if not any(run.score.grammar_s for run in results.scored):
        absent.add("grammar_p50")
    return [BY_KEY[key] for key in keys if key not in absent]


def by_configuration(results: Results) -> Mapping[str, list[ScoredRun]]:
    """Return the runs of each configuration with runs, in the table's order."""
    groups = {
        item.name: [run for run in results.scored if run.record.configuration == item.name]
        for item in results.configurations
    }
    return {name: runs for name, runs in groups.items() if runs}


def _cases_by_configuration(results: Results) -> dict[str, dict[str, list[RunScore]]]:
    return {name: by_case(runs) for name, runs in by_configuration(results).items()}


def title(results: Results) -> str:
    """Return a line with the suites and the model."""
    suites = ", ".join(f"{suite.name} ({len(suite.cases)} cases)" for suite in results.suites)
    return f"{results.about['model']['name']} on {suites}"


def heading(metric: Metric) -> str:
    """Return a column head, with the unit if the title does not contain it."""
    return f"{metric.title}, {metric.unit}" if metric.unit in {"s", "ms"} else metric.title


def cell(metric: Metric, value: Estimate) -> str:
    """Return an estimate as text, with its interval if the table shows it."""
    text = format_value(metric, value.value)
    if metric.key in WITH_INTERVAL and value.low is not None and value.high is not None:
        text += f" [{format_value(metric, value.low)}–{format_value(metric, value.high)}]"
    return text


def gain(metric: Metric, change: Estimate) -> str:
    """Return a difference with its sign and interval."""
    if change.value is None:
        return "–"
    text = _signed(metric, change.value)
    if change.low is not None and change.high is not None:
        text += f" [{_signed(metric, change.low)}, {_signed(metric, change.high)}]"
    return text


def _signed(metric: Metric, value: float) -> str:
    text = format_value(metric, abs(value))
    if metric.unit == "share":
        text = text.removesuffix("%")
    zero = not any(character in "123456789" for character in text)
    return text if zero else ("+" if value > 0 else "−") + text


def verdict(metric: Metric, change: Estimate) -> str:
    """Return whether the interval excludes zero, and on which side."""
    if change.low is None or change.high is None or change.low <= 0 <= change.high:
        return ""
    if not metric.better:
        return "changed"
    return "better" if (change.low > 0) == (metric.better == "more") else "worse"


def _mark(runs: Sequence[ScoredRun]) -> str:
    good = sum(run.score.converged for run in runs)
    if not runs:
        return "–"
    if len(runs) == 1:
        return "✓" if good else "✗"
    return f"{good}/{len(runs)}"
