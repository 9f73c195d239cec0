"""Progress and results of a bench on a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import TimeRemainingColumn
from rich.text import Text

from gbnf_bench.tables import (
    TextTable,
    case_table,
    complexity_table,
    cost_table,
    gain_table,
    quality_table,
)
from gbnf_server.cli.output import escape_line, plural, progress_bar, shorten, stdout_console, write

if TYPE_CHECKING:
    from gbnf_bench.results import Results
    from gbnf_bench.run_log import RunLog
    from gbnf_bench.runner import Bench, RunJob

ROWS_SHOWN = 40
"""Maximum cases listed on the terminal; the report lists all."""
PIPED_WIDTH = 160


def run_jobs(bench: Bench, log: RunLog, console: Console, *, quiet: bool) -> None:
    """Do the runs that the log doesn't have, and show progress."""
    remaining = bench.remaining(log)
    done = len(bench.jobs) - len(remaining)
    if done and not quiet:
        console.print(f"{plural(done, 'run')} of {len(bench.jobs)} are already done", style="dim")
    if not remaining:
        return
    with progress_bar(console, TimeRemainingColumn(), quiet=quiet) as progress:
        task = progress.add_task("", total=len(bench.jobs), completed=done)
        for job, record in bench.run_all(log):
            run = record.events[-1]["run"]
            progress.update(task, advance=1, description=_job(job))
            if not quiet:
                line = Text(f"{_job(job):44} ")
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


def _job(job: RunJob) -> str:
    case = escape_line(shorten(job.case.id, 28))
    return f"{job.configuration.name} {case}" + (f" #{job.run + 1}" if job.run else "")
