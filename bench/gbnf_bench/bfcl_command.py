"""`gbnf bench --bfcl`: the function-calling leaderboard's files, with a model or without one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.text import Text

from gbnf_bench.bench_output import BenchTask, run_jobs, show_tables
from gbnf_bench.bfcl.files import Leaderboard, read_folder
from gbnf_bench.bfcl.grammar_checks import COLUMNS, CompileReport, compile_all
from gbnf_bench.bfcl.peer import Peer
from gbnf_bench.bfcl.results import gain_table, table, write_answers
from gbnf_bench.bfcl.runner import LeaderboardRun, answer_of
from gbnf_bench.results import about
from gbnf_bench.tables import TextTable
from gbnf_server.cli.default_model import model_for_other_tools
from gbnf_server.cli.model_options import ModelSource
from gbnf_server.cli.output import escape_line, progress_bar, write
from gbnf_server.llama.demo_model import model_path
from gbnf_server.llama.grammar_checker import GrammarChecker
from gbnf_server.planner.runs.fingerprints import identity

FAULTS_SHOWN = 20
LLAMA_SERVER = "llama-server"
"""The name of a peer that is started for the bench."""


def read(folder: Path, categories: Sequence[str], limit: int | None, console: Console) -> Leaderboard:
    """Read the leaderboard's files, and say which are not run."""
    leaderboard = read_folder(folder, categories=categories, limit=limit)
    if leaderboard.left_out:
        console.print(f"not run: {', '.join(leaderboard.left_out)}", style="dim")
    return leaderboard


def check_grammars(leaderboard: Leaderboard, console: Console) -> bool:
    """Check every grammar without a model, and print a table. Return whether all are correct."""
    engine = GrammarChecker.load(model_path())
    results: list[CompileReport] = []
    with progress_bar(console) as progress:
        task = progress.add_task("", total=len(leaderboard.questions))
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


@contextmanager
def open_peer(name: str | None, source: ModelSource, console: Console) -> Iterator[Peer | None]:
    """Return the peer with this URL, or a llama-server with the same model, which is ended afterwards."""
    if name != LLAMA_SERVER:
        yield None if name is None else Peer(name)
        return
    from gbnf_server.llama.server_build import start  # noqa: PLC0415  # only a peer needs it

    console.print("starting llama-server", style="dim")
    adapter = source.adapter()
    extra = ("--jinja", *(() if adapter is None else ("--lora", str(adapter))))
    with start(source.path(), threads=source.threads, extra=extra) as running:
        yield Peer(running.url, running.api_key)


def run_leaderboard(
    task: BenchTask, leaderboard: Leaderboard, *, markdown: bool, peer_name: str | None = None
) -> None:
    """Run the leaderboard's questions, and print and write their results."""
    source = model_for_other_tools(task.source)
    with open_peer(peer_name, source, task.console) as peer, source.open() as backend:
        facts = source.facts(backend)
        label = task.label_for(facts, "-bfcl")
        runs = LeaderboardRun(
            leaderboard, task.configurations, backend, model=identity(facts), options=task.options, peer=peer
        )
        with task.log(label) as log:
            run_jobs(runs, log, task.console, quiet=task.quiet, lists_runs=False)
            answers = {job: answer_of(job.entry, log.records[job.key, job.fingerprint]) for job in runs.jobs}
            made_at = log.latest
    write_answers(about(label, facts, task.options, made_at), answers, task.out / f"{label}.json")
    cells = table(answers)
    if markdown:
        write(cells.markdown())
    else:
        show_tables([cells, *([gain_table(answers)] if len(task.configurations) > 1 else [])])
    task.show_files(label, "json")
