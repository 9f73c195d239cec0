"""Progress and results of a bench on a terminal."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import TimeRemainingColumn
from rich.text import Text

from gbnf_bench.configurations import Configuration
from gbnf_bench.results import Results
from gbnf_bench.run_log import RunLog
from gbnf_bench.runner import RunOptions, Runs
from gbnf_bench.tables import (
    TextTable,
    case_table,
    complexity_table,
    cost_table,
    gain_table,
    quality_table,
)
from gbnf_server.cli.model_options import ModelSource
from gbnf_server.cli.output import plural, progress_bar, stdout_console, write

ROWS_SHOWN = 40
"""Maximum cases listed on the terminal; the report lists all."""
PIPED_WIDTH = 160


@dataclass(frozen=True, slots=True)
class BenchTask:
    """What a bench of either kind runs, on which model, and where the files go."""

    source: ModelSource
    configurations: tuple[Configuration, ...]
    options: RunOptions
    console: Console
    label: str | None = None
    out: Path = Path("gbnf-bench")
    fresh: bool = False
    quiet: bool = False

    def label_for(self, facts: Mapping[str, Any], suffix: str = "") -> str:
        """Return the name of the result files: the given label, or the names of the model and its adapter."""
        names = [facts["name"], *([Path(facts["lora"]).stem] if "lora" in facts else [])]
        named = re.sub(r"[^A-Za-z0-9._-]+", "-", "+".join(names)).strip("-.")
        return self.label or (named or "model") + suffix

    def log(self, label: str) -> RunLog:
        """Open the log of the runs."""
        return RunLog(self.out / f"{label}.jsonl", fresh=self.fresh)

    def show_files(self, label: str, endings: str) -> None:
        """Say where the results are."""
        self.console.print(f"results: {self.out / label}.{endings}", style="dim", soft_wrap=True)


def run_jobs(runs: Runs[Any], log: RunLog, console: Console, *, quiet: bool, lists_runs: bool = True) -> None:
    """Do the runs that the log doesn't have, and show progress: a bar, and a line for each run."""
    remaining = runs.remaining(log)
    done = len(runs.jobs) - len(remaining)
    if done and not quiet:
        console.print(f"{plural(done, 'run')} of {len(runs.jobs)} are already done", style="dim")
    if not remaining:
        return
    with progress_bar(console, TimeRemainingColumn(), quiet=quiet) as progress:
        task = progress.add_task("", total=len(runs.jobs), completed=done)
        for job, record in runs.run_all(log):
            progress.update(task, advance=1, description=job.title)
            if lists_runs and not quiet:
                run = record.events[-1]["run"]
                line = Text(f"{job.title:44} ")
                line.append(f"{run['outcome']:9}", "" if run["outcome"] == "answered" else "yellow")
                line.append(f" {len(run['steps'])} steps  {run['duration_s']:.1f} s", "dim")
                progress.console.print(line, soft_wrap=True)


def show(results: Results, *, markdown: bool) -> None:
    """Print the tables of a bench."""
    first = quality_table(results)
    if markdown:
        write(f"{first.title}\n\n{first.markdown()}")
        return
    tables = [first, cost_table(results)]
    if len(first.rows) > 1:
        tables.append(gain_table(results))
    tables.append(complexity_table(results))
    cases = case_table(results)
    if len(cases.rows) <= ROWS_SHOWN:
        tables.append(cases)
    show_tables(tables)
    if len(cases.rows) > ROWS_SHOWN:
        write(f"the report lists the {len(cases.rows)} cases")


def show_tables(tables: Sequence[TextTable]) -> None:
    """Print tables, of fixed width if piped."""
    console = stdout_console(PIPED_WIDTH)
    for table in tables:
        console.print(table.rich())
