"""`gbnf bench --bfcl`: the function-calling leaderboard's files, with a model or without one."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from rich.console import Console
from rich.text import Text

from gbnf_bench.bench_output import show_tables
from gbnf_bench.bfcl.files import Leaderboard, read_folder
from gbnf_bench.bfcl.grammar_checks import COLUMNS, CompileReport, compile_all
from gbnf_bench.tables import TextTable
from gbnf_server.cli.output import escape_line, plural, progress_bar

if TYPE_CHECKING:
    from gbnf_bench.bfcl.runner import GradedAnswer, LeaderboardRun, Question
    from gbnf_bench.run_log import RunLog

FAULTS_SHOWN = 20


def read(folder: Path, categories: Sequence[str], limit: int | None, console: Console) -> Leaderboard:
    """Read the leaderboard's files, and say which are not run."""
    leaderboard = read_folder(folder, categories=categories, limit=limit)
    if leaderboard.left_out:
        console.print(f"not run: {', '.join(leaderboard.left_out)}", style="dim")
    return leaderboard


def compile_only(leaderboard: Leaderboard, console: Console) -> bool:
    """Check every grammar without a model, and print a table. Return whether all are correct."""
    from gbnf_server.llama.demo_model import model_path  # noqa: PLC0415 - only its vocabulary is loaded, and only here
    from gbnf_server.llama.grammar_checker import GrammarChecker  # noqa: PLC0415

    engine = GrammarChecker.load(model_path())
    results: list[CompileReport] = []
    with progress_bar(console) as progress:
        task = progress.add_task("", total=sum(map(len, leaderboard.entries.values())))
        for category, entries in leaderboard.entries.items():
            progress.update(task, description=category)
            results.append(compile_all(entries, engine))
            progress.update(task, advance=len(entries))
    rows = []
    for result in results:
        p50, p95 = (np.percentile(result.seconds or [0.0], (50, 95)) * 1000).tolist()
        counts = tuple(str(result.counts[key]) for key, _ in COLUMNS)
        rows.append((result.category, *counts, f"{p50:.1f}", f"{p95:.1f}"))
    heads = ("category", *(title for _, title in COLUMNS), "compile p50, ms", "p95, ms")
    show_tables([TextTable("grammars against the leaderboard's answers", heads, tuple(rows))])
    faults = [fault for result in results for fault in result.faults]
    for entry, why in faults[:FAULTS_SHOWN]:
        console.print(Text(escape_line(f"{entry}: {why}")), soft_wrap=True)
    if len(faults) > FAULTS_SHOWN:
        console.print(f"and {len(faults) - FAULTS_SHOWN} more")
    return not faults


def ask_all(
    leaderboard_run: LeaderboardRun, log: RunLog, console: Console, *, quiet: bool
) -> dict[Question, GradedAnswer]:
    """Ask the questions that the log has no answer to, and return all answers."""
    from gbnf_bench.bfcl.runner import answer_of  # noqa: PLC0415 - without a model it is not needed

    remaining = leaderboard_run.remaining(log)
    done = len(leaderboard_run.questions) - len(remaining)
    if done and not quiet:
        console.print(
            f"{plural(done, 'question')} of {len(leaderboard_run.questions)} are already answered",
            style="dim",
        )
    with progress_bar(console, quiet=quiet) as progress:
        task = progress.add_task("", total=len(leaderboard_run.questions), completed=done)
        for question, _ in leaderboard_run.ask_all(log):
            progress.update(
                task, advance=1, description=f"{question.configuration.name} {question.entry.category}"
            )
    return {
        each: answer_of(each.entry, log.records[each.key, each.fingerprint])
        for each in leaderboard_run.questions
    }
